//! The seam between Spotter and a model family: what only the family's module knows.
//!
//! A new family is a module beside `moondream2` and one line in [`FAMILIES`] (docs/adding-a-model.md).

use std::fmt;

use serde::Deserialize;
use spotter_core::Task;

use super::{
    grammar::{AnswerGrammar, Skill},
    moondream2::{ModelConfig, ModelConfigError, Moondream2},
    prompt::{DecoderInput, ModelPrompt, PromptError},
    spec::NetworkSpec,
    tokenizer::Tokenizer,
};

/// All families. A configuration that names none is of the first.
pub static FAMILIES: &[&dyn ModelFamily] = &[&Moondream2];

/// A model family: its files, prompts and answers. Its methods run once for a model or a prompt, never for a token.
pub trait ModelFamily: fmt::Debug + Sync {
    fn name(&self) -> &'static str;

    /// True when `model_type` or `architectures` of a `config.json` name this family so.
    fn is_named(&self, name: &str) -> bool;

    /// Reads and checks the text of a `config.json`. `origin` names the file in messages.
    fn parse_config(&self, json: &str, origin: &str) -> Result<ModelConfig, ModelConfigError>;

    /// Its layers, with the names and shapes of their tensors.
    fn network(&self, config: &ModelConfig) -> NetworkSpec;

    /// The token that ends a text, as `tokenizer.json` spells it.
    fn end_of_text(&self) -> &'static str;

    /// The files of a model directory, in the order of configuration, weights, tokenizer.
    fn files(&self) -> [ModelFile; 3];

    /// What asks the model for `task`, and what it may answer.
    fn prompt(
        &self,
        task: &Task,
        config: &ModelConfig,
        tokenizer: &Tokenizer,
    ) -> Result<ModelPrompt, PromptError>;

    /// What asks the model for the object whose name has these ids.
    fn object_prompt(&self, words: &[u32], config: &ModelConfig) -> Vec<DecoderInput>;

    /// What an answer of this kind is made of.
    fn grammar(&self, skill: Skill, config: &ModelConfig) -> AnswerGrammar;
}

/// A file of a model directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFile {
    pub name: &'static str,
    /// How the user gets it.
    pub remedy: &'static str,
}

impl PartialEq for dyn ModelFamily {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Default for &'static dyn ModelFamily {
    fn default() -> Self {
        FAMILIES[0]
    }
}

/// How a `config.json` names its family. Our own files name none.
#[derive(Deserialize)]
struct FamilyNames {
    model_type: Option<String>,
    #[serde(default)]
    architectures: Vec<String>,
}

/// The family of the text of a `config.json`. `origin` names the file in messages.
pub(super) fn family_of(
    json: &str,
    origin: &str,
) -> Result<&'static dyn ModelFamily, ModelConfigError> {
    let names: FamilyNames =
        serde_json::from_str(json).map_err(|error| ModelConfigError::json(origin, &error))?;
    let names: Vec<String> = names
        .model_type
        .into_iter()
        .chain(names.architectures)
        .collect();
    if names.is_empty() {
        return Ok(Default::default());
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
            let config = ModelConfig::from_json(json, "m/config.json").unwrap();
            assert_eq!(config, ModelConfig::default(), "{json}");
            assert_eq!(config.family.name(), "Moondream 2");
        }
    }

    #[test]
    fn unknown_family_error_lists_the_families() {
        let json = r#"{"model_type": "llava", "architectures": ["LlavaForConditionalGeneration"]}"#;
        let error = ModelConfig::from_json(json, "m/config.json").unwrap_err();
        assert_eq!(
            error.to_string(),
            "m/config.json: the model family llava, LlavaForConditionalGeneration is not supported; \
             supported families: Moondream 2"
        );
    }
}
