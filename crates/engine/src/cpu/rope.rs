//! Rotary positions (docs/moondream.md section 6).

use rayon::prelude::*;

use crate::network::spec::RopeSpec;

/// Sines and cosines of every position.
#[derive(Debug)]
pub(super) struct Rope {
    /// `[positions, pairs]`: cosine and sine of a pair's angle. Dimension `j` turns with `j + pairs`.
    cos_sin: Vec<(f32, f32)>,
    pairs: usize,
}

impl Rope {
    /// For positions `0..positions`: pair `j` turns by `position · θ^(-2j / dims)`.
    pub fn new(spec: RopeSpec, positions: usize) -> Self {
        let pairs = spec.dims / 2;
        let frequency = |pair: usize| {
            let exponent = 2.0 * pair as f32 / spec.dims as f32;
            spec.theta.powf(exponent).recip()
        };
        let angles = (0..positions)
            .flat_map(|position| (0..pairs).map(move |pair| position as f32 * frequency(pair)));
        Self {
            cos_sin: angles.map(|angle| (angle.cos(), angle.sin())).collect(),
            pairs,
        }
    }

    /// Turns the first dimensions of every head of q and k, in place. `qkv` is `[rows, 3 * width]`, each
    /// row `q | k | v` and each of them head by head; `positions` has one entry for each row.
    pub fn turn(&self, qkv: &mut [f32], positions: &[usize], head_dim: usize) {
        let row_values = qkv.len() / positions.len().max(1);
        let turned_values = row_values / 3 * 2;
        qkv.par_chunks_exact_mut(row_values.max(1))
            .zip(positions)
            .for_each(|(row, &position)| {
                for head in row[..turned_values].chunks_exact_mut(head_dim) {
                    self.turn_head(head, position);
                }
            });
    }

    fn turn_head(&self, head: &mut [f32], position: usize) {
        let (first, second) = head[..2 * self.pairs].split_at_mut(self.pairs);
        let cos_sin = &self.cos_sin[position * self.pairs..][..self.pairs];
        for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(cos_sin) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}
