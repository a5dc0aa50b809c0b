//! What adapters add to products, row by row: `y += B · (A · x)`. A row's sum does not depend on the rows beside it.

use std::ops::Range;

use half::{bf16, slice::HalfFloatSliceExt as _};
use rayon::prelude::*;

use super::{ops::dot, span::PositionSpan};
use crate::{
    model::{AdapterWeights, LowRank},
    network::TextBlock,
};

/// An adapter's part of a block.
pub(super) type BlockAdapter = TextBlock<Option<LowRank>, ()>;

/// Consecutive rows of a batch with their adapter.
#[derive(Clone, Debug)]
pub(super) struct AdaptedRows<'a, T> {
    pub rows: Range<usize>,
    pub adapter: &'a T,
}

/// The rows of a batch that have an adapter, in order.
pub(super) struct RowAdapters<'a>(Vec<AdaptedRows<'a, AdapterWeights>>);

impl<'a> RowAdapters<'a> {
    /// Of the positions of all spans, in their order.
    pub fn of(spans: &[PositionSpan<'a>]) -> Self {
        let mut end = 0;
        let adapted = spans.iter().filter_map(|span| {
            let rows = end..end + span.positions.len();
            end = rows.end;
            let adapter = span.adapter?;
            Some(AdaptedRows { rows, adapter })
        });
        Self(adapted.collect())
    }

    /// Their parts of block `layer`.
    pub fn of_block(&self, layer: usize) -> Vec<AdaptedRows<'a, BlockAdapter>> {
        let adapted = self.0.iter().filter_map(|AdaptedRows { rows, adapter }| {
            Some(AdaptedRows {
                rows: rows.clone(),
                adapter: adapter.blocks.get(layer)?,
            })
        });
        adapted.collect()
    }

    /// Adds what adapters have for a layer of block `layer` to its products `y` of the rows `x`. Of rows behind those of `y`, nothing is
    /// added.
    pub fn add(
        &self,
        layer: usize,
        of: fn(&BlockAdapter) -> Option<&LowRank>,
        y: &mut [f32],
        x: &[f32],
    ) {
        for AdaptedRows { rows, adapter } in self.of_block(layer) {
            if let Some(layer) = of(adapter) {
                let end = y.len() / layer.outputs;
                layer.add(0, rows.start.min(end)..rows.end.min(end), y, x);
            }
        }
    }
}

impl LowRank {
    /// Adds what expert `expert` has to these rows of `y`, `[rows, outputs]`, from those of `x`, `[rows, inner]`.
    pub(super) fn add(&self, expert: usize, rows: Range<usize>, y: &mut [f32], x: &[f32]) {
        if rows.is_empty() {
            return;
        }
        let of_expert = |values: &[bf16], count: usize| {
            let mut part = vec![0.0; count];
            values[expert * count..][..count].convert_to_f32_slice(&mut part);
            part
        };
        let a = of_expert(&self.a, self.rank * self.inner);
        let b = of_expert(&self.b, self.outputs * self.rank);
        let x = &x[rows.start * self.inner..rows.end * self.inner];
        let y = &mut y[rows.start * self.outputs..rows.end * self.outputs];
        let rows = y.par_chunks_exact_mut(self.outputs);
        rows.zip(x.par_chunks_exact(self.inner)).for_each(|(y, x)| {
            let narrow: Vec<f32> = a.chunks_exact(self.inner).map(|a| dot(a, x)).collect();
            for (y, b) in y.iter_mut().zip(b.chunks_exact(self.rank)) {
                *y += dot(b, &narrow);
            }
        });
    }
}
