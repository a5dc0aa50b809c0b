//! The decoder in one launch.

use cudarc::driver::DeviceRepr;
use half::bf16;

use super::{Kernels, LayerCache, OwnTables, PrefixTables, TEXT_HEAD, TILE, launch, need};
use crate::cuda::{error::CudaError, memory::Pointer};

/// Width of the decoders that the kernel is made for.
pub const WIDTH: usize = 2048;
/// Outputs of a unit of work.
pub const UNIT: usize = 16;
/// Positions of the largest step.
pub const ROWS_MAX: usize = 32;
/// Splits of a tile that the kernel merges in passing.
pub const SPLITS_MAX: usize = 16;
/// Places where blocks wait for each other.
pub const GATES: usize = 2;
/// (Tile, head, split)s that a block attends to at once.
pub const GROUPS: usize = 4;

/// Layers, and chunks of 2048 inputs of a product, at most.
const LAYERS_MAX: usize = 32;
const CHUNKS_MAX: usize = 8;
const THREADS: u32 = 512;
const WARPS: usize = 16;
/// Units of 16 by 2048 on their way.
const STAGES: usize = 2;
/// With 32 values of padding behind each row.
const RING_BYTES: usize = STAGES * UNIT * (WIDTH + 32) * size_of::<bf16>();
/// What four warps of each group have seen: 64 values and 8 of padding, maximum and mass, of 16 rows.
const SEEN_BYTES: usize = GROUPS * 4 * TILE * (TEXT_HEAD + 8 + 2) * size_of::<f32>();
/// What the kernel declares itself, at most.
const STATIC_BYTES: usize = 8 << 10;

/// Dynamic shared memory of a block for steps of up to `8 * blocks` positions.
pub(super) const fn shared_bytes(blocks: usize) -> usize {
    // Two turns of sums, 16 outputs and 4 of padding.
    let sums = 2 * WARPS * blocks * 8 * (UNIT + 4) * size_of::<f32>();
    RING_BYTES + if sums > SEEN_BYTES { sums } else { SEEN_BYTES }
}

/// Shared memory that a GPU's block must be able to have.
pub const SHARED_BYTES: usize = shared_bytes(ROWS_MAX / 8) + STATIC_BYTES;

/// The kernel's argument: `struct Step` of `decode_ring.cuh`, the same fields in the same order.
#[derive(Clone, Copy, Debug)]
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

// SAFETY: 64-bit and 32-bit integers in C layout without gaps, as the kernel declares them.
unsafe impl DeviceRepr for StepArgument {}

/// Hidden states and what lies between the phases of a layer.
#[derive(Clone, Copy, Debug)]
pub struct DecodeStates {
    /// `[rows, 2048]`, in and out.
    pub hidden: Pointer<bf16>,
    /// `[rows, 2048]`.
    pub queries: Pointer<bf16>,
    /// `[rows, 2048 + inner]`.
    pub mix: Pointer<bf16>,
}

/// Results of parts of the work, until they are added up.
#[derive(Clone, Copy, Debug)]
pub struct DecodeScratch {
    /// `[tiles, heads, splits, 16, 64]`.
    pub parts: Pointer<f32>,
    /// `[tiles, heads, splits, 16, 2]`.
    pub masses: Pointer<f32>,
    /// `[chunks, rows, 2048]`.
    pub sums: Pointer<f32>,
    /// `[GATES + 2048 / 16 + tiles * heads]`; zeros before the first launch, and as the kernel leaves them afterwards.
    pub counters: Pointer<u32>,
}

/// Tables of a step.
#[derive(Clone, Copy, Debug)]
pub struct DecodeTables {
    /// Where each position stands.
    pub position: Pointer<i32>,
    /// Where it lies in the cache.
    pub slot: Pointer<i32>,
    /// Angles.
    pub turns: Pointer<f32>,
    /// Tiles and their prefixes.
    pub prefix: PrefixTables,
    /// Own pages.
    pub own: OwnTables,
}

/// How much of everything.
#[derive(Clone, Copy, Debug)]
pub struct DecodeShape {
    /// Blocks of the decoder.
    pub layers: usize,
    /// Values of the cache of one layer.
    pub layer_values: usize,
    /// Width of the MLP, a multiple of 2048.
    pub inner: usize,
    /// Positions, up to [`ROWS_MAX`], each in a tile.
    pub rows: usize,
    /// Tiles.
    pub tiles: usize,
    /// Splits of each, up to [`SPLITS_MAX`].
    pub splits: usize,
    /// Multiprocessors.
    pub blocks: usize,
}

impl DecodeShape {
    /// True when the kernel takes decoders of so many layers, whose MLPs are so wide, on so many multiprocessors.
    pub fn fits(layers: usize, inner: usize, blocks: usize) -> bool {
        let chunks = 1 + inner / WIDTH;
        inner.is_multiple_of(WIDTH)
            && layers <= LAYERS_MAX
            && chunks <= CHUNKS_MAX
            // Each block has more units in each phase than its ring holds.
            && (chunks..=chunks * WIDTH / UNIT / STAGES / 2).contains(&blocks)
    }

    fn check(&self, states: &DecodeStates, scratch: &DecodeScratch) -> Result<(), CudaError> {
        let heads = WIDTH / TEXT_HEAD;
        let chunks = 1 + self.inner / WIDTH;
        let parts = self.tiles * heads * self.splits * TILE;
        need(
            self.rows <= ROWS_MAX
                && (1..=SPLITS_MAX).contains(&self.splits)
                && Self::fits(self.layers, self.inner, self.blocks),
            "decode step: not such a step",
        )?;
        need(
            states.hidden.len().min(states.queries.len()) >= self.rows * WIDTH
                && states.mix.len() >= self.rows * (WIDTH + self.inner)
                && scratch.parts.len() >= parts * TEXT_HEAD
                && scratch.masses.len() >= parts * 2
                && scratch.sums.len() >= chunks * self.rows * WIDTH
                && scratch.counters.len() >= GATES + WIDTH / UNIT + self.tiles * heads,
            "decode step: beyond a buffer",
        )
    }
}

impl Kernels {
    /// True when the GPU can run [`Kernels::decode_step`].
    pub fn has_decode_step(&self) -> bool {
        self.decode_step.is_some()
    }

    /// `decode_step.cu`. `layers` has six addresses for each layer; `cache` is that of the first one.
    pub fn decode_step(
        &self,
        layers: Pointer<u64>,
        states: DecodeStates,
        (cache, tables): (LayerCache, &DecodeTables),
        scratch: DecodeScratch,
        shape: DecodeShape,
    ) -> Result<(), CudaError> {
        shape.check(&states, &scratch)?;
        let Some(functions) = &self.decode_step else {
            return Err(CudaError::Shape(
                "decode step: this GPU cannot run it".into(),
            ));
        };
        let (prefix, own) = (&tables.prefix, &tables.own);
        let argument = StepArgument {
            pointers: [
                layers.address(),
                states.hidden.address(),
                states.queries.address(),
                states.mix.address(),
                cache.keys.address(),
                cache.values.address(),
            ],
            layer_values: shape.layer_values as u64,
            tables: [
                tables.position.address(),
                tables.slot.address(),
                tables.turns.address(),
                prefix.pages.address(),
                prefix.tile_row.address(),
                prefix.tile_table.address(),
                prefix.tile_length.address(),
                own.own_table.address(),
                own.own_length.address(),
            ],
            scratch: [
                scratch.parts.address(),
                scratch.masses.address(),
                scratch.sums.address(),
                scratch.counters.address(),
            ],
            layer_count: shape.layers as i32,
            rows: shape.rows as i32,
            inner: shape.inner as i32,
            tiles: shape.tiles as i32,
            splits: shape.splits as i32,
            pad: 0,
        };
        let (function, blocks) = match shape.rows {
            0..=8 => (&functions[0], 1),
            9..=16 => (&functions[1], 2),
            _ => (&functions[2], 4),
        };
        let grid = (shape.blocks, 1, 1);
        let shared = shared_bytes(blocks) as u32;
        launch!(@together self, function, "launching decode_step", grid, THREADS, shared, [argument])
    }
}
