//! Weights of experts to int4, and from e4m3 (`quantise_experts.cu`).

use half::bf16;

use super::launch::{Address, Kernels, launch, require};
use crate::{
    cuda::{
        error::CudaError,
        memory::Pointer,
        tensor::{Int4Rows, MatrixShape},
    },
    network::format::INT4_GROUP,
};

impl Kernels {
    /// The numbers of `count` values in e4m3, without their scales.
    pub fn e4m3_to_bf16(
        &self,
        x: Pointer<u8>,
        out: Pointer<bf16>,
        count: usize,
    ) -> Result<(), CudaError> {
        require(
            count.is_multiple_of(16) && x.len() >= count && out.len() >= count,
            "unpacking e4m3: a buffer is too small",
        )?;
        launch!(
            self,
            "e4m3_to_bf16",
            (count.div_ceil(4096), 1, 1),
            256,
            [x, out, count]
        )
    }

    /// Rows without gaps to int4, each value times the scale of its row, where there are such.
    pub fn quantise_groups(
        &self,
        x: Pointer<bf16>,
        row_scales: Option<Pointer<f32>>,
        to: Int4Rows,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            width.is_multiple_of(INT4_GROUP) && width == to.width,
            "int4: widths are multiples of 128",
        )?;
        require(
            x.len() >= rows * width
                && to.has_room_for(rows, width)
                && row_scales.is_none_or(|scales| scales.len() >= rows),
            "int4: a buffer is too small",
        )?;
        let row_scales = row_scales.map_or(0, |scales| scales.address());
        launch!(
            self,
            "quantise_groups",
            (rows, 1, 1),
            256,
            [x, Address(row_scales), to.values, to.scales, width]
        )
    }
}
