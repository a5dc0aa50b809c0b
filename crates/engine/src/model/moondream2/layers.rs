//! The large layers: those that backends can compute in 8 bits.

use std::fmt;

use super::ModelConfig;
use crate::{
    model::spec::{LayerSpec, NetworkSpec},
    network::{TextBlock, VisionBlock},
};

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
        Self::shapes(&config.network())
            .into_iter()
            .map(|(layer, _)| layer)
    }

    /// The same with their sizes: of one that is several layers of the network, their sizes together.
    pub fn shapes(network: &NetworkSpec) -> Vec<(Self, LayerShape)> {
        let encoder = network.vision.blocks.iter().flat_map(VisionBlock::layers);
        let decoder = network.text.blocks.iter().flat_map(TextBlock::layers);
        let projection = [&network.vision.proj.fc1, &network.vision.proj.fc2];
        let mut shapes: Vec<(Self, LayerShape)> = Vec::new();
        for layer in encoder.chain(projection).chain(decoder) {
            let Some(large) = layer.large else { continue };
            let LayerSpec { outputs, inner, .. } = *layer;
            // Parts of a layer are in one block.
            let mut near = shapes.iter_mut().rev().take(2);
            match (near.find(|(known, _)| *known == large), large) {
                (Some((_, shape)), Self::DecoderProjFc2(_)) => shape.inner += inner,
                (Some((_, shape)), _) => shape.outputs += outputs,
                (None, _) => shapes.push((large, LayerShape { outputs, inner })),
            }
        }
        shapes
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_large_layer_are_counted_together() {
        let shapes = LargeLayer::shapes(&ModelConfig::default().network());
        assert_eq!(shapes.len(), 27 * 4 + 2 + 24 * 2);
        let of = |layer| {
            let mut found = shapes.iter().filter(|(known, _)| *known == layer);
            let (_, LayerShape { outputs, inner }) = found.next().unwrap();
            (*outputs, *inner)
        };
        assert_eq!(of(LargeLayer::EncoderFc1(26)), (4304, 1152));
        assert_eq!(of(LargeLayer::ProjectionFc1), (8192, 2304));
        assert_eq!(of(LargeLayer::DecoderQkvFc1(0)), (6144 + 8192, 2048));
        assert_eq!(of(LargeLayer::DecoderProjFc2(23)), (2048, 2048 + 8192));
    }
}
