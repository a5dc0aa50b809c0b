//! What a network is made of, before its weights: its layers with the names and shapes of their tensors, and the numbers of a forward
//! pass that no shape has.

use super::{
    Network, TextBlock, VisionBlock,
    layers::{LargeLayer, LayerShape},
};

#[derive(Clone, Debug)]
pub struct NetworkSpec {
    pub layers: Network<LayerSpec, TensorSpec>,
    /// Heads of a decoder's block, which share its width; K and V have as many.
    pub text_heads: usize,
    /// The same of the encoder.
    pub vision_heads: usize,
    pub rope: RopeSpec,
    /// Added to the variance in every layer norm.
    pub norm_eps: f32,
    /// Positions from the first on that attend to each other in both directions: BOS and the image.
    pub prefix: usize,
    /// Positions that a sequence may have.
    pub context: usize,
}

/// Rotary positions of q and k.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RopeSpec {
    /// Base of the frequencies.
    pub theta: f32,
    /// Dimensions of a head that turn, from its first on.
    pub dims: usize,
}

/// A layer that multiplies: a weight `[outputs, inner]`, of experts `[count, outputs, inner]`, and a bias `[outputs]`.
#[derive(Clone, Debug)]
pub struct LayerSpec {
    /// Of its tensors, without `.weight` and `.bias`.
    pub name: String,
    pub outputs: usize,
    pub inner: usize,
    /// Experts, of which each has such a weight; 1 otherwise.
    pub count: usize,
    pub has_bias: bool,
    /// The large layer that it is, or is a part of.
    pub large: Option<LargeLayer>,
    /// Name of what an adapter adds to it, in the family's files of adapters; `None`: adapters add nothing.
    pub adapter: Option<String>,
}

/// A tensor that is not multiplied as a layer.
#[derive(Clone, Debug)]
pub struct TensorSpec {
    pub name: String,
    pub shape: Vec<usize>,
    /// Names of its upper and its lower half, which some files have instead.
    pub halves: Option<[String; 2]>,
}

impl NetworkSpec {
    /// Values of a hidden state of the decoder.
    pub fn text_width(&self) -> usize {
        self.layers.text.lm_head.inner
    }

    /// Values of a patch in the encoder.
    pub fn vision_width(&self) -> usize {
        self.layers.vision.patch_emb.outputs
    }

    /// Tokens that an image becomes, however large it is.
    pub fn image_tokens(&self) -> usize {
        self.prefix - 1
    }

    /// Its large layers in the order in which a look runs through them, with their sizes: of one that is several layers of the
    /// network, their sizes together.
    pub fn large_layers(&self) -> Vec<(LargeLayer, LayerShape)> {
        let Network { text, vision, .. } = &self.layers;
        let encoder = vision.blocks.iter().flat_map(VisionBlock::layers);
        let decoder = text.blocks.iter().flat_map(TextBlock::layers);
        let projection = [&vision.proj.fc1, &vision.proj.fc2];
        let mut shapes: Vec<(LargeLayer, LayerShape)> = Vec::new();
        for layer in encoder.chain(projection).chain(decoder) {
            let Some(large) = layer.large else { continue };
            let LayerSpec { outputs, inner, .. } = *layer;
            // Parts of a layer are in one block.
            let mut near = shapes.iter_mut().rev().take(2);
            match (near.find(|(known, _)| *known == large), large) {
                (Some((_, shape)), LargeLayer::DecoderProjFc2(_)) => shape.inner += inner,
                (Some((_, shape)), _) => shape.outputs += outputs,
                (None, _) => shapes.push((large, LayerShape { outputs, inner })),
            }
        }
        shapes
    }
}

impl LayerSpec {
    pub fn large(self, layer: LargeLayer) -> Self {
        Self {
            large: Some(layer),
            ..self
        }
    }

    /// Number of its weights.
    pub fn values(&self) -> usize {
        self.count * self.outputs * self.inner
    }

    /// Of its weight.
    pub fn shape(&self) -> Vec<usize> {
        match self.count {
            1 => vec![self.outputs, self.inner],
            count => vec![count, self.outputs, self.inner],
        }
    }
}

impl TensorSpec {
    /// Number of its values.
    pub fn values(&self) -> usize {
        self.shape.iter().product()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelConfig;

    #[test]
    fn parts_of_a_large_layer_are_counted_together() {
        let shapes = ModelConfig::default().network().large_layers();
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
