//! Lanczos scaling of 8-bit RGB, bit for bit as Pillow 13 does it, because the golden crops were made by it: separable,
//! mostly across first, each pass rounded to 8 bits, weights as integers with 22 fractional bits.

use std::{borrow::Cow, f64::consts::PI};

use rayon::prelude::*;

/// Lobes of the filter on each side.
const LOBES: f64 = 3.0;
/// Fractional bits of a weight: 32 less 8 of the pixel and 2 for sums that overshoot.
const WEIGHT_BITS: u32 = 22;

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
    let taps = taps(width, out_width);
    let mut out = vec![0; out_width * height * 3];
    out.par_chunks_exact_mut(out_width * 3)
        .zip(rgb.par_chunks_exact(width * 3))
        .for_each(|(out_row, row)| {
            let (pixels, _) = out_row.as_chunks_mut::<3>();
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
    out.into()
}

/// Scales each column; gives the pixels back as they are when the height stays.
fn scale_down(rgb: Cow<'_, [u8]>, width: usize, height: usize, out_height: usize) -> Cow<'_, [u8]> {
    if height == out_height {
        return rgb;
    }
    let taps = taps(height, out_height);
    let row_bytes = width * 3;
    let mut out = vec![0; row_bytes * out_height];
    out.par_chunks_exact_mut(row_bytes)
        .zip(&taps)
        .for_each(|(out_row, tap)| {
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

/// The taps of every output pixel. When shrinking, the filter is stretched by the scale.
pub fn taps(from: usize, to: usize) -> Vec<ResizeTaps> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let reach = LOBES * stretch;
    let tap = |index: usize| {
        let centre = (index as f64 + 0.5) * scale;
        let first = ((centre - reach + 0.5) as i64).max(0) as usize;
        let end = ((centre + reach + 0.5) as usize).min(from);
        // Pillow multiplies by the reciprocal; dividing instead changes last bits.
        let shrink = 1.0 / stretch;
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
    };
    (0..to).map(tap).collect()
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
