//! Scales of queries and values that depend on the row and its position (docs/moondream.md section 6).

use rayon::prelude::*;

use super::ops::{dot, gelu_erf};
use crate::network::Tau;

impl Tau<Vec<f32>> {
    /// Scales q and v of `[rows, q | k | v]` head by head, before they are rotated: by `tanh(w · gelu(row)) + 0.5 + sigmoid(alpha ·
    /// ln(position + 1))`.
    pub(super) fn scale(&self, qkv: &mut [f32], positions: &[usize], head_dim: usize) {
        let heads = self.alpha.len();
        let row_values = 3 * heads * head_dim;
        let rows = qkv.par_chunks_exact_mut(row_values).zip(positions);
        rows.for_each(|(row, &position)| {
            let mut activated = row.to_vec();
            gelu_erf(&mut activated);
            let log = (position as f32 + 1.0).ln();
            for (part, weights) in [0, 2]
                .into_iter()
                .zip(self.wq_wv.chunks_exact(heads * row_values))
            {
                for (head, weight) in weights.chunks_exact(row_values).enumerate() {
                    let by_position = 0.5 + (1.0 + (-self.alpha[head] * log).exp()).recip();
                    let scale = dot(&activated, weight).tanh() + by_position;
                    let values = &mut row[(part * heads + head) * head_dim..][..head_dim];
                    values.iter_mut().for_each(|value| *value *= scale);
                }
            }
        });
    }
}
