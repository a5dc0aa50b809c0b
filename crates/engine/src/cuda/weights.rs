//! The model's weights on the GPU, in bf16, int8 or e4m3, in the layout that the network reads. The GPU has one copy of each.
//!
//! In int8 are the large layers: those of the blocks of encoder and decoder, and the projection, but for those with large errors. Each is
//! converted when it is copied.
//! In e4m3 are those of the blocks, converted layer by layer when their inputs have been measured in bf16 (`fp8`).
//!
//! Attention and MLP of a decoder's block are parallel and add to the same hidden states, so two of its products can be one:
//! `[proj | fc2]` side by side along the inner dimension, with the sum of their biases.

use half::bf16;

use self::load::GpuLoader;
use super::{
    error::CudaError,
    kernels::Kernels,
    memory::Buffer,
    tensor::{GpuEncoder, GpuNorm, LinearRef},
};
use crate::{
    model::{self, LargeLayer, ModelCalibration, ModelConfig},
    network,
};

mod linear;
mod load;
mod rows;

pub use linear::{GpuLinear, WeightFormat};
#[cfg(test)]
pub use rows::put_pairs_together;

/// A block of the vision encoder.
pub struct GpuVisionBlock {
    pub ln1: GpuNorm,
    pub qkv: GpuLinear,
    pub proj: GpuLinear,
    pub ln2: GpuNorm,
    pub fc1: GpuLinear,
    pub fc2: GpuLinear,
}

/// A block of the decoder.
pub struct GpuTextBlock {
    /// Before attention and the MLP.
    pub ln: GpuNorm,
    /// Queries, keys and values, then the MLP's first layer, `[3 * width + ff, width]`. In each head of queries and keys, outputs that
    /// are rotated together are 8 apart (`kernels/rope_scatter.cu`).
    pub qkv_fc1: GpuLinear,
    /// Attention's projection beside the MLP's second layer, `[width, width + ff]`.
    pub proj_fc2: GpuLinear,
}

/// The model's weights, by the part of the network that owns them.
pub struct GpuWeights {
    pub vision: GpuVisionWeights,
    pub text: GpuTextWeights,
    pub heads: GpuHeadWeights,
}

/// Weights of the vision encoder and of the projection to image tokens.
pub struct GpuVisionWeights {
    /// `[enc_dim, patch values rounded up to 8]`.
    pub patch_emb: GpuLinear,
    /// Position embedding, `[tokens, enc_dim]`.
    pub pos_emb: Buffer<bf16>,
    pub blocks: Vec<GpuVisionBlock>,
    /// The largest inputs of the blocks' layers, where these are in e4m3.
    pub largest_inputs: Option<Vec<f32>>,
    pub post_ln: GpuNorm,
    pub proj_fc1: GpuLinear,
    pub proj_fc2: GpuLinear,
}

/// Weights of the text decoder's inputs and blocks.
pub struct GpuTextWeights {
    /// Embedding table, `[vocabulary, width]`.
    pub wte: Buffer<bf16>,
    pub coord_encoder: GpuEncoder,
    pub size_encoder: GpuEncoder,
    pub blocks: Vec<GpuTextBlock>,
    /// The largest inputs of the blocks' layers, where these are in e4m3.
    pub largest_inputs: Option<Vec<f32>>,
}

/// Weights between the last hidden state and the decisions.
pub struct GpuHeadWeights {
    /// The norm before the vocabulary's head.
    pub post_ln: GpuNorm,
    pub lm_head: GpuLinear,
    /// The rows of `lm_head` for the coordinate token and the end token.
    pub coord_or_end: GpuLinear,
    pub coord_decoder: [GpuLinear; 2],
    pub size_decoder: [GpuLinear; 2],
}

impl GpuVisionBlock {
    fn linears_mut(&mut self) -> [&mut GpuLinear; 4] {
        [&mut self.qkv, &mut self.proj, &mut self.fc1, &mut self.fc2]
    }

    /// Which of its layers are in int8.
    fn int8_layers(&self) -> [bool; 4] {
        [&self.qkv, &self.proj, &self.fc1, &self.fc2].map(GpuLinear::is_int8)
    }
}

impl GpuTextBlock {
    fn linears_mut(&mut self) -> [&mut GpuLinear; 2] {
        [&mut self.qkv_fc1, &mut self.proj_fc2]
    }

    /// Which of its layers are in int8.
    fn int8_layers(&self) -> [bool; 2] {
        [&self.qkv_fc1, &self.proj_fc2].map(GpuLinear::is_int8)
    }

    pub fn qkv(&self) -> LinearRef {
        let linear = self.qkv_fc1.at();
        linear.outputs_in(0..3 * linear.inner)
    }

    pub fn fc1(&self) -> LinearRef {
        let linear = self.qkv_fc1.at();
        linear.outputs_in(3 * linear.inner..linear.outputs)
    }
}

impl GpuVisionWeights {
    /// Blocks whose products are, between them, those of all blocks.
    pub fn distinct_blocks(&self) -> Vec<usize> {
        distinct(self.blocks.iter().map(GpuVisionBlock::int8_layers))
    }
}

impl GpuTextWeights {
    /// Blocks whose products are, between them, those of all blocks.
    pub fn distinct_blocks(&self) -> Vec<usize> {
        distinct(self.blocks.iter().map(GpuTextBlock::int8_layers))
    }
}

/// Blocks that have, between them, each layer in each format that it has in a block.
fn distinct<const N: usize>(int8_layers: impl Iterator<Item = [bool; N]>) -> Vec<usize> {
    let mut seen = [[false; 2]; N];
    let mut blocks = Vec::new();
    for (block, layers) in int8_layers.enumerate() {
        let known = layers.iter().zip(&seen);
        if !known
            .into_iter()
            .all(|(format, seen)| seen[usize::from(*format)])
        {
            blocks.push(block);
        }
        for (seen, format) in seen.iter_mut().zip(layers) {
            seen[usize::from(format)] = true;
        }
    }
    blocks
}

impl GpuWeights {
    /// Reads all weights and copies them to the GPU, each large layer in its format, piece by piece. Blocks.
    pub fn upload(
        kernels: &Kernels,
        config: &ModelConfig,
        weights: model::Weights,
        format: &dyn Fn(LargeLayer) -> WeightFormat,
    ) -> Result<Self, CudaError> {
        let has_int8 = config
            .large_layers()
            .any(|layer| format(layer) == WeightFormat::Int8);
        let loader = GpuLoader::new(kernels, config, has_int8)?;
        let network::Network {
            text,
            vision,
            region,
        } = weights;
        let ids = [config.tokenizer.coord_id, config.tokenizer.eos_id].map(|id| id as usize);
        let vision_block =
            |nth: usize, block: network::VisionBlock<model::LinearWeights, model::Tensor>| {
                let [qkv, proj, fc1, fc2] = LargeLayer::of_encoder(nth).map(format);
                Ok::<_, CudaError>(GpuVisionBlock {
                    ln1: loader.norm(block.ln1)?,
                    qkv: loader.large(block.qkv, qkv)?,
                    proj: loader.large(block.proj, proj)?,
                    ln2: loader.norm(block.ln2)?,
                    fc1: loader.large(block.mlp.fc1, fc1)?,
                    fc2: loader.large(block.mlp.fc2, fc2)?,
                })
            };
        let text_block =
            |nth: usize, block: network::TextBlock<model::LinearWeights, model::Tensor>| {
                let [qkv_fc1, proj_fc2] = LargeLayer::of_decoder(nth).map(format);
                Ok::<_, CudaError>(GpuTextBlock {
                    ln: loader.norm(block.ln)?,
                    qkv_fc1: loader.stacked([block.qkv, block.mlp.fc1], qkv_fc1)?,
                    proj_fc2: loader.side_by_side([block.proj, block.mlp.fc2], proj_fc2)?,
                })
            };
        Ok(Self {
            vision: GpuVisionWeights {
                patch_emb: loader.padded(vision.patch_emb, config.vision.patch_values())?,
                pos_emb: loader.buffer(vision.pos_emb)?,
                blocks: vision
                    .blocks
                    .into_iter()
                    .enumerate()
                    .map(|(nth, block)| vision_block(nth, block))
                    .collect::<Result<_, _>>()?,
                largest_inputs: None,
                post_ln: loader.norm(vision.post_ln)?,
                proj_fc1: loader.large(vision.proj.fc1, format(LargeLayer::ProjectionFc1))?,
                proj_fc2: loader.large(vision.proj.fc2, format(LargeLayer::ProjectionFc2))?,
            },
            text: GpuTextWeights {
                wte: loader.buffer(text.wte)?,
                blocks: text
                    .blocks
                    .into_iter()
                    .enumerate()
                    .map(|(nth, block)| text_block(nth, block))
                    .collect::<Result<_, _>>()?,
                largest_inputs: None,
                coord_encoder: loader.encoder(region.coord_features, region.coord_encoder, 1)?,
                size_encoder: loader.encoder(region.size_features, region.size_encoder, 2)?,
            },
            heads: GpuHeadWeights {
                post_ln: loader.norm(text.post_ln)?,
                coord_or_end: loader.outputs_of(&text.lm_head, &ids)?,
                lm_head: loader.linear(text.lm_head)?,
                coord_decoder: [
                    loader.linear(region.coord_decoder.fc1)?,
                    loader.linear(region.coord_decoder.fc2)?,
                ],
                size_decoder: [
                    loader.linear(region.size_decoder.fc1)?,
                    loader.linear(region.size_decoder.fc2)?,
                ],
            },
        })
    }

    /// Measures from now on the largest inputs of the layers that can be in e4m3: those of all blocks.
    pub fn measure_inputs(&mut self, kernels: &Kernels) -> Result<(), CudaError> {
        let vision = self.vision.blocks.iter_mut();
        let text = self.text.blocks.iter_mut();
        let vision = vision.flat_map(GpuVisionBlock::linears_mut);
        let mut layers = vision.chain(text.flat_map(GpuTextBlock::linears_mut));
        layers.try_for_each(|linear| linear.measure_inputs(kernels))
    }

    /// Converts these layers to e4m3, one by one; their largest inputs are those that were measured here or, where they are larger, those
    /// of the user's pictures. Waits for the stream.
    pub fn quantise(
        &mut self,
        kernels: &Kernels,
        measured: Option<&ModelCalibration>,
    ) -> Result<(), CudaError> {
        let largest = |(layer, linear): (LargeLayer, &mut GpuLinear)| {
            let others = measured.map_or(0.0, |m| m.largest_input(layer));
            Ok::<f32, CudaError>(linear.quantise(kernels)?.max(others))
        };
        let blocks = self.vision.blocks.iter_mut().enumerate();
        let layers = blocks.flat_map(|(nth, block)| {
            let named = LargeLayer::of_encoder(nth).into_iter();
            named.zip(block.linears_mut())
        });
        self.vision.largest_inputs = Some(layers.map(largest).collect::<Result<_, _>>()?);
        let blocks = self.text.blocks.iter_mut().enumerate();
        let layers = blocks.flat_map(|(nth, block)| {
            let named = LargeLayer::of_decoder(nth).into_iter();
            named.zip(block.linears_mut())
        });
        self.text.largest_inputs = Some(layers.map(largest).collect::<Result<_, _>>()?);
        Ok(())
    }

    /// True when one of the layers is in int8.
    pub fn has_int8(&self) -> bool {
        let GpuWeights { vision, text, .. } = self;
        vision.proj_fc1.is_int8()
            || vision.proj_fc2.is_int8()
            || vision
                .blocks
                .iter()
                .any(|block| block.int8_layers().contains(&true))
            || text
                .blocks
                .iter()
                .any(|block| block.int8_layers().contains(&true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinct_blocks_have_each_layer_in_each_of_its_formats() {
        let blocks = |int8: &[[bool; 2]]| distinct(int8.iter().copied());
        assert!(blocks(&[]).is_empty());
        assert_eq!(blocks(&[[true; 2]; 4]), [0]);
        assert_eq!(
            blocks(&[[true, true], [true, true], [true, false], [false, false]]),
            [0, 2, 3]
        );
        assert_eq!(
            blocks(&[[true, false], [false, true], [true, true]]),
            [0, 1]
        );
    }
}
