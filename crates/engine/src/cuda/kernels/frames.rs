//! Frames to patches.

use half::bf16;

use super::launch::{ByValue, Kernels, launch, require};
use crate::cuda::{
    error::CudaError,
    memory::{Buffer, Pointer},
    tensor::StridedRows,
};
use spotter_core::PixelFormat;

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
    /// `struct Coefficients` of `frame.cu`.
    pub yuv: [i32; 6],
    pub size: PixelSize,
}

/// One pass of a scaling: along the rows or along the columns.
pub struct ScalePass<'a> {
    pub taps: &'a TapTables,
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

/// Weights of a scaling along one axis, on the GPU.
pub struct TapTables {
    /// First source pixel of each.
    pub first: Buffer<i32>,
    /// Source pixels of each.
    pub count: Buffer<i32>,
    /// `[pixels, most]`.
    pub weights: Buffer<i32>,
    /// Row length of the weights.
    pub most: usize,
}

impl Kernels {
    /// `frame.cu`: colour.
    pub fn rgb_from_planes(&self, frame: &PlanarFrame, rgb: Pointer<u8>) -> Result<(), CudaError> {
        let [y, u, v] = frame.planes;
        let [stride, chroma_stride] = frame.strides;
        let PixelSize { width, height } = frame.size;
        let format: usize = match frame.format {
            PixelFormat::Rgb => 0,
            PixelFormat::Nv12 => 1,
            PixelFormat::I420 => 2,
        };
        require(
            rgb.len() >= width * height * 3,
            "colour: a buffer is too small",
        )?;
        let grid = (width.div_ceil(128), height, 1);
        launch!(
            self,
            "rgb_from_planes",
            grid,
            128,
            [
                y,
                u,
                v,
                format,
                stride,
                chroma_stride,
                ByValue(frame.yuv),
                rgb,
                width,
                height
            ]
        )
    }

    /// `frame.cu`: rows to another width.
    pub fn scale_across(
        &self,
        from: Pointer<u8>,
        out: Pointer<u8>,
        pass: &ScalePass<'_>,
    ) -> Result<(), CudaError> {
        let (in_width, out_width, height) = (pass.from.width, pass.to.width, pass.to.height);
        require(
            from.len() >= in_width * height * 3 && out.len() >= out_width * height * 3,
            "scaling: a buffer is too small",
        )?;
        let grid = (out_width.div_ceil(128), height, 1);
        let [first, count, weights] = pass.taps.tables();
        launch!(
            self,
            "scale_across",
            grid,
            128,
            [
                from,
                first,
                count,
                weights,
                pass.taps.most,
                out,
                in_width,
                out_width
            ]
        )
    }

    /// `frame.cu`: columns to another height.
    pub fn scale_down(
        &self,
        from: Pointer<u8>,
        out: Pointer<u8>,
        pass: &ScalePass<'_>,
    ) -> Result<(), CudaError> {
        let (in_height, out_height) = (pass.from.height, pass.to.height);
        let row_bytes = pass.to.width * 3;
        require(
            from.len() >= row_bytes * in_height && out.len() >= row_bytes * out_height,
            "scaling: a buffer is too small",
        )?;
        let grid = (row_bytes.div_ceil(128), out_height, 1);
        let [first, count, weights] = pass.taps.tables();
        launch!(
            self,
            "scale_down",
            grid,
            128,
            [from, first, count, weights, pass.taps.most, out, row_bytes]
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
        let patches = crops * grid * grid;
        require(
            corner.len() >= crops * 2 && out.start.len() >= patches * out.stride,
            "patches: a buffer is too small",
        )?;
        launch!(
            self,
            "patches",
            (patches, 1, 1),
            128,
            [
                rgb,
                corner,
                table,
                out.start,
                image_width,
                grid,
                patch,
                out.stride
            ]
        )
    }
}

impl TapTables {
    fn tables(&self) -> [Pointer<i32>; 3] {
        [&self.first, &self.count, &self.weights].map(Buffer::start)
    }
}
