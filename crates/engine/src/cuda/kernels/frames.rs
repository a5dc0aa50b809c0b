//! Frames to patches.

use cudarc::driver::DeviceRepr;
use half::bf16;

use super::{Kernels, StridedRows, launch, require};
use crate::cuda::{error::CudaError, memory::Pointer};
use spotter_core::PixelFormat;

/// Coefficients of `rgb_from_planes`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Coefficients(pub [i32; 6]);

/// Size of a picture in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PixelSize {
    pub width: usize,
    pub height: usize,
}

/// A decoded frame on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct PlanarFrame {
    /// Where each plane begins.
    pub planes: [Pointer<u8>; 3],
    pub format: PixelFormat,
    /// Bytes from row to row: of the first plane, and of the others.
    pub strides: [usize; 2],
    pub yuv: Coefficients,
    pub size: PixelSize,
}

/// One pass of a scaling: along the rows or along the columns.
#[derive(Clone, Copy, Debug)]
pub struct ScalePass {
    pub taps: TapsRef,
    /// Size of the picture that the pass reads.
    pub from: PixelSize,
    /// Size of the picture that the pass writes; one side is that of `from`.
    pub to: PixelSize,
}

/// Crops of one scaled picture.
#[derive(Clone, Copy, Debug)]
pub struct PatchInputs {
    /// `[height, image_width, 3]`.
    pub rgb: Pointer<u8>,
    /// `[crops, 2]`: left and top of each crop, pixels.
    pub corner: Pointer<i32>,
    /// `[256]`: what each byte becomes.
    pub table: Pointer<bf16>,
    pub crops: usize,
    pub image_width: usize,
    /// Patches along each side of a crop.
    pub grid: usize,
    /// Pixels along each side of a patch.
    pub patch: usize,
}

/// Weights of one pass of a scaling, on the GPU.
#[derive(Clone, Copy, Debug)]
pub struct TapsRef {
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
    pub fn rgb_from_planes(&self, frame: &PlanarFrame, rgb: Pointer<u8>) -> Result<(), CudaError> {
        let &PlanarFrame {
            planes,
            format,
            strides,
            yuv,
            size: PixelSize { width, height },
        } = frame;
        let format = match format {
            PixelFormat::Rgb => 0_i32,
            PixelFormat::Nv12 => 1,
            PixelFormat::I420 => 2,
        };
        require(
            rgb.len() >= width * height * 3,
            "colour: a buffer is too small",
        )?;
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

    /// `frame.cu`: rows to another width.
    pub fn scale_across(
        &self,
        from: Pointer<u8>,
        out: Pointer<u8>,
        pass: &ScalePass,
    ) -> Result<(), CudaError> {
        let (in_width, out_width, height) = (pass.from.width, pass.to.width, pass.to.height);
        let taps = pass.taps;
        require(
            from.len() >= in_width * height * 3 && out.len() >= out_width * height * 3,
            "scaling: a buffer is too small",
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

    /// `frame.cu`: columns to another height.
    pub fn scale_down(
        &self,
        from: Pointer<u8>,
        out: Pointer<u8>,
        pass: &ScalePass,
    ) -> Result<(), CudaError> {
        let (in_height, out_height) = (pass.from.height, pass.to.height);
        let (row_bytes, taps) = (pass.to.width * 3, pass.taps);
        require(
            from.len() >= row_bytes * in_height && out.len() >= row_bytes * out_height,
            "scaling: a buffer is too small",
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

    /// `frame.cu`: patches of crops, a row each.
    pub fn patches(&self, inputs: &PatchInputs, out: StridedRows) -> Result<(), CudaError> {
        let &PatchInputs {
            rgb,
            corner,
            table,
            crops,
            image_width,
            grid,
            patch,
        } = inputs;
        require(
            corner.len() >= crops * 2 && out.start.len() >= crops * grid * grid * out.stride,
            "patches: a buffer is too small",
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
