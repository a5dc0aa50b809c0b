//! From tensors of a file to the GPU, in bf16 or fewer bits, piece by piece: neither the host nor the GPU has a layer twice.
//!
//! ```text
//!   file ─▶ some rows in pinned memory, in bf16 and in their order ─┬─▶ the layer's weights
//!                                                                   └─▶ a piece on the GPU ─▶ the layer's weights in 8 or 4 bits
//! ```
//!
//! Experts that a file has in e4m3 are copied as they are, and unpacked on the GPU where they are wanted in another format.

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
            GpuLinear, GpuTau, GpuTextBlock, Int4Rows, Int8Rows, LinearRef, MatrixShape,
            ScaledRows, StridedRows, TEXT_HEAD, WeightPointer,
        },
    },
    model::{Formats, LargeLayer, LinearWeights, Tensor},
    network::{
        Experts, PartMap, Tau, TextBlock, TextMlp,
        format::{Format, INT4_GROUP, Number},
    },
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
    /// The same of experts that the file has in e4m3.
    in_e4m3: Buffer<u8>,
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
        let in_e4m3 = match (converts_experts, experts) {
            (true, Some(Number::E4m3)) => PIECE_VALUES,
            _ => 0,
        };
        Ok(Self {
            stream: &kernels.stream,
            formats,
            kernels,
            piece: RefCell::new(PinnedBuffer::zeros(PIECE_VALUES)?),
            bytes: RefCell::new(PinnedBuffer::zeros(bytes)?),
            unconverted: Buffer::zeros(&kernels.stream, converted)?,
            in_e4m3: Buffer::zeros(&kernels.stream, in_e4m3)?,
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
                let of_qkv = block.qkv.outputs();
                let qkv_fc1 = self.stacked(block.qkv, Some(mlp.fc1))?;
                let proj_fc2 = self.side_by_side(block.proj, mlp.fc2)?;
                let layers = [qkv_fc1, proj_fc2];
                Ok(GpuTextBlock::of_joined(ln, tau, layers, of_qkv))
            }
            TextMlp::Experts(experts) => Ok(GpuTextBlock {
                ln,
                tau,
                qkv: self.stacked(block.qkv, None)?,
                proj: self.layer(block.proj)?,
                mlp: TextMlp::Experts(self.experts(experts)?),
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

    pub fn experts(
        &mut self,
        experts: Experts<LinearWeights>,
    ) -> Result<Experts<GpuLinear>, CudaError> {
        Ok(Experts {
            router: self.layer(experts.router)?,
            up: self.all_experts(experts.up)?,
            down: self.all_experts(experts.down)?,
            active: experts.active,
        })
    }

    /// All experts of a block, behind each other.
    fn all_experts(&self, layer: LinearWeights) -> Result<GpuLinear, CudaError> {
        let [count, outputs, inner] = layer.weight.shape[..] else {
            return Err(CudaError::Shape("its experts are no matrices".into()));
        };
        let (weight, memory): (_, Rc<dyn Any>) =
            match (self.formats.experts.weight, &layer.row_scales) {
                (Number::E4m3, Some(scales)) => {
                    let values = Buffer::zeros(self.stream, count * outputs * inner)?;
                    self.copy_bytes(&layer.weight, values.start())?;
                    let scales = Buffer::from_host(self.stream, &scales.to_f32()?)?;
                    let rows = packed(values.start(), scales.start(), inner);
                    (WeightPointer::ExpertE4m3(rows), Rc::new((values, scales)))
                }
                (Number::E4m3, None) => {
                    let (values, scales) = self.experts_in_e4m3(&layer.weight, inner)?;
                    let rows = packed(values.start(), scales.start(), inner);
                    (WeightPointer::ExpertE4m3(rows), Rc::new((values, scales)))
                }
                (Number::Int8, scales) => {
                    let (values, scales) =
                        self.experts_in_int8(&layer.weight, scales.as_ref(), inner)?;
                    let rows = packed(values.start(), scales.start(), inner);
                    (WeightPointer::ExpertInt8(rows), Rc::new((values, scales)))
                }
                (Number::Int4, scales) => {
                    let (rows, memory) =
                        self.experts_in_int4(&layer.weight, scales.as_ref(), inner)?;
                    (WeightPointer::ExpertInt4(rows), memory)
                }
                (_, Some(_)) => {
                    return Err(CudaError::Shape(
                        "its experts are in e4m3, and bf16 is wanted".into(),
                    ));
                }
                (_, None) => {
                    let values = self.in_bf16(&WeightRows::of(&layer.weight, inner))?;
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

    fn experts_in_e4m3(
        &self,
        weight: &Tensor,
        inner: usize,
    ) -> Result<(Buffer<u8>, Buffer<f32>), CudaError> {
        let values = Buffer::zeros(self.stream, weight.len())?;
        let scales = Buffer::zeros(self.stream, weight.len() / inner)?;
        let all = packed(values.start(), scales.start(), inner);
        self.converted_experts(weight, inner, |from, first, shape| {
            let from = StridedRows::packed(from, inner);
            self.kernels
                .quantise_rows_e4m3(from, all.from(first), shape)
        })?;
        Ok((values, scales))
    }

    /// Numbers with `row_scales` are converted without them; the new scales are multiplied with them.
    fn experts_in_int8(
        &self,
        weight: &Tensor,
        row_scales: Option<&Tensor>,
        inner: usize,
    ) -> Result<(Buffer<i8>, Buffer<f32>), CudaError> {
        let values = Buffer::zeros(self.stream, weight.len())?;
        let scales = Buffer::zeros(self.stream, weight.len() / inner)?;
        let all = packed(values.start(), scales.start(), inner);
        self.converted_experts(weight, inner, |from, first, shape| {
            let from = StridedRows::packed(from, inner);
            self.kernels.quantise_rows(from, all.from(first), shape)
        })?;
        let Some(row_scales) = row_scales else {
            return Ok((values, scales));
        };
        let (of_numbers, of_rows) = (scales.to_host(self.stream)?, row_scales.to_f32()?);
        let both = of_numbers.iter().zip(&of_rows).map(|(a, b)| a * b);
        let both: Vec<f32> = both.collect();
        Ok((values, Buffer::from_host(self.stream, &both)?))
    }

    fn experts_in_int4(
        &self,
        weight: &Tensor,
        row_scales: Option<&Tensor>,
        inner: usize,
    ) -> Result<(Int4Rows, Rc<dyn Any>), CudaError> {
        let values = Buffer::zeros(self.stream, weight.len() / Int4Rows::PACKED)?;
        let scales = Buffer::zeros(self.stream, weight.len() / INT4_GROUP)?;
        let all = Int4Rows {
            values: values.start(),
            scales: scales.start(),
            width: inner,
        };
        let row_scales = row_scales
            .map(|scales| Buffer::from_host(self.stream, &scales.to_f32()?))
            .transpose()?;
        self.converted_experts(weight, inner, |from, first, shape| {
            let of_rows = row_scales.as_ref().map(|scales| scales.start().at(first));
            self.kernels
                .quantise_groups(from, of_rows, all.from(first), shape)
        })?;
        Ok((all, Rc::new((values, scales))))
    }

    pub fn lm_head(&self, layer: LinearWeights) -> Result<GpuLinear, CudaError> {
        let bias = layer.bias.into_f32()?;
        let rows = WeightRows::padded(&layer.weight, layer.weight.len() / bias.len());
        self.linear_in(self.formats.lm_head, &rows, &bias, None)
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
        self.linear_in(self.formats.of(large), weight, bias, large)
    }

    fn linear_in(
        &self,
        format: Format,
        weight: &WeightRows<'_>,
        bias: &[f32],
        large: Option<LargeLayer>,
    ) -> Result<GpuLinear, CudaError> {
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

    /// The same of experts. What a file has in e4m3 is copied so and unpacked on the GPU, without the scales of its rows.
    fn converted_experts(
        &self,
        weight: &Tensor,
        width: usize,
        convert: impl Fn(Pointer<bf16>, usize, MatrixShape) -> Result<(), CudaError>,
    ) -> Result<(), CudaError> {
        const WHAT: &str = "converting experts";
        if weight.number() != Number::E4m3 {
            let rows = WeightRows::of(weight, width);
            return self.converted(&rows, WHAT, |from, first, shape| {
                convert(from.start, first, shape)
            });
        }
        let (packed, piece) = (self.in_e4m3.start(), self.unconverted.start());
        for rows in WeightRows::of(weight, width).pieces() {
            let (first, count) = (rows.start * width, rows.len() * width);
            let mut bytes = self.bytes.borrow_mut();
            let room = bytes.as_mut_slice().get_mut(..count);
            weight.read_e4m3(first, room.ok_or_else(|| too_wide(width))?)?;
            upload(self.stream, &bytes, 0..count, packed)?;
            self.kernels.e4m3_to_bf16(packed, piece, count)?;
            let shape = MatrixShape {
                rows: rows.len(),
                width,
            };
            convert(piece, rows.start, shape)?;
            wait_for_stream(self.stream, WHAT)?;
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
        let room = room.ok_or_else(|| too_wide(weight.width))?;
        weight.read(rows, room)?;
        upload(self.stream, &piece, 0..values, to)?;
        wait_for_stream(self.stream, "copying weights to the GPU")
    }
}

/// Experts' rows behind each other, in 8 bits.
fn packed<T: Copy>(values: Pointer<T>, scales: Pointer<f32>, width: usize) -> ScaledRows<T> {
    ScaledRows {
        values: StridedRows::packed(values, width),
        scales,
    }
}

fn too_wide(inputs: usize) -> CudaError {
    CudaError::Shape(format!(
        "a layer has {inputs} inputs, more than {} are not supported",
        PIECE_VALUES / TEXT_HEAD
    ))
}
