//! A mixture of experts: each row goes through the few that its router chooses (docs/moondream.md section 6).

use rayon::prelude::*;

use super::{
    adapter::{AdaptedRows, BlockAdapter},
    gemm::PackedLinear,
    ops::{gelu_erf, softmax},
};
use crate::{model::LowRank, network::Experts};

/// An expert of a row, and its share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ExpertShare {
    pub expert: usize,
    pub share: f32,
}

impl Experts<PackedLinear> {
    /// `[rows, width]` to the sums of their experts: `share * down(gelu(h) * (g + 1))` with `[h | g] = up(x)`. An expert's weights are
    /// unpacked once, for all of its rows. Each expert has its own part of an adapter.
    pub(super) fn forward(
        &self,
        x: &[f32],
        adapters: &[AdaptedRows<'_, BlockAdapter>],
    ) -> Vec<f32> {
        let width = self.up.inputs();
        let logits = self.router.forward(x);
        let logits = logits.par_chunks_exact(self.router.outputs());
        let routes: Vec<Vec<ExpertShare>> = logits.map(|row| routes(row, self.active)).collect();
        let mut sums = vec![0.0; x.len()];
        for expert in 0..self.router.outputs() {
            let share =
                |routes: &Vec<ExpertShare>| Some(routes.iter().find(|r| r.expert == expert)?.share);
            let chosen = routes.iter().map(share).enumerate();
            let chosen: Vec<(usize, f32)> = chosen.filter_map(|(row, s)| Some((row, s?))).collect();
            let rows = chosen.iter().map(|(row, _)| &x[row * width..][..width]);
            let rows: Vec<f32> = rows.flatten().copied().collect();
            if rows.is_empty() {
                continue;
            }
            let add = |y: &mut [f32], x: &[f32], of: fn(&BlockAdapter) -> Option<&LowRank>| {
                for adapted in adapters {
                    let among = |end| chosen.partition_point(|(row, _)| *row < end);
                    let rows = among(adapted.rows.start)..among(adapted.rows.end);
                    if let Some(layer) = of(adapted.adapter) {
                        layer.add(expert, rows, y, x);
                    }
                }
            };
            let mut up = self.up.expert(expert, &rows);
            add(&mut up, &rows, |block| block.mlp.first());
            let inner = gated(&up, self.up.outputs());
            let mut results = self.down.expert(expert, &inner);
            add(&mut results, &inner, |block| block.mlp.second());
            for ((row, share), result) in chosen.into_iter().zip(results.chunks_exact(width)) {
                let sum = sums[row * width..][..width].iter_mut();
                sum.zip(result).for_each(|(sum, y)| *sum += share * y);
            }
        }
        sums
    }
}

/// The experts of a row: those with the largest logits, the lower one of equals, with the softmax over them as shares.
pub(super) fn routes(logits: &[f32], active: usize) -> Vec<ExpertShare> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Stable: equal logits keep their order. Plus zero, because -0 is equal to 0.
    order.sort_by(|a, b| (logits[*b] + 0.0).total_cmp(&(logits[*a] + 0.0)));
    order.truncate(active);
    let mut shares: Vec<f32> = order.iter().map(|&expert| logits[expert]).collect();
    softmax(&mut shares);
    let routes = order.into_iter().zip(shares);
    routes
        .map(|(expert, share)| ExpertShare { expert, share })
        .collect()
}

/// Rows of `h`, then `g`, to `gelu(h) * (g + 1)`.
pub(super) fn gated(up: &[f32], width: usize) -> Vec<f32> {
    let rows = up.par_chunks_exact(width);
    let rows = rows.flat_map_iter(|row| {
        let (h, g) = row.split_at(width / 2);
        let mut activated = h.to_vec();
        gelu_erf(&mut activated);
        let pairs = activated.into_iter().zip(g);
        pairs.map(|(h, g)| h * (g + 1.0)).collect::<Vec<f32>>()
    });
    rows.collect()
}
