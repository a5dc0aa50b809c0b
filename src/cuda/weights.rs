//! The model's weights on the GPU, in bf16, laid out as the network reads them.
//!
//! The decoder's block is parallel, so two of its products can be one: `[proj | fc2]` lie side by side along the inner
//! dimension, because attention and MLP add to the same stream, and their biases are added up.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    kernels::{EncoderAt, NormAt, TEXT_HEAD},
    memory::Buffer,
    products::LinearAt,
};
use crate::model::{self, FloatFormat, ModelConfig, Tensor, TensorData};

/// A linear layer.
pub struct Linear {
    weight: Buffer<bf16>,
    bias: Buffer<bf16>,
    bias_f32: Buffer<f32>,
    outputs: usize,
    inner: usize,
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

impl Linear {
    /// Where it lies.
    pub fn at(&self) -> LinearAt {
        LinearAt {
            weight: self.weight.start(),
            bias: self.bias.start(),
            bias_f32: Some(self.bias_f32.start()),
            outputs: self.outputs,
            inner: self.inner,
        }
    }
}

impl TextBlock {
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

/// Copies weights to the GPU.
struct Loader<'a>(&'a Arc<CudaStream>);

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

impl Loader<'_> {
    fn each<T, U>(
        &self,
        blocks: Vec<T>,
        load: impl Fn(T) -> Result<U, CudaError>,
    ) -> Result<Vec<U>, CudaError> {
        blocks.into_iter().map(load).collect()
    }

    fn buffer(&self, tensor: Tensor) -> Result<Buffer<bf16>, CudaError> {
        Buffer::from_host(self.0, &values(tensor))
    }

    fn norm(&self, norm: model::Norm) -> Result<Norm, CudaError> {
        Ok(Norm {
            weight: self.buffer(norm.weight)?,
            bias: self.buffer(norm.bias)?,
        })
    }

    fn linear(&self, linear: model::Linear) -> Result<Linear, CudaError> {
        self.layer(&values(linear.weight), &linear.bias.into_f32())
    }

    fn layer(&self, weight: &[bf16], bias: &[f32]) -> Result<Linear, CudaError> {
        let rounded: Vec<bf16> = bias.iter().map(|&x| bf16::from_f32(x)).collect();
        Ok(Linear {
            weight: Buffer::from_host(self.0, weight)?,
            bias: Buffer::from_host(self.0, &rounded)?,
            bias_f32: Buffer::from_host(self.0, bias)?,
            outputs: bias.len(),
            inner: weight.len() / bias.len(),
        })
    }

    /// With zeros behind each row, up to a multiple of 8 values: what products ask for.
    fn padded(&self, linear: model::Linear, inner: usize) -> Result<Linear, CudaError> {
        let weight = values(linear.weight);
        let padded = inner.next_multiple_of(8);
        let mut wide = vec![bf16::ZERO; weight.len() / inner * padded];
        for (to, from) in wide
            .chunks_exact_mut(padded)
            .zip(weight.chunks_exact(inner))
        {
            to[..inner].copy_from_slice(from);
        }
        self.layer(&wide, &linear.bias.into_f32())
    }

    /// Queries, keys and values with the pairs of each head together, then `b`.
    fn stacked(&self, qkv: model::Linear, b: model::Linear) -> Result<Linear, CudaError> {
        let mut bias = with_pairs_together(&qkv.bias.into_f32(), 1);
        let outputs = bias.len();
        let weight = values(qkv.weight);
        let mut weight = with_pairs_together(&weight, weight.len() / outputs);
        weight.extend(values(b.weight));
        bias.extend(b.bias.into_f32());
        self.layer(&weight, &bias)
    }

    fn side_by_side(&self, a: model::Linear, b: model::Linear) -> Result<Linear, CudaError> {
        let outputs = a.bias.len();
        let (wa, wb) = (values(a.weight), values(b.weight));
        let rows_a = wa.chunks_exact(wa.len() / outputs);
        let rows_b = wb.chunks_exact(wb.len() / outputs);
        let weight: Vec<bf16> = rows_a
            .zip(rows_b)
            .flat_map(|(a, b)| [a, b])
            .flatten()
            .copied()
            .collect();
        let (ba, bb) = (a.bias.into_f32(), b.bias.into_f32());
        let bias: Vec<f32> = ba.iter().zip(&bb).map(|(a, b)| a + b).collect();
        self.layer(&weight, &bias)
    }

    fn encoder(
        &self,
        frequencies: Tensor,
        linear: model::Linear,
        inputs: usize,
    ) -> Result<Encoder, CudaError> {
        Ok(Encoder {
            half: frequencies.len() / inputs,
            frequencies: Buffer::from_host(self.0, &frequencies.into_f32())?,
            linear: self.linear(linear)?,
        })
    }
}

/// Rows of `width` values for q, k and v: of each head of q and k, rows that are turned by the same angle (j and j + 16) are put
/// eight apart. Attention does not see the order.
fn with_pairs_together<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
    let heads = rows.len() / width / TEXT_HEAD;
    let source = |row: usize| match (row / TEXT_HEAD < heads / 3 * 2, row % TEXT_HEAD) {
        (true, 8..16) => row + 8,
        (true, 16..24) => row - 8,
        _ => row,
    };
    let rows_in_order = (0..rows.len() / width).map(source);
    rows_in_order
        .flat_map(|row| &rows[row * width..][..width])
        .copied()
        .collect()
}

/// As bf16, rounded to nearest.
fn values(tensor: Tensor) -> Vec<bf16> {
    match tensor.data {
        TensorData::Encoded {
            format: FloatFormat::Bf16,
            bytes,
        } => {
            let (pairs, _) = bytes.as_chunks::<2>();
            pairs
                .iter()
                .map(|&pair| bf16::from_le_bytes(pair))
                .collect()
        }
        _ => tensor.into_f32().into_iter().map(bf16::from_f32).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_turned_together_lies_eight_apart() {
        // One head each of q, k and v; a row is two values.
        let rows: Vec<usize> = (0..3 * TEXT_HEAD).flat_map(|row| [row, row]).collect();
        let put: Vec<usize> = with_pairs_together(&rows, 2)
            .chunks(2)
            .map(|row| row[0])
            .collect();
        let (q, k) = (&put[..64], &put[64..128]);
        for first in [0, 16] {
            for j in first..first + 8 {
                assert_eq!(q[j] + 16, q[j + 8]);
                assert_eq!(k[j], q[j] + 64);
            }
        }
        assert_eq!(q[32..], (32..64).collect::<Vec<_>>());
        assert_eq!(put[128..], (128..192).collect::<Vec<_>>());
    }
}
