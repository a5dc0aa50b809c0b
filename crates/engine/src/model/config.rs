//! The sections of a model's configuration, as its `config.json` has them: dimensions and token ids.

use serde::{Deserialize, Serialize};

use crate::network::shard::Shard;

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

/// `text`: the decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TextConfig {
    pub dim: usize,
    /// Hidden width of the MLP.
    pub ff_dim: usize,
    pub n_layers: usize,
    /// Rows of the embedding table.
    pub vocab_size: usize,
    /// Positions a sequence may have; the engine has room for `ModelConfig::context`.
    pub max_context: usize,
    pub n_heads: usize,
    /// Heads of K and V; must equal `n_heads`.
    pub n_kv_heads: usize,
    /// Positions that attend to each other in both directions; must be BOS and the image tokens.
    pub prefix_attn: usize,
    /// Present in int4 files only, which are not supported.
    pub(super) group_size: Option<usize>,
    /// The blocks with experts; `None` for a decoder without.
    pub moe: Option<MoeConfig>,
    /// Has every block scales of q and v?
    pub tau_attn: bool,
    /// Base of the rotary frequencies.
    pub rope_theta: f32,
    /// Whose share of heads and inner values this has; `config.json` describes the whole.
    #[serde(skip)]
    pub shard: Shard,
}

/// `text.moe`: experts in place of the MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MoeConfig {
    pub num_experts: usize,
    /// The first block that has them.
    pub start_layer: usize,
    pub experts_per_token: usize,
    /// Hidden width of an expert.
    pub expert_inner_dim: usize,
}

impl TextConfig {
    /// Width of one head.
    pub fn head_dim(&self) -> usize {
        self.dim / self.all_heads()
    }

    /// Heads of all shards.
    pub fn all_heads(&self) -> usize {
        self.n_heads * self.shard.ranks
    }

    /// Width of the heads of this shard together.
    pub fn attended_width(&self) -> usize {
        self.n_heads * self.head_dim()
    }

    /// What a shard has of the whole: its share of heads and of the MLP's inner values, between hidden states of the same width. The error says
    /// what cannot be divided.
    pub fn of_shard(&self, shard: Shard) -> Result<Self, String> {
        if shard.is_whole() {
            return Ok(self.clone());
        }
        let ranks = shard.ranks;
        let share = |values: usize, unit: usize, what: &str| {
            let share = values / ranks;
            match share * ranks == values && share.is_multiple_of(unit) && share > 0 {
                true => Ok(share),
                false => Err(format!(
                    "{ranks} GPUs cannot divide the model's {values} {what} among them"
                )),
            }
        };
        let heads = share(self.n_heads, 1, "heads")?;
        let divided = |moe: MoeConfig| {
            let inner = share(moe.expert_inner_dim, 8, "inner values of an expert")?;
            Ok::<_, String>(MoeConfig {
                expert_inner_dim: inner,
                ..moe
            })
        };
        Ok(Self {
            n_heads: heads,
            n_kv_heads: heads,
            ff_dim: share(self.ff_dim, 8, "inner values of the MLP")?,
            moe: self.moe.map(divided).transpose()?,
            shard,
            ..self.clone()
        })
    }
}

/// `vision`: the encoder and its projection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RegionConfig {
    /// Width; must be the decoder's.
    pub dim: usize,
    /// Fourier features of a coordinate, cosines and sines together.
    pub coord_feat_dim: usize,
    /// Bins of a coordinate; must be [`super::bins::BINS`].
    pub coord_out_dim: usize,
    /// Fourier features of a size, cosines and sines together.
    pub size_feat_dim: usize,
    /// Bins of width and height together; must be twice [`super::bins::BINS`].
    pub size_out_dim: usize,
    /// Hidden width of decoders of two layers.
    pub inner_dim: usize,
    /// Present in int4 files only, which are not supported.
    pub(super) group_size: Option<usize>,
    pub decoder_arch: DecoderArch,
    /// Is there a layer norm before the decoders?
    pub use_ln: bool,
}

/// Layers of a region decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DecoderArch {
    /// Two.
    Mlp,
    /// One.
    Linear,
}

/// `tokenizer`: token ids with a meaning.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TokenizerConfig {
    /// At position 0.
    pub bos_id: u32,
    /// Ends an answer, or a list of points and boxes.
    pub eos_id: u32,
    /// The answer follows.
    pub answer_id: u32,
    /// Thoughts follow, and the answer behind them.
    pub thinking_id: u32,
    /// Places that a thought is about follow.
    pub start_ground_points_id: u32,
    /// Ends them.
    pub end_ground_id: u32,
    /// In the place of a coordinate.
    pub coord_id: u32,
    /// In the place of a size.
    pub size_id: u32,
    /// What surrounds the user's words.
    pub templates: Templates,
}

impl TokenizerConfig {
    /// True for a token of a thought that is of a place, and no text.
    pub fn is_of_place(&self, id: u32) -> bool {
        let ids = [
            self.start_ground_points_id,
            self.end_ground_id,
            self.coord_id,
            self.size_id,
        ];
        ids.contains(&id)
    }
}

/// Token ids around the user's words, by skill.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Templates {
    pub caption: CaptionTemplates,
    /// Around a question (docs/moondream.md section 3).
    pub query: Template,
    /// Around an object.
    pub detect: Template,
    /// Around an object.
    pub point: Template,
    /// Around an object whose outline is wanted; `None` for a model that draws none.
    pub segment: Option<Template>,
}

impl Templates {
    /// Of a model that has none.
    pub fn none() -> Self {
        Self {
            caption: CaptionTemplates {
                short: Vec::new(),
                normal: Vec::new(),
                long: Vec::new(),
            },
            query: Template::default(),
            detect: Template::default(),
            point: Template::default(),
            segment: None,
        }
    }
}

/// Token ids before and after the user's words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub prefix: Vec<u32>,
    pub suffix: Vec<u32>,
}

/// Prompts for a caption. A model without one of the lengths leaves it empty.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CaptionTemplates {
    /// One short sentence.
    pub short: Vec<u32>,
    /// A sentence or two.
    pub normal: Vec<u32>,
    /// A paragraph.
    pub long: Vec<u32>,
}
