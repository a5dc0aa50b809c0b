//! Values that all parts of the backend share: rows between layers, layers, and products of the two. Most are positions in buffers. Nothing
//! here knows kernels, cuBLASLt or the network.

use std::{
    any::Any,
    ops::{Deref, Range},
    rc::Rc,
};

use half::bf16;

use super::{
    error::CudaError,
    memory::{Buffer, Pointer},
};
use crate::network::{
    Mlp, Norm, Tau, TextBlock, TextMlp, VisionBlock,
    format::{INT4_GROUP, Number},
};

/// Positions of a page of the cache (`kernels/common.cuh`).
pub const PAGE: usize = 16;
/// Values of a head of the decoder.
pub const TEXT_HEAD: usize = 64;
/// Rows of a tile of `attend_prefix`.
pub const TILE: usize = 16;
/// Bytes that rows in int8 begin at multiples of.
const ROW_ALIGNED_BYTES: usize = 128;

/// Shape of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatrixShape {
    pub rows: usize,
    /// Values of a row.
    pub width: usize,
}

/// Rows of values, `stride` apart.
#[derive(Clone, Copy, Debug)]
pub struct StridedRows<T = bf16> {
    pub start: Pointer<T>,
    /// Values from row to row.
    pub stride: usize,
}

impl<T: Copy> StridedRows<T> {
    /// Rows without gaps.
    pub fn packed(start: Pointer<T>, width: usize) -> Self {
        Self {
            start,
            stride: width,
        }
    }

    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        self.behind(row * self.stride)
    }

    /// The values of each row behind its first `columns`.
    pub fn behind(self, columns: usize) -> Self {
        Self {
            start: self.start.at(columns),
            ..self
        }
    }

    /// True when the buffer has room for `rows` rows of `width` values.
    pub fn has_room_for(&self, rows: usize, width: usize) -> bool {
        rows == 0 || self.start.len() >= (rows - 1) * self.stride + width
    }
}

/// The factor of values in e4m3, a power of two.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    pub value: f32,
    /// `value` and its inverse, [`SCALE_STEP`] apart, where cuBLASLt reads them.
    pub at: Pointer<f32>,
}

/// Values from one scale to the next: cuBLASLt rejects products whose scales do not begin at multiples of 16 bytes.
pub const SCALE_STEP: usize = 4;

/// Rows of numbers in 8 bits: a value is the number times the scale of its row.
#[derive(Clone, Copy, Debug)]
pub struct ScaledRows<T> {
    pub values: StridedRows<T>,
    /// `[rows]`.
    pub scales: Pointer<f32>,
}

pub type Int8Rows = ScaledRows<i8>;
pub type E4m3Rows = ScaledRows<u8>;

impl<T: Copy> ScaledRows<T> {
    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        Self {
            values: self.values.from(row),
            scales: self.scales.at(row),
        }
    }

    pub fn has_room_for(&self, rows: usize, width: usize) -> bool {
        self.values.has_room_for(rows, width) && self.scales.len() >= rows
    }
}

/// Rows in int4, eight values in 32 bits (`s4x8` of `kernels/common.cuh`): a value is the number times the scale of its group.
#[derive(Clone, Copy, Debug)]
pub struct Int4Rows {
    /// `[rows, width / 8]`
    pub values: Pointer<u32>,
    /// `[rows, width / INT4_GROUP]`
    pub scales: Pointer<bf16>,
    pub width: usize,
}

impl Int4Rows {
    /// Values in 32 bits.
    pub const PACKED: usize = 8;

    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        Self {
            values: self.values.at(row * self.width / Self::PACKED),
            scales: self.scales.at(row * self.width / INT4_GROUP),
            ..self
        }
    }

    pub fn has_room_for(&self, rows: usize, width: usize) -> bool {
        width <= self.width
            && self.values.len() * Self::PACKED >= rows * self.width
            && self.scales.len() * INT4_GROUP >= rows * self.width
    }
}

impl Int8Rows {
    /// Values from row to row for this width: rows begin at multiples of 128 bytes. Copies of boxes are slower otherwise (the MLP's second
    /// layer over nine crops, 4304 inputs: 82 instead of 64 us).
    pub fn stride_of(width: usize) -> usize {
        width.next_multiple_of(ROW_ALIGNED_BYTES)
    }

    /// Rows of this width, [`Int8Rows::stride_of`] values apart.
    pub fn new(values: Pointer<i8>, scales: Pointer<f32>, width: usize) -> Self {
        Self {
            values: StridedRows {
                start: values,
                stride: Self::stride_of(width),
            },
            scales,
        }
    }
}

/// Values between layers.
#[derive(Clone, Copy, Debug)]
pub enum Activations {
    Bf16(StridedRows),
    /// Results of products with weights in bf16.
    F32(StridedRows<f32>),
    /// In e4m3; a value is the number times the scale.
    E4m3(StridedRows<u8>, Scale),
    /// Inputs of products whose weights are in int8.
    Int8(Int8Rows),
}

impl Activations {
    /// bf16 without gaps.
    pub fn bf16(start: Pointer<bf16>, width: usize) -> Self {
        Self::Bf16(StridedRows::packed(start, width))
    }

    pub fn f32(start: Pointer<f32>, width: usize) -> Self {
        Self::F32(StridedRows::packed(start, width))
    }

    /// The rows from `row` on.
    pub fn from(self, row: usize) -> Self {
        match self {
            Self::Int8(rows) => Self::Int8(rows.from(row)),
            _ => self.behind(row * self.stride()),
        }
    }

    /// The values of each row behind its first `columns`.
    pub fn behind(self, columns: usize) -> Self {
        match self {
            Self::Bf16(rows) => Self::Bf16(rows.behind(columns)),
            Self::F32(rows) => Self::F32(rows.behind(columns)),
            Self::E4m3(rows, scale) => Self::E4m3(rows.behind(columns), scale),
            Self::Int8(ScaledRows { values, scales }) => Self::Int8(ScaledRows {
                values: values.behind(columns),
                scales,
            }),
        }
    }

    /// True when the buffer has room for `rows` rows of `width` values.
    pub fn has_room_for(&self, rows: usize, width: usize) -> bool {
        match self {
            Self::Bf16(to) => to.has_room_for(rows, width),
            Self::F32(to) => to.has_room_for(rows, width),
            Self::E4m3(to, _) => to.has_room_for(rows, width),
            Self::Int8(to) => to.has_room_for(rows, width),
        }
    }

    pub fn number(&self) -> Number {
        self.place().0
    }

    /// Values from row to row.
    pub fn stride(&self) -> usize {
        self.place().1
    }

    pub fn address(&self) -> u64 {
        self.place().2
    }

    fn place(&self) -> (Number, usize, u64) {
        match self {
            Self::Bf16(rows) => (Number::Bf16, rows.stride, rows.start.address()),
            Self::F32(rows) => (Number::F32, rows.stride, rows.start.address()),
            Self::E4m3(rows, _) => (Number::E4m3, rows.stride, rows.start.address()),
            Self::Int8(ScaledRows { values, .. }) => {
                (Number::Int8, values.stride, values.start.address())
            }
        }
    }

    /// The kernel that writes them, and what it multiplies values with. Kernels for bf16 do not read that, and those for int8 find it.
    pub fn writer(&self, kernel: &str) -> (String, f32) {
        let factor = match self {
            Self::E4m3(_, scale) => scale.value.recip(),
            _ => 1.0,
        };
        (format!("{kernel}{}", kernel_suffix(self.number())), factor)
    }
}

/// What the names of kernels end with by the format that they read or write.
pub fn kernel_suffix(number: Number) -> &'static str {
    match number {
        Number::E4m3 => "_e4m3",
        Number::Int8 => "_int8",
        Number::Int4 => "_int4",
        Number::F32 | Number::F16 | Number::Bf16 => "",
    }
}

pub type GpuNorm = Norm<Buffer<bf16>>;
pub type NormRef = Norm<Pointer<bf16>>;

impl GpuNorm {
    pub fn at(&self) -> NormRef {
        Norm {
            weight: self.weight.start(),
            bias: self.bias.start(),
        }
    }
}

/// An encoder of coordinates or sizes.
#[derive(Clone, Copy)]
pub struct GpuEncoder {
    pub frequencies: Pointer<f32>,
    /// Its inputs are cosines, then sines.
    pub linear: LinearRef,
}

/// What a sum goes through before it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    Bias,
    /// Plus bias, through GELU (tanh).
    BiasGelu,
    /// Plus bias, plus the previous value of the output.
    BiasAdd,
}

/// Where the weights of a linear layer are, `[outputs, inner]`.
#[derive(Clone, Copy, Debug)]
pub enum WeightPointer {
    Bf16(Pointer<bf16>),
    Int8(Int8Rows),
    /// A weight is the number times the scale.
    E4m3 {
        values: Pointer<u8>,
        scale: Scale,
        /// Of the layer's inputs.
        input: Scale,
    },
    /// Of experts alone: each output has a scale.
    ExpertE4m3(E4m3Rows),
    ExpertInt8(Int8Rows),
    /// Of experts alone: each group of inputs has a scale.
    ExpertInt4(Int4Rows),
}

/// Weights and bias of a linear layer. Those of experts are behind each other, without biases.
#[derive(Clone, Copy, Debug)]
pub struct LinearRef {
    pub weight: WeightPointer,
    /// `[outputs]`.
    pub bias: Pointer<bf16>,
    /// The same in f32, for results in f32.
    pub bias_f32: Option<Pointer<f32>>,
    /// The largest size of an input so far, where inputs are measured.
    pub largest_input: Option<Pointer<f32>>,
    pub outputs: usize,
    pub inner: usize,
}

/// A linear layer with its memory, or a part of one.
#[derive(Clone)]
pub struct GpuLinear {
    pub at: LinearRef,
    /// The weights and their scales.
    pub weight: Rc<dyn Any>,
    pub bias: Rc<(Buffer<bf16>, Buffer<f32>)>,
    /// While fp8 is calibrated, if it is to be in e4m3.
    pub largest_input: Option<Rc<Buffer<f32>>>,
}

impl Deref for GpuLinear {
    type Target = LinearRef;

    fn deref(&self) -> &LinearRef {
        &self.at
    }
}

impl GpuLinear {
    /// Some of its outputs.
    fn part(&self, outputs: Range<usize>) -> Self {
        Self {
            at: self.outputs_in(outputs),
            ..self.clone()
        }
    }

    /// True for weights of experts in 8 or 4 bits.
    pub fn is_experts(&self) -> bool {
        use WeightPointer::{ExpertE4m3, ExpertInt4, ExpertInt8};
        matches!(
            self.at.weight,
            ExpertE4m3(_) | ExpertInt8(_) | ExpertInt4(_)
        )
    }

    /// True for the same layer or parts of one.
    pub fn is_stored_with(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.bias, &other.bias)
    }
}

pub type GpuTau = Tau<Buffer<bf16>>;
pub type GpuTextBlock = TextBlock<GpuLinear, Buffer<bf16>>;
pub type GpuVisionBlock = VisionBlock<GpuLinear, Buffer<bf16>>;

impl GpuTextBlock {
    /// Attention and MLP of a block read the same rows and add to the same hidden states, so one without experts has two layers in memory.
    /// `qkv_fc1` has the outputs of queries, keys and values, so many, then those of the MLP's first layer, `[of_qkv + ff, width]`. In each
    /// head of queries and keys, outputs that are rotated together are 8 apart (`kernels/rope_scatter.cu`). `proj_fc2` is attention's
    /// projection beside the MLP's second layer, `[width, of_qkv / 3 + ff]`; it is both in the block.
    pub fn of_joined(
        ln: GpuNorm,
        tau: Option<GpuTau>,
        [qkv_fc1, proj_fc2]: [GpuLinear; 2],
        of_qkv: usize,
    ) -> Self {
        Self {
            ln,
            qkv: qkv_fc1.part(0..of_qkv),
            tau,
            proj: proj_fc2.clone(),
            mlp: TextMlp::Dense(Mlp {
                fc1: qkv_fc1.part(of_qkv..qkv_fc1.outputs),
                fc2: proj_fc2,
            }),
        }
    }

    /// The layers in memory, but for experts.
    pub fn joined(&self) -> [GpuLinear; 2] {
        let mut qkv_fc1 = self.qkv.clone();
        if let TextMlp::Dense(mlp) = &self.mlp {
            qkv_fc1.at.outputs += mlp.fc1.outputs;
        }
        [qkv_fc1, self.proj.clone()]
    }
}

/// `out = epilogue(x w^T + bias)` for `rows` rows. `x` and `out` have room for [`bucket`] rows. Where x is in e4m3, so are the
/// weights, and out may be.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    pub linear: LinearRef,
    /// `[rows, inner]`.
    pub x: Activations,
    /// `[rows, outputs]`.
    pub out: Activations,
    pub rows: usize,
    /// What is done with a sum.
    pub epilogue: Epilogue,
}

impl LinearRef {
    /// Some of its outputs, as a layer of its own.
    pub fn outputs_in(&self, range: Range<usize>) -> Self {
        let weights = range.start * self.inner;
        Self {
            weight: match self.weight {
                WeightPointer::Bf16(weight) => WeightPointer::Bf16(weight.at(weights)),
                WeightPointer::Int8(rows) => WeightPointer::Int8(rows.from(range.start)),
                WeightPointer::ExpertE4m3(rows) => {
                    WeightPointer::ExpertE4m3(rows.from(range.start))
                }
                WeightPointer::ExpertInt8(rows) => {
                    WeightPointer::ExpertInt8(rows.from(range.start))
                }
                WeightPointer::ExpertInt4(rows) => {
                    WeightPointer::ExpertInt4(rows.from(range.start))
                }
                WeightPointer::E4m3 {
                    values,
                    scale,
                    input,
                } => WeightPointer::E4m3 {
                    values: values.at(weights),
                    scale,
                    input,
                },
            },
            bias: self.bias.at(range.start),
            bias_f32: self.bias_f32.map(|bias| bias.at(range.start)),
            outputs: range.len(),
            ..*self
        }
    }

    /// The format of its weights.
    pub fn number(&self) -> Number {
        match self.weight {
            WeightPointer::Bf16(_) => Number::Bf16,
            WeightPointer::Int8(_) | WeightPointer::ExpertInt8(_) => Number::Int8,
            WeightPointer::ExpertInt4(_) => Number::Int4,
            WeightPointer::E4m3 { .. } | WeightPointer::ExpertE4m3(_) => Number::E4m3,
        }
    }

    /// Its bias in f32; an error where it has none.
    pub fn bias_f32(&self) -> Result<Pointer<f32>, CudaError> {
        self.bias_f32.ok_or_else(|| {
            CudaError::Shape(format!(
                "a layer of {} outputs has no bias in f32 where one is needed",
                self.outputs
            ))
        })
    }

    /// Its weights in bf16; an error where they are in 8 bits.
    pub fn bf16(&self) -> Result<Pointer<bf16>, CudaError> {
        match self.weight {
            WeightPointer::Bf16(weight) => Ok(weight),
            _ => Err(CudaError::Shape(format!(
                "a layer of {} outputs is in 8 bits where bf16 is needed",
                self.outputs
            ))),
        }
    }

    /// The product of `rows` rows with it.
    pub fn product(
        self,
        x: Activations,
        out: Activations,
        rows: usize,
        epilogue: Epilogue,
    ) -> Product {
        Product {
            linear: self,
            x,
            out,
            rows,
            epilogue,
        }
    }

    /// True when the buffers have all weights.
    pub fn is_within_buffers(&self) -> bool {
        let values = self.outputs * self.inner;
        match self.weight {
            WeightPointer::Bf16(weight) => weight.len() >= values,
            WeightPointer::E4m3 { values: at, .. } => at.len() >= values,
            WeightPointer::Int8(rows) | WeightPointer::ExpertInt8(rows) => {
                rows.has_room_for(self.outputs, self.inner)
            }
            WeightPointer::ExpertE4m3(rows) => rows.has_room_for(self.outputs, self.inner),
            WeightPointer::ExpertInt4(rows) => rows.has_room_for(self.outputs, self.inner),
        }
    }
}

impl Product {
    /// True when the buffers have room for all rows of the bucket.
    pub fn is_within_buffers(&self) -> bool {
        let rows = bucket(self.rows);
        self.x.has_room_for(rows, self.linear.inner)
            && self.out.has_room_for(rows, self.linear.outputs)
            && self.linear.is_within_buffers()
            && self.linear.bias.len() >= self.linear.outputs
    }
}

/// Rows that are computed for `rows` wanted ones. Above 512 at most a fiftieth is wasted, and there are 50 to 100
/// buckets up to twice as many rows.
pub fn bucket(rows: usize) -> usize {
    match rows {
        0..=64 => rows.next_multiple_of(8),
        65..=512 => rows.next_multiple_of(32),
        _ => rows.next_multiple_of(1 << (rows / 50).ilog2()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn buckets_hold_their_rows_and_waste_little() {
        let mut last = 0;
        for rows in 1..50_000 {
            let padded = bucket(rows);
            assert!(padded >= rows && bucket(padded) == padded, "{rows}");
            assert!(padded >= last, "{rows}: buffers for more rows hold fewer");
            let most = if rows > 512 {
                rows / 50
            } else {
                rows.max(14) / 2
            };
            assert!(padded - rows <= most, "{rows}");
            last = padded;
        }
    }

    #[test]
    fn buckets_are_few() {
        let buckets: HashSet<usize> = (1..40_000).map(bucket).collect();
        assert!(buckets.len() < 500, "{}", buckets.len());
    }
}
