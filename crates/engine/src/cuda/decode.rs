//! Steps of few positions: all blocks of the decoder in one launch (`kernels/decode_step.cu`).
//!
//! Such a step is bound by reading the weights once. As separate kernels its products would wait for each other, and the memory would be
//! idle meanwhile; in one launch the next weights are always being read. In fp8 they are half as many bytes.
//!
//! Belongs here: which steps run in one launch, the scratch of the kernel, and its launch. Not here: kernel by kernel, which works for
//! every step (`network`).

use half::bf16;

use super::{
    error::CudaError,
    fp8::E4m3Inputs,
    kernels::{ByValue, CachedAttention, Kernels, TEXT_HEAD, TILE, launch, require},
    library::Gpu,
    memory::{Buffer, Pointer},
    products::{LinearRef, WeightPointer},
    program::StepCounts,
    weights::GpuTextBlock,
};
use crate::model::TextConfig;

/// Width of the decoders that the kernel is made for, and its heads.
const WIDTH: usize = 2048;
const HEADS: usize = WIDTH / TEXT_HEAD;
/// Outputs of a unit of work.
const UNIT: usize = 16;
/// Positions of the largest step.
pub const ROWS_MAX: usize = 32;
/// The most splits of a tile and head.
const SPLITS_MAX: usize = 16;
/// The same for few rows: more splits take longer to merge (one row: 890 instead of 854 us).
const SPLITS_MAX_FEW: usize = 8;
/// Gates where blocks wait for each other.
const GATES: usize = 4;
/// (Tile, head, split)s that a block computes at once.
const GROUPS: usize = 4;
/// 64-bit words of `struct Layer` of `decode_ring.cuh`.
const LAYER_WORDS: usize = 8;

/// Layers, and chunks of 2048 inputs of a product, at most.
const LAYERS_MAX: usize = 32;
const CHUNKS_MAX: usize = 8;
const THREADS: u32 = 512;
const WARPS: usize = 16;
/// Stages of the ring, of 16 by 2048 bytes each; a unit in bf16 takes two of them.
const STAGES: usize = 4;
/// With 64 bytes of padding behind each row.
const RING_BYTES: usize = STAGES * UNIT * (WIDTH + 64);
/// Static shared memory of the kernel, at most.
const STATIC_BYTES: usize = 8 << 10;
/// The most rows of each kernel. The first one keeps the hidden states in shared memory.
const ROWS: [usize; 4] = [2, 8, 16, ROWS_MAX];

/// Dynamic shared memory of a block of the kernel for steps of up to `rows` positions (`struct KernelTraits` of `decode_ring.cuh`).
fn shared_bytes_for(rows: usize) -> usize {
    // Two buffers of sums, 16 outputs and 4 of padding.
    let sums = 2 * WARPS * rows * (UNIT + 4) * size_of::<f32>();
    let few = rows == ROWS[0];
    // Partial results of the four warps of each group: 64 values, 8 of padding, maximum and sum of each row.
    let seen_rows = if few { rows } else { TILE };
    let seen = GROUPS * 4 * seen_rows * (TEXT_HEAD + 8 + 2) * size_of::<f32>();
    let work = match few {
        true => sums + seen + rows * WIDTH * size_of::<bf16>(),
        false => sums.max(seen),
    };
    RING_BYTES + work
}

/// The kernels, and their dynamic shared memory.
pub fn shared_bytes() -> impl Iterator<Item = (String, usize)> {
    ROWS.into_iter()
        .map(|rows| (format!("decode_step_{rows}"), shared_bytes_for(rows)))
}

/// True when the GPU can run the kernels.
pub fn is_supported_by(gpu: &Gpu) -> bool {
    gpu.shared_bytes >= shared_bytes_for(ROWS_MAX) + STATIC_BYTES
}

/// True when the kernels support decoders of `layers` layers with MLPs of `inner` values on `blocks` multiprocessors.
fn is_supported(layers: usize, inner: usize, blocks: usize) -> bool {
    let chunks = 1 + inner / WIDTH;
    inner.is_multiple_of(WIDTH)
        && layers <= LAYERS_MAX
        && chunks <= CHUNKS_MAX
        // In each phase, each block has at least as many units as its ring has stages.
        && (chunks..=chunks * WIDTH / UNIT / STAGES).contains(&blocks)
}

/// Splits of each tile's pages: enough for all `blocks` multiprocessors when there are few (tile, head)s.
fn splits(rows: usize, tiles: usize, blocks: usize) -> usize {
    let most = match rows <= ROWS[0] {
        true => SPLITS_MAX_FEW,
        false => SPLITS_MAX,
    };
    (blocks * GROUPS / (tiles * HEADS).max(1)).clamp(1, most)
}

/// The kernel's argument: `struct StepArgument` of `decode_ring.cuh`, the same fields in the same order.
#[repr(C)]
struct StepArgument {
    pointers: [u64; 6],
    layer_values: u64,
    tables: [u64; 9],
    scratch: [u64; 4],
    layer_count: i32,
    rows: i32,
    inner: i32,
    tiles: i32,
    splits: i32,
    pad: i32,
}

/// The decoder's layers as the kernel reads them, and its scratch.
pub struct OneLaunchDecoder {
    /// [`LAYER_WORDS`] for each: `struct Layer` of `decode_ring.cuh`.
    layers: Buffer<u64>,
    is_e4m3: bool,
    /// `[chunks, rows, 2048]`: partial results, until they are added up.
    sums: Buffer<f32>,
    /// `[GATES + 2048 / 16 + tiles * heads]`; zeros before the first launch; the kernel keeps them consistent between launches.
    counters: Buffer<u32>,
    inner: usize,
    layer_count: usize,
    blocks: usize,
}

impl OneLaunchDecoder {
    /// With the weights of `layers`, which must live as long; with `fp8`, these are in e4m3. `None` when the kernel does not support the
    /// GPU or the model's shape, or the weights are in int8.
    pub fn new(
        kernels: &Kernels,
        config: &TextConfig,
        layers: &[GpuTextBlock],
        fp8: Option<&E4m3Inputs<2>>,
    ) -> Result<Option<Self>, CudaError> {
        let (stream, inner, blocks) = (&kernels.stream, config.ff_dim, kernels.multiprocessors);
        let is_supported = config.dim == WIDTH && is_supported(layers.len(), inner, blocks);
        if !is_supported || !kernels.has("decode_step_2") {
            return Ok(None);
        }
        let chunks = 1 + inner / WIDTH;
        let scales = |layer| fp8.map(|inputs| inputs.scales(layer));
        let words = layers.iter().enumerate();
        let words = words.map(|(layer, block)| layer_words(block, scales(layer)));
        let Some(words) = words.collect::<Option<Vec<_>>>() else {
            return Ok(None);
        };
        Ok(Some(Self {
            layers: Buffer::from_host(stream, &words.concat())?,
            is_e4m3: fp8.is_some(),
            sums: Buffer::zeros(stream, chunks * ROWS_MAX * WIDTH)?,
            counters: Buffer::zeros(stream, GATES + WIDTH / UNIT + ROWS_MAX * config.n_heads)?,
            inner,
            layer_count: layers.len(),
            blocks,
        }))
    }

    /// True for steps that run in one launch: few positions, all of them behind an image, and no new image.
    pub fn can_run(&self, counts: &StepCounts) -> bool {
        counts.images == 0
            && counts.without_prefix == 0
            && (1..=ROWS_MAX).contains(&counts.row_positions)
    }

    /// Queues all blocks of the decoder over the step's positions. `attention` has the first layer's cache, and room for queries in
    /// `qkv`; the hidden states, `[rows, 2048]`, are changed in place; `proj_fc2_in` has room for `[rows, 2048 + inner]`.
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
        let splits = splits(rows, tiles, self.blocks);
        let items = tiles * HEADS * splits;
        require(
            rows <= ROWS_MAX
                && hidden.len().min(qkv.len()) >= rows * WIDTH
                && proj_fc2_in.len() >= rows * (WIDTH + self.inner)
                && parts.values.len() >= items * TILE * TEXT_HEAD
                && parts.max_sums.len() >= items * TILE * 2
                && self.counters.start().len() >= GATES + WIDTH / UNIT + tiles * HEADS,
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
            layer_count: self.layer_count as i32,
            rows: rows as i32,
            inner: self.inner as i32,
            tiles: tiles as i32,
            splits: splits as i32,
            pad: 0,
        };
        // The first kernel has at most one (tile, head, split) for each group.
        let first = usize::from(items > self.blocks * GROUPS);
        let most = ROWS[first..].iter().find(|&&most| rows <= most);
        let suffix = if self.is_e4m3 { "_e4m3" } else { "" };
        let name = format!("decode_step_{}{suffix}", most.unwrap_or(&ROWS_MAX));
        launch!(
            kernels,
            &name,
            (self.blocks, 1, 1),
            THREADS,
            [ByValue(argument)]
        )
    }
}

/// `struct Layer` of `decode_ring.cuh`: with weights in bf16 or, with the `scales` of the inputs of its two products, in e4m3. `None`
/// without such weights.
fn layer_words(block: &GpuTextBlock, scales: Option<[f32; 2]>) -> Option<[u64; LAYER_WORDS]> {
    // The weights, and the factors of inputs and of sums.
    let product = |linear: &LinearRef, scale: Option<f32>| {
        let (weight, of_input, of_sum) = match scale {
            None => (linear.bf16().ok()?.address(), 1.0_f32, 1.0_f32),
            Some(of_input) => {
                let WeightPointer::E4m3 { values, scale } = linear.weight else {
                    return None;
                };
                (values.address(), of_input.recip(), of_input * scale.value)
            }
        };
        let factors = u64::from(of_input.to_bits()) | u64::from(of_sum.to_bits()) << 32;
        Some((weight, factors))
    };
    let (norm, qkv_fc1, proj_fc2) = (&block.ln, block.qkv_fc1.at(), block.proj_fc2.at());
    let (qkv_fc1_weight, qkv_fc1_factors) = product(&qkv_fc1, scales.map(|s| s[0]))?;
    let (proj_fc2_weight, proj_fc2_factors) = product(&proj_fc2, scales.map(|s| s[1]))?;
    Some([
        norm.weight.start().address(),
        norm.bias.start().address(),
        qkv_fc1_weight,
        qkv_fc1.bias.address(),
        proj_fc2_weight,
        proj_fc2.bias.address(),
        qkv_fc1_factors,
        proj_fc2_factors,
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tiles_are_split_and_many_are_not() {
        // An H200: one image with one row and with eight, four images, and 32.
        assert_eq!(splits(1, 1, 132), 8);
        assert_eq!(splits(8, 1, 132), 16);
        assert_eq!(splits(4, 4, 132), 4);
        assert_eq!(splits(32, 32, 132), 1);
    }

    #[test]
    fn unsupported_shapes_run_kernel_by_kernel() {
        // Moondream 2 on an H200 and a B200.
        assert!(is_supported(24, 8192, 132) && is_supported(24, 8192, 148));
        // Too deep, too wide, not in chunks, and GPUs that are too large and too small a share of one.
        for (layers, inner, blocks) in [
            (33, 8192, 132),
            (24, 8 * 2048, 132),
            (24, 8000, 132),
            (24, 8192, 161),
            (24, 8192, 4),
        ] {
            assert!(
                !is_supported(layers, inner, blocks),
                "{layers} {inner} {blocks}"
            );
        }
    }
}
