//! The model's weights on the GPU, in bf16, laid out as the network reads them.
//!
//! The decoder's block is parallel, so two of its products can be one: `[proj | fc2]` lie side by side along the inner
//! dimension, because attention and MLP add to the same stream, and their biases are added up.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    fp8::{self, Scales},
    kernels::{EncoderAt, Kernels, NormAt, Rows},
    memory::Buffer,
    products::LinearAt,
};
use crate::model::{self, ModelConfig};

mod load;

#[cfg(test)]
pub use load::with_pairs_together;
use load::{Loader, values};

/// A linear layer.
pub struct Linear {
    weight: Buffer<bf16>,
    bias: Buffer<bf16>,
    bias_f32: Buffer<f32>,
    /// The weights once more, where products are in fp8.
    e4m3: Option<Quantised>,
    outputs: usize,
    inner: usize,
}

/// Weights in e4m3.
struct Quantised {
    weight: Buffer<u8>,
    scale: Scales,
}

/// A layer norm.
pub struct Norm {
    weight: Buffer<bf16>,
    bias: Buffer<bf16>,
}

/// An encoder of coordinates or sizes.
pub struct Encoder {
    frequencies: Buffer<f32>,
    linear: Linear,
    half: usize,
}

/// A block of the vision encoder.
pub struct VisionBlock {
    /// Before attention.
    pub ln1: Norm,
    /// Queries, keys, values.
    pub qkv: Linear,
    /// After attention.
    pub proj: Linear,
    /// Before the MLP.
    pub ln2: Norm,
    /// Into it.
    pub fc1: Linear,
    /// Out of it.
    pub fc2: Linear,
}

/// A block of the decoder.
pub struct TextBlock {
    /// Before both.
    pub ln: Norm,
    /// Queries, keys and values, then what goes into the MLP, `[3 * width + ff, width]`. Of each head of queries and keys the
    /// outputs that are turned together lie eight apart (`kernels/rope_scatter.cu`).
    pub enter: Linear,
    /// Attention's projection beside the MLP's second layer, `[width, width + ff]`.
    pub out: Linear,
}

/// All of it.
pub struct Weights {
    /// `[enc_dim, patch values rounded up to 8]`.
    pub patch_emb: Linear,
    /// `[tokens, enc_dim]`.
    pub places: Buffer<bf16>,
    /// Vision encoder.
    pub vision: Vec<VisionBlock>,
    /// After it.
    pub vision_post_ln: Norm,
    /// Projection, first layer.
    pub proj_fc1: Linear,
    /// Projection, second layer.
    pub proj_fc2: Linear,
    /// Embedding table.
    pub wte: Buffer<bf16>,
    /// Decoder.
    pub text: Vec<TextBlock>,
    /// Before the vocabulary's head.
    pub text_post_ln: Norm,
    /// The vocabulary's head.
    pub lm_head: Linear,
    /// Its rows of the coordinate and of the end.
    pub on_end: Linear,
    /// Coordinates in.
    pub coord_encoder: Encoder,
    /// Sizes in.
    pub size_encoder: Encoder,
    /// Coordinates out.
    pub coord_decoder: [Linear; 2],
    /// Sizes out.
    pub size_decoder: [Linear; 2],
}

impl Weights {
    /// The layers of all blocks, the vision encoder's first.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut Linear> {
        let vision = self.vision.iter_mut();
        let vision = vision.flat_map(|b| [&mut b.qkv, &mut b.proj, &mut b.fc1, &mut b.fc2]);
        let text = self.text.iter_mut();
        let text = text.flat_map(|b| [&mut b.enter, &mut b.out]);
        vision.chain(text)
    }
}

impl VisionBlock {
    /// Its layers, in their order.
    pub fn linears(&self) -> [&Linear; 4] {
        [&self.qkv, &self.proj, &self.fc1, &self.fc2]
    }
}

impl TextBlock {
    /// Its layers, in their order.
    pub fn linears(&self) -> [&Linear; 2] {
        [&self.enter, &self.out]
    }

    /// Queries, keys, values.
    pub fn qkv(&self) -> LinearAt {
        let enter = self.enter.at();
        enter.outputs_in(0..3 * enter.inner)
    }

    /// Into the MLP.
    pub fn fc1(&self) -> LinearAt {
        let enter = self.enter.at();
        enter.outputs_in(3 * enter.inner..enter.outputs)
    }
}

impl Linear {
    /// Where it lies.
    pub fn at(&self) -> LinearAt {
        LinearAt {
            weight: self.weight.start(),
            bias: self.bias.start(),
            bias_f32: Some(self.bias_f32.start()),
            e4m3: self
                .e4m3
                .as_ref()
                .map(|e4m3| (e4m3.weight.start(), e4m3.scale.at(0))),
            outputs: self.outputs,
            inner: self.inner,
        }
    }

    /// Makes the weights in e4m3 too, of which the largest has size `largest`.
    pub fn quantise(
        &mut self,
        stream: &Arc<CudaStream>,
        kernels: &Kernels,
        largest: f32,
    ) -> Result<(), CudaError> {
        let scale = Scales::new(stream, &[fp8::scale(largest, 1.0)?])?;
        let weight = Buffer::zeros(stream, self.outputs * self.inner)?;
        let to = Rows::packed(weight.start(), self.inner);
        let shape = (self.outputs, self.inner);
        kernels.quantise(
            Rows::packed(self.weight.start(), self.inner),
            (to, scale.at(0)),
            shape,
        )?;
        self.e4m3 = Some(Quantised { weight, scale });
        Ok(())
    }
}

impl Norm {
    /// Where it lies.
    pub fn at(&self) -> NormAt {
        NormAt {
            weight: self.weight.start(),
            bias: self.bias.start(),
        }
    }
}

impl Encoder {
    /// Where it lies.
    pub fn at(&self) -> EncoderAt {
        EncoderAt {
            frequencies: self.frequencies.start(),
            weight: self.linear.weight.start(),
            bias: self.linear.bias.start(),
            half: self.half,
        }
    }
}

impl Weights {
    /// Copies all of them; each tensor's host memory is free when it is there. Blocks.
    pub fn upload(
        stream: &Arc<CudaStream>,
        config: &ModelConfig,
        weights: model::Weights,
    ) -> Result<Self, CudaError> {
        let loader = Loader(stream);
        let model::Weights {
            text,
            vision,
            region,
        } = weights;
        let ids = [config.tokenizer.coord_id, config.tokenizer.eos_id].map(|id| id as usize);
        let lm_weight = values(text.lm_head.weight);
        let lm_bias = text.lm_head.bias.into_f32();
        let width = config.text.dim;
        let on_end = ids.map(|id| &lm_weight[id * width..][..width]).concat();
        Ok(Self {
            patch_emb: loader.padded(vision.patch_emb, config.vision.patch_values())?,
            places: loader.buffer(vision.pos_emb)?,
            vision: loader.each(vision.blocks, |block| {
                Ok(VisionBlock {
                    ln1: loader.norm(block.ln1)?,
                    qkv: loader.linear(block.qkv)?,
                    proj: loader.linear(block.proj)?,
                    ln2: loader.norm(block.ln2)?,
                    fc1: loader.linear(block.fc1)?,
                    fc2: loader.linear(block.fc2)?,
                })
            })?,
            vision_post_ln: loader.norm(vision.post_ln)?,
            proj_fc1: loader.linear(vision.proj_fc1)?,
            proj_fc2: loader.linear(vision.proj_fc2)?,
            wte: loader.buffer(text.wte)?,
            text: loader.each(text.blocks, |block| {
                Ok(TextBlock {
                    ln: loader.norm(block.ln)?,
                    enter: loader.stacked(block.qkv, block.fc1)?,
                    out: loader.side_by_side(block.proj, block.fc2)?,
                })
            })?,
            text_post_ln: loader.norm(text.post_ln)?,
            on_end: loader.layer(&on_end, &ids.map(|id| lm_bias[id]))?,
            lm_head: loader.layer(&lm_weight, &lm_bias)?,
            coord_encoder: loader.encoder(region.coord_features, region.coord_encoder, 1)?,
            size_encoder: loader.encoder(region.size_features, region.size_encoder, 2)?,
            coord_decoder: [
                loader.linear(region.coord_fc1)?,
                loader.linear(region.coord_fc2)?,
            ],
            size_decoder: [
                loader.linear(region.size_fc1)?,
                loader.linear(region.size_fc2)?,
            ],
        })
    }
}
