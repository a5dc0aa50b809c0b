//! The seam between Spotter and a model family: what only the family's module knows.
//!
//! A new family is a module beside `moondream2` and one line in `FAMILIES` (docs/adding-a-model.md).

use std::fmt;

use spotter_core::Task;

use super::{
    grammar::{AnswerGrammar, Skill},
    moondream2::{ModelConfig, ModelConfigError},
    prompt::{DecoderInput, ModelPrompt, PromptError},
    spec::NetworkSpec,
    tokenizer::Tokenizer,
};

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
