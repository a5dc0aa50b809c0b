//! Staged frames to patches, on the GPU.
//!
//! ```text
//!   planes ─▶ rgb ─┬─▶ 378 x 378 ─────────────▶ patches of crop 0
//!                  └─▶ tiles' size, once ─────▶ patches of crops 1 …
//! ```
//!
//! The tables of a size (which source pixels make which pixel) are made when the size is first used, and some are kept. The scratch
//! buffers have room for every picture that a step takes, and never grow.

use std::{collections::HashMap, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    kernels::{Kernels, PatchInputs, PixelSize, PlanarFrame, ScalePass, TapTables},
    memory::Buffer,
    tensor::StridedRows,
};
use crate::model::{Tiling, VisionConfig, is_down_first, normalise_table, taps};

/// Tables of sizes that are kept; cameras have few sizes, the API's pictures may have any. Each takes about as many bytes as 24 times the
/// pixels of the side.
const TAPS_MAX: usize = 64;

/// Scales and cuts frames.
pub struct FramePreprocessor {
    stream: Arc<CudaStream>,
    config: VisionConfig,
    /// The normalised value of each byte.
    table: Buffer<bf16>,
    /// By pixels along an axis before and after scaling.
    taps: HashMap<(usize, usize), TapTables>,
    /// By how a picture is cut.
    corners: HashMap<Tiling, Buffer<i32>>,
    rgb: Buffer<u8>,
    between: Buffer<u8>,
    scaled: Buffer<u8>,
}

/// What is made of a frame.
#[derive(Clone, Copy)]
pub struct WantedCrops<'a> {
    /// How it is cut.
    pub tiling: Tiling,
    /// By crop, of which the whole picture is the first: whether its patches are made.
    pub wanted: &'a [bool],
}

/// How a frame is scaled and cut.
#[derive(Clone, Copy)]
struct FrameCut {
    from: PixelSize,
    tiling: Tiling,
}

impl FramePreprocessor {
    /// With buffers for pictures of up to `pixels` pixels.
    pub fn new(
        stream: &Arc<CudaStream>,
        config: &VisionConfig,
        pixels: usize,
    ) -> Result<Self, CudaError> {
        let table = normalise_table().map(bf16::from_f32);
        let bytes = || Buffer::zeros(stream, pixels * 3);
        Ok(Self {
            stream: Arc::clone(stream),
            config: config.clone(),
            table: Buffer::from_host(stream, &table)?,
            taps: HashMap::new(),
            corners: HashMap::new(),
            rgb: bytes()?,
            between: bytes()?,
            scaled: bytes()?,
        })
    }

    /// Checks that the buffers have room for a picture that is cut in this way.
    pub fn check_room(&self, tiling: Tiling) -> Result<(), String> {
        let room = self.scaled.start().len() / 3;
        let whole = Tiling { rows: 1, cols: 1 };
        for (width, height) in [whole, tiling].map(|cut| cut.resized(&self.config)) {
            if width * height > room {
                return Err(format!(
                    "a picture that is scaled to {width} x {height} pixels is larger than the {room} that the GPU has room for; use pictures that are less long"
                ));
            }
        }
        Ok(())
    }

    /// Bytes of those buffers.
    pub fn scratch_bytes(pixels: usize) -> usize {
        3 * pixels * 3
    }

    /// Queues everything up to the patches of the wanted crops, for which there is [room](Self::check_room). `out` has a row for each of their patches.
    pub fn patches(
        &mut self,
        kernels: &Kernels,
        frame: &PlanarFrame,
        crops: WantedCrops<'_>,
        out: StridedRows,
    ) -> Result<(), CudaError> {
        kernels.rgb_from_planes(frame, self.rgb.start())?;
        let WantedCrops { tiling, wanted } = crops;
        let (whole, parts) = wanted.split_at(1.min(wanted.len()));
        let mut cut = FrameCut {
            from: frame.size,
            tiling: Tiling { rows: 1, cols: 1 },
        };
        let out = self.cut(kernels, cut, whole, out)?;
        cut.tiling = tiling;
        self.cut(kernels, cut, parts, out)?;
        Ok(())
    }

    /// Scales the picture in `rgb` and makes patches of its `wanted` tiles, if any. Returns the rows behind them.
    fn cut(
        &mut self,
        kernels: &Kernels,
        cut: FrameCut,
        wanted: &[bool],
        mut out: StridedRows,
    ) -> Result<StridedRows, CudaError> {
        if !wanted.contains(&true) {
            return Ok(out);
        }
        let FrameCut { from, tiling } = cut;
        let (width, height) = tiling.resized(&self.config);
        let to = PixelSize { width, height };
        let (across, down) = ((from.width, to.width), (from.height, to.height));
        self.make_tables([across, down], tiling)?;
        let (across, down) = (&self.taps[&across], &self.taps[&down]);
        let (rgb, between, scaled) = (self.rgb.start(), self.between.start(), self.scaled.start());
        let pass = |taps, from, to| ScalePass { taps, from, to };
        let half = half_scaled(from, to);
        if is_down_first((from.width, from.height), (to.width, to.height)) {
            kernels.scale_down(rgb, between, &pass(down, from, half))?;
            kernels.scale_across(between, scaled, &pass(across, half, to))?;
        } else {
            kernels.scale_across(rgb, between, &pass(across, from, half))?;
            kernels.scale_down(between, scaled, &pass(down, half, to))?;
        }
        let corners = self.corners[&tiling].start();
        let (grid, patch) = (self.config.grid(), self.config.enc_patch_size);
        let mut tile = 0;
        for run in wanted.chunk_by(|a, b| a == b) {
            if run[0] {
                let inputs = PatchInputs {
                    rgb: scaled,
                    corner: corners.at(tile * 2),
                    table: self.table.start(),
                    crops: run.len(),
                    image_width: to.width,
                    grid,
                    patch,
                };
                kernels.patches(&inputs, out)?;
                out = out.from(run.len() * grid * grid);
            }
            tile += run.len();
        }
        Ok(out)
    }

    /// Makes the tables that are missing.
    fn make_tables(
        &mut self,
        scalings: [(usize, usize); 2],
        tiling: Tiling,
    ) -> Result<(), CudaError> {
        let is_missing = |scaling: &&(usize, usize)| !self.taps.contains_key(*scaling);
        if self.taps.len() + scalings.iter().filter(is_missing).count() > TAPS_MAX {
            // Freed on the stream, behind the work that uses them.
            self.taps.clear();
        }
        for scaling in scalings {
            if !self.taps.contains_key(&scaling) {
                let made = self.taps_of(scaling.0, scaling.1)?;
                self.taps.insert(scaling, made);
            }
        }
        if !self.corners.contains_key(&tiling) {
            let window = self.config.window_pixels();
            let corner = |tile| [tile % tiling.cols * window, tile / tiling.cols * window];
            let corners: Vec<i32> = (0..tiling.rows * tiling.cols)
                .flat_map(corner)
                .map(|pixels| pixels as i32)
                .collect();
            let made = Buffer::from_host(&self.stream, &corners)?;
            self.corners.insert(tiling, made);
        }
        Ok(())
    }

    fn taps_of(&self, from: usize, to: usize) -> Result<TapTables, CudaError> {
        let taps = taps(from, to);
        let most = taps.iter().map(|tap| tap.weights.len()).max().unwrap_or(1);
        let first: Vec<i32> = taps.iter().map(|tap| tap.first as i32).collect();
        let count: Vec<i32> = taps.iter().map(|tap| tap.weights.len() as i32).collect();
        let mut weights = vec![0; most * taps.len()];
        for (row, tap) in weights.chunks_exact_mut(most).zip(&taps) {
            row[..tap.weights.len()].copy_from_slice(&tap.weights);
        }
        Ok(TapTables {
            first: Buffer::from_host(&self.stream, &first)?,
            count: Buffer::from_host(&self.stream, &count)?,
            weights: Buffer::from_host(&self.stream, &weights)?,
            most,
        })
    }
}

/// The size between the two passes of a scaling.
fn half_scaled(from: PixelSize, to: PixelSize) -> PixelSize {
    match is_down_first((from.width, from.height), (to.width, to.height)) {
        true => PixelSize {
            width: from.width,
            height: to.height,
        },
        false => PixelSize {
            width: to.width,
            height: from.height,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn picture_between_passes_is_no_larger_than_both_ends(
            from in (1_usize..3000, 1_usize..3000), to in (1_usize..2000, 1_usize..2000),
        ) {
            let size = |(width, height)| PixelSize { width, height };
            let pixels = |size: PixelSize| size.width * size.height;
            let (from, to) = (size(from), size(to));
            prop_assert!(pixels(half_scaled(from, to)) <= pixels(from).max(pixels(to)));
        }
    }
}
