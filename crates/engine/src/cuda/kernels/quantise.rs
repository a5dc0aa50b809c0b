//! From bf16 to e4m3.

use super::{Kernels, MatrixShape, Scale, StridedRows, launch, need};
use crate::cuda::{error::CudaError, memory::Pointer};

impl Kernels {
    /// `quantise.cu`: `out = x / scale` in e4m3.
    pub fn quantise(
        &self,
        x: StridedRows,
        out: StridedRows<u8>,
        scale: Scale,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        need(
            [width, x.stride, out.stride]
                .iter()
                .all(|n| n.is_multiple_of(8)),
            "quantising: widths and strides are multiples of 8",
        )?;
        need(
            x.hold(rows, width) && out.hold(rows, width),
            "quantising: rows beyond a buffer",
        )?;
        launch!(
            self,
            quantise,
            (rows, 1, 1),
            256,
            0,
            [
                x.start.address(),
                out.start.address(),
                width as i32,
                x.stride as i32,
                out.stride as i32,
                scale.value.recip(),
            ]
        )
    }

    /// `quantise.cu`: the largest size among the values and what `into` holds.
    pub fn largest(
        &self,
        x: StridedRows,
        into: Pointer<f32>,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        need(
            width.is_multiple_of(8) && x.stride.is_multiple_of(8),
            "largest value: widths and strides are multiples of 8",
        )?;
        need(
            x.hold(rows, width) && into.len() > 0,
            "largest value: rows beyond a buffer",
        )?;
        launch!(
            self,
            largest,
            (rows, 1, 1),
            256,
            0,
            [
                x.start.address(),
                into.address(),
                width as i32,
                x.stride as i32,
            ]
        )
    }
}
