//! The seam between Spotter and a model family: what only the family's module knows.
//!
//! A new family is a module beside `moondream` and one line in `FAMILIES` (docs/adding-a-model.md).

use std::{
    fmt,
    path::{Path, PathBuf},
};

use spotter_core::{Reasoning, Task};

use super::{
    config::{ModelConfigError, RegionConfig, TextConfig, TokenizerConfig, VisionConfig},
    grammar::{AnswerGrammar, Skill},
    output::{DrawnOutline, SequenceOutput, Thoughts},
    prompt::{DecoderInput, ModelPrompt, PromptError, QueryWords},
    source::TensorName,
    tokenizer::{Tokenizer, TokenizerError},
};
use crate::network::{layers::LargeLayer, shard::Shard, spec::NetworkSpec};

/// A model family: its files, prompts and answers. Its methods run once for a model or a prompt, never for a token.
pub trait ModelFamily: fmt::Debug + Sync {
    fn name(&self) -> &'static str;

    /// True when a `model.toml`, or `model_type` or `architectures` of a `config.json`, name this family so.
    fn is_named(&self, name: &str) -> bool;

    /// True when the sections of a configuration, or the names of tensors in a file, can be of this family alone.
    fn is_shown(&self, config: &serde_json::Value, tensors: &[String]) -> bool;

    /// Reads and checks a configuration. What it leaves out is as in the family's released model.
    fn parse_config(&self, file: ConfigFile<'_>) -> Result<ModelConfig, ModelConfigError>;

    /// That of the family's released model.
    fn released(&self) -> ModelConfig;

    /// Its layers, with the names and shapes of their tensors.
    fn network(&self, config: &ModelConfig) -> NetworkSpec;

    /// What a tensor with this name in a file is of ours; names that the family does not know stay.
    fn own_name(&self, name: &str) -> TensorName;

    /// What a tensor with this name in a file of an adapter is: the name of [`LayerSpec::adapter`](crate::network::spec::LayerSpec::adapter), with `_a` or `_b`
    /// behind it. `None`: it is no tensor of an adapter of this family.
    fn adapter_name(&self, name: &str) -> Option<String>;

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

    /// What asks the model a question.
    fn query_prompt(&self, query: QueryWords<'_>, config: &ModelConfig) -> Vec<DecoderInput>;

    /// What asks the model for the outline of the object whose name has these ids, without a leading space; `None` where it draws none.
    fn segment_prompt(
        &self,
        places: &[DecoderInput],
        words: &[u32],
        config: &ModelConfig,
    ) -> Option<Vec<DecoderInput>>;

    /// What an answer of this kind is made of.
    fn grammar(&self, skill: Skill, config: &ModelConfig) -> AnswerGrammar;

    /// The text of thoughts, with the points that its parts are about.
    fn reasoning(
        &self,
        thoughts: &Thoughts,
        config: &ModelConfig,
        tokenizer: &Tokenizer,
    ) -> Result<Reasoning, TokenizerError>;

    /// What the tokens of an outline draw.
    fn outline(
        &self,
        found: &SequenceOutput,
        tokenizer: &Tokenizer,
    ) -> Result<DrawnOutline, TokenizerError>;
}

/// The text of a `config.json`, with what else shows of a model.
#[derive(Clone, Copy, Debug)]
pub struct ConfigFile<'a> {
    pub json: &'a str,
    /// Names the file in messages.
    pub origin: &'a str,
    /// Names in the file of the weights, without `model.`; empty where they are not known.
    pub tensors: &'a [String],
}

/// A file of a model directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelFile {
    pub name: &'static str,
    /// Names of files that can be in its place.
    pub others: &'static [&'static str],
    pub is_required: bool,
    /// How the user gets it.
    pub remedy: &'static str,
}

impl ModelFile {
    /// Where it is in a directory.
    pub fn find(&self, directory: &Path) -> Option<PathBuf> {
        let names = [self.name].into_iter().chain(self.others.iter().copied());
        let mut paths = names.map(|name| directory.join(name));
        paths.find(|path| path.is_file())
    }
}

impl PartialEq for dyn ModelFamily {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

/// Positions of the longest prompt that a sequence has room for beside the longest answer.
const PROMPT_POSITIONS_MAX: usize = 550;
/// Positions of the longest answer, an outline.
const ANSWER_POSITIONS_MAX: usize = 768;

/// A checked configuration. What the file leaves out has the value of the family's released model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelConfig {
    /// Whose prompts, tensor names and answers the model has.
    pub family: &'static dyn ModelFamily,
    pub text: TextConfig,
    /// The vision encoder and its projection.
    pub vision: VisionConfig,
    pub region: RegionConfig,
    /// Token ids with a meaning, and the prompt templates.
    pub tokenizer: TokenizerConfig,
}

impl ModelConfig {
    /// Its layers, with the names and shapes of their tensors.
    pub fn network(&self) -> NetworkSpec {
        self.family.network(self)
    }

    /// What a shard has of it. The error says what cannot be divided.
    pub fn of_shard(&self, shard: Shard) -> Result<Self, String> {
        Ok(Self {
            text: self.text.of_shard(shard)?,
            ..self.clone()
        })
    }

    /// Its large layers, in the order in which a look runs through them.
    pub fn large_layers(&self) -> impl Iterator<Item = LargeLayer> + use<> {
        let layers = self.network().large_layers().into_iter();
        layers.map(|(layer, _)| layer)
    }

    /// What an answer of this kind is made of.
    pub fn grammar(&self, skill: Skill) -> AnswerGrammar {
        self.family.grammar(skill, self)
    }

    /// Tokens that an image becomes, however large it is.
    pub fn image_tokens(&self) -> usize {
        self.vision.grid() * self.vision.grid()
    }

    /// Positions of an image prefix: BOS and the image tokens.
    pub fn prefix_positions(&self) -> usize {
        1 + self.image_tokens()
    }

    /// Positions of a sequence in the engine: those of an image, the longest prompt and the longest answer, if the model has as many. The
    /// KV cache has room for one such row at least, page tables and the rope table have its length.
    pub fn context(&self) -> usize {
        let wanted = self.prefix_positions() + PROMPT_POSITIONS_MAX + ANSWER_POSITIONS_MAX;
        self.text.max_context.min(wanted)
    }

    /// Tokens that an answer may have behind a picture and this prompt.
    pub fn answer_room(&self, prompt: &ModelPrompt) -> usize {
        let taken = self.prefix_positions() + prompt.inputs.len();
        self.context().saturating_sub(taken)
    }

    /// Fails when picture, prompt and an answer of `answer_tokens` are together longer than the engine's context.
    pub fn check_room(
        &self,
        prompt: &ModelPrompt,
        answer_tokens: usize,
    ) -> Result<(), PromptError> {
        let taken = self.prefix_positions() + answer_tokens;
        let room = self.context().saturating_sub(taken);
        let tokens = prompt.inputs.len();
        match tokens <= room {
            true => Ok(()),
            false => Err(PromptError::TooLong { tokens, room }),
        }
    }
}
