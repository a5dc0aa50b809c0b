//! From tensors of the host to the GPU, in bf16 or int8.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::{GpuEncoder, GpuLinear, GpuNorm, GpuWeight};
use crate::{
    cuda::{
        error::CudaError,
        kernels::{Int8Rows, Kernels, MatrixShape, StridedRows, TEXT_HEAD},
        memory::{Buffer, wait_for_stream},
    },
    model::{self, FloatFormat, Tensor, TensorData},
};

/// Copies weights to the GPU.
pub struct GpuLoader<'a> {
    pub stream: &'a Arc<CudaStream>,
    /// Converts the large layers to int8.
    pub int8: Option<&'a Kernels>,
}

impl GpuLoader<'_> {
    pub fn buffer(&self, tensor: Tensor) -> Result<Buffer<bf16>, CudaError> {
        Buffer::from_host(self.stream, &values(tensor))
    }

    pub fn norm(&self, norm: model::NormWeights) -> Result<GpuNorm, CudaError> {
        Ok(GpuNorm {
            weight: self.buffer(norm.weight)?,
            bias: self.buffer(norm.bias)?,
        })
    }

    pub fn linear(&self, linear: model::LinearWeights) -> Result<GpuLinear, CudaError> {
        self.layer(&values(linear.weight), &linear.bias.into_f32())
    }

    pub fn large(&self, linear: model::LinearWeights) -> Result<GpuLinear, CudaError> {
        self.large_layer(&values(linear.weight), &linear.bias.into_f32())
    }

    /// A layer of weights `[outputs, inner]`, one bias for each output.
    pub fn layer(&self, weight: &[bf16], bias: &[f32]) -> Result<GpuLinear, CudaError> {
        let inner = weight.len() / bias.len();
        let weight = GpuWeight::Bf16(Buffer::from_host(self.stream, weight)?);
        self.with_bias(weight, bias, inner)
    }

    /// The same in the format of large layers.
    fn large_layer(&self, weight: &[bf16], bias: &[f32]) -> Result<GpuLinear, CudaError> {
        let Some(kernels) = self.int8 else {
            return self.layer(weight, bias);
        };
        let (rows, width) = (bias.len(), weight.len() / bias.len());
        let from = Buffer::from_host(self.stream, weight)?;
        let values = Buffer::zeros(self.stream, weight.len())?;
        let scales = Buffer::zeros(self.stream, rows)?;
        let out = Int8Rows {
            values: StridedRows::packed(values.start(), width),
            scales: scales.start(),
        };
        let from_rows = StridedRows::packed(from.start(), width);
        kernels.quantise_rows(from_rows, out, MatrixShape { rows, width })?;
        wait_for_stream(self.stream, "converting weights to int8")?;
        self.with_bias(GpuWeight::Int8 { values, scales }, bias, width)
    }

    fn with_bias(
        &self,
        weight: GpuWeight,
        bias: &[f32],
        inner: usize,
    ) -> Result<GpuLinear, CudaError> {
        let rounded: Vec<bf16> = bias.iter().map(|&x| bf16::from_f32(x)).collect();
        Ok(GpuLinear {
            weight,
            bias: Buffer::from_host(self.stream, &rounded)?,
            bias_f32: Buffer::from_host(self.stream, bias)?,
            largest_input: None,
            outputs: bias.len(),
            inner,
        })
    }

    /// With zeros behind each row, up to a multiple of 8 values, which products require.
    pub fn padded(
        &self,
        linear: model::LinearWeights,
        inner: usize,
    ) -> Result<GpuLinear, CudaError> {
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
    pub fn stacked(
        &self,
        qkv: model::LinearWeights,
        b: model::LinearWeights,
    ) -> Result<GpuLinear, CudaError> {
        let mut bias = with_pairs_together(&qkv.bias.into_f32(), 1);
        let outputs = bias.len();
        let weight = values(qkv.weight);
        let mut weight = with_pairs_together(&weight, weight.len() / outputs);
        weight.extend(values(b.weight));
        bias.extend(b.bias.into_f32());
        self.large_layer(&weight, &bias)
    }

    /// Two layers whose results are added up as one: their inputs side by side.
    pub fn side_by_side(
        &self,
        a: model::LinearWeights,
        b: model::LinearWeights,
    ) -> Result<GpuLinear, CudaError> {
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
        self.large_layer(&weight, &bias)
    }

    /// An encoder of `inputs` values.
    pub fn encoder(
        &self,
        frequencies: Tensor,
        linear: model::LinearWeights,
        inputs: usize,
    ) -> Result<GpuEncoder, CudaError> {
        Ok(GpuEncoder {
            half: frequencies.len() / inputs,
            frequencies: Buffer::from_host(self.stream, &frequencies.into_f32())?,
            weight: self.buffer(linear.weight)?,
            bias: self.buffer(linear.bias)?,
        })
    }
}

/// Rows of `width` values for q, k and v: in each head of q and k, rows that are rotated by the same angle (j and j + 16) are put
/// 8 apart. Attention does not depend on the order.
pub fn with_pairs_together<T: Copy>(rows: &[T], width: usize) -> Vec<T> {
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
pub fn values(tensor: Tensor) -> Vec<bf16> {
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
    fn rope_pairs_are_eight_elements_apart() {
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
