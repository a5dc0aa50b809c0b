//! From bf16 to e4m3.

use super::{Kernels, MatrixShape, Scale, StridedRows, launch, require};
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
        require(
            [width, x.stride, out.stride]
                .iter()
                .all(|n| n.is_multiple_of(8)),
            "quantising: widths and strides are multiples of 8",
        )?;
        require(
            x.has_room_for(rows, width) && out.has_room_for(rows, width),
            "quantising: a buffer is too small",
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

    /// `quantise.cu`: `into = max(into, |x|)` over all values.
    pub fn abs_max(
        &self,
        x: StridedRows,
        into: Pointer<f32>,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            width.is_multiple_of(8) && x.stride.is_multiple_of(8),
            "largest magnitude: widths and strides are multiples of 8",
        )?;
        require(
            x.has_room_for(rows, width) && into.len() > 0,
            "largest magnitude: a buffer is too small",
        )?;
        launch!(
            self,
            abs_max,
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
