//! The paged cache of keys and values: memory only. Who owns which page is the scheduler's business.

use super::attention::{AttentionHeads, KvSegment};
use crate::scheduler::backend::{KvTable, PageId};

/// What the cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KvShape {
    pub pages: usize,
    /// Positions in a page.
    pub page_tokens: usize,
    /// Blocks of the decoder.
    pub layers: usize,
    /// Heads of a block.
    pub heads: AttentionHeads,
}

/// `[pages, layers, 2 (keys, values), heads, page_tokens, head_dim]`.
#[derive(Debug)]
pub(super) struct KvCache {
    shape: KvShape,
    values: Vec<f32>,
}

impl KvCache {
    /// Memory for `shape`, all zeros (which the system provides only when it is written).
    pub fn new(shape: KvShape) -> Self {
        let positions = shape.pages * shape.page_tokens;
        Self {
            shape,
            values: vec![0.0; positions * shape.layers * 2 * shape.heads.width()],
        }
    }

    /// Writes the keys and values of consecutive positions from `first` on. `keys` and `values` yield a row of
    /// `heads * head_dim` for every position; the table has room for them.
    pub fn write<'a>(
        &mut self,
        layer: usize,
        kv: &KvTable,
        first: usize,
        rows: impl Iterator<Item = (&'a [f32], &'a [f32])>,
    ) {
        let head_dim = self.shape.heads.dim;
        for (position, (keys, values)) in (first..).zip(rows) {
            let (page, token) = self.place(kv, position);
            let pairs = keys
                .chunks_exact(head_dim)
                .zip(values.chunks_exact(head_dim));
            for (head, (key, value)) in pairs.enumerate() {
                for (part, source) in [(0, key), (1, value)] {
                    let start = self.start(page, layer, part, head) + token * head_dim;
                    self.values[start..][..head_dim].copy_from_slice(source);
                }
            }
        }
    }

    /// The first `positions` keys and values of one head, page by page. Nothing behind them is touched.
    pub fn segments(
        &self,
        layer: usize,
        head: usize,
        kv: &KvTable,
        positions: usize,
    ) -> Vec<KvSegment<'_>> {
        let in_prefix = positions.min(kv.prefix_positions);
        let parts = [
            (&kv.prefix[..], in_prefix),
            (&kv.own[..], positions - in_prefix),
        ];
        let mut segments = Vec::with_capacity(positions.div_ceil(self.shape.page_tokens) + 1);
        for (pages, positions) in parts {
            for (page, start) in pages
                .iter()
                .zip((0..positions).step_by(self.shape.page_tokens))
            {
                let tokens = self.shape.page_tokens.min(positions - start);
                segments.push(KvSegment {
                    keys: self.part(*page, layer, 0, head, tokens),
                    values: self.part(*page, layer, 1, head, tokens),
                });
            }
        }
        segments
    }

    fn part(&self, page: PageId, layer: usize, part: usize, head: usize, tokens: usize) -> &[f32] {
        let start = self.start(page, layer, part, head);
        &self.values[start..][..tokens * self.shape.heads.dim]
    }

    fn place(&self, kv: &KvTable, position: usize) -> (PageId, usize) {
        let (pages, position) = match position.checked_sub(kv.prefix_positions) {
            Some(own_position) => (&kv.own[..], own_position),
            None => (&kv.prefix[..], position),
        };
        let tokens = self.shape.page_tokens;
        (pages[position / tokens], position % tokens)
    }

    fn start(&self, page: PageId, layer: usize, part: usize, head: usize) -> usize {
        let shape = &self.shape;
        let block = (page.0 as usize * shape.layers + layer) * 2 + part;
        (block * shape.heads.count + head) * shape.page_tokens * shape.heads.dim
    }

    /// As if nothing had been written: a row that reads any of it decides from values that are not numbers.
    #[cfg(test)]
    pub fn invalidate(&mut self) {
        self.values.fill(f32::NAN);
    }
}
