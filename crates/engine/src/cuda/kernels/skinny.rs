//! Products of few rows with large weights.

use super::launch::{Address, Kernels, launch, not_of_experts, require};
use crate::cuda::{
    error::CudaError,
    memory::Pointer,
    tensor::{LinearRef, ScaledRows, StridedRows, WeightPointer, kernel_suffix},
};

/// Where the sums plus bias go.
#[derive(Clone, Copy, Debug)]
pub enum SkinnyOutput {
    Bf16(StridedRows),
    /// `[rows, outputs]`.
    F32(Pointer<f32>),
    /// Added to the values that the buffer has.
    Add(StridedRows),
    Gelu(StridedRows),
}

impl SkinnyOutput {
    /// The rows from `row` on, of `outputs` values.
    fn from(self, row: usize, outputs: usize) -> Self {
        match self {
            Self::Bf16(out) => Self::Bf16(out.from(row)),
            Self::F32(out) => Self::F32(out.at(row * outputs)),
            Self::Add(out) => Self::Add(out.from(row)),
            Self::Gelu(out) => Self::Gelu(out.from(row)),
        }
    }
}

/// The most rows of a product.
const ROWS_MAX: usize = 16;

impl Kernels {
    /// True when [`Kernels::skinny`] accepts the product.
    pub fn is_skinny(linear: &LinearRef, rows: usize) -> bool {
        rows <= ROWS_MAX && linear.inner.is_multiple_of(64) && linear.outputs.is_multiple_of(16)
    }

    /// The same for some more rows, as several products, which read the weights once each.
    pub fn skinny_in_parts(
        &self,
        linear: &LinearRef,
        x: StridedRows,
        to: SkinnyOutput,
        rows: usize,
    ) -> Result<(), CudaError> {
        (0..rows).step_by(ROWS_MAX).try_for_each(|row| {
            let to = to.from(row, linear.outputs);
            self.skinny(linear, x.from(row), to, ROWS_MAX.min(rows - row))
        })
    }

    /// `skinny_product.cu`, for products that [`Kernels::is_skinny`] admits.
    pub fn skinny(
        &self,
        linear: &LinearRef,
        x: StridedRows,
        to: SkinnyOutput,
        rows: usize,
    ) -> Result<(), CudaError> {
        require(
            Self::is_skinny(linear, rows),
            "few rows: the kernel does not support this product",
        )?;
        require(
            x.start.len() >= (rows - 1) * x.stride + linear.inner,
            "few rows: a buffer is too small",
        )?;
        let in_bf16 = |out: StridedRows| (out.start.address(), out.start.len(), out.stride);
        let (epilogue, (out, out_len, out_stride)) = match to {
            SkinnyOutput::Bf16(out) => ("to_bf16", in_bf16(out)),
            SkinnyOutput::F32(out) => ("to_f32", (out.address(), out.len(), linear.outputs)),
            SkinnyOutput::Add(out) => ("add_to", in_bf16(out)),
            SkinnyOutput::Gelu(out) => ("gelu_from", in_bf16(out)),
        };
        require(
            out_len >= (rows - 1) * out_stride + linear.outputs,
            "few rows: a buffer is too small",
        )?;
        require(
            linear.is_within_buffers(),
            "few rows: the weights are too small",
        )?;
        // Kernels for bf16 do not read the scales.
        let (weight, scales, weight_stride) = match linear.weight {
            WeightPointer::Bf16(weight) => (weight.address(), 0, linear.inner),
            WeightPointer::E4m3 { values, scale, .. } => {
                (values.address(), scale.at.address(), linear.inner)
            }
            WeightPointer::Int8(ScaledRows { values, scales }) => {
                (values.start.address(), scales.address(), values.stride)
            }
            WeightPointer::ExpertE4m3(_)
            | WeightPointer::ExpertInt8(_)
            | WeightPointer::ExpertInt4(_) => return Err(not_of_experts()),
        };
        let suffix = kernel_suffix(linear.number());
        let most = if rows > 8 { 16 } else { 8 };
        let name = format!("skinny_{most}_{epilogue}{suffix}");
        let grid = (linear.outputs / 16, 1, 1);
        // With the last epilogue all outputs go through GELU, to one buffer.
        launch!(
            self,
            &name,
            grid,
            256,
            [
                x.start,
                Address(weight),
                Address(scales),
                linear.bias,
                Address(out),
                Address(out),
                rows,
                linear.inner,
                x.stride,
                weight_stride,
                out_stride,
                out_stride,
                0_usize,
            ]
        )
    }
}
