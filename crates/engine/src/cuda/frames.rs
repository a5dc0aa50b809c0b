//! Staged frames to patches, on the GPU.
//!
//! ```text
//!   planes ─▶ rgb ─┬─▶ 378 x 378 ─────────────▶ patches of crop 0
//!                  └─▶ tiles' size, once ─────▶ patches of crops 1 …
//! ```
//!
//! The tables of a size (which source pixels make which pixel) are made when the size is first used, and kept; scratch buffers grow and
//! stay. After that nothing is allocated.

use std::{collections::HashMap, sync::Arc};

use cudarc::driver::CudaStream;
use half::bf16;

use super::{
    error::CudaError,
    kernels::{Kernels, PatchInputs, PixelSize, PlanarFrame, ScalePass, StridedRows, TapsRef},
    memory::Buffer,
};
use crate::model::{Tiling, VisionConfig, is_down_first, normalise_table, taps, tiling};
use spotter_core::Picture;

/// Scales and cuts frames.
pub struct FramePreprocessor {
    stream: Arc<CudaStream>,
    config: VisionConfig,
    /// The normalised value of each byte.
    table: Buffer<bf16>,
    taps: HashMap<AxisScaling, TapTables>,
    corners: HashMap<TileGrid, Buffer<i32>>,
    rgb: Buffer<u8>,
    between: Buffer<u8>,
    scaled: Buffer<u8>,
}

/// How a picture is cut, and which of its crops become patches.
#[derive(Clone, Copy)]
pub struct WantedCrops<'a> {
    pub tiling: Tiling,
    /// For each crop, the whole picture first.
    pub wanted: &'a [bool],
}

/// Pixels along one axis before and after scaling.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct AxisScaling {
    from: usize,
    to: usize,
}

/// Tiles that a scaled picture is cut into.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct TileGrid {
    down: usize,
    across: usize,
}

/// A scaled size of a picture, and how it is cut.
#[derive(Clone, Copy)]
struct CutShape {
    from: PixelSize,
    to: PixelSize,
    tiles: TileGrid,
}

impl CutShape {
    fn across(&self) -> AxisScaling {
        AxisScaling {
            from: self.from.width,
            to: self.to.width,
        }
    }

    fn down(&self) -> AxisScaling {
        AxisScaling {
            from: self.from.height,
            to: self.to.height,
        }
    }
}

/// Weights of a scaling along one axis, on the GPU.
struct TapTables {
    first: Buffer<i32>,
    count: Buffer<i32>,
    weights: Buffer<i32>,
    most: usize,
}

impl TapTables {
    fn at(&self) -> TapsRef {
        TapsRef {
            first: self.first.start(),
            count: self.count.start(),
            weights: self.weights.start(),
            most: self.most,
        }
    }
}

impl FramePreprocessor {
    /// With buffers for pictures of `pixels` pixels; they grow for larger ones.
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
        frame: &PlanarFrame,
        crops: WantedCrops<'_>,
        out: StridedRows,
    ) -> Result<(), CudaError> {
        let WantedCrops { tiling, wanted } = crops;
        let from = frame.size;
        grow(&mut self.rgb, &self.stream, from.width * from.height * 3)?;
        kernels.rgb_from_planes(frame, self.rgb.start())?;
        let side = self.config.crop_size;
        let (whole, parts) = wanted.split_at(1.min(wanted.len()));
        let whole_shape = CutShape {
            from,
            to: PixelSize {
                width: side,
                height: side,
            },
            tiles: TileGrid { down: 1, across: 1 },
        };
        let out = self.cut(kernels, whole_shape, whole, out)?;
        let (width, height) = tiling.resized(&self.config);
        let tiled_shape = CutShape {
            from,
            to: PixelSize { width, height },
            tiles: TileGrid {
                down: tiling.rows,
                across: tiling.cols,
            },
        };
        self.cut(kernels, tiled_shape, parts, out)?;
        Ok(())
    }

    /// Scales the picture in `rgb` and makes patches of its `wanted` tiles, if any. Returns the rows behind them.
    fn cut(
        &mut self,
        kernels: &Kernels,
        shape: CutShape,
        wanted: &[bool],
        mut out: StridedRows,
    ) -> Result<StridedRows, CudaError> {
        if !wanted.contains(&true) {
            return Ok(out);
        }
        self.make_tables(shape)?;
        let CutShape { from, to, tiles } = shape;
        let most = from.width.max(to.width) * from.height.max(to.height) * 3;
        grow(&mut self.between, &self.stream, most)?;
        grow(&mut self.scaled, &self.stream, most)?;
        let (across, down) = (&self.taps[&shape.across()], &self.taps[&shape.down()]);
        let (rgb, between, scaled) = (self.rgb.start(), self.between.start(), self.scaled.start());
        let pass = |taps: &TapTables, from, to| ScalePass {
            taps: taps.at(),
            from,
            to,
        };
        if is_down_first((from.width, from.height), (to.width, to.height)) {
            let half = PixelSize {
                width: from.width,
                height: to.height,
            };
            kernels.scale_down(rgb, between, &pass(down, from, half))?;
            kernels.scale_across(between, scaled, &pass(across, half, to))?;
        } else {
            let half = PixelSize {
                width: to.width,
                height: from.height,
            };
            kernels.scale_across(rgb, between, &pass(across, from, half))?;
            kernels.scale_down(between, scaled, &pass(down, half, to))?;
        }
        let corners = self.corners[&tiles].start();
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

    /// Makes the missing tables of a shape.
    fn make_tables(&mut self, shape: CutShape) -> Result<(), CudaError> {
        for scaling in [shape.across(), shape.down()] {
            if !self.taps.contains_key(&scaling) {
                let made = self.taps_of(scaling)?;
                self.taps.insert(scaling, made);
            }
        }
        let tiles = shape.tiles;
        if !self.corners.contains_key(&tiles) {
            let window = self.config.window_pixels();
            let corner = |tile| [tile % tiles.across * window, tile / tiles.across * window];
            let corners: Vec<i32> = (0..tiles.down * tiles.across)
                .flat_map(corner)
                .map(|pixels| pixels as i32)
                .collect();
            let made = Buffer::from_host(&self.stream, &corners)?;
            self.corners.insert(tiles, made);
        }
        Ok(())
    }

    fn taps_of(&self, scaling: AxisScaling) -> Result<TapTables, CudaError> {
        let taps = taps(scaling.from, scaling.to);
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

/// Makes room for `bytes`. The old buffer is freed on its stream, behind the work that uses it.
fn grow(buffer: &mut Buffer<u8>, stream: &Arc<CudaStream>, bytes: usize) -> Result<(), CudaError> {
    if buffer.start().len() < bytes {
        *buffer = Buffer::zeros(stream, bytes)?;
    }
    Ok(())
}
