//! The large layers: those that backends can compute in 8 bits.

use std::fmt;

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
