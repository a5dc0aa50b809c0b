//! Softmax attention: of whole sequences to themselves by matrix products, and of few positions to a paged past.

use rayon::prelude::*;

use super::{
    gemm::{columns, matrix, product},
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
    let one_head = |qkv, head| {
        let part = |third: usize| {
            let start = third * width + head * heads.dim;
            columns(qkv, 3 * width, start..start + heads.dim)
        };
        let mut scores = product(part(0), part(1).transposed(), heads.scale());
        scores.chunks_exact_mut(positions).for_each(softmax);
        product(matrix(&scores, positions), part(2), 1.0)
    };
    let parts: Vec<Vec<f32>> = qkv
        .par_chunks_exact(positions * 3 * width)
        .flat_map(|qkv| {
            (0..heads.count)
                .into_par_iter()
                .map(move |head| one_head(qkv, head))
        })
        .collect();
    parts
        .chunks_exact(heads.count)
        .flat_map(|parts| join_heads(parts, heads))
        .collect()
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
    join_heads(&parts, heads)
}

/// One query over the first `visible` positions of one head.
fn attend_one(query: &[f32], segments: &[KvSegment<'_>], visible: usize, scale: f32) -> Vec<f32> {
    let dim = query.len();
    let keys = segments
        .iter()
        .flat_map(|segment| segment.keys.chunks_exact(dim));
    let mut weights: Vec<f32> = keys
        .take(visible)
        .map(|key| scale * dot(query, key))
        .collect();
    softmax(&mut weights);

    let values = segments
        .iter()
        .flat_map(|segment| segment.values.chunks_exact(dim));
    let mut out = vec![0.0; dim];
    for (weight, value) in weights.iter().zip(values) {
        out.iter_mut()
            .zip(value)
            .for_each(|(out, value)| *out += weight * value);
    }
    out
}

/// `[rows, head_dim]` of every head to `[rows, width]`.
fn join_heads(parts: &[Vec<f32>], heads: AttentionHeads) -> Vec<f32> {
    let mut joined = vec![0.0; parts.iter().map(Vec::len).sum()];
    for (head, values) in parts.iter().enumerate() {
        let rows = joined.chunks_exact_mut(heads.width());
        for (row, values) in rows.zip(values.chunks_exact(heads.dim)) {
            row[head * heads.dim..][..heads.dim].copy_from_slice(values);
        }
    }
    joined
}
