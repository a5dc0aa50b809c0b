//! How much of a picture changed: cheap, on luma alone, blind to light that changes everywhere.
//!
//! The picture becomes a grid of mean brightnesses. Between two grids the light may have changed, by a cloud or by the
//! camera's exposure, which is nearly `now = gain * before + offset` in every cell. The explanation of the light that
//! leaves the fewest cells unexplained is taken, and the share of unexplained cells is the motion.

use std::cmp::min_by_key;

use super::mask::Mask;
use spotter_core::{NormBox, NormPoint, Picture, PixelFormat};

/// Cells across: 16:9 with about 16 pixels a cell at the usual width of 1280.
const COLUMNS: usize = 80;
/// Cells from top to bottom.
const ROWS: usize = 45;
/// A cell is the mean of this many samples squared: enough to average sensor noise down to a quarter.
const SAMPLES_A_SIDE: usize = 4;
/// A cell is unchanged up to this difference, of 255. Grain of 8 levels gives differences of about 3.
const NOISE_LEVELS: f32 = 10.0;
/// Exposure steps are smaller than this factor; beyond it a fit explains away real change.
const GAIN_MAX: f32 = 2.5;

/// Mean brightness of each cell, 0..255, row by row.
#[derive(Clone, Debug, PartialEq)]
pub struct BrightnessGrid(Vec<f32>);

impl BrightnessGrid {
    /// Samples a picture: about 58,000 reads at any size, well below a millisecond.
    pub fn measure(picture: &Picture) -> Self {
        let columns = sample_positions(COLUMNS, picture.width());
        let rows = sample_positions(ROWS, picture.height());
        let mut sums = vec![0u32; COLUMNS * ROWS];
        for (sample_y, &y) in rows.iter().enumerate() {
            let row = picture.row(0, y);
            let first_cell = sample_y / SAMPLES_A_SIDE * COLUMNS;
            for (sample_x, &x) in columns.iter().enumerate() {
                sums[first_cell + sample_x / SAMPLES_A_SIDE] += luma(picture.format(), row, x);
            }
        }
        let samples = (SAMPLES_A_SIDE * SAMPLES_A_SIDE) as f32;
        Self(sums.into_iter().map(|sum| sum as f32 / samples).collect())
    }
}

/// What changed between two grids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PictureMotion {
    /// Share of the watched cells that changed beyond noise and light, 0..1.
    pub share: f64,
    /// The box around these cells; `None` without one.
    pub changed: Option<NormBox>,
}

/// Compares grids of one camera.
#[derive(Clone, Debug)]
pub struct MotionMeter {
    watched: Vec<bool>,
}

impl MotionMeter {
    /// Cells whose middle is masked do not count.
    pub fn new(mask: &Mask) -> Self {
        let cells = (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |column| (column, row)));
        let middle = |(column, row): (usize, usize)| NormPoint {
            x: (column as f64 + 0.5) / COLUMNS as f64,
            y: (row as f64 + 0.5) / ROWS as f64,
        };
        Self {
            watched: cells.map(|cell| !mask.covers(middle(cell))).collect(),
        }
    }

    /// What changed beyond noise and light.
    pub fn motion(&self, before: &BrightnessGrid, now: &BrightnessGrid) -> PictureMotion {
        let brightness = before.0.iter().zip(&now.0);
        let cells =
            brightness
                .enumerate()
                .map(|(index, (&before, &now))| Cell { index, before, now });
        let watched = cells.zip(&self.watched).filter(|(_, watched)| **watched);
        let cells: Vec<Cell> = watched.map(|(cell, _)| cell).collect();
        if cells.is_empty() {
            return PictureMotion::default();
        }
        let (shifted, fitted) = (LightChange::shifted(&cells), LightChange::fitted(&cells));
        // Things that moved pull a fit away; the cells that the better one explains give a fit without them.
        let better = min_by_key(shifted, fitted, |light| light.unexplained(&cells));
        let explained = cells.iter().copied().filter(|cell| better.explains(*cell));
        let explained: Vec<_> = explained.collect();
        let again = LightChange::fitted(&explained);
        let best = min_by_key(better, again, |light| light.unexplained(&cells));
        let changed = cells.iter().filter(|cell| !best.explains(**cell));
        let boxes = changed.map(|cell| cell.norm_box());
        PictureMotion {
            share: best.unexplained(&cells) as f64 / cells.len() as f64,
            changed: boxes.reduce(|a, b| NormBox {
                x0: a.x0.min(b.x0),
                y0: a.y0.min(b.y0),
                x1: a.x1.max(b.x1),
                y1: a.y1.max(b.y1),
            }),
        }
    }
}

/// The brightness of a cell in two grids.
#[derive(Clone, Copy, Debug)]
struct Cell {
    /// Row by row.
    index: usize,
    before: f32,
    now: f32,
}

impl Cell {
    /// Its part of the picture.
    fn norm_box(self) -> NormBox {
        let (column, row) = (self.index % COLUMNS, self.index / COLUMNS);
        let (columns, rows) = (COLUMNS as f64, ROWS as f64);
        NormBox {
            x0: column as f64 / columns,
            y0: row as f64 / rows,
            x1: (column + 1) as f64 / columns,
            y1: (row + 1) as f64 / rows,
        }
    }
}

/// A change of light: `now = gain * before + offset`.
#[derive(Clone, Copy, Debug)]
struct LightChange {
    gain: f32,
    offset: f32,
}

impl LightChange {
    /// Offset alone, by the median, which up to half of the cells cannot mislead.
    fn shifted(cells: &[Cell]) -> Self {
        let mut differences: Vec<f32> = cells.iter().map(|cell| cell.now - cell.before).collect();
        let middle = differences.len() / 2;
        let (_, median, _) = differences.select_nth_unstable_by(middle, f32::total_cmp);
        Self {
            gain: 1.0,
            offset: *median,
        }
    }

    /// Least squares; a flat picture says nothing about gain and gets 1.
    fn fitted(cells: &[Cell]) -> Self {
        let count = cells.len().max(1) as f32;
        let mean_before = cells.iter().map(|cell| cell.before).sum::<f32>() / count;
        let mean_now = cells.iter().map(|cell| cell.now).sum::<f32>() / count;
        let (mut covariance, mut variance) = (0.0, 0.0);
        for &Cell { before, now, .. } in cells {
            covariance += (before - mean_before) * (now - mean_now);
            variance += (before - mean_before).powi(2);
        }
        let gain = if variance > count {
            (covariance / variance).clamp(GAIN_MAX.recip(), GAIN_MAX)
        } else {
            1.0
        };
        Self {
            gain,
            offset: mean_now - gain * mean_before,
        }
    }

    fn explains(self, cell: Cell) -> bool {
        (self.gain * cell.before + self.offset - cell.now).abs() <= NOISE_LEVELS
    }

    fn unexplained(self, cells: &[Cell]) -> usize {
        let unexplained = cells.iter().filter(|cell| !self.explains(**cell));
        unexplained.count()
    }
}

/// The pixels to read along one side, evenly spread over `pixels`.
fn sample_positions(cells: usize, pixels: usize) -> Vec<usize> {
    let samples = cells * SAMPLES_A_SIDE;
    (0..samples)
        .map(|i| (2 * i + 1) * pixels / (2 * samples))
        .collect()
}

/// Brightness of pixel `x`; for RGB the weights 1 2 1 are close enough to luma.
fn luma(format: PixelFormat, row: &[u8], x: usize) -> u32 {
    match format {
        PixelFormat::Nv12 | PixelFormat::I420 => u32::from(row[x]),
        PixelFormat::Rgb => {
            let [r, g, b] = [row[3 * x], row[3 * x + 1], row[3 * x + 2]].map(u32::from);
            (r + 2 * g + b) / 4
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: (usize, usize) = (640, 360);

    /// An RGB picture whose grey at each pixel is `level(x, y)`, with grain that differs from `seed` to `seed`.
    fn picture(seed: u32, level: impl Fn(usize, usize) -> f32) -> BrightnessGrid {
        let mut state = seed.wrapping_mul(2_654_435_761).max(1);
        let mut bytes = Vec::with_capacity(SIZE.0 * SIZE.1 * 3);
        for y in 0..SIZE.1 {
            for x in 0..SIZE.0 {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                let grain = (state % 17) as f32 - 8.0;
                let byte = (level(x, y) + grain).clamp(0.0, 255.0) as u8;
                bytes.extend([byte; 3]);
            }
        }
        BrightnessGrid::measure(&Picture::from_rgb(SIZE.0, SIZE.1, bytes).unwrap())
    }

    /// Houses and a road: some structure for the light to act on.
    fn street(x: usize, y: usize) -> f32 {
        if y > 240 {
            70.0
        } else {
            60.0 + ((x / 80) % 3) as f32 * 50.0
        }
    }

    fn meter() -> MotionMeter {
        MotionMeter::new(&Mask::default())
    }

    /// A car of 64 x 36 pixels, 1 % of the picture.
    fn with_car(x: usize, y: usize) -> f32 {
        if (300..364).contains(&x) && (250..286).contains(&y) {
            200.0
        } else {
            street(x, y)
        }
    }

    #[test]
    fn light_is_no_motion_but_a_small_car_is() {
        let before = picture(1, street);
        for (gain, offset) in [(1.0, 0.0), (1.0, 40.0), (1.3, 0.0), (0.7, 5.0)] {
            let still = picture(2, |x, y| street(x, y) * gain + offset);
            let car = picture(3, |x, y| with_car(x, y) * gain + offset);
            let motion = [still, car].map(|now| meter().motion(&before, &now));
            let changed = motion.map(|motion| motion.share);
            let is_right = changed[0] < 0.001 && (0.006..0.02).contains(&changed[1]);
            assert!(is_right, "{gain} {offset}: {changed:?}");
            // The car is in the box of what moved, which reaches at most one cell beyond it.
            let car =
                NormBox::from_corners(300.0 / 640.0, 250.0 / 360.0, 364.0 / 640.0, 286.0 / 360.0);
            let moved = motion[1].changed.unwrap();
            let (x, y) = (1.01 / COLUMNS as f64, 1.01 / ROWS as f64);
            let around = NormBox::from_corners(car.x0 - x, car.y0 - y, car.x1 + x, car.y1 + y);
            assert!(around.covers(&moved) && moved.iou(&car) > 0.6, "{moved:?}");
        }
    }

    #[test]
    fn masked_cells_do_not_count() {
        // The road, and everything.
        for top in [0.66, 0.0] {
            let mask = Mask::new(&[vec![(0.0, top), (1.0, top), (1.0, 1.0), (0.0, 1.0)]]);
            let meter = MotionMeter::new(&mask);
            let motion = meter.motion(&picture(1, street), &picture(2, with_car));
            assert_eq!(motion, PictureMotion::default(), "{top}");
        }
    }

    #[test]
    fn a_picture_smaller_than_the_grid_is_measured() {
        let tiny = Picture::from_rgb(2, 1, vec![10, 10, 10, 200, 200, 200]).unwrap();
        let grid = BrightnessGrid::measure(&tiny);
        assert_eq!((grid.0[0], grid.0[COLUMNS - 1]), (10.0, 200.0));
    }
}
