//! Rows to numbers of 8 bits and sums of them back to values, with the processor's widest vectors.

use rayon::prelude::*;
use rten_simd::{
    Isa, SimdIterable, SimdOp,
    ops::{BitOps, FloatOps, NarrowSaturate, NumOps, ToFloat},
};
use rten_vecmath::{MaxNum, MinNum};

/// The number of the value zero: the library of the products wants inputs without a sign.
pub(super) const ZERO: u8 = 128;

/// Rounds a row to `numbers` of the same length, of which the largest is `most` away from [`ZERO`], and returns its scale: a
/// value is the number less [`ZERO`], times it.
pub(super) fn to_int8(row: &[f32], numbers: &mut [u8], most: f32) -> f32 {
    let scale = largest(row) / most;
    let round = RoundRow {
        row,
        numbers,
        factor: if scale > 0.0 { scale.recip() } else { 0.0 },
    };
    round.dispatch();
    scale
}

/// The largest magnitude; not a number where a value is not: such a row has no scale, and a decision on it is an error.
pub(super) fn largest(row: &[f32]) -> f32 {
    let (least, greatest) = (MinNum::new(row).dispatch(), MaxNum::new(row).dispatch());
    greatest.max(-least)
}

/// Rows of `width` values, each rounded to whole parts of its scale, of which the largest value is 127: what int8 makes of inputs, and of
/// the weights of each output.
pub(super) fn rounded_to_int8(rows: &[f32], width: usize) -> Vec<f32> {
    let mut rounded = rows.to_vec();
    rounded.par_chunks_mut(width).for_each(|row| {
        let mut numbers = vec![ZERO; width];
        let scale = to_int8(row, &mut numbers, 127.0);
        for (x, number) in row.iter_mut().zip(numbers) {
            *x = (f32::from(number) - f32::from(ZERO)) * scale;
        }
    });
    rounded
}

struct RoundRow<'a> {
    row: &'a [f32],
    numbers: &'a mut [u8],
    factor: f32,
}

impl SimdOp for RoundRow<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let (floats, wide, middle, narrow) = (isa.f32(), isa.i32(), isa.i16(), isa.u8());
        let (factor, zero) = (floats.splat(self.factor), wide.splat(i32::from(ZERO)));
        let mut row = self.row.chunks_exact(narrow.len());
        let mut numbers = self.numbers.chunks_exact_mut(narrow.len());
        for (x, to) in row.by_ref().zip(numbers.by_ref()) {
            let rounded = floats.load_many::<4>(x).map(
                #[inline(always)]
                |x| wide.add(floats.to_int_round(floats.mul(x, factor)), zero),
            );
            let low = wide.narrow_saturate(rounded[0], rounded[1]);
            let high = wide.narrow_saturate(rounded[2], rounded[3]);
            narrow.store(middle.narrow_saturate(low, high), to);
        }
        for (x, to) in row.remainder().iter().zip(numbers.into_remainder()) {
            *to = ((x * self.factor).round_ties_even() + f32::from(ZERO)) as u8;
        }
    }
}

/// A row of sums of products of numbers, and what makes values of them.
pub(super) struct Int8Sums<'a> {
    pub sums: &'a [i32],
    /// Scale of the row of inputs.
    pub row_scale: f32,
    /// Scales of the weights of each output.
    pub scales: &'a [f32],
    pub bias: &'a [f32],
}

impl Int8Sums<'_> {
    /// `y += sum * row_scale * scale + bias`; all of one length.
    pub fn add_to(&self, y: &mut [f32]) {
        AddSums { y, from: self }.dispatch();
    }
}

struct AddSums<'a> {
    y: &'a mut [f32],
    from: &'a Int8Sums<'a>,
}

impl SimdOp for AddSums<'_> {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let (floats, ints) = (isa.f32(), isa.i32());
        let Self { y, from } = self;
        let row_scale = floats.splat(from.row_scale);
        let vectors = from.sums.simd_iter(ints);
        let vectors = vectors.zip(from.scales.simd_iter(floats));
        let vectors = vectors.zip(from.bias.simd_iter(floats));
        let whole = y.len() / floats.len() * floats.len();
        let (start, rest) = y.split_at_mut(whole);
        for (y, ((sum, scale), bias)) in start.chunks_exact_mut(floats.len()).zip(vectors) {
            let scale = floats.mul(row_scale, scale);
            let value = floats.mul_add(ints.to_float(sum), scale, bias);
            floats.store(floats.add(floats.load(y), value), y);
        }
        for (i, y) in (whole..).zip(rest) {
            *y += from.sums[i] as f32 * (from.row_scale * from.scales[i]) + from.bias[i];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_any_length_are_rounded_to_the_nearest_number() {
        for length in [1, 3, 64, 130] {
            let row: Vec<f32> = (0..length).map(|i| (i as f32 - 20.0) * 0.37).collect();
            let mut numbers = vec![0; length];
            let scale = to_int8(&row, &mut numbers, 63.0);
            let largest = numbers.iter().map(|number| number.abs_diff(ZERO)).max();
            assert_eq!(largest, Some(63));
            for (x, number) in row.iter().zip(&numbers) {
                let value = (f32::from(*number) - f32::from(ZERO)) * scale;
                assert!((x - value).abs() <= 0.501 * scale, "{x} became {value}");
            }
        }
        let mut numbers = [0; 5];
        assert_eq!(to_int8(&[0.0; 5], &mut numbers, 127.0), 0.0);
        assert_eq!(numbers, [ZERO; 5]);
        let row = [1.0, f32::NAN, 2.0, 3.0, 4.0];
        assert!(to_int8(&row, &mut numbers, 127.0).is_nan());
    }
}
