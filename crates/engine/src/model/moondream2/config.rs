//! Dimensions and token ids of a model, from its `config.json`.

use serde::Deserialize;

use super::{Moondream2, config_check};
use crate::model::{
    family::ModelFamily,
    grammar::{AnswerGrammar, Skill},
    spec::NetworkSpec,
};

/// Feature dimensions of a head that carry the position (docs/moondream.md section 6).
pub const ROTARY_DIM: usize = 32;
/// Base of the rotary frequencies.
pub const ROPE_THETA: f32 = 10_000.0;
/// Added to the variance in every layer norm.
pub const LAYER_NORM_EPS: f32 = 1e-5;

/// Why a `config.json` cannot be used. All wrong values are named together.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ModelConfigError(pub(crate) String);

impl ModelConfigError {
    /// Not JSON, or a value of the wrong kind.
    pub(crate) fn json(origin: &str, error: &serde_json::Error) -> Self {
        Self(format!(
            "cannot read {origin} as a model configuration: {error}"
        ))
    }
}

/// A checked Moondream 2 configuration. What the file leaves out has the value of the released Moondream 2.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct ModelConfig {
    /// Whose prompts, tensor names and answers the model has.
    #[serde(skip, default = "own_family")]
    pub family: &'static dyn ModelFamily,
    pub text: TextConfig,
    /// The vision encoder and its projection.
    pub vision: VisionConfig,
    pub region: RegionConfig,
    /// Token ids with a meaning, and the prompt templates.
    pub tokenizer: TokenizerConfig,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            family: own_family(),
            text: TextConfig::default(),
            vision: VisionConfig::default(),
            region: RegionConfig::default(),
            tokenizer: TokenizerConfig::default(),
        }
    }
}

fn own_family() -> &'static dyn ModelFamily {
    &Moondream2
}

/// Positions of the longest prompt that a sequence has room for beside the longest answer.
const PROMPT_POSITIONS_MAX: usize = 550;
/// Positions of the longest answer, an outline.
const ANSWER_POSITIONS_MAX: usize = 768;

/// `text`: the decoder.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct TextConfig {
    pub dim: usize,
    /// Hidden width of the MLP.
    pub ff_dim: usize,
    pub n_layers: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Positions a sequence may have; the engine has room for [`ModelConfig::context`].
    pub max_context: usize,
    pub n_heads: usize,
    /// Heads of K and V; must equal `n_heads`.
    pub n_kv_heads: usize,
    /// Positions that attend to each other in both directions; must be BOS and the image tokens.
    pub prefix_attn: usize,
    /// Present in int4 files only, which are not supported.
    pub(super) group_size: Option<usize>,
    /// Present in Moondream 3 only, which is not supported.
    pub(super) moe: Option<serde::de::IgnoredAny>,
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
        }
    }
}

impl TextConfig {
    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.n_heads
    }
}

/// `vision`: the encoder and its projection.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct VisionConfig {
    pub enc_dim: usize,
    /// Pixels along the side of a patch.
    pub enc_patch_size: usize,
    pub enc_n_layers: usize,
    /// Hidden width of the MLP.
    pub enc_ff_dim: usize,
    pub enc_n_heads: usize,
    /// Width of an image token; must be the decoder's.
    pub proj_out_dim: usize,
    /// Hidden width of the projection.
    pub proj_inner_dim: usize,
    /// Pixels along the side of a crop.
    pub crop_size: usize,
    /// Must be 3.
    pub in_channels: usize,
    /// Local crops that the tiling aims at; very long pictures exceed it.
    pub max_crops: usize,
    /// Patches around a crop that its neighbours also see.
    pub overlap_margin: usize,
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

impl VisionConfig {
    /// Patches along the side of a crop.
    pub fn grid(&self) -> usize {
        self.crop_size / self.enc_patch_size
    }

    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.enc_dim / self.enc_n_heads
    }

    /// Values of a patch: channels x rows x columns.
    pub fn patch_values(&self) -> usize {
        self.in_channels * self.enc_patch_size * self.enc_patch_size
    }

    /// Pixels around a crop that its neighbours also see.
    pub fn margin_pixels(&self) -> usize {
        self.overlap_margin * self.enc_patch_size
    }

    /// Pixels from one local crop to the next.
    pub fn window_pixels(&self) -> usize {
        self.crop_size - 2 * self.margin_pixels()
    }
}

/// `region`: coordinates and sizes.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct RegionConfig {
    /// Width; must be the decoder's.
    pub dim: usize,
    /// Fourier features of a coordinate, cosines and sines together.
    pub coord_feat_dim: usize,
    /// Bins of a coordinate; must be [`super::region::BINS`].
    pub coord_out_dim: usize,
    /// Fourier features of a size, cosines and sines together.
    pub size_feat_dim: usize,
    /// Bins of width and height together; must be twice [`super::region::BINS`].
    pub size_out_dim: usize,
    /// Hidden width of the decoders.
    pub inner_dim: usize,
    /// Present in int4 files only, which are not supported.
    pub(super) group_size: Option<usize>,
    /// Moondream 3 says `linear`, which is not supported.
    pub(super) decoder_arch: Option<String>,
    /// Moondream 3 only, which is not supported.
    pub(super) use_ln: bool,
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
            decoder_arch: None,
            use_ln: false,
        }
    }
}

/// `tokenizer`: token ids with a meaning.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// At position 0.
    pub bos_id: u32,
    /// Ends an answer, or a list of points and boxes.
    pub eos_id: u32,
    /// The answer follows.
    pub answer_id: u32,
    /// In the place of a coordinate.
    pub coord_id: u32,
    /// In the place of a size.
    pub size_id: u32,
    /// What surrounds the user's words.
    pub templates: Templates,
}

impl Default for TokenizerConfig {
    fn default() -> Self {
        Self {
            bos_id: 0,
            eos_id: 0,
            answer_id: 3,
            coord_id: 5,
            size_id: 6,
            templates: Templates::default(),
        }
    }
}

/// Token ids around the user's words, by skill.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct Templates {
    pub caption: CaptionTemplates,
    /// Around a question. The suffix occurs twice, or once before the thinking id (docs/moondream.md section 3).
    pub query: Template,
    /// Around an object.
    pub detect: Template,
    /// Around an object.
    pub point: Template,
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
        }
    }
}

/// Token ids before and after the user's words.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct Template {
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

/// Prompts for a caption. A model without one of the lengths leaves it empty.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default)]
pub struct CaptionTemplates {
    /// One short sentence.
    pub short: Vec<u32>,
    /// A sentence or two.
    pub normal: Vec<u32>,
    /// A paragraph.
    pub long: Vec<u32>,
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

/// A file as published on Hugging Face: our sections are nested, and empty means the released Moondream 2.
#[derive(Deserialize)]
struct PublishedConfig {
    config: ModelConfig,
}

impl ModelConfig {
    /// Its layers, with the names and shapes of their tensors.
    pub fn network(&self) -> NetworkSpec {
        self.family.network(self)
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
}

pub(super) fn parse(json: &str, origin: &str) -> Result<ModelConfig, ModelConfigError> {
    let read = || {
        let value: serde_json::Value = serde_json::from_str(json)?;
        if value
            .get("config")
            .is_some_and(serde_json::Value::is_object)
        {
            serde_json::from_str(json).map(|nested: PublishedConfig| nested.config)
        } else {
            serde_json::from_str(json)
        }
    };
    let config: ModelConfig = read().map_err(|error| ModelConfigError::json(origin, &error))?;
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

#[cfg(test)]
mod tests;
