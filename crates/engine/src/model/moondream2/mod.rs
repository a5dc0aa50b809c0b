//! The family Moondream 2 (docs/moondream.md): the only code that knows its dimensions, tensor names, token ids, tiling, bins,
//! prompt templates and answers. Backends compute with its typed [`ModelConfig`] and [`Weights`].

mod config;
mod config_check;
mod crops;
mod endless;
mod grammar;
mod layers;
mod network;
mod random;
mod region;
mod templates;
mod tiling;
mod work;

pub use config::{
    CaptionTemplates, LAYER_NORM_EPS, ModelConfig, ModelConfigError, ROPE_THETA, ROTARY_DIM,
    RegionConfig, Template, Templates, TextConfig, TokenizerConfig, VisionConfig,
};
pub use crops::{Crops, crops, cut_crops, normalise_table};
pub use endless::without_ends;
pub use layers::{LargeLayer, LayerShape};
pub use random::random_weights;
pub use region::{BINS, bin_from_coord, bin_from_size, coord_from_bin, size_from_bin};
pub use templates::prompt_tokens;
pub use tiling::{Tiling, tiling, view_tiling};
pub use work::{DetectWork, LookWork, ModelWork, decoder_mb, kv_mb, vision_mb};

use super::{
    family::{ModelFamily, ModelFile},
    grammar::{AnswerGrammar, Skill},
    prompt::{DecoderInput, ModelPrompt, PromptError},
    spec::NetworkSpec,
    tokenizer::Tokenizer,
};
use spotter_core::Task;
use templates::object_tokens;

#[derive(Clone, Copy, Debug)]
pub struct Moondream2;

impl ModelFamily for Moondream2 {
    fn name(&self) -> &'static str {
        "Moondream 2"
    }

    // The releases of Moondream 2 call themselves `moondream1`.
    fn is_named(&self, name: &str) -> bool {
        ["moondream1", "moondream2", "HfMoondream"].contains(&name)
    }

    fn parse_config(&self, json: &str, origin: &str) -> Result<ModelConfig, ModelConfigError> {
        config::parse(json, origin)
    }

    fn network(&self, config: &ModelConfig) -> NetworkSpec {
        network::network(config)
    }

    fn end_of_text(&self) -> &'static str {
        "<|endoftext|>"
    }

    fn files(&self) -> [ModelFile; 3] {
        [
            ModelFile {
                name: "config.json",
                remedy: "copy it from the model's repository; {} alone means the released Moondream 2",
            },
            ModelFile {
                name: "model.safetensors",
                remedy: "download it from the model's repository, vikhyatk/moondream2 on Hugging Face",
            },
            ModelFile {
                name: "tokenizer.json",
                remedy: "download it from moondream/starmie-v1 on Hugging Face, not from the model's repository",
            },
        ]
    }

    fn prompt(
        &self,
        task: &Task,
        config: &ModelConfig,
        tokenizer: &Tokenizer,
    ) -> Result<ModelPrompt, PromptError> {
        let skill = match task {
            Task::Detect { .. } => Skill::Detect,
            Task::Point { .. } => Skill::Point,
            Task::Query { .. } | Task::Caption { .. } => Skill::Text,
        };
        Ok(ModelPrompt {
            inputs: prompt_tokens(task, config, tokenizer)?,
            grammar: grammar::grammar(skill, config),
        })
    }

    fn object_prompt(&self, words: &[u32], config: &ModelConfig) -> Vec<DecoderInput> {
        object_tokens(&config.tokenizer.templates.detect, words)
    }

    fn grammar(&self, skill: Skill, config: &ModelConfig) -> AnswerGrammar {
        grammar::grammar(skill, config)
    }
}
