//! Scales of queries and values that depend on the row and its position (docs/moondream.md section 6).

use rayon::prelude::*;

use super::{
    gemm::{PackedRight, matrix},
    ops::gelu_erf,
    rank::CpuRank,
};
use crate::{network::Tau, ranks::RankLeft};

impl Tau<Vec<f32>> {
    /// Scales q and v of `[rows, q | k | v]` head by head, before they are rotated: by `tanh(w · gelu(row)) + 0.5 + sigmoid(alpha ·
    /// ln(position + 1))`. A rank has its heads of a row, so what it has of the products is added up first.
    pub(super) fn scale(
        &self,
        qkv: &mut [f32],
        positions: &[usize],
        head_dim: usize,
        rank: Option<&CpuRank>,
    ) -> Result<(), RankLeft> {
        let heads = self.alpha.len();
        let row_values = 3 * heads * head_dim;
        let mut activated = qkv.to_vec();
        let rows = activated.par_chunks_exact_mut(row_values);
        rows.for_each(gelu_erf);
        // Packed, so that the sum of a row does not depend on how many there are.
        let weights = PackedRight::new(matrix(&self.wq_wv, row_values).transposed());
        let mut products = weights.product(matrix(&activated, row_values), 1.0);
        if let Some(rank) = rank {
            let part = std::mem::replace(
                &mut products,
                vec![0.0; weights.columns() * positions.len()],
            );
            rank.sum(&mut products, part)?;
        }
        // Of q, then of v; of those, the heads of this rank.
        let all_heads = weights.columns() / 2;
        let own = rank.map_or(0..heads, |rank| rank.shard.range(all_heads));
        let rows = qkv.par_chunks_exact_mut(row_values).zip(positions);
        let rows = rows.zip(products.par_chunks_exact(2 * all_heads));
        rows.for_each(|((row, &position), products)| {
            let log = (position as f32 + 1.0).ln();
            for (part, products) in [0, 2].into_iter().zip(products.chunks_exact(all_heads)) {
                for (head, product) in products[own.clone()].iter().enumerate() {
                    let by_position = 0.5 + (1.0 + (-self.alpha[head] * log).exp()).recip();
                    let scale = product.tanh() + by_position;
                    let values = &mut row[(part * heads + head) * head_dim..][..head_dim];
                    values.iter_mut().for_each(|value| *value *= scale);
                }
            }
        });
        Ok(())
    }
}
