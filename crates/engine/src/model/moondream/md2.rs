//! Moondream 2 (docs/moondream.md).

use spotter_core::{Reasoning, Task};

use super::{
    adapter, config, grammar, names, network, path,
    prompts::{self, around},
    thoughts,
};
use crate::{
    model::{
        config::{
            CaptionTemplates, DecoderArch, ModelConfigError, RegionConfig, Template, Templates,
            TextConfig, TokenizerConfig, VisionConfig,
        },
        family::{ConfigFile, ModelConfig, ModelFamily, ModelFile},
        grammar::{AnswerGrammar, Skill},
        output::{DrawnOutline, SequenceOutput, Thoughts},
        prompt::{DecoderInput, ModelPrompt, PromptError, QueryWords},
        source::TensorName,
        tokenizer::{Tokenizer, TokenizerError},
    },
    network::{shard::Shard, spec::NetworkSpec},
};

/// The tokenizer of all releases since June 2025.
pub const TOKENIZER: ModelFile = ModelFile {
    name: "tokenizer.json",
    others: &[],
    is_required: true,
    remedy: "download it from moondream/starmie-v1 on Hugging Face, not from the model's repository",
};

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

    fn is_shown(&self, _: &serde_json::Value, _: &[String]) -> bool {
        false
    }

    fn parse_config(&self, file: ConfigFile<'_>) -> Result<ModelConfig, ModelConfigError> {
        config::parse(file, &ModelConfig::default())
    }

    fn released(&self) -> ModelConfig {
        ModelConfig::default()
    }

    fn network(&self, config: &ModelConfig) -> NetworkSpec {
        adapter::with_variants(network::network(config))
    }

    fn own_name(&self, name: &str) -> TensorName {
        names::own_name(name)
    }

    fn adapter_name(&self, name: &str) -> Option<String> {
        adapter::name_in_variant(name)
    }

    fn end_of_text(&self) -> &'static str {
        "<|endoftext|>"
    }

    fn files(&self) -> [ModelFile; 3] {
        [
            ModelFile {
                name: "config.json",
                others: &[],
                is_required: true,
                remedy: "copy it from the model's repository; {} alone means the released Moondream 2",
            },
            ModelFile {
                name: "model.safetensors",
                others: &[],
                is_required: true,
                remedy: "download it from the model's repository, vikhyatk/moondream2 on Hugging Face",
            },
            TOKENIZER,
        ]
    }

    fn prompt(
        &self,
        task: &Task,
        config: &ModelConfig,
        tokenizer: &Tokenizer,
    ) -> Result<ModelPrompt, PromptError> {
        prompts::prompt(self, task, config, tokenizer)
    }

    fn object_prompt(&self, words: &[u32], config: &ModelConfig) -> Vec<DecoderInput> {
        around(&config.tokenizer.templates.detect, &[], words)
    }

    /// The suffix of a question is always there, and then again or the thinking id: the released model was served so.
    fn query_prompt(&self, query: QueryWords<'_>, config: &ModelConfig) -> Vec<DecoderInput> {
        let query_template = &config.tokenizer.templates.query;
        let mut inputs = around(query_template, query.places, query.words);
        inputs.extend(prompts::answer_or_thoughts(query.is_reasoned, config));
        inputs
    }

    fn segment_prompt(
        &self,
        _: &[DecoderInput],
        _: &[u32],
        _: &ModelConfig,
    ) -> Option<Vec<DecoderInput>> {
        None
    }

    /// The reference bans the answer's id from the second token on.
    fn grammar(&self, skill: Skill, config: &ModelConfig) -> AnswerGrammar {
        grammar::grammar(skill, config)
    }

    fn reasoning(
        &self,
        thoughts: &Thoughts,
        config: &ModelConfig,
        tokenizer: &Tokenizer,
    ) -> Result<Reasoning, TokenizerError> {
        thoughts::reasoning(thoughts, &config.tokenizer, tokenizer)
    }

    fn outline(
        &self,
        found: &SequenceOutput,
        tokenizer: &Tokenizer,
    ) -> Result<DrawnOutline, TokenizerError> {
        path::outline(found, tokenizer)
    }
}

/// That of the released Moondream 2, as all sections below.
impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            family: &Moondream2,
            text: TextConfig::default(),
            vision: VisionConfig::default(),
            region: RegionConfig::default(),
            tokenizer: TokenizerConfig::default(),
        }
    }
}

impl Default for TextConfig {
    fn default() -> Self {
        Self {
            dim: 2048,
            ff_dim: 8192,
            n_layers: 24,
            vocab_size: 51200,
            max_context: 2048,
            n_heads: 32,
            n_kv_heads: 32,
            prefix_attn: 730,
            group_size: None,
            moe: None,
            tau_attn: false,
            rope_theta: 10_000.0,
            shard: Shard::WHOLE,
        }
    }
}

impl Default for VisionConfig {
    fn default() -> Self {
        Self {
            enc_dim: 1152,
            enc_patch_size: 14,
            enc_n_layers: 27,
            enc_ff_dim: 4304,
            enc_n_heads: 16,
            proj_out_dim: 2048,
            proj_inner_dim: 8192,
            crop_size: 378,
            in_channels: 3,
            max_crops: 12,
            overlap_margin: 4,
        }
    }
}

impl Default for RegionConfig {
    fn default() -> Self {
        Self {
            dim: 2048,
            coord_feat_dim: 256,
            coord_out_dim: 1024,
            size_feat_dim: 512,
            size_out_dim: 2048,
            inner_dim: 8192,
            group_size: None,
            decoder_arch: DecoderArch::Mlp,
            use_ln: false,
        }
    }
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self {
            bos_id: 0,
            eos_id: 0,
            answer_id: 3,
            thinking_id: 4,
            start_ground_points_id: 7,
            end_ground_id: 9,
            coord_id: 5,
            size_id: 6,
            templates: Templates::default(),
        }
    }
}

impl Default for Templates {
    fn default() -> Self {
        let around = |prefix: &[u32]| Template {
            prefix: prefix.to_vec(),
            suffix: vec![3],
        };
        Self {
            caption: CaptionTemplates::default(),
            query: around(&[1, 15381, 2]),
            detect: around(&[1, 7235, 476, 2]),
            point: around(&[1, 2581, 2]),
            segment: None,
        }
    }
}

impl Default for CaptionTemplates {
    fn default() -> Self {
        Self {
            short: vec![1, 32708, 2, 12492, 3],
            normal: vec![1, 32708, 2, 6382, 3],
            long: vec![1, 32708, 2, 4059, 3],
        }
    }
}
