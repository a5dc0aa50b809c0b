//! Frames that are staged to patches, on the GPU.
//!
//! ```text
//!   planes ─▶ rgb ─┬─▶ 378 x 378 ─────────────▶ patches of crop 0
//!                  └─▶ tiles' size, once ─────▶ patches of crops 1 …
//! ```
//!
//! Tables of a size (which source pixels make which pixel) are made when the size first comes, and kept; so are larger
//! scratch buffers. After that nothing is allocated.

use std::{collections::HashMap, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    kernels::{Kernels, StridedRows, TapsAt},
    memory::Buffer,
    stage::StagedFrame,
};
use crate::model::{Tiling, VisionConfig, is_down_first, normalise_table, taps, tiling};
use spotter_core::{Picture, PixelFormat};

/// Scales and cuts frames.
pub struct FramePreprocessor {
    stream: Arc<CudaStream>,
    config: VisionConfig,
    /// What each byte becomes.
    table: Buffer<bf16>,
    taps: HashMap<(usize, usize), TapTables>,
    corners: HashMap<(usize, usize), Buffer<i32>>,
    rgb: Buffer<u8>,
    between: Buffer<u8>,
    scaled: Buffer<u8>,
}

struct TapTables {
    first: Buffer<i32>,
    count: Buffer<i32>,
    weights: Buffer<i32>,
    most: usize,
}

impl TapTables {
    fn at(&self) -> TapsAt {
        TapsAt {
            first: self.first.start(),
            count: self.count.start(),
            weights: self.weights.start(),
            most: self.most,
        }
    }
}

impl FramePreprocessor {
    /// For pictures of up to `pixels` pixels; larger ones make it grow.
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

    /// How a picture is cut.
    pub fn tiling(&self, picture: &Picture) -> Tiling {
        tiling(picture.width(), picture.height(), &self.config)
    }

    /// Queues everything up to the patches of the `wanted` crops, of which the whole picture is the first. `out` has a row
    /// for each of their patches.
    pub fn patches(
        &mut self,
        kernels: &Kernels,
        frame: &StagedFrame,
        tiling: Tiling,
        wanted: &[bool],
        out: StridedRows,
    ) -> Result<(), CudaError> {
        let (width, height) = frame.size;
        grow(&mut self.rgb, &self.stream, width * height * 3)?;
        let format = match frame.format {
            PixelFormat::Rgb => 0,
            PixelFormat::Nv12 => 1,
            PixelFormat::I420 => 2,
        };
        kernels.rgb_from_planes(
            frame.planes,
            format,
            frame.strides,
            frame.yuv,
            self.rgb.start(),
            frame.size,
        )?;
        let size = self.config.crop_size;
        let (whole, parts) = wanted.split_at(1.min(wanted.len()));
        let sizes = (frame.size, (size, size));
        let out = self.cut(kernels, sizes, (1, 1), whole, out)?;
        let sizes = (frame.size, tiling.resized(&self.config));
        self.cut(kernels, sizes, (tiling.rows, tiling.cols), parts, out)?;
        Ok(())
    }

    /// Scales the picture in `rgb` from one size to another and makes patches of the `wanted` of `(down, across)` tiles of it,
    /// if any. Returns where the next go.
    fn cut(
        &mut self,
        kernels: &Kernels,
        (from, to): ((usize, usize), (usize, usize)),
        tiles: (usize, usize),
        wanted: &[bool],
        mut out: StridedRows,
    ) -> Result<StridedRows, CudaError> {
        if !wanted.contains(&true) {
            return Ok(out);
        }
        self.know(from, to, tiles)?;
        let most = from.0.max(to.0) * from.1.max(to.1) * 3;
        grow(&mut self.between, &self.stream, most)?;
        grow(&mut self.scaled, &self.stream, most)?;
        let (across, down) = (&self.taps[&(from.0, to.0)], &self.taps[&(from.1, to.1)]);
        let (rgb, between, scaled) = (self.rgb.start(), self.between.start(), self.scaled.start());
        if is_down_first(from, to) {
            kernels.scale_down(rgb, down.at(), between, (from.0 * 3, from.1, to.1))?;
            kernels.scale_across(between, across.at(), scaled, (from.0, to.0, to.1))?;
        } else {
            kernels.scale_across(rgb, across.at(), between, (from.0, to.0, from.1))?;
            kernels.scale_down(between, down.at(), scaled, (to.0 * 3, from.1, to.1))?;
        }
        let corners = self.corners[&tiles].start();
        let (grid, patch) = (self.config.grid(), self.config.enc_patch_size);
        let mut tile = 0;
        for run in wanted.chunk_by(|a, b| a == b) {
            if run[0] {
                let (corner, shape) = (corners.at(tile * 2), (run.len(), to.0));
                let table = self.table.start();
                kernels.patches(scaled, corner, table, out, shape, (grid, patch))?;
                out = out.from(run.len() * grid * grid);
            }
            tile += run.len();
        }
        Ok(out)
    }

    /// Makes the tables that are not there yet.
    fn know(
        &mut self,
        from: (usize, usize),
        to: (usize, usize),
        tiles: (usize, usize),
    ) -> Result<(), CudaError> {
        for pair in [(from.0, to.0), (from.1, to.1)] {
            if !self.taps.contains_key(&pair) {
                let made = self.taps_of(pair)?;
                self.taps.insert(pair, made);
            }
        }
        if !self.corners.contains_key(&tiles) {
            let window = self.config.window_pixels();
            let corner = |tile| [tile % tiles.1 * window, tile / tiles.1 * window];
            let corners: Vec<i32> = (0..tiles.0 * tiles.1)
                .flat_map(corner)
                .map(|pixels| pixels as i32)
                .collect();
            let made = Buffer::from_host(&self.stream, &corners)?;
            self.corners.insert(tiles, made);
        }
        Ok(())
    }

    fn taps_of(&self, (from, to): (usize, usize)) -> Result<TapTables, CudaError> {
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

/// Makes room for `bytes`. The old buffer is freed on its stream, after what still uses it.
fn grow(buffer: &mut Buffer<u8>, stream: &Arc<CudaStream>, bytes: usize) -> Result<(), CudaError> {
    if buffer.start().len() < bytes {
        *buffer = Buffer::zeros(stream, bytes)?;
    }
    Ok(())
}
