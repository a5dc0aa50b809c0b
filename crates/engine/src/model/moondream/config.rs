//! Reads the text of a `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::config_check;
use crate::model::{
    config::{
        ModelConfigError, RegionConfig, Templates, TextConfig, TokenizerConfig, VisionConfig,
    },
    family::{ConfigFile, ModelConfig},
};

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Sections {
    text: TextConfig,
    vision: VisionConfig,
    region: RegionConfig,
    tokenizer: TokenizerConfig,
}

/// A file as published on Hugging Face: our sections are nested, and empty means the released model.
#[derive(Deserialize)]
struct PublishedConfig {
    config: Sections,
}

/// Over the values of the released model of a family.
pub fn parse(
    file: ConfigFile<'_>,
    released: &ModelConfig,
) -> Result<ModelConfig, ModelConfigError> {
    let config = read(file.json, released);
    let config = config.map_err(|error| ModelConfigError::json(file.origin, &error))?;
    let problems = config_check::problems(&config);
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(ModelConfigError(format!(
            "{}: {}",
            file.origin,
            problems.join("; ")
        )))
    }
}

fn read(json: &str, released: &ModelConfig) -> serde_json::Result<ModelConfig> {
    let mut value: Value = serde_json::from_str(json)?;
    let nested = value.get_mut("config").filter(|config| config.is_object());
    let is_nested = nested.is_some();
    let of_file = nested.map_or(Value::Null, Value::take);
    let of_file = if is_nested { of_file } else { value };
    // Values of the wrong kind are found here, because only here they have a line.
    let _: Sections = match is_nested {
        true => serde_json::from_str::<PublishedConfig>(json)?.config,
        false => serde_json::from_str(json)?,
    };
    let mut all = serde_json::to_value(Sections {
        text: released.text.clone(),
        vision: released.vision.clone(),
        region: released.region.clone(),
        tokenizer: released.tokenizer.clone(),
    })?;
    // A file that has templates has all of the model's.
    if of_file.pointer("/tokenizer/templates").is_some() {
        all["tokenizer"]["templates"] = serde_json::to_value(Templates::none())?;
    }
    overwrite(&mut all, of_file);
    let sections: Sections = serde_json::from_value(all)?;
    Ok(ModelConfig {
        family: released.family,
        text: sections.text,
        vision: sections.vision,
        region: sections.region,
        tokenizer: sections.tokenizer,
    })
}

/// Replaces the values that `by` has.
fn overwrite(value: &mut Value, by: Value) {
    match (value, by) {
        (Value::Object(value), Value::Object(by)) => {
            for (key, by) in by {
                overwrite(value.entry(key).or_insert(Value::Null), by);
            }
        }
        (value, by) => *value = by,
    }
}

#[cfg(test)]
mod tests;
