//! Rotary positions (docs/moondream.md section 6).

use rayon::prelude::*;

use crate::model::{ROPE_THETA, ROTARY_DIM};

/// Pairs of dimensions that turn together: dimension `j` with `j + PAIRS`.
const PAIRS: usize = ROTARY_DIM / 2;

/// Sines and cosines of every position.
#[derive(Debug)]
pub(super) struct Rope {
    /// `[positions]` of cosines and sines of the pairs' angles.
    cos_sin: Vec<[(f32, f32); PAIRS]>,
}

impl Rope {
    /// For positions `0..positions`: pair `j` turns by `position · θ^(-2j / 32)`.
    pub fn new(positions: usize) -> Self {
        let frequency = |pair: usize| {
            ROPE_THETA
                .powf(2.0 * pair as f32 / ROTARY_DIM as f32)
                .recip()
        };
        let turn = |position: usize| {
            std::array::from_fn(|pair| {
                let (sin, cos) = (position as f32 * frequency(pair)).sin_cos();
                (cos, sin)
            })
        };
        Self {
            cos_sin: (0..positions).map(turn).collect(),
        }
    }

    /// Turns the first `ROTARY_DIM` dimensions of every head of q and k, in place. `qkv` is `[rows, 3 * width]`, each
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
        let (first, second) = head[..ROTARY_DIM].split_at_mut(PAIRS);
        for ((a, b), (cos, sin)) in first.iter_mut().zip(second).zip(self.cos_sin[position]) {
            (*a, *b) = (*a * cos - *b * sin, *a * sin + *b * cos);
        }
    }
}
