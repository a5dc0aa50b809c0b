//! Steps of few positions: all blocks of the decoder in one launch (`kernels/decode_step.cu`).
//!
//! Such a step is bound by reading the weights once. As separate kernels its products would wait for each other, and the memory would be
//! idle meanwhile; in one launch the next weights are always being read. In int8 and fp8 they are half as many bytes.
//!
//! Belongs here: which steps run in one launch, the scratch of the kernel, and its launch. Not here: kernel by kernel, which works for
//! every step (`network`).

use std::{cell::Cell, rc::Rc};

use half::bf16;

use super::{
    attention::CachedAttention,
    launch::{ByValue, Kernels, launch, not_of_experts, require},
    sum_ranks::{DECODER_WORDS_AT, RankAddresses},
};
use crate::{
    cuda::{
        error::CudaError,
        memory::{Buffer, Pointer},
        program::StepCounts,
        tensor::{GpuTextBlock, LinearRef, TEXT_HEAD, TILE, WeightPointer, kernel_suffix},
    },
    model::TextConfig,
    network::format::Number,
};

/// Width of the decoders that the kernel is made for, and its heads.
const WIDTH: usize = 2048;
const HEADS: usize = WIDTH / TEXT_HEAD;
/// GPUs that compute the decoder together, if there is more than one.
const RANKS: usize = 2;
/// Outputs of a unit of work.
const UNIT: usize = 16;
/// Positions of the largest step.
pub const ONE_LAUNCH_ROWS_MAX: usize = 32;
/// The most splits of a tile and head.
const SPLITS_MAX: usize = 16;
/// The same for few rows: more splits take longer to merge (one row: 890 instead of 854 us).
const SPLITS_MAX_FEW: usize = 8;
/// Gates where blocks wait for each other.
const GATES: usize = 4;
/// (Tile, head, split)s that a block computes at once.
const GROUPS: usize = 4;
/// 64-bit words of `struct Layer` of `decode_base.cuh`.
const LAYER_WORDS: usize = 10;

/// Layers, and chunks of 2048 inputs of a product, at most.
const LAYERS_MAX: usize = 32;
const CHUNKS_MAX: usize = 8;
const THREADS: u32 = 512;
const WARPS: usize = 16;
/// The most rows of each kernel. The first one keeps the hidden states in shared memory.
const ROWS: [usize; 4] = [2, 8, 16, ONE_LAUNCH_ROWS_MAX];

/// Dynamic shared memory of a block of the kernel for steps of up to `rows` positions (`struct KernelTraits` of `decode_base.cuh`).
fn shared_bytes_for(rows: usize) -> usize {
    // Two buffers of sums, 16 outputs and 4 of padding.
    let sums = 2 * WARPS * rows * (UNIT + 4) * size_of::<f32>();
    let few = rows == ROWS[0];
    // Partial results of the four warps of each group: 64 values, 8 of padding, maximum and sum of each row.
    let seen_rows = if few { rows } else { TILE };
    let seen = GROUPS * 4 * seen_rows * (TEXT_HEAD + 8 + 2) * size_of::<f32>();
    match few {
        true => sums + seen + rows * WIDTH * size_of::<bf16>(),
        false => sums.max(seen),
    }
}

/// The one format of all weights, if there is one and the kernel has all parts of the blocks.
fn format_of(blocks: &[GpuTextBlock]) -> Option<Number> {
    if blocks.iter().any(|block| block.tau.is_some()) {
        return None;
    }
    let layers = blocks.iter().flat_map(GpuTextBlock::layers);
    let mut numbers = layers.map(|layer| layer.number());
    let first = numbers.next()?;
    numbers.all(|number| number == first).then_some(first)
}

/// The kernel for so many rows.
fn kernel_name(weights: Number, rows: usize, ranks: usize) -> String {
    let of_ranks = if ranks == RANKS { "_of_2" } else { "" };
    format!("decode_step_{rows}{of_ranks}{}", kernel_suffix(weights))
}

/// The kernels, and their dynamic shared memory.
pub(super) fn shared_bytes() -> impl Iterator<Item = (String, usize)> {
    let of = |(weights, ranks)| {
        ROWS.map(|rows| (kernel_name(weights, rows, ranks), shared_bytes_for(rows)))
    };
    [Number::Bf16, Number::Int8, Number::E4m3]
        .into_iter()
        .flat_map(|weights| [(weights, 1), (weights, RANKS)])
        .flat_map(of)
}

/// True when the kernels support decoders of `layers` layers with MLPs of `inner` values on `blocks` multiprocessors.
fn is_supported(layers: usize, inner: usize, blocks: usize) -> bool {
    let chunks = 1 + inner / WIDTH;
    inner.is_multiple_of(WIDTH)
        && layers <= LAYERS_MAX
        && chunks <= CHUNKS_MAX
        // In each phase, each block has at least one unit; the second phase, `[2048, 2048 + inner]`, has fewer.
        && (chunks..=chunks * WIDTH / UNIT).contains(&blocks)
}

/// Splits of each tile's pages: enough for all `blocks` multiprocessors when there are few (tile, head)s, `pairs`.
fn splits(rows: usize, pairs: usize, blocks: usize) -> usize {
    let most = match rows <= ROWS[0] {
        true => SPLITS_MAX_FEW,
        false => SPLITS_MAX,
    };
    (blocks * GROUPS / pairs.max(1)).clamp(1, most)
}

/// The kernel's argument: `struct StepArgument` of `decode_base.cuh`, the same fields in the same order.
#[repr(C)]
struct StepArgument {
    pointers: [u64; 6],
    layer_values: u64,
    tables: [u64; 9],
    scratch: [u64; 4],
    words: [u64; 2],
    layer_count: i32,
    rows: i32,
    inner: i32,
    tiles: i32,
    splits: i32,
    rank: i32,
    number: u32,
    pad: i32,
}

/// Where two ranks exchange partial sums (`decode_step_ranks.cu`), `[2, 32, 2048]` words of 8 bytes, zeros before the first launch.
/// Exchanges are numbered over all launches.
#[derive(Clone, Debug)]
pub struct DecoderWords {
    /// At the other rank.
    sent: u64,
    received: u64,
    rank: i32,
    /// Of the next exchange.
    number: Rc<Cell<u32>>,
}

impl DecoderWords {
    /// Of two ranks, in their receive buffers.
    pub fn of(ranks: &RankAddresses) -> Self {
        let other = usize::from(ranks.rank == 0);
        let words = |buffer: u64| buffer + DECODER_WORDS_AT as u64;
        Self {
            sent: words(ranks.to[other]),
            received: words(ranks.from[other]),
            rank: ranks.rank,
            number: Rc::new(Cell::new(1)),
        }
    }

    /// The number of the next exchange, of which `count` follow each other.
    fn take_numbers(&self, count: usize) -> u32 {
        let first = self.number.get();
        self.number.set(first.wrapping_add(count as u32));
        first
    }
}

/// The decoder's layers as the kernel reads them, and its scratch.
pub struct OneLaunchDecoder {
    /// [`LAYER_WORDS`] for each: `struct Layer` of `decode_base.cuh`.
    layers: Buffer<u64>,
    weights: Number,
    /// `[chunks, rows, 2048]`: partial results, until they are added up.
    sums: Buffer<f32>,
    /// `[GATES + 2048 / 16 + tiles * heads]`; zeros before the first launch; the kernel keeps them consistent between launches.
    counters: Buffer<u32>,
    inner: usize,
    heads: usize,
    layer_count: usize,
    blocks: usize,
    words: Option<DecoderWords>,
}

impl OneLaunchDecoder {
    /// With the weights of `blocks`, which must live as long: those of the shard that `config` describes, which has `words` unless it is the
    /// whole. `None` when the kernel does not support the model's shape on this GPU, or layers differ in their format.
    pub fn new(
        kernels: &Kernels,
        config: &TextConfig,
        blocks: &[GpuTextBlock],
        words: Option<DecoderWords>,
    ) -> Result<Option<Self>, CudaError> {
        let (stream, inner, ranks) = (&kernels.stream, config.ff_dim, config.shard.ranks);
        let Some(weights) = format_of(blocks) else {
            return Ok(None);
        };
        if words.is_none() != config.shard.is_whole()
            || config.dim != WIDTH
            || config.all_heads() != HEADS
            || !is_supported(blocks.len(), inner, kernels.multiprocessors)
        {
            return Ok(None);
        }
        let chunks = 1 + inner / WIDTH;
        if chunks > CHUNKS_MAX / ranks {
            return Ok(None);
        }
        let layers = blocks.iter().map(layer_words);
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        Ok(Some(Self {
            layers: Buffer::from_host(stream, &layers.concat())?,
            weights,
            sums: Buffer::zeros(stream, chunks * ONE_LAUNCH_ROWS_MAX * WIDTH)?,
            counters: Buffer::zeros(stream, GATES + WIDTH / UNIT + ONE_LAUNCH_ROWS_MAX * HEADS)?,
            inner,
            heads: config.n_heads,
            layer_count: blocks.len(),
            blocks: kernels.multiprocessors,
            words,
        }))
    }

    /// True for steps that run in one launch: few positions, all of them behind an image, no new image, and no adapter.
    pub fn can_run(&self, counts: &StepCounts) -> bool {
        counts.images == 0
            && !counts.has_adapters
            && counts.without_prefix == 0
            && (1..=ONE_LAUNCH_ROWS_MAX).contains(&counts.row_positions)
    }

    /// Queues all blocks of the decoder over the step's positions. `attention` has the first layer's cache, and room for queries in
    /// `qkv`; the hidden states, `[rows, 2048]`, are changed in place; `proj_fc2_in` has room for `[rows, heads * 64 + inner]`.
    pub fn run(
        &self,
        kernels: &Kernels,
        attention: &CachedAttention<'_>,
        hidden: Pointer<bf16>,
        proj_fc2_in: Pointer<bf16>,
    ) -> Result<(), CudaError> {
        let &CachedAttention {
            tables,
            qkv,
            cache,
            parts,
            ..
        } = attention;
        let (layout, rows, tiles) = (
            tables.layout,
            tables.counts.row_positions,
            tables.counts.tiles,
        );
        let (heads, attended) = (self.heads, self.heads * TEXT_HEAD);
        let splits = splits(rows, tiles * heads, self.blocks);
        let items = tiles * heads * splits;
        require(
            rows <= ONE_LAUNCH_ROWS_MAX
                && hidden.len() >= rows * WIDTH
                && qkv.len() >= rows * attended
                && proj_fc2_in.len() >= rows * (attended + self.inner)
                && parts.values.len() >= items * TILE * TEXT_HEAD
                && parts.max_sums.len() >= items * TILE * 2
                && self.counters.start().len() >= GATES + WIDTH / UNIT + tiles * heads,
            "decode step: a buffer is too small",
        )?;
        let argument = StepArgument {
            pointers: [
                self.layers.start().address(),
                hidden.address(),
                qkv.address(),
                proj_fc2_in.address(),
                cache.keys.address(),
                cache.values.address(),
            ],
            layer_values: (cache.keys.len() / self.layer_count) as u64,
            tables: [
                tables.at(layout.position).address(),
                tables.at(layout.slot).address(),
                attention.rope_cos_sin.address(),
                tables.at(layout.pages).address(),
                tables.at(layout.tile_row).address(),
                tables.at(layout.tile_table).address(),
                tables.at(layout.tile_length).address(),
                tables.at(layout.own_table).address(),
                tables.at(layout.own_length).address(),
            ],
            scratch: [
                parts.values.address(),
                parts.max_sums.address(),
                self.sums.start().address(),
                self.counters.start().address(),
            ],
            words: self
                .words
                .as_ref()
                .map_or([0; 2], |words| [words.sent, words.received]),
            layer_count: self.layer_count as i32,
            rows: rows as i32,
            inner: self.inner as i32,
            tiles: tiles as i32,
            splits: splits as i32,
            rank: self.words.as_ref().map_or(0, |words| words.rank),
            number: self
                .words
                .as_ref()
                .map_or(0, |words| words.take_numbers(self.layer_count)),
            pad: 0,
        };
        // The first kernel has at most one (tile, head, split) for each group.
        let first = usize::from(items > self.blocks * GROUPS);
        let most = ROWS[first..].iter().find(|&&most| rows <= most);
        let ranks = HEADS / heads;
        let name = kernel_name(self.weights, *most.unwrap_or(&ONE_LAUNCH_ROWS_MAX), ranks);
        launch!(
            kernels,
            &name,
            (self.blocks, 1, 1),
            THREADS,
            [ByValue(argument)]
        )
    }
}

/// `struct Layer` of `decode_base.cuh`.
fn layer_words(block: &GpuTextBlock) -> Result<[u64; LAYER_WORDS], CudaError> {
    let norm = [&block.ln.weight, &block.ln.bias].map(|values| values.start().address());
    let [qkv_fc1, proj_fc2] = block.joined();
    let (qkv_fc1, proj_fc2) = (linear_words(&qkv_fc1)?, linear_words(&proj_fc2)?);
    let mut words = norm.into_iter().chain(qkv_fc1).chain(proj_fc2);
    Ok(std::array::from_fn(|_| words.next().unwrap_or_default()))
}

/// `struct Linear` of `decode_base.cuh`.
fn linear_words(linear: &LinearRef) -> Result<[u64; 4], CudaError> {
    let (weight, by_output, of_input, of_sum) = match &linear.weight {
        WeightPointer::Bf16(weight) => (weight.address(), 0, 1.0, 1.0),
        WeightPointer::Int8(rows) => {
            let is_packed = rows.values.stride == linear.inner;
            require(is_packed, "decode step: rows in int8 are apart")?;
            (rows.values.start.address(), rows.scales.address(), 1.0, 1.0)
        }
        WeightPointer::E4m3 {
            values,
            scale,
            input,
        } => {
            let of_sum = input.value * scale.value;
            (values.address(), 0, input.value.recip(), of_sum)
        }
        WeightPointer::ExpertE4m3(_)
        | WeightPointer::ExpertInt8(_)
        | WeightPointer::ExpertInt4(_) => return Err(not_of_experts()),
    };
    let factors = u64::from(f32::to_bits(of_input)) | u64::from(f32::to_bits(of_sum)) << 32;
    Ok([weight, linear.bias.address(), by_output, factors])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_are_split_and_many_are_not() {
        // An H200: one image with one row and with eight, four images, and 32.
        assert_eq!(splits(1, HEADS, 132), 8);
        assert_eq!(splits(8, HEADS, 132), 16);
        assert_eq!(splits(4, 4 * HEADS, 132), 4);
        assert_eq!(splits(32, 32 * HEADS, 132), 1);
    }

    #[test]
    fn unsupported_shapes_run_kernel_by_kernel() {
        // Moondream 2 on an H200 and a B200.
        assert!(is_supported(24, 8192, 132) && is_supported(24, 8192, 148));
        // One of two ranks.
        assert!(is_supported(24, 4096, 132));
        // An Orin Nano and a card with the most multiprocessors.
        assert!(is_supported(24, 8192, 8) && is_supported(24, 8192, 188));
        // Too deep, too wide, not in chunks, and GPUs that are too large and too small.
        for (layers, inner, blocks) in [
            (33, 8192, 132),
            (24, 8 * 2048, 132),
            (24, 8000, 132),
            (24, 8192, 641),
            (24, 8192, 4),
        ] {
            assert!(
                !is_supported(layers, inner, blocks),
                "{layers} {inner} {blocks}"
            );
        }
    }
}
