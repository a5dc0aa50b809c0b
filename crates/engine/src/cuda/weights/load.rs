//! From tensors of a file to the GPU, in bf16 or int8, piece by piece: neither the host nor the GPU has a layer twice.
//!
//! ```text
//!   file ─▶ some rows in pinned memory, in bf16 and in their order ─┬─▶ the layer's weights
//!                                                                   └─▶ a piece on the GPU ─▶ the layer's weights in int8
//! ```

use std::{any::Any, cell::RefCell, ops::Range, rc::Rc, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::rows::{PIECE_VALUES, WeightRows, put_pairs_together};
use crate::{
    cuda::{
        error::CudaError,
        kernels::Kernels,
        memory::{Buffer, PinnedBuffer, Pointer, upload, wait_for_stream},
        tensor::{
            GpuLinear, GpuTextBlock, Int8Rows, LinearRef, MatrixShape, StridedRows, TEXT_HEAD,
            WeightPointer,
        },
    },
    model::{Formats, LargeLayer, LinearWeights, Tensor},
    network::{PartMap, TextBlock, TextMlp, format::Number},
};

/// Copies weights to the GPU.
pub struct GpuLoader<'a> {
    stream: &'a Arc<CudaStream>,
    formats: Formats<'a>,
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

impl PartMap<LinearWeights, Tensor> for GpuLoader<'_> {
    type Layer = GpuLinear;
    type Plain = Buffer<bf16>;
    type Error = CudaError;

    fn layer(&mut self, layer: LinearWeights) -> Result<GpuLinear, CudaError> {
        let bias = layer.bias.into_f32()?;
        let rows = WeightRows::padded(&layer.weight, layer.weight.len() / bias.len());
        self.linear(&rows, &bias, layer.large)
    }

    fn plain(&mut self, tensor: Tensor) -> Result<Buffer<bf16>, CudaError> {
        self.in_bf16(&WeightRows::of(&tensor, 1))
    }
}

/// The same for layers beside frequencies, which stay in f32.
pub struct Frequencies<'a, 'b>(pub &'a mut GpuLoader<'b>);

impl PartMap<LinearWeights, Tensor> for Frequencies<'_, '_> {
    type Layer = GpuLinear;
    type Plain = Buffer<f32>;
    type Error = CudaError;

    fn layer(&mut self, layer: LinearWeights) -> Result<GpuLinear, CudaError> {
        self.0.layer(layer)
    }

    fn plain(&mut self, tensor: Tensor) -> Result<Buffer<f32>, CudaError> {
        Buffer::from_host(self.0.stream, &tensor.into_f32()?)
    }
}

impl<'a> GpuLoader<'a> {
    pub fn new(kernels: &'a Kernels, formats: Formats<'a>) -> Result<Self, CudaError> {
        let int8 = match formats.large.weight {
            Number::Int8 => Some(Int8Converter {
                kernels,
                piece: Buffer::zeros(&kernels.stream, PIECE_VALUES)?,
            }),
            _ => None,
        };
        Ok(Self {
            stream: &kernels.stream,
            formats,
            piece: RefCell::new(PinnedBuffer::zeros(PIECE_VALUES)?),
            int8,
        })
    }

    pub fn text_block(
        &mut self,
        block: TextBlock<LinearWeights, Tensor>,
    ) -> Result<GpuTextBlock, CudaError> {
        let (TextMlp::Dense(mlp), None) = (block.mlp, block.tau) else {
            return Err(CudaError::Experts);
        };
        let qkv_fc1 = self.stacked(block.qkv, mlp.fc1)?;
        let proj_fc2 = self.side_by_side(block.proj, mlp.fc2)?;
        let ln = block.ln.try_map(|tensor| self.plain(tensor))?;
        Ok(GpuTextBlock::of_joined(ln, [qkv_fc1, proj_fc2]))
    }

    /// Some outputs of a layer.
    pub fn outputs_of(
        &self,
        layer: &LinearWeights,
        outputs: &[usize],
    ) -> Result<GpuLinear, CudaError> {
        let bias = layer.bias.to_f32()?;
        let inner = layer.weight.len() / bias.len();
        let bias: Vec<f32> = outputs.iter().map(|&output| bias[output]).collect();
        let rows = WeightRows::picked(&layer.weight, inner, outputs);
        self.linear(&rows, &bias, layer.large)
    }

    /// Queries, keys and values with the pairs of each head together, then the layer below.
    fn stacked(&self, qkv: LinearWeights, below: LinearWeights) -> Result<GpuLinear, CudaError> {
        let mut bias = qkv.bias.into_f32()?;
        let inner = qkv.weight.len() / bias.len();
        let rotated = bias.len() / 3 * 2;
        put_pairs_together(&mut bias[..rotated], 1);
        bias.extend(below.bias.into_f32()?);
        let rows = WeightRows::stacked(&qkv.weight, &below.weight, inner);
        self.linear(&rows, &bias, qkv.large)
    }

    /// Two layers whose results are added up as one: their inputs side by side, and the sum of their biases.
    fn side_by_side(&self, a: LinearWeights, b: LinearWeights) -> Result<GpuLinear, CudaError> {
        let (of_a, of_b) = (a.bias.into_f32()?, b.bias.into_f32()?);
        let bias: Vec<f32> = of_a.iter().zip(&of_b).map(|(a, b)| a + b).collect();
        let rows = WeightRows::side_by_side(&a.weight, &b.weight, bias.len());
        self.linear(&rows, &bias, a.large)
    }

    /// A layer in its format, or in bf16 until it is in e4m3.
    fn linear(
        &self,
        weight: &WeightRows<'_>,
        bias: &[f32],
        large: Option<LargeLayer>,
    ) -> Result<GpuLinear, CudaError> {
        let format = self.formats.of(large);
        let (at, memory): (_, Rc<dyn Any>) = match (format.weight, &self.int8) {
            (Number::Int8, Some(converter)) => {
                let (values, scales) = self.in_int8(weight, converter)?;
                let rows = Int8Rows::new(values.start(), scales.start(), weight.width);
                (WeightPointer::Int8(rows), Rc::new((values, scales)))
            }
            _ => {
                let values = self.in_bf16(weight)?;
                (WeightPointer::Bf16(values.start()), Rc::new(values))
            }
        };
        let largest_input = match format.input {
            Number::E4m3 => {
                let known = self.formats.largest_input(large);
                Some(Rc::new(Buffer::from_host(self.stream, &[known])?))
            }
            _ => None,
        };
        let rounded: Vec<bf16> = bias.iter().map(|&x| bf16::from_f32(x)).collect();
        let in_bf16 = Buffer::from_host(self.stream, &rounded)?;
        let in_f32 = Buffer::from_host(self.stream, bias)?;
        Ok(GpuLinear {
            at: LinearRef {
                weight: at,
                bias: in_bf16.start(),
                bias_f32: Some(in_f32.start()),
                largest_input: largest_input.as_ref().map(|largest| largest.start()),
                outputs: bias.len(),
                inner: weight.width,
            },
            weight: memory,
            bias: Rc::new((in_bf16, in_f32)),
            largest_input,
        })
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
    ) -> Result<(Buffer<i8>, Buffer<f32>), CudaError> {
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
        Ok((values, scales))
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
        let room = piece.as_mut_slice().get_mut(..values);
        let room = room.ok_or_else(|| {
            CudaError::Shape(format!(
                "a layer has {} inputs, more than {} are not supported",
                weight.width,
                PIECE_VALUES / TEXT_HEAD
            ))
        })?;
        weight.read(rows, room)?;
        upload(self.stream, &piece, 0..values, to)?;
        wait_for_stream(self.stream, "copying weights to the GPU")
    }
}
