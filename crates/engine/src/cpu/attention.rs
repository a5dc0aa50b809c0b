//! Softmax attention: of whole sequences to themselves by matrix products, and of few positions to a paged past.

use rayon::prelude::*;

use super::{
    gemm::{PackedRight, columns, matrix},
    ops::{dot, softmax},
};

/// How the values of a row are divided among heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AttentionHeads {
    pub count: usize,
    pub dim: usize,
}

impl AttentionHeads {
    /// Width of all heads together.
    pub fn width(self) -> usize {
        self.count * self.dim
    }

    /// Scores are divided by the square root of the width of a head.
    fn scale(self) -> f32 {
        (self.dim as f32).sqrt().recip()
    }
}

/// Keys and values of consecutive positions of one head: `[positions, head_dim]` each.
#[derive(Clone, Copy, Debug)]
pub(super) struct KvSegment<'a> {
    /// Rotated keys.
    pub keys: &'a [f32],
    pub values: &'a [f32],
}

/// Attention of sequences to themselves in both directions. `qkv` is `[sequences * positions, 3 * width]`, each row
/// `q | k | v`, and each of them head by head. Returns `[sequences * positions, width]`.
pub(super) fn attend_within(qkv: &[f32], positions: usize, heads: AttentionHeads) -> Vec<f32> {
    let width = heads.width();
    let mut attended = vec![0.0; qkv.len() / 3];
    let sequences = attended.par_chunks_exact_mut(positions * width);
    sequences
        .zip(qkv.par_chunks_exact(positions * 3 * width))
        .for_each(|(attended, qkv)| attend_sequence(attended, qkv, heads));
    attended
}

/// Queries that one task takes: their scores stay in the second-level cache between the products and the softmax.
const TASK_QUERIES: usize = 48;

/// One sequence to itself: `[positions, 3 * width]` to `[positions, width]`.
fn attend_sequence(attended: &mut [f32], qkv: &[f32], heads: AttentionHeads) {
    let width = heads.width();
    let part = |rows, third: usize, head: usize| {
        let start = third * width + head * heads.dim;
        columns(rows, 3 * width, start..start + heads.dim)
    };
    let past: Vec<(PackedRight, PackedRight)> = (0..heads.count)
        .into_par_iter()
        .map(|head| {
            let keys = PackedRight::new(part(qkv, 1, head).transposed());
            (keys, PackedRight::new(part(qkv, 2, head)))
        })
        .collect();
    let tasks = attended.par_chunks_mut(TASK_QUERIES * width);
    tasks
        .zip(qkv.par_chunks(TASK_QUERIES * 3 * width))
        .for_each(|(attended, qkv)| {
            let one_head = |(head, (keys, values)): (usize, &(PackedRight, PackedRight))| {
                let mut scores = keys.product(part(qkv, 0, head), heads.scale());
                scores.chunks_exact_mut(keys.columns()).for_each(softmax);
                values.product(matrix(&scores, keys.columns()), 1.0)
            };
            let parts: Vec<Vec<f32>> = past.par_iter().enumerate().map(one_head).collect();
            join_heads(attended, &parts, heads);
        });
}

/// Attention of the last positions of a sequence, each to itself and all before it. `queries` is `[rows, width]`, head
/// by head; `past` gives the segments of a head that hold the positions `0..seen`, those of the queries included.
/// Returns `[rows, width]`.
///
/// Plain loops: for the few rows of a prompt they are faster than bringing the pages into one matrix, and a row's result
/// does not depend on what else is in the batch, to the bit.
pub(super) fn attend_past<'a>(
    queries: &[f32],
    seen: usize,
    heads: AttentionHeads,
    past: impl Fn(usize) -> Vec<KvSegment<'a>> + Sync,
) -> Vec<f32> {
    let rows = queries.len() / heads.width();
    let one_head = |head| {
        let segments = past(head);
        let mut out = Vec::with_capacity(rows * heads.dim);
        for (row, query) in queries.chunks_exact(heads.width()).enumerate() {
            let visible = seen - rows + row + 1;
            let query = &query[head * heads.dim..][..heads.dim];
            out.extend(attend_one(query, &segments, visible, heads.scale()));
        }
        out
    };
    let parts: Vec<Vec<f32>> = (0..heads.count).into_par_iter().map(one_head).collect();
    let mut attended = vec![0.0; queries.len()];
    join_heads(&mut attended, &parts, heads);
    attended
}

/// One query over the first `visible` positions of one head.
fn attend_one(query: &[f32], segments: &[KvSegment<'_>], visible: usize, scale: f32) -> Vec<f32> {
    let dim = query.len();
    let mut weights = Vec::with_capacity(visible);
    for segment in segments {
        let keys = segment.keys.chunks_exact(dim);
        let keys = keys.take(visible - weights.len());
        weights.extend(keys.map(|key| scale * dot(query, key)));
    }
    softmax(&mut weights);

    let mut out = vec![0.0; dim];
    let mut weights = &weights[..];
    for segment in segments {
        let values = segment.values.chunks_exact(dim);
        let (of_segment, behind) = weights.split_at(values.len().min(weights.len()));
        for (weight, value) in of_segment.iter().zip(values) {
            out.iter_mut()
                .zip(value)
                .for_each(|(out, value)| *out += weight * value);
        }
        weights = behind;
    }
    out
}

/// `[rows, head_dim]` of every head to `[rows, width]`.
fn join_heads(joined: &mut [f32], parts: &[Vec<f32>], heads: AttentionHeads) {
    for (head, values) in parts.iter().enumerate() {
        let rows = joined.chunks_exact_mut(heads.width());
        for (row, values) in rows.zip(values.chunks_exact(heads.dim)) {
            row[head * heads.dim..][..heads.dim].copy_from_slice(values);
        }
    }
}
