//! Steps of few positions: all blocks of the decoder in one launch (`kernels/decode_step.cu`).
//!
//! Such a step is bound by reading the weights once. As kernels of their own its products would wait for each other, and the
//! memory with them; in one launch the weights that come next are always on their way.
//!
//! Belongs here: which steps go that way, and what the kernel needs beside the network's own buffers. Not here: the network's
//! other way, which takes every step (`network`).

use std::sync::Arc;

use cudarc::driver::CudaStream;

use super::{
    error::CudaError,
    kernels::{
        DecodeScratch, DecodeShape, DecodeStates, DecodeTables, GATES, GROUPS, Kernels, LayerCache,
        Parts, ROWS_MAX, SPLITS_MAX, UNIT, WIDTH,
    },
    library::Gpu,
    memory::Buffer,
    program::Counts,
    weights::TextBlock,
};
use crate::model::TextConfig;

/// The decoder's layers as the kernel reads them, and its scratch.
pub struct Decoder {
    layers: Buffer<u64>,
    sums: Buffer<f32>,
    counters: Buffer<u32>,
    heads: usize,
    inner: usize,
    layer_count: usize,
    layer_values: usize,
    blocks: usize,
}

impl Decoder {
    /// `None` when the GPU or the model's shape is not what the kernel is made for. `layer_values` are those of the cache of
    /// one layer. The blocks' weights must live as long.
    pub fn new(
        stream: &Arc<CudaStream>,
        gpu: &Gpu,
        kernels: &Kernels,
        config: &TextConfig,
        blocks: &[TextBlock],
        layer_values: usize,
    ) -> Result<Option<Self>, CudaError> {
        let fits = DecodeShape::fits(blocks.len(), config.ff_dim, gpu.multiprocessors);
        if config.dim != WIDTH || !fits || !kernels.has_decode_step() {
            return Ok(None);
        }
        let chunks = 1 + config.ff_dim / WIDTH;
        let layers: Vec<u64> = blocks.iter().flat_map(addresses).collect();
        Ok(Some(Self {
            layers: Buffer::from_host(stream, &layers)?,
            sums: Buffer::zeros(stream, chunks * ROWS_MAX * WIDTH)?,
            counters: Buffer::zeros(stream, GATES + WIDTH / UNIT + ROWS_MAX * config.n_heads)?,
            heads: config.n_heads,
            inner: config.ff_dim,
            layer_count: blocks.len(),
            layer_values,
            blocks: gpu.multiprocessors,
        }))
    }

    /// True for steps that go this way: few positions, all of them behind an image, and no image to be read.
    pub fn takes(&self, counts: &Counts) -> bool {
        counts.images == 0 && counts.alone == 0 && (1..=ROWS_MAX).contains(&counts.row_positions)
    }

    /// Queues all blocks of the decoder over the hidden states of the step's positions; `cache` is that of the first layer.
    pub fn run(
        &self,
        kernels: &Kernels,
        states: DecodeStates,
        (cache, tables): (LayerCache, &DecodeTables),
        parts: Parts,
        counts: &Counts,
    ) -> Result<(), CudaError> {
        let scratch = DecodeScratch {
            parts: parts.values,
            masses: parts.masses,
            sums: self.sums.start(),
            counters: self.counters.start(),
        };
        let shape = DecodeShape {
            layers: self.layer_count,
            layer_values: self.layer_values,
            inner: self.inner,
            rows: counts.row_positions,
            tiles: counts.tiles,
            splits: splits(counts.tiles * self.heads, self.blocks),
            blocks: self.blocks,
        };
        kernels.decode_step(self.layers.start(), states, (cache, tables), scratch, shape)
    }
}

/// In the order of `struct Layer` of `decode_ring.cuh`.
fn addresses(block: &TextBlock) -> [u64; 6] {
    let (norm, enter, leave) = (block.ln.at(), block.enter.at(), block.out.at());
    [
        norm.weight.address(),
        norm.bias.address(),
        enter.weight.address(),
        enter.bias.address(),
        leave.weight.address(),
        leave.bias.address(),
    ]
}

/// Parts that each tile's pages are read in, so that no multiprocessor is idle as long as there are few (tile, head)s.
fn splits(pairs: usize, blocks: usize) -> usize {
    (blocks * GROUPS / pairs.max(1)).clamp(1, SPLITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_are_split_and_many_are_not() {
        // Moondream's 32 heads on an H200: one, four and 32 images.
        assert_eq!(splits(32, 132), 16);
        assert_eq!(splits(4 * 32, 132), 4);
        assert_eq!(splits(32 * 32, 132), 1);
    }

    #[test]
    fn what_the_kernel_is_not_made_for_goes_the_other_way() {
        // Moondream 2 on an H200 and a B200.
        assert!(DecodeShape::fits(24, 8192, 132) && DecodeShape::fits(24, 8192, 148));
        // Too deep, too wide, not in chunks, and GPUs that are too large and too small a share of one.
        for (layers, inner, blocks) in [
            (33, 8192, 132),
            (24, 8 * 2048, 132),
            (24, 8000, 132),
            (24, 8192, 161),
            (24, 8192, 4),
        ] {
            assert!(
                !DecodeShape::fits(layers, inner, blocks),
                "{layers} {inner} {blocks}"
            );
        }
    }
}
