//! All families, and which of them a `config.json` names.

use serde::Deserialize;

use super::{
    config::ModelConfigError,
    family::{ModelConfig, ModelFamily},
    moondream::Moondream2,
};

/// All families. A configuration that names none is of the first.
pub static FAMILIES: &[&dyn ModelFamily] = &[&Moondream2];

/// Reads and checks the text of a `config.json`, plain or nested under `config`, as its family does. `origin` names the file in
/// messages. All wrong keys are named together.
pub fn parse_config(json: &str, origin: &str) -> Result<ModelConfig, ModelConfigError> {
    family_of(json, origin)?.parse_config(json, origin)
}

/// How a `config.json` names its family. Our own files name none.
#[derive(Deserialize)]
struct FamilyNames {
    model_type: Option<String>,
    #[serde(default)]
    architectures: Vec<String>,
}

/// The family of the text of a `config.json`. `origin` names the file in messages.
fn family_of(json: &str, origin: &str) -> Result<&'static dyn ModelFamily, ModelConfigError> {
    let names: FamilyNames =
        serde_json::from_str(json).map_err(|error| ModelConfigError::json(origin, &error))?;
    let names: Vec<String> = names
        .model_type
        .into_iter()
        .chain(names.architectures)
        .collect();
    if names.is_empty() {
        return Ok(FAMILIES[0]);
    }
    let is_this = |family: &&&dyn ModelFamily| names.iter().any(|name| family.is_named(name));
    FAMILIES.iter().find(is_this).copied().ok_or_else(|| {
        let supported: Vec<&str> = FAMILIES.iter().map(|family| family.name()).collect();
        ModelConfigError(format!(
            "{origin}: the model family {} is not supported; supported families: {}",
            names.join(", "),
            supported.join(", ")
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_without_names_is_of_the_first_family() {
        for json in [
            "{}",
            r#"{"config": {}}"#,
            r#"{"model_type": "moondream1", "config": {}}"#,
            r#"{"architectures": ["HfMoondream"], "config": {}}"#,
        ] {
            let config = parse_config(json, "m/config.json").unwrap();
            assert_eq!(config, ModelConfig::default(), "{json}");
            assert_eq!(config.family.name(), "Moondream 2");
        }
    }

    #[test]
    fn unknown_family_error_lists_the_families() {
        let json = r#"{"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}"#;
        let error = parse_config(json, "m/config.json").unwrap_err();
        assert_eq!(
            error.to_string(),
            "m/config.json: the model family llava, LlavaForConditionalGeneration is not supported; \
             supported families: Moondream 2"
        );
    }
}
