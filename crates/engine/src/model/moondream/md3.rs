//! Moondream 3: the preview and 3.1 (docs/moondream.md).

use spotter_core::{Reasoning, Task};

use super::{
    adapter, config, grammar,
    md2::TOKENIZER,
    names, network, path,
    prompts::{self, around},
    thoughts,
};
use crate::{
    model::{
        config::{
            DecoderArch, ModelConfigError, MoeConfig, RegionConfig, Template, Templates,
            TextConfig, TokenizerConfig,
        },
        family::{ConfigFile, ModelConfig, ModelFamily, ModelFile},
        grammar::{AnswerGrammar, Skill},
        output::{DrawnOutline, SequenceOutput, Thoughts},
        prompt::{DecoderInput, ModelPrompt, PromptError, QueryWords},
        source::TensorName,
        tokenizer::{Tokenizer, TokenizerError},
    },
    network::spec::NetworkSpec,
};

#[derive(Clone, Copy, Debug)]
pub struct Moondream3;

/// Those of the released models.
impl Default for MoeConfig {
    fn default() -> Self {
        Self {
            num_experts: 64,
            start_layer: 4,
            experts_per_token: 8,
            expert_inner_dim: 1024,
        }
    }
}

impl ModelFamily for Moondream3 {
    fn name(&self) -> &'static str {
        "Moondream 3"
    }

    fn is_named(&self, name: &str) -> bool {
        name.starts_with("moondream3")
    }

    fn is_shown(&self, config: &serde_json::Value, tensors: &[String]) -> bool {
        let at = |place: &str| config.pointer(place).cloned().unwrap_or_default();
        !at("/text/moe").is_null()
            || at("/text/tau_attn") == true
            || at("/region/use_ln") == true
            || at("/region/decoder_arch") == "linear"
            || tensors.iter().any(|name| name.contains(".tau"))
    }

    /// Where the file does not say whether there is a layer norm before the region's decoders, the tensors do.
    fn parse_config(&self, file: ConfigFile<'_>) -> Result<ModelConfig, ModelConfigError> {
        let mut released = self.released();
        if !file.tensors.is_empty() {
            let own = |name: &String| self.own_name(name);
            let is_ln =
                |name| matches!(name, TensorName::Own(name) if name.starts_with("region.ln."));
            released.region.use_ln = file.tensors.iter().map(own).any(is_ln);
        }
        config::parse(file, &released)
    }

    /// Of Moondream 3.1 and of the preview.
    fn released(&self) -> ModelConfig {
        let base = ModelConfig::default();
        ModelConfig {
            family: &Self,
            text: TextConfig {
                max_context: 32_768,
                moe: Some(MoeConfig::default()),
                tau_attn: true,
                rope_theta: 1_500_000.0,
                ..base.text
            },
            vision: base.vision,
            region: RegionConfig {
                decoder_arch: DecoderArch::Linear,
                use_ln: true,
                ..base.region
            },
            tokenizer: TokenizerConfig {
                templates: Templates {
                    segment: Some(Template {
                        prefix: vec![1, 17374, 2],
                        suffix: vec![3],
                    }),
                    ..base.tokenizer.templates
                },
                ..base.tokenizer
            },
        }
    }

    fn network(&self, config: &ModelConfig) -> NetworkSpec {
        adapter::with_mlp_adapters(network::network(config))
    }

    fn own_name(&self, name: &str) -> TensorName {
        names::own_name(name)
    }

    fn adapter_name(&self, name: &str) -> Option<String> {
        adapter::name_in_mlp_adapter(name)
    }

    fn end_of_text(&self) -> &'static str {
        "<|endoftext|>"
    }

    fn files(&self) -> [ModelFile; 3] {
        [
            ModelFile {
                name: "config.json",
                others: &[],
                is_required: false,
                remedy: "without it, the model is taken for a released Moondream 3",
            },
            ModelFile {
                name: "model.safetensors",
                others: &["model_fp8.pt", "model.safetensors.index.json"],
                is_required: true,
                remedy: "`spotter model get moondream3.1` fetches it",
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

    fn query_prompt(&self, query: QueryWords<'_>, config: &ModelConfig) -> Vec<DecoderInput> {
        let prefix_alone = Template {
            suffix: Vec::new(),
            ..config.tokenizer.templates.query.clone()
        };
        let mut inputs = around(&prefix_alone, query.places, query.words);
        inputs.extend(prompts::answer_or_thoughts(query.is_reasoned, config));
        inputs
    }

    fn segment_prompt(
        &self,
        places: &[DecoderInput],
        words: &[u32],
        config: &ModelConfig,
    ) -> Option<Vec<DecoderInput>> {
        let template = config.tokenizer.templates.segment.as_ref()?;
        Some(around(template, places, words))
    }

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

#[cfg(test)]
mod tests;
