//! Products of few rows with large weights.

use super::{Kernels, StridedRows, launch, require};
use crate::cuda::{error::CudaError, memory::Pointer, products::LinearRef};

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

/// The most rows of a product.
const ROWS_MAX: usize = 16;

impl Kernels {
    /// True when [`Kernels::skinny`] accepts the product.
    pub fn is_skinny(linear: &LinearRef, rows: usize) -> bool {
        rows <= ROWS_MAX && linear.inner.is_multiple_of(64) && linear.outputs.is_multiple_of(16)
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
        let (which, out, out_len, out_stride) = match to {
            SkinnyOutput::Bf16(out) => (0, out.start.address(), out.start.len(), out.stride),
            SkinnyOutput::F32(out) => (1, out.address(), out.len(), linear.outputs),
            SkinnyOutput::Add(out) => (2, out.start.address(), out.start.len(), out.stride),
            SkinnyOutput::Gelu(out) => (3, out.start.address(), out.start.len(), out.stride),
        };
        require(
            out_len >= (rows - 1) * out_stride + linear.outputs,
            "few rows: a buffer is too small",
        )?;
        let function = &self.skinny[usize::from(rows > 8)][which];
        let weight = linear.weight.address();
        let (inner, x_stride, out_stride) =
            (linear.inner as i32, x.stride as i32, out_stride as i32);
        let grid = (linear.outputs / 16, 1, 1);
        // With the last epilogue all outputs go through GELU, to one buffer.
        launch!(@on self, function, "launching skinny_product", grid, 256, 0, [
            x.start.address(), weight, linear.bias.address(), out, out, rows as i32, inner, x_stride, out_stride,
            out_stride, 0_i32,
        ])
    }
}
