//! What a picture looks like on the model's grid: the mean of each cell and channel, computed from the decoder's planes.
//!
//! ```text
//!   planes ─▶ sums of the columns of a band of rows ─▶ sums of cells ─▶ means
//!             band: rows between two borders of either grid
//!
//!   whole grid    54 x 54 cells over the picture                    crop 0
//!   tile grid     up to (38 cols + 16) x (38 rows + 16) cells       crops 1 …, which overlap
//! ```
//!
//! A cell is half a patch of the model across and down, but not smaller than the blocks of codecs. A whole patch is too coarse: a
//! person 11 pixels wide who takes a step inside of a patch 32 pixels wide does not change its mean.
//!
//! One pass over the picture. A cell is the rectangle of source pixels that the scaling maps to it; its edges are rounded to whole
//! pixels, and the filter's reach beyond them is left out. [`PictureDetail::Bytes`] has no such error: a digest of all pixels that a crop
//! depends on.

use std::ops::Range;

use xxhash_rust::xxh3::Xxh3;

use crate::model::{ResizeTaps, Tiling, VisionConfig, taps};
use spotter_core::{ColourMatrix, ColourRange, Picture, PixelFormat};

/// Cells of a patch, across and down.
const CELLS_PER_PATCH: usize = 2;
/// Least side of a cell, pixels, unless the patches are smaller: the transform block of codecs, whose mean moves as a whole.
const CELL_MIN_PX: usize = 8;
/// Samples of a cell: Y, U, V or R, G, B.
pub(super) const CHANNELS: usize = 3;

/// What is measured of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureDetail {
    /// Means of cells, for pictures that are alike.
    Cells,
    /// Digests of crops, for pictures that are equal to the bit.
    Bytes,
}

/// A picture as it is compared with the one whose features are kept.
#[derive(Clone, Debug, PartialEq)]
pub struct PictureMeasure {
    /// Pixels that the model sees.
    pub model_size: (u32, u32),
    pub(super) encoding: PixelEncoding,
    /// The whole picture first.
    pub(super) crops: Vec<CropMeasure>,
}

/// A crop as it is compared.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum CropMeasure {
    Cells(CellMeans),
    Digest(u64),
}

/// Means of cells, row by row, levels of 255.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct CellMeans {
    pub cols: usize,
    pub means: Vec<[f32; CHANNELS]>,
}

/// What must be equal for two pictures to be comparable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PixelEncoding {
    format: PixelFormat,
    size: (usize, usize),
    colour: (ColourMatrix, ColourRange),
}

impl PictureMeasure {
    /// Measures a picture that is cut by `tiling` and is on the host; one that is on a device alone would be copied. Takes one pass over its bytes, or
    /// for digests one over the bytes of each crop.
    pub fn of(
        picture: &Picture,
        tiling: Tiling,
        vision: &VisionConfig,
        detail: PictureDetail,
    ) -> Self {
        let (width, height) = tiling.resized(vision);
        let crops = match detail {
            PictureDetail::Cells => cells_of_crops(picture, tiling, vision),
            PictureDetail::Bytes => digests(picture, &crop_regions(picture.size(), tiling, vision)),
        };
        Self {
            model_size: (width as u32, height as u32),
            encoding: PixelEncoding::of(picture),
            crops,
        }
    }

    /// Digests of a picture that is cut in another way, for simulated devices.
    pub fn of_regions(picture: &Picture, regions: &[CropRegion], model_size: (u32, u32)) -> Self {
        Self {
            model_size,
            encoding: PixelEncoding::of(picture),
            crops: digests(picture, regions),
        }
    }

    /// Crops of the picture, the whole picture included.
    pub fn crops(&self) -> usize {
        self.crops.len()
    }
}

impl PixelEncoding {
    fn of(picture: &Picture) -> Self {
        Self {
            format: picture.format(),
            size: (picture.width(), picture.height()),
            colour: (picture.matrix(), picture.range()),
        }
    }
}

/// Means of the cells of a grid, row by row.
struct CellGrid {
    cols: usize,
    rows: usize,
    means: Vec<[f32; CHANNELS]>,
}

fn cells_of_crops(picture: &Picture, tiling: Tiling, vision: &VisionConfig) -> Vec<CropMeasure> {
    let side = vision.grid();
    let (window, margins) = (side - 2 * vision.overlap_margin, 2 * vision.overlap_margin);
    let mut wanted = vec![(side, side)];
    if !tiling.is_single() {
        wanted.push((
            tiling.cols * window + margins,
            tiling.rows * window + margins,
        ));
    }
    // A cell has at least one sample of each channel.
    let samples = (picture.width().div_ceil(2), picture.height().div_ceil(2));
    let (width, height) = (picture.width(), picture.height());
    let cells = |patches: &(usize, usize)| {
        let across = cells_along(patches.0, width).min(samples.0);
        (across, cells_along(patches.1, height).min(samples.1))
    };
    let mut grids: Vec<_> = (wanted.iter().map(cells)).map(CellGrid::zeros).collect();
    for plane in planes(picture.format()) {
        add_plane(&mut grids, picture, &plane);
    }
    let whole = grids[0].part(0..grids[0].cols, 0..grids[0].rows);
    let mut crops = vec![CropMeasure::Cells(whole)];
    if let (Some(patches), Some(grid)) = (wanted.get(1), grids.get(1)) {
        let part = |first: usize, of: usize, cells: usize| {
            first * cells / of..((first + side) * cells).div_ceil(of)
        };
        for tile in 0..tiling.rows * tiling.cols {
            let (left, top) = (tile % tiling.cols * window, tile / tiling.cols * window);
            let across = part(left, patches.0, grid.cols);
            let down = part(top, patches.1, grid.rows);
            crops.push(CropMeasure::Cells(grid.part(across, down)));
        }
    }
    crops
}

impl CellGrid {
    fn zeros(size: (usize, usize)) -> Self {
        Self {
            cols: size.0,
            rows: size.1,
            means: vec![[0.0; CHANNELS]; size.0 * size.1],
        }
    }

    fn part(&self, across: Range<usize>, down: Range<usize>) -> CellMeans {
        let rows = down.map(|row| &self.means[row * self.cols..][across.clone()]);
        CellMeans {
            cols: across.len(),
            means: rows.flatten().copied().collect(),
        }
    }
}

/// Cells along an axis of a picture with so many patches and pixels.
fn cells_along(patches: usize, pixels: usize) -> usize {
    (CELLS_PER_PATCH * patches).min((pixels / CELL_MIN_PX).max(patches))
}

/// A plane: which channels it has, in the order of its bytes.
struct ChannelPlane {
    index: usize,
    channels: Range<usize>,
    is_halved: bool,
}

fn planes(format: PixelFormat) -> Vec<ChannelPlane> {
    let plane = |index, channels, is_halved| ChannelPlane {
        index,
        channels,
        is_halved,
    };
    match format {
        PixelFormat::Rgb => vec![plane(0, 0..3, false)],
        PixelFormat::Nv12 => vec![plane(0, 0..1, false), plane(1, 1..3, true)],
        PixelFormat::I420 => vec![
            plane(0, 0..1, false),
            plane(1, 1..2, true),
            plane(2, 2..3, true),
        ],
    }
}

/// Where cell `index` of `count` begins, of `samples` along an axis.
fn border(index: usize, count: usize, samples: usize) -> usize {
    index * samples / count
}

/// Rows whose sums fit into 16 bits.
const BAND_ROWS: usize = 256;

fn add_plane(grids: &mut [CellGrid], picture: &Picture, plane: &ChannelPlane) {
    let (mut width, mut height) = (picture.width(), picture.height());
    if plane.is_halved {
        (width, height) = (width.div_ceil(2), height.div_ceil(2));
    }
    let samples = width * plane.channels.len();
    let mut readers: Vec<_> = (grids.iter_mut())
        .map(|grid| GridRow::new(grid, plane, (width, height)))
        .collect();
    let mut band = vec![0_u16; samples];
    let mut top = 0;
    while top < height {
        let ends = readers.iter().map(|reader| reader.end);
        let end = ends.min().unwrap_or(height).min(top + BAND_ROWS);
        band.fill(0);
        for y in top..end {
            for (sum, &sample) in band.iter_mut().zip(picture.row(plane.index, y)) {
                *sum += u16::from(sample);
            }
        }
        readers.iter_mut().for_each(|reader| reader.add(&band, end));
        top = end;
    }
}

/// The row of a grid that is being summed up.
struct GridRow<'a> {
    grid: &'a mut CellGrid,
    plane: &'a ChannelPlane,
    /// Borders of the columns, samples of a channel.
    borders: Vec<usize>,
    height: usize,
    row: usize,
    begin: usize,
    end: usize,
    sums: Vec<u32>,
}

impl<'a> GridRow<'a> {
    fn new(grid: &'a mut CellGrid, plane: &'a ChannelPlane, size: (usize, usize)) -> Self {
        let borders = (0..=grid.cols).map(|col| border(col, grid.cols, size.0));
        Self {
            borders: borders.collect(),
            height: size.1,
            row: 0,
            begin: 0,
            end: border(1, grid.rows, size.1),
            sums: vec![0; size.0 * plane.channels.len()],
            grid,
            plane,
        }
    }

    /// Adds rows of the plane up to `end`, which is at most the end of the grid's row.
    fn add(&mut self, band: &[u16], end: usize) {
        for (sum, &more) in self.sums.iter_mut().zip(band) {
            *sum += u32::from(more);
        }
        if end < self.end {
            return;
        }
        let each = self.plane.channels.len();
        let means = &mut self.grid.means[self.row * self.grid.cols..][..self.grid.cols];
        for (mean, ends) in means.iter_mut().zip(self.borders.windows(2)) {
            let samples = ((ends[1] - ends[0]) * (self.end - self.begin)) as f32;
            let cell = &self.sums[ends[0] * each..ends[1] * each];
            let totals = match each {
                1 => [cell.iter().sum(), 0, 0],
                2 => totals_of::<2>(cell),
                _ => totals_of::<3>(cell),
            };
            for (channel, total) in self.plane.channels.clone().zip(totals) {
                mean[channel] = total as f32 / samples;
            }
        }
        self.sums.fill(0);
        self.row += 1;
        self.begin = self.end;
        self.end = border(self.row + 1, self.grid.rows, self.height);
    }
}

/// Sums of the channels of pixels with so many.
fn totals_of<const EACH: usize>(pixels: &[u32]) -> [u32; CHANNELS] {
    let mut totals = [0; CHANNELS];
    for pixel in pixels.as_chunks::<EACH>().0 {
        for channel in 0..EACH {
            totals[channel] += pixel[channel];
        }
    }
    totals
}

fn digests(picture: &Picture, regions: &[CropRegion]) -> Vec<CropMeasure> {
    let digest = |region: &CropRegion| CropMeasure::Digest(region.digest(picture));
    regions.iter().map(digest).collect()
}

/// Source pixels that a crop is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CropRegion {
    across: Range<usize>,
    down: Range<usize>,
}

/// The pixels of each crop of a picture of `size`, the whole picture first. A tile reaches as far as the scaling filter at its
/// edges.
pub fn crop_regions(
    size: (usize, usize),
    tiling: Tiling,
    vision: &VisionConfig,
) -> Vec<CropRegion> {
    let mut regions = vec![CropRegion {
        across: 0..size.0,
        down: 0..size.1,
    }];
    if tiling.is_single() {
        return regions;
    }
    let tiled = tiling.resized(vision);
    let (across, down) = (taps(size.0, tiled.0), taps(size.1, tiled.1));
    let reach = |taps: &[ResizeTaps], tile: usize| {
        let first = tile * vision.window_pixels();
        let of_tile = &taps[first..(first + vision.crop_size).min(taps.len())];
        let begin = of_tile.iter().map(|tap| tap.first).min();
        let end = of_tile
            .iter()
            .map(|tap| tap.first + tap.weights.len())
            .max();
        begin.unwrap_or(0)..end.unwrap_or(0)
    };
    for tile in 0..tiling.rows * tiling.cols {
        regions.push(CropRegion {
            across: reach(&across, tile % tiling.cols),
            down: reach(&down, tile / tiling.cols),
        });
    }
    regions
}

impl CropRegion {
    /// Of all pixels of a picture between two rows.
    pub fn band(picture: &Picture, down: Range<usize>) -> Self {
        let across = 0..picture.width();
        Self { across, down }
    }

    /// A digest of its pixels.
    pub fn digest(&self, picture: &Picture) -> u64 {
        let mut hasher = Xxh3::new();
        self.rows(picture).for_each(|row| hasher.update(row));
        hasher.digest()
    }

    /// Its bytes, row by row and plane by plane, with all chroma that its pixels touch.
    pub fn rows<'a>(&self, picture: &'a Picture) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (across, down) = (self.across.clone(), self.down.clone());
        let half = |range: &Range<usize>| range.start / 2..range.end.div_ceil(2);
        let scaled = |range: Range<usize>, bytes: usize| range.start * bytes..range.end * bytes;
        let whole = |bytes| (scaled(across.clone(), bytes), down.clone());
        let chroma = |bytes| (scaled(half(&across), bytes), half(&down));
        let planes = match picture.format() {
            PixelFormat::Rgb => vec![whole(3)],
            PixelFormat::Nv12 => vec![whole(1), chroma(2)],
            PixelFormat::I420 => vec![whole(1), chroma(1), chroma(1)],
        };
        let planes = planes.into_iter().enumerate();
        planes.flat_map(move |(plane, (bytes, rows))| {
            rows.map(move |y| &picture.row(plane, y)[bytes.clone()])
        })
    }
}
