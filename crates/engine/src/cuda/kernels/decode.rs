//! The decoder in one launch.

use cudarc::driver::{CudaFunction, DeviceRepr};
use half::bf16;

use super::{
    Kernels, LayerCache, OwnTables, PrefixTables, TEXT_HEAD, TILE, launch, require, with_shared,
};
use crate::cuda::{error::CudaError, library::Gpu, memory::Pointer};

/// Width of the decoders that the kernel is made for.
pub const WIDTH: usize = 2048;
/// Outputs of a unit of work.
pub const UNIT: usize = 16;
/// Positions of the largest step.
pub const ROWS_MAX: usize = 32;
/// The most splits of a tile and head.
const SPLITS_MAX: usize = 16;
/// The same for few rows: more splits take longer to merge (one row: 890 instead of 854 us).
const SPLITS_MAX_FEW: usize = 8;
/// Gates where blocks wait for each other.
pub const GATES: usize = 4;
/// (Tile, head, split)s that a block computes at once.
const GROUPS: usize = 4;
/// 64-bit words of `struct Layer` of `decode_ring.cuh`.
pub const LAYER_WORDS: usize = 8;

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
const fn shared_bytes(rows: usize) -> usize {
    // Two buffers of sums, 16 outputs and 4 of padding.
    let sums = 2 * WARPS * rows * (UNIT + 4) * size_of::<f32>();
    let few = rows == ROWS[0];
    // Partial results of the four warps of each group: 64 values, 8 of padding, maximum and sum of each row.
    let seen_rows = if few { rows } else { TILE };
    let seen = GROUPS * 4 * seen_rows * (TEXT_HEAD + 8 + 2) * size_of::<f32>();
    let work = if few {
        sums + seen + rows * WIDTH * size_of::<bf16>()
    } else if sums > seen {
        sums
    } else {
        seen
    };
    RING_BYTES + work
}

/// Shared memory that a GPU's block must be able to have.
const SHARED_BYTES: usize = shared_bytes(ROWS_MAX) + STATIC_BYTES;

/// The kernels by type of weights (bf16, e4m3), then by rows as in [`ROWS`].
pub(super) struct DecodeKernels([[CudaFunction; 4]; 2]);

impl DecodeKernels {
    /// `None` where the GPU cannot run them.
    pub(super) fn find(
        gpu: &Gpu,
        function: impl Fn(&str) -> Result<CudaFunction, CudaError>,
    ) -> Result<Option<Self>, CudaError> {
        if !gpu.has_cooperative_launch || gpu.shared_bytes < SHARED_BYTES {
            return Ok(None);
        }
        let kernel = |rows: usize, suffix: &str| {
            let found = function(&format!("decode_step_{rows}{suffix}"))?;
            with_shared(found, shared_bytes(rows))
        };
        let all = |suffix: &str| -> Result<[CudaFunction; 4], CudaError> {
            let [a, b, c, d] = ROWS;
            Ok([
                kernel(a, suffix)?,
                kernel(b, suffix)?,
                kernel(c, suffix)?,
                kernel(d, suffix)?,
            ])
        };
        Ok(Some(Self([all("")?, all("_e4m3")?])))
    }
}

/// The kernel's argument: `struct StepArgument` of `decode_ring.cuh`, the same fields in the same order.
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

#[derive(Clone, Copy, Debug)]
pub struct DecodeLayers {
    /// [`LAYER_WORDS`] for each: `struct Layer` of `decode_ring.cuh`.
    pub table: Pointer<u64>,
    /// True when the weights are in e4m3, else they are in bf16.
    pub is_e4m3: bool,
}

/// Hidden states, and buffers between the phases of a layer.
#[derive(Clone, Copy, Debug)]
pub struct DecodeStates {
    /// `[rows, 2048]`, in and out.
    pub hidden: Pointer<bf16>,
    /// `[rows, 2048]`.
    pub queries: Pointer<bf16>,
    /// `[rows, 2048 + inner]`.
    pub proj_fc2_in: Pointer<bf16>,
}

/// Partial results, until they are added up.
#[derive(Clone, Copy, Debug)]
pub struct DecodeScratch {
    /// `[tiles, heads, splits, 16, 64]`.
    pub parts: Pointer<f32>,
    /// `[tiles, heads, splits, 16, 2]`.
    pub max_sums: Pointer<f32>,
    /// `[chunks, rows, 2048]`.
    pub sums: Pointer<f32>,
    /// `[GATES + 2048 / 16 + tiles * heads]`; zeros before the first launch; the kernel keeps them consistent between launches.
    pub counters: Pointer<u32>,
}

/// Tables of a step.
#[derive(Clone, Copy, Debug)]
pub struct DecodeTables {
    /// `[rows]`: position in the sequence.
    pub position: Pointer<i32>,
    /// `[rows]`: slot of the cache, or -1.
    pub slot: Pointer<i32>,
    pub rope_cos_sin: Pointer<f32>,
    /// Tiles and their prefixes.
    pub prefix: PrefixTables,
    pub own: OwnTables,
}

/// Everything that a launch of `decode_step.cu` reads and writes.
#[derive(Clone, Copy, Debug)]
pub struct DecodeArguments {
    pub layers: DecodeLayers,
    pub states: DecodeStates,
    /// That of the first layer.
    pub cache: LayerCache,
    pub tables: DecodeTables,
    pub scratch: DecodeScratch,
    pub shape: DecodeShape,
}

/// Dimensions of a launch.
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
    pub tiles: usize,
    /// Splits of each, up to [`DecodeShape::splits`].
    pub splits: usize,
    /// Multiprocessors.
    pub blocks: usize,
}

impl DecodeShape {
    /// True when the kernel takes decoders of `layers` layers with MLPs of `inner` values on `blocks` multiprocessors.
    pub fn is_supported(layers: usize, inner: usize, blocks: usize) -> bool {
        let chunks = 1 + inner / WIDTH;
        inner.is_multiple_of(WIDTH)
            && layers <= LAYERS_MAX
            && chunks <= CHUNKS_MAX
            // In each phase, each block has at least as many units as its ring has stages.
            && (chunks..=chunks * WIDTH / UNIT / STAGES).contains(&blocks)
    }

    /// Splits of each tile's pages: enough for all `blocks` multiprocessors when there are few (tile, head)s.
    pub fn splits(rows: usize, tiles: usize, blocks: usize) -> usize {
        let most = match rows <= ROWS[0] {
            true => SPLITS_MAX_FEW,
            false => SPLITS_MAX,
        };
        let pairs = tiles * (WIDTH / TEXT_HEAD);
        (blocks * GROUPS / pairs.max(1)).clamp(1, most)
    }

    /// Index into [`ROWS`] of the kernel to launch. The first one takes at most one (tile, head, split) per group.
    fn kernel(&self) -> usize {
        let items = self.tiles * (WIDTH / TEXT_HEAD) * self.splits;
        let first = usize::from(items > self.blocks * GROUPS);
        (first..ROWS.len() - 1)
            .find(|&nth| self.rows <= ROWS[nth])
            .unwrap_or(ROWS.len() - 1)
    }

    fn check(&self, states: &DecodeStates, scratch: &DecodeScratch) -> Result<(), CudaError> {
        let heads = WIDTH / TEXT_HEAD;
        let chunks = 1 + self.inner / WIDTH;
        let parts = self.tiles * heads * self.splits * TILE;
        require(
            self.rows <= ROWS_MAX
                && (1..=Self::splits(self.rows, self.tiles, self.blocks)).contains(&self.splits)
                && Self::is_supported(self.layers, self.inner, self.blocks),
            "decode step: more positions, splits or layers than the kernel supports",
        )?;
        require(
            states.hidden.len().min(states.queries.len()) >= self.rows * WIDTH
                && states.proj_fc2_in.len() >= self.rows * (WIDTH + self.inner)
                && scratch.parts.len() >= parts * TEXT_HEAD
                && scratch.max_sums.len() >= parts * 2
                && scratch.sums.len() >= chunks * self.rows * WIDTH
                && scratch.counters.len() >= GATES + WIDTH / UNIT + self.tiles * heads,
            "decode step: a buffer is too small",
        )
    }
}

impl Kernels {
    /// True when the GPU can run [`Kernels::decode_step`].
    pub fn has_decode_step(&self) -> bool {
        self.decode_step.is_some()
    }

    /// `decode_step.cu`.
    pub fn decode_step(&self, arguments: &DecodeArguments) -> Result<(), CudaError> {
        let DecodeArguments {
            layers,
            states,
            cache,
            tables,
            scratch,
            shape,
        } = arguments;
        shape.check(states, scratch)?;
        require(
            layers.table.len() >= shape.layers * LAYER_WORDS,
            "decode step: a buffer is too small",
        )?;
        let Some(DecodeKernels(functions)) = &self.decode_step else {
            return Err(CudaError::Shape(
                "decode step: this GPU cannot run it".into(),
            ));
        };
        let (prefix, own) = (&tables.prefix, &tables.own);
        let argument = StepArgument {
            pointers: [
                layers.table.address(),
                states.hidden.address(),
                states.queries.address(),
                states.proj_fc2_in.address(),
                cache.keys.address(),
                cache.values.address(),
            ],
            layer_values: shape.layer_values as u64,
            tables: [
                tables.position.address(),
                tables.slot.address(),
                tables.rope_cos_sin.address(),
                prefix.pages.address(),
                prefix.tile_row.address(),
                prefix.tile_table.address(),
                prefix.tile_length.address(),
                own.own_table.address(),
                own.own_length.address(),
            ],
            scratch: [
                scratch.parts.address(),
                scratch.max_sums.address(),
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
        let nth = shape.kernel();
        let function = &functions[usize::from(layers.is_e4m3)][nth];
        let grid = (shape.blocks, 1, 1);
        let shared = shared_bytes(ROWS[nth]) as u32;
        launch!(@cooperative self, function, "launching decode_step", grid, THREADS, shared, [argument])
    }
}
