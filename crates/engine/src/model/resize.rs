//! Lanczos scaling of 8-bit RGB, bit for bit as Pillow 13 does it, because the golden crops were made by it: separable,
//! mostly across first, each pass rounded to 8 bits, weights as integers with 22 fractional bits.

use std::{borrow::Cow, f64::consts::PI};

use rayon::prelude::*;

/// Lobes of the filter on each side.
const LOBES: f64 = 3.0;
/// Fractional bits of a weight: 32 less 8 of the pixel and 2 for sums that overshoot.
const WEIGHT_BITS: u32 = 22;
/// Weights of columns that are in memory at a time: 1 MB, however wide the picture is.
const GROUP_WEIGHTS: usize = 1 << 18;

/// Scales `rgb` (`[height, width, 3]`) from the size `from` to the size `to`, both (width, height) in pixels.
pub(super) fn resize_rgb(rgb: &[u8], from: (usize, usize), to: (usize, usize)) -> Vec<u8> {
    if is_down_first(from, to) {
        let short = scale_down(Cow::Borrowed(rgb), from.0, from.1, to.1);
        scale_across(short, from.0, to.1, to.0).into_owned()
    } else {
        let wide = scale_across(Cow::Borrowed(rgb), from.0, from.1, to.0);
        scale_down(wide, to.0, from.1, to.1).into_owned()
    }
}

/// Since version 13, Pillow begins with the rows when more than twice as many of them go as of the columns.
pub fn is_down_first(from: (usize, usize), to: (usize, usize)) -> bool {
    let lost_columns = from.0 as i64 - to.0 as i64;
    let lost_rows = from.1 as i64 - to.1 as i64;
    lost_rows > 0 && lost_rows > 2 * lost_columns
}

/// Which source pixels make an output pixel, and how much of each, with 22 fractional bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResizeTaps {
    /// The first of them.
    pub first: usize,
    pub weights: Vec<i32>,
}

/// Scales each row; gives the pixels back as they are when the width stays.
fn scale_across(
    rgb: Cow<'_, [u8]>,
    width: usize,
    height: usize,
    out_width: usize,
) -> Cow<'_, [u8]> {
    if width == out_width {
        return rgb;
    }
    let scale = ResizeScale::new(width, out_width);
    let mut out = vec![0; out_width * height * 3];
    // One group for pictures of cameras: their columns have some tens of weights.
    let group = (GROUP_WEIGHTS / (2.0 * scale.reach) as usize).clamp(1, out_width);
    for first in (0..out_width).step_by(group) {
        let taps = first..out_width.min(first + group);
        let taps: Vec<ResizeTaps> = taps.map(|index| scale.tap(index)).collect();
        let rows = out.par_chunks_exact_mut(out_width * 3);
        let rows = rows.zip(rgb.par_chunks_exact(width * 3));
        rows.for_each(|(out_row, row)| {
            let (pixels, _) = out_row[first * 3..].as_chunks_mut::<3>();
            for (pixel, tap) in pixels.iter_mut().zip(&taps) {
                let mut sums = [ROUND; 3];
                let (sources, _) = row[tap.first * 3..].as_chunks::<3>();
                for (source, &weight) in sources.iter().zip(&tap.weights) {
                    for channel in 0..3 {
                        sums[channel] += i32::from(source[channel]) * weight;
                    }
                }
                *pixel = sums.map(to_byte);
            }
        });
    }
    out.into()
}

/// Scales each column; gives the pixels back as they are when the height stays.
fn scale_down(rgb: Cow<'_, [u8]>, width: usize, height: usize, out_height: usize) -> Cow<'_, [u8]> {
    if height == out_height {
        return rgb;
    }
    let scale = ResizeScale::new(height, out_height);
    let row_bytes = width * 3;
    let mut out = vec![0; row_bytes * out_height];
    out.par_chunks_exact_mut(row_bytes)
        .enumerate()
        .for_each(|(index, out_row)| {
            let tap = scale.tap(index);
            // Row by row, so that memory is read in order.
            let mut sums = vec![ROUND; row_bytes];
            let rows = rgb[tap.first * row_bytes..].chunks_exact(row_bytes);
            for (row, &weight) in rows.zip(&tap.weights) {
                for (sum, &byte) in sums.iter_mut().zip(row) {
                    *sum += i32::from(byte) * weight;
                }
            }
            for (byte, sum) in out_row.iter_mut().zip(sums) {
                *byte = to_byte(sum);
            }
        });
    out.into()
}

/// Half of the last place, so that the shift rounds.
const ROUND: i32 = 1 << (WEIGHT_BITS - 1);

fn to_byte(sum: i32) -> u8 {
    (sum >> WEIGHT_BITS).clamp(0, 255) as u8
}

/// The taps of every output pixel.
pub fn taps(from: usize, to: usize) -> Vec<ResizeTaps> {
    let scale = ResizeScale::new(from, to);
    (0..to).map(|index| scale.tap(index)).collect()
}

/// From `from` pixels to another number of them. When shrinking, the filter is stretched by the scale.
struct ResizeScale {
    from: usize,
    scale: f64,
    stretch: f64,
    /// Source pixels on each side of a centre.
    reach: f64,
}

impl ResizeScale {
    fn new(from: usize, to: usize) -> Self {
        let scale = from as f64 / to as f64;
        let stretch = scale.max(1.0);
        Self {
            from,
            scale,
            stretch,
            reach: LOBES * stretch,
        }
    }

    fn tap(&self, index: usize) -> ResizeTaps {
        let centre = (index as f64 + 0.5) * self.scale;
        let first = ((centre - self.reach + 0.5) as i64).max(0) as usize;
        let end = ((centre + self.reach + 0.5) as usize).min(self.from);
        // Pillow multiplies by the reciprocal; dividing instead changes last bits.
        let shrink = 1.0 / self.stretch;
        let raw: Vec<f64> = (first..end)
            .map(|x| lanczos((x as f64 - centre + 0.5) * shrink))
            .collect();
        let total: f64 = raw.iter().sum();
        let fixed = |w: &f64| {
            let scaled = w / total * f64::from(1 << WEIGHT_BITS);
            (scaled + 0.5f64.copysign(scaled)) as i32
        };
        ResizeTaps {
            first,
            weights: raw.iter().map(fixed).collect(),
        }
    }
}

fn lanczos(x: f64) -> f64 {
    if (-LOBES..LOBES).contains(&x) {
        sinc(x) * sinc(x / LOBES)
    } else {
        0.0
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        1.0
    } else {
        (x * PI).sin() / (x * PI)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: P7.
    #[test]
    fn width_of_many_groups_gives_the_same_pixels() {
        // 480,000 weights a column: each column is a group.
        let row: Vec<u8> = (0..1_200_000_u64).map(|at| (at * at % 253) as u8).collect();
        let wide = resize_rgb(&row, (400_000, 1), (5, 1));
        let tall = resize_rgb(&row, (1, 400_000), (1, 5));
        assert_eq!(wide, tall);
    }
}
