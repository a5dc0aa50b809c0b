//! Reads the text of a `config.json`.

use serde::Deserialize;

use super::config_check;
use crate::model::{
    config::{ModelConfigError, RegionConfig, TextConfig, TokenizerConfig, VisionConfig},
    family::{ModelConfig, ModelFamily},
};

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
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

pub fn parse(
    json: &str,
    origin: &str,
    family: &'static dyn ModelFamily,
) -> Result<ModelConfig, ModelConfigError> {
    let config = read(json, family).map_err(|error| ModelConfigError::json(origin, &error))?;
    let problems = config_check::problems(&config);
    if problems.is_empty() {
        Ok(config)
    } else {
        Err(ModelConfigError(format!(
            "{origin}: {}",
            problems.join("; ")
        )))
    }
}

fn read(json: &str, family: &'static dyn ModelFamily) -> serde_json::Result<ModelConfig> {
    let value: serde_json::Value = serde_json::from_str(json)?;
    let is_nested = value
        .get("config")
        .is_some_and(serde_json::Value::is_object);
    let sections = match is_nested {
        true => serde_json::from_str::<PublishedConfig>(json)?.config,
        false => serde_json::from_str(json)?,
    };
    Ok(ModelConfig {
        family,
        text: sections.text,
        vision: sections.vision,
        region: sections.region,
        tokenizer: sections.tokenizer,
    })
}

#[cfg(test)]
mod tests;
