//! From tensors of a file to the GPU, in bf16 or int8, piece by piece: neither the host nor the GPU has a layer twice.
//!
//! ```text
//!   file ─▶ some rows in pinned memory, in bf16 and in their order ─┬─▶ the layer's weights
//!                                                                   └─▶ a piece on the GPU ─▶ the layer's weights in int8
//! ```

use std::{cell::RefCell, ops::Range, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    linear::{GpuLinear, GpuWeight, WeightFormat},
    rows::{PIECE_VALUES, WeightRows, put_pairs_together},
};
use crate::{
    cuda::{
        error::CudaError,
        kernels::Kernels,
        memory::{Buffer, PinnedBuffer, Pointer, upload, wait_for_stream},
        tensor::{GpuEncoder, GpuNorm, Int8Rows, MatrixShape, StridedRows, TEXT_HEAD},
    },
    model::{self, ModelConfig, Tensor},
    network::Norm,
};

/// Copies weights to the GPU.
pub struct GpuLoader<'a> {
    stream: &'a Arc<CudaStream>,
    /// A piece on its way.
    piece: RefCell<PinnedBuffer<bf16>>,
    /// Converts large layers to int8; `None` where none is in it.
    int8: Option<Int8Converter<'a>>,
}

struct Int8Converter<'a> {
    kernels: &'a Kernels,
    /// A piece, before it is converted.
    piece: Buffer<bf16>,
}

impl<'a> GpuLoader<'a> {
    /// For a model of these widths; with `has_int8` it converts layers to int8.
    pub fn new(
        kernels: &'a Kernels,
        config: &ModelConfig,
        has_int8: bool,
    ) -> Result<Self, CudaError> {
        let large = config.network().large_layers().into_iter();
        let large = large.map(|(_, shape)| shape.inner);
        let widest = large.max().unwrap_or(1).max(config.region.inner_dim);
        let values = PIECE_VALUES.max(TEXT_HEAD * widest);
        let int8 = match has_int8 {
            true => Some(Int8Converter {
                kernels,
                piece: Buffer::zeros(&kernels.stream, values)?,
            }),
            false => None,
        };
        Ok(Self {
            stream: &kernels.stream,
            piece: RefCell::new(PinnedBuffer::zeros(values)?),
            int8,
        })
    }

    pub fn buffer(&self, tensor: Tensor) -> Result<Buffer<bf16>, CudaError> {
        self.in_bf16(&WeightRows::of(&tensor, 1))
    }

    pub fn norm(&self, norm: Norm<Tensor>) -> Result<GpuNorm, CudaError> {
        Ok(GpuNorm {
            weight: self.buffer(norm.weight)?,
            bias: self.buffer(norm.bias)?,
        })
    }

    pub fn linear(&self, linear: model::LinearWeights) -> Result<GpuLinear, CudaError> {
        let bias = linear.bias.into_f32()?;
        let inner = linear.weight.len() / bias.len();
        self.layer(&WeightRows::of(&linear.weight, inner), &bias)
    }

    /// Some outputs of a layer.
    pub fn outputs_of(
        &self,
        linear: &model::LinearWeights,
        outputs: &[usize],
    ) -> Result<GpuLinear, CudaError> {
        let bias = linear.bias.to_f32()?;
        let inner = linear.weight.len() / bias.len();
        let bias: Vec<f32> = outputs.iter().map(|&output| bias[output]).collect();
        self.layer(&WeightRows::picked(&linear.weight, inner, outputs), &bias)
    }

    /// A layer whose rows of `inner` values become multiples of 8 values.
    pub fn padded(
        &self,
        linear: model::LinearWeights,
        inner: usize,
    ) -> Result<GpuLinear, CudaError> {
        let bias = linear.bias.into_f32()?;
        self.layer(&WeightRows::padded(&linear.weight, inner), &bias)
    }

    pub fn large(
        &self,
        linear: model::LinearWeights,
        format: WeightFormat,
    ) -> Result<GpuLinear, CudaError> {
        let bias = linear.bias.into_f32()?;
        let inner = linear.weight.len() / bias.len();
        self.large_layer(&WeightRows::of(&linear.weight, inner), &bias, format)
    }

    /// Queries, keys and values with the pairs of each head together, then the layer below.
    pub fn stacked(
        &self,
        layers: [model::LinearWeights; 2],
        format: WeightFormat,
    ) -> Result<GpuLinear, CudaError> {
        let [qkv, below] = layers;
        let mut bias = qkv.bias.into_f32()?;
        let inner = qkv.weight.len() / bias.len();
        let rotated = bias.len() / 3 * 2;
        put_pairs_together(&mut bias[..rotated], 1);
        bias.extend(below.bias.into_f32()?);
        let rows = WeightRows::stacked(&qkv.weight, &below.weight, inner);
        self.large_layer(&rows, &bias, format)
    }

    /// Two layers whose results are added up as one: their inputs side by side.
    pub fn side_by_side(
        &self,
        layers: [model::LinearWeights; 2],
        format: WeightFormat,
    ) -> Result<GpuLinear, CudaError> {
        let [a, b] = layers;
        let (ba, bb) = (a.bias.into_f32()?, b.bias.into_f32()?);
        let bias: Vec<f32> = ba.iter().zip(&bb).map(|(a, b)| a + b).collect();
        let rows = WeightRows::side_by_side(&a.weight, &b.weight, bias.len());
        self.large_layer(&rows, &bias, format)
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
            frequencies: Buffer::from_host(self.stream, &frequencies.into_f32()?)?,
            weight: self.buffer(linear.weight)?,
            bias: self.buffer(linear.bias)?,
        })
    }

    /// A layer in bf16, one bias for each output.
    fn layer(&self, weight: &WeightRows<'_>, bias: &[f32]) -> Result<GpuLinear, CudaError> {
        let stored = GpuWeight::Bf16(self.in_bf16(weight)?);
        self.with_bias(stored, bias, weight.width)
    }

    /// The same in a format.
    fn large_layer(
        &self,
        weight: &WeightRows<'_>,
        bias: &[f32],
        format: WeightFormat,
    ) -> Result<GpuLinear, CudaError> {
        match (format, &self.int8) {
            (WeightFormat::Int8, Some(converter)) => {
                let stored = self.in_int8(weight, converter)?;
                self.with_bias(stored, bias, weight.width)
            }
            _ => self.layer(weight, bias),
        }
    }

    fn in_bf16(&self, weight: &WeightRows<'_>) -> Result<Buffer<bf16>, CudaError> {
        let to = Buffer::zeros(self.stream, weight.rows * weight.width)?;
        for rows in weight.pieces() {
            let at = to.start().at(rows.start * weight.width);
            self.copy_piece(weight, rows, at)?;
        }
        Ok(to)
    }

    fn in_int8(
        &self,
        weight: &WeightRows<'_>,
        converter: &Int8Converter<'_>,
    ) -> Result<GpuWeight, CudaError> {
        let width = weight.width;
        let stride = Int8Rows::stride_of(width);
        let values = Buffer::zeros(self.stream, weight.rows * stride)?;
        let scales = Buffer::zeros(self.stream, weight.rows)?;
        let all = Int8Rows::new(values.start(), scales.start(), width);
        for rows in weight.pieces() {
            let piece = converter.piece.start();
            self.copy_piece(weight, rows.clone(), piece)?;
            let shape = MatrixShape {
                rows: rows.len(),
                width,
            };
            let from = StridedRows::packed(piece, width);
            converter
                .kernels
                .quantise_rows(from, all.from(rows.start), shape)?;
            wait_for_stream(self.stream, "converting weights to int8")?;
        }
        Ok(GpuWeight::Int8 { values, scales })
    }

    /// Reads some rows and copies them to the GPU. Waits for it.
    fn copy_piece(
        &self,
        weight: &WeightRows<'_>,
        rows: Range<usize>,
        to: Pointer<bf16>,
    ) -> Result<(), CudaError> {
        let mut piece = self.piece.borrow_mut();
        let values = rows.len() * weight.width;
        weight.read(rows, &mut piece.as_mut_slice()[..values])?;
        upload(self.stream, &piece, 0..values, to)?;
        wait_for_stream(self.stream, "copying weights to the GPU")
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
}
