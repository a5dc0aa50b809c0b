//! All families, and which of them a model is of.

use serde_json::Value;

use super::{
    config::ModelConfigError,
    family::{ConfigFile, ModelConfig, ModelFamily},
    moondream::{Moondream2, Moondream3},
};

/// All families. A model that shows none is of the first.
pub static FAMILIES: &[&dyn ModelFamily] = &[&Moondream2, &Moondream3];

/// What shows the family of a model.
#[derive(Clone, Copy, Debug)]
pub struct FamilyClues<'a> {
    /// The model's name in `model.toml`.
    pub recorded: Option<&'a str>,
    pub config: ConfigFile<'a>,
}

/// Reads and checks the text of a `config.json`, plain or nested under `config`, as its family does. `origin` names the file in
/// messages. All wrong keys are named together.
pub fn parse_config(json: &str, origin: &str) -> Result<ModelConfig, ModelConfigError> {
    let clues = FamilyClues {
        recorded: None,
        config: ConfigFile {
            json,
            origin,
            tensors: &[],
        },
    };
    clues.parse()
}

/// The configuration of the released model that `spotter model get` knows by this name.
pub fn released_config(model: &str) -> Option<ModelConfig> {
    named(model).map(ModelFamily::released)
}

impl FamilyClues<'_> {
    /// The configuration, as the family reads it.
    pub fn parse(&self) -> Result<ModelConfig, ModelConfigError> {
        self.family()?.parse_config(self.config)
    }

    /// The record decides, then what one family alone has, then the names in the configuration.
    fn family(&self) -> Result<&'static dyn ModelFamily, ModelConfigError> {
        let ConfigFile {
            json,
            origin,
            tensors,
        } = self.config;
        let config: Value =
            serde_json::from_str(json).map_err(|error| ModelConfigError::json(origin, &error))?;
        let sections = config.get("config").unwrap_or(&config);
        if let Some(family) = self.recorded.and_then(named) {
            return Ok(family);
        }
        let mut families = FAMILIES.iter();
        if let Some(family) = families.find(|family| family.is_shown(sections, tensors)) {
            return Ok(*family);
        }
        let names = names(&config);
        if names.is_empty() {
            return Ok(FAMILIES[0]);
        }
        names.iter().find_map(|name| named(name)).ok_or_else(|| {
            let supported: Vec<&str> = FAMILIES.iter().map(|family| family.name()).collect();
            ModelConfigError(format!(
                "{origin}: the model family {} is not supported; supported families: {}",
                names.join(", "),
                supported.join(", ")
            ))
        })
    }
}

/// The family with this name, or the one that calls itself so in a file.
pub(super) fn named(name: &str) -> Option<&'static dyn ModelFamily> {
    let mut families = FAMILIES.iter().copied();
    families.find(|family| family.name() == name || family.is_named(name))
}

/// How a `config.json` names its family. Our own files name none.
fn names(config: &Value) -> Vec<&str> {
    let architectures = config.get("architectures").and_then(Value::as_array);
    let all = config.get("model_type").into_iter();
    let all = all.chain(architectures.into_iter().flatten());
    all.filter_map(Value::as_str).collect()
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
    fn moondream_3_is_known_by_any_sign_of_it() {
        let tau = ["text_model.transformer.h.0.tau_alpha".to_owned()];
        let nested = r#"{"model_type": "moondream1", "config": {"text": {"tau_attn": true}}}"#;
        for (recorded, json, tensors) in [
            (Some("moondream3-preview"), "{}", &[][..]),
            (Some("Moondream 3"), "{}", &[]),
            (None, r#"{"model_type": "moondream3", "config": {}}"#, &[]),
            (None, r#"{"region": {"decoder_arch": "linear"}}"#, &[]),
            (None, r#"{"region": {"use_ln": true}}"#, &[]),
            (None, nested, &[]),
            (None, r#"{"architectures": ["HfMoondream"]}"#, &tau),
        ] {
            let config = ConfigFile {
                json,
                origin: "m/config.json",
                tensors,
            };
            let config = FamilyClues { recorded, config }.parse().unwrap();
            assert_eq!(config.family.name(), "Moondream 3", "{json}");
            assert_eq!(config.text.moe.unwrap().num_experts, 64);
            // The tensors that are named have no layer norm.
            assert_eq!(config.region.use_ln, tensors.is_empty());
        }
    }

    #[test]
    fn unknown_family_error_lists_the_families() {
        let json = r#"{"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}"#;
        let error = parse_config(json, "m/config.json").unwrap_err();
        assert_eq!(
            error.to_string(),
            "m/config.json: the model family llava, LlavaForConditionalGeneration is not supported; \
             supported families: Moondream 2, Moondream 3"
        );
    }
}
