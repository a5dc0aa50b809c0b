//! The large layers: those that backends can compute in 8 bits.

use std::fmt;

use super::ModelConfig;

/// A product of the blocks of encoder and decoder, or of the projection, with the number of its block. In a decoder's block the products
/// that read the same inputs are one, and so are those that add to the hidden states, as on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LargeLayer {
    EncoderQkv(usize),
    EncoderProj(usize),
    EncoderFc1(usize),
    EncoderFc2(usize),
    ProjectionFc1,
    ProjectionFc2,
    DecoderQkvFc1(usize),
    DecoderProjFc2(usize),
}

/// Size of a layer's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerShape {
    pub outputs: usize,
    /// Inputs of an output.
    pub inner: usize,
}

impl LargeLayer {
    /// Those of an encoder's block.
    pub fn of_encoder(block: usize) -> [Self; 4] {
        [
            Self::EncoderQkv(block),
            Self::EncoderProj(block),
            Self::EncoderFc1(block),
            Self::EncoderFc2(block),
        ]
    }

    /// Those of a decoder's block.
    pub fn of_decoder(block: usize) -> [Self; 2] {
        [Self::DecoderQkvFc1(block), Self::DecoderProjFc2(block)]
    }

    /// Those of a model, in the order in which a look runs through them.
    pub fn all(config: &ModelConfig) -> impl Iterator<Item = Self> + use<> {
        let encoder = (0..config.vision.enc_n_layers).flat_map(Self::of_encoder);
        let decoder = (0..config.text.n_layers).flat_map(Self::of_decoder);
        let projection = [Self::ProjectionFc1, Self::ProjectionFc2];
        encoder.chain(projection).chain(decoder)
    }

    pub fn shape(self, config: &ModelConfig) -> LayerShape {
        let (text, vision) = (&config.text, &config.vision);
        let (d, ff, e, f) = (text.dim, text.ff_dim, vision.enc_dim, vision.enc_ff_dim);
        let (outputs, inner) = match self {
            Self::EncoderQkv(_) => (3 * e, e),
            Self::EncoderProj(_) => (e, e),
            Self::EncoderFc1(_) => (f, e),
            Self::EncoderFc2(_) => (e, f),
            Self::ProjectionFc1 => (vision.proj_inner_dim, 2 * e),
            Self::ProjectionFc2 => (d, vision.proj_inner_dim),
            Self::DecoderQkvFc1(_) => (3 * d + ff, d),
            Self::DecoderProjFc2(_) => (d, d + ff),
        };
        LayerShape { outputs, inner }
    }
}

impl fmt::Display for LargeLayer {
    /// The name of its tensor, where it has one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EncoderQkv(block) => write!(f, "vision.blocks.{block}.attn.qkv"),
            Self::EncoderProj(block) => write!(f, "vision.blocks.{block}.attn.proj"),
            Self::EncoderFc1(block) => write!(f, "vision.blocks.{block}.mlp.fc1"),
            Self::EncoderFc2(block) => write!(f, "vision.blocks.{block}.mlp.fc2"),
            Self::ProjectionFc1 => write!(f, "vision.proj_mlp.fc1"),
            Self::ProjectionFc2 => write!(f, "vision.proj_mlp.fc2"),
            Self::DecoderQkvFc1(block) => write!(f, "text.blocks.{block}.qkv_fc1"),
            Self::DecoderProjFc2(block) => write!(f, "text.blocks.{block}.proj_fc2"),
        }
    }
}
