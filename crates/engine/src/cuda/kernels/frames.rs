//! Frames to patches.

use cudarc::driver::DeviceRepr;
use half::bf16;

use super::{Kernels, StridedRows, launch, need};
use crate::cuda::{error::CudaError, memory::Pointer};

/// Coefficients of `rgb_from_planes`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Coefficients(pub [i32; 6]);

/// One pass of a scaling, on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct TapsAt {
    /// First source pixel of each.
    pub first: Pointer<i32>,
    /// Source pixels of each.
    pub count: Pointer<i32>,
    /// `[pixels, most]`.
    pub weights: Pointer<i32>,
    /// Row length of the weights.
    pub most: usize,
}

// SAFETY: six 32-bit integers in C layout, as the kernel declares them.
unsafe impl DeviceRepr for Coefficients {}

impl Kernels {
    /// `frame.cu`: colour.
    #[expect(
        clippy::too_many_arguments,
        reason = "the kernel's own, grouped where they belong together"
    )]
    pub fn rgb_from_planes(
        &self,
        planes: [Pointer<u8>; 3],
        format: i32,
        strides: [usize; 2],
        yuv: Coefficients,
        rgb: Pointer<u8>,
        (width, height): (usize, usize),
    ) -> Result<(), CudaError> {
        need(rgb.len() >= width * height * 3, "colour: beyond a buffer")?;
        launch!(
            self,
            rgb_from_planes,
            (width.div_ceil(128), height, 1),
            128,
            0,
            [
                planes[0].address(),
                planes[1].address(),
                planes[2].address(),
                format,
                strides[0] as i32,
                strides[1] as i32,
                yuv,
                rgb.address(),
                width as i32,
                height as i32,
            ]
        )
    }

    /// `frame.cu`: rows of `height` lines to another width.
    pub fn scale_across(
        &self,
        from: Pointer<u8>,
        taps: TapsAt,
        out: Pointer<u8>,
        (in_width, out_width, height): (usize, usize, usize),
    ) -> Result<(), CudaError> {
        need(
            from.len() >= in_width * height * 3 && out.len() >= out_width * height * 3,
            "scaling: beyond a buffer",
        )?;
        launch!(
            self,
            scale_across,
            (out_width.div_ceil(128), height, 1),
            128,
            0,
            [
                from.address(),
                taps.first.address(),
                taps.count.address(),
                taps.weights.address(),
                taps.most as i32,
                out.address(),
                in_width as i32,
                out_width as i32,
            ]
        )
    }

    /// `frame.cu`: lines of `row_bytes` bytes to another height.
    pub fn scale_down(
        &self,
        from: Pointer<u8>,
        taps: TapsAt,
        out: Pointer<u8>,
        (row_bytes, in_height, out_height): (usize, usize, usize),
    ) -> Result<(), CudaError> {
        need(
            from.len() >= row_bytes * in_height && out.len() >= row_bytes * out_height,
            "scaling: beyond a buffer",
        )?;
        launch!(
            self,
            scale_down,
            (row_bytes.div_ceil(128), out_height, 1),
            128,
            0,
            [
                from.address(),
                taps.first.address(),
                taps.count.address(),
                taps.weights.address(),
                taps.most as i32,
                out.address(),
                row_bytes as i32,
            ]
        )
    }

    /// `frame.cu`: patches of `crops` crops of one scaled picture.
    #[expect(
        clippy::too_many_arguments,
        reason = "the kernel's own, grouped where they belong together"
    )]
    pub fn patches(
        &self,
        rgb: Pointer<u8>,
        corner: Pointer<i32>,
        table: Pointer<bf16>,
        out: StridedRows,
        (crops, image_width): (usize, usize),
        (grid, patch): (usize, usize),
    ) -> Result<(), CudaError> {
        need(
            corner.len() >= crops * 2 && out.start.len() >= crops * grid * grid * out.stride,
            "patches: beyond a buffer",
        )?;
        launch!(
            self,
            patches,
            (crops * grid * grid, 1, 1),
            128,
            0,
            [
                rgb.address(),
                corner.address(),
                table.address(),
                out.start.address(),
                image_width as i32,
                grid as i32,
                patch as i32,
                out.stride as i32,
            ]
        )
    }
}
