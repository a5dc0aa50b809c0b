//! From tensors of a file to the GPU, in bf16 or 8 bits, piece by piece: neither the host nor the GPU has a layer twice.
//!
//! ```text
//!   file ─▶ some rows in pinned memory, in bf16 and in their order ─┬─▶ the layer's weights
//!                                                                   └─▶ a piece on the GPU ─▶ the layer's weights in 8 bits
//! ```
//!
//! Experts that a file has in e4m3 are copied as they are.

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
            GpuLinear, GpuTau, GpuTextBlock, Int8Rows, LinearRef, MatrixShape, ScaledRows,
            StridedRows, TEXT_HEAD, WeightPointer,
        },
    },
    model::{Formats, LargeLayer, LinearWeights, Tensor},
    network::{Experts, PartMap, Tau, TextBlock, TextMlp, format::Number},
};

/// Copies weights to the GPU.
pub struct GpuLoader<'a> {
    stream: &'a Arc<CudaStream>,
    formats: Formats<'a>,
    kernels: &'a Kernels,
    /// A piece on its way.
    piece: RefCell<PinnedBuffer<bf16>>,
    /// The same of bytes; of models with experts alone.
    bytes: RefCell<PinnedBuffer<u8>>,
    /// A piece on the GPU before it is converted; empty where none is.
    unconverted: Buffer<bf16>,
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
    /// For a model whose file has experts in this format, if it has some.
    pub fn new(
        kernels: &'a Kernels,
        formats: Formats<'a>,
        experts: Option<Number>,
    ) -> Result<Self, CudaError> {
        let converts_experts = experts.is_some_and(|number| number != formats.experts.weight);
        let converted = match converts_experts || formats.large.weight == Number::Int8 {
            true => PIECE_VALUES,
            false => 0,
        };
        let bytes = if experts.is_some() { PIECE_VALUES } else { 0 };
        Ok(Self {
            stream: &kernels.stream,
            formats,
            kernels,
            piece: RefCell::new(PinnedBuffer::zeros(PIECE_VALUES)?),
            bytes: RefCell::new(PinnedBuffer::zeros(bytes)?),
            unconverted: Buffer::zeros(&kernels.stream, converted)?,
        })
    }

    pub fn text_block(
        &mut self,
        block: TextBlock<LinearWeights, Tensor>,
    ) -> Result<GpuTextBlock, CudaError> {
        let ln = block.ln.try_map(|tensor| self.plain(tensor))?;
        let tau = block.tau.map(|tau| self.tau(tau)).transpose()?;
        match block.mlp {
            TextMlp::Dense(mlp) => {
                let qkv_fc1 = self.stacked(block.qkv, Some(mlp.fc1))?;
                let proj_fc2 = self.side_by_side(block.proj, mlp.fc2)?;
                Ok(GpuTextBlock::of_joined(ln, tau, [qkv_fc1, proj_fc2]))
            }
            TextMlp::Experts(experts) => Ok(GpuTextBlock {
                ln,
                tau,
                qkv: self.stacked(block.qkv, None)?,
                proj: self.layer(block.proj)?,
                mlp: TextMlp::Experts(Experts {
                    router: self.layer(experts.router)?,
                    up: self.experts(experts.up)?,
                    down: self.experts(experts.down)?,
                    active: experts.active,
                }),
            }),
        }
    }

    /// Its inputs are in the order of the outputs of [`GpuLoader::stacked`].
    fn tau(&self, tau: Tau<Tensor>) -> Result<GpuTau, CudaError> {
        let alpha = self.in_bf16(&WeightRows::of(&tau.alpha, 1))?;
        let features = tau.wq_wv.shape.last().copied().unwrap_or(1).max(1);
        let mut rows = tau.wq_wv.into_f32()?;
        for row in rows.chunks_exact_mut(features) {
            put_pairs_together(&mut row[..features / 3 * 2], 1);
        }
        let rows: Vec<bf16> = rows.into_iter().map(bf16::from_f32).collect();
        let wq_wv = Buffer::from_host(self.stream, &rows)?;
        Ok(Tau { wq_wv, alpha })
    }

    /// All experts of a block, behind each other.
    fn experts(&self, layer: LinearWeights) -> Result<GpuLinear, CudaError> {
        let [count, outputs, inner] = layer.weight.shape[..] else {
            return Err(CudaError::Shape("its experts are no matrices".into()));
        };
        let rows = WeightRows::of(&layer.weight, inner);
        let (weight, memory): (_, Rc<dyn Any>) = match self.formats.experts.weight {
            Number::E4m3 => {
                let values = Buffer::zeros(self.stream, count * outputs * inner)?;
                let at = StridedRows::packed(values.start(), inner);
                let scales = match &layer.row_scales {
                    Some(scales) => {
                        self.copy_bytes(&layer.weight, values.start())?;
                        Buffer::from_host(self.stream, &scales.to_f32()?)?
                    }
                    None => {
                        let scales = Buffer::zeros(self.stream, count * outputs)?;
                        let to = ScaledRows {
                            values: at,
                            scales: scales.start(),
                        };
                        self.converted(
                            &rows,
                            "converting experts to e4m3",
                            |from, first, shape| {
                                let to = to.from(first);
                                self.kernels.quantise_rows_e4m3(from, to, shape)
                            },
                        )?;
                        scales
                    }
                };
                let rows = ScaledRows {
                    values: at,
                    scales: scales.start(),
                };
                (WeightPointer::ExpertE4m3(rows), Rc::new((values, scales)))
            }
            _ if layer.row_scales.is_some() => {
                return Err(CudaError::Shape(
                    "its experts are in e4m3, which they stay in".into(),
                ));
            }
            _ => {
                let values = self.in_bf16(&rows)?;
                (WeightPointer::Bf16(values.start()), Rc::new(values))
            }
        };
        let no_bias = (
            Buffer::zeros(self.stream, 0)?,
            Buffer::zeros(self.stream, 0)?,
        );
        Ok(GpuLinear {
            at: LinearRef {
                weight,
                bias: no_bias.0.start(),
                bias_f32: None,
                largest_input: None,
                outputs,
                inner,
            },
            weight: memory,
            bias: Rc::new(no_bias),
            largest_input: None,
        })
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

    /// Queries, keys and values with the pairs of each head together, then the layer below, if there is one.
    fn stacked(
        &self,
        qkv: LinearWeights,
        below: Option<LinearWeights>,
    ) -> Result<GpuLinear, CudaError> {
        let mut bias = qkv.bias.into_f32()?;
        let inner = qkv.weight.len() / bias.len();
        let rotated = bias.len() / 3 * 2;
        put_pairs_together(&mut bias[..rotated], 1);
        if let Some(below) = &below {
            bias.extend(below.bias.to_f32()?);
        }
        let below = below.as_ref().map(|below| &below.weight);
        let rows = WeightRows::stacked(&qkv.weight, below, inner);
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
        let (at, memory): (_, Rc<dyn Any>) = match format.weight {
            Number::Int8 => {
                let (values, scales) = self.in_int8(weight)?;
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

    fn in_int8(&self, weight: &WeightRows<'_>) -> Result<(Buffer<i8>, Buffer<f32>), CudaError> {
        let width = weight.width;
        let stride = Int8Rows::stride_of(width);
        let values = Buffer::zeros(self.stream, weight.rows * stride)?;
        let scales = Buffer::zeros(self.stream, weight.rows)?;
        let all = Int8Rows::new(values.start(), scales.start(), width);
        self.converted(
            weight,
            "converting weights to int8",
            |from, first, shape| self.kernels.quantise_rows(from, all.from(first), shape),
        )?;
        Ok((values, scales))
    }

    /// Calls `convert` with each piece on the GPU, its first row and its shape. Waits for the stream.
    fn converted(
        &self,
        weight: &WeightRows<'_>,
        what: &'static str,
        convert: impl Fn(StridedRows, usize, MatrixShape) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        let width = weight.width;
        for rows in weight.pieces() {
            let piece = self.unconverted.start();
            self.copy_piece(weight, rows.clone(), piece)?;
            let shape = MatrixShape {
                rows: rows.len(),
                width,
            };
            convert(StridedRows::packed(piece, width), rows.start, shape)?;
            wait_for_stream(self.stream, what)?;
        }
        Ok(())
    }

    /// Copies the bytes of a tensor in e4m3 as they are. Waits for the stream.
    fn copy_bytes(&self, tensor: &Tensor, to: Pointer<u8>) -> Result<(), CudaError> {
        let mut piece = self.bytes.borrow_mut();
        for first in (0..tensor.len()).step_by(PIECE_VALUES) {
            let count = PIECE_VALUES.min(tensor.len() - first);
            tensor.read_e4m3(first, &mut piece.as_mut_slice()[..count])?;
            upload(self.stream, &piece, 0..count, to.at(first))?;
            wait_for_stream(self.stream, "copying experts to the GPU")?;
        }
        Ok(())
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
