//! Attention to the cache, and the kernel that writes keys and values to it.

use half::bf16;

use super::{Activations, Kernels, PAGE, TEXT_HEAD, TILE, launch, require};
use crate::cuda::{error::CudaError, memory::Pointer};

/// Queries, keys and values of a step's positions, and where they belong.
#[derive(Clone, Copy, Debug)]
pub struct RopeInputs {
    /// `[positions, 3 * heads * 64]`: queries, keys and values. Queries and keys are rotated in place.
    pub qkv: Pointer<bf16>,
    /// `[positions]`: position in the sequence.
    pub position: Pointer<i32>,
    /// `[positions]`: slot of the cache, or -1.
    pub slot: Pointer<i32>,
    /// `[context, 16, 2]`: cosine and sine of each angle.
    pub rope_cos_sin: Pointer<f32>,
    pub positions: usize,
    pub heads: usize,
}

/// What rows of a step attend with in one layer.
#[derive(Clone, Copy, Debug)]
pub struct CachedAttention {
    /// `[positions, 3 * heads * 64]`, rotated.
    pub qkv: Pointer<bf16>,
    pub cache: LayerCache,
    pub parts: AttentionParts,
    pub heads: usize,
}

/// The cache of one layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerCache {
    pub keys: Pointer<bf16>,
    pub values: Pointer<bf16>,
}

/// Tables of `attend_prefix`.
#[derive(Clone, Copy, Debug)]
pub struct PrefixTables {
    /// Page tables, one after the other.
    pub pages: Pointer<i32>,
    /// `[tiles, 16]` rows.
    pub tile_row: Pointer<i32>,
    /// First entry in `pages`.
    pub tile_table: Pointer<i32>,
    /// Positions of the prefix.
    pub tile_length: Pointer<i32>,
}

/// Tables of `attend_own`.
#[derive(Clone, Copy, Debug)]
pub struct OwnTables {
    /// Page tables, one after the other.
    pub pages: Pointer<i32>,
    /// First entry in `pages`.
    pub own_table: Pointer<i32>,
    /// Own positions that the position attends to.
    pub own_length: Pointer<i32>,
    /// Tile and row in it, or -1.
    pub place: Pointer<i32>,
}

/// Partial results of the splits of a prefix.
#[derive(Clone, Copy, Debug)]
pub struct AttentionParts {
    /// `[tiles, heads, splits, 16, 64]`.
    pub values: Pointer<f32>,
    /// `[tiles, heads, splits, 16, 2]`.
    pub max_sums: Pointer<f32>,
    /// Splits of a prefix.
    pub splits: usize,
}

impl Kernels {
    /// `rope_scatter.cu`.
    pub fn rope_scatter(&self, inputs: &RopeInputs, cache: LayerCache) -> Result<(), CudaError> {
        let &RopeInputs {
            qkv,
            position,
            slot,
            rope_cos_sin,
            positions,
            heads,
        } = inputs;
        require(
            qkv.len() >= positions * 3 * heads * TEXT_HEAD
                && position.len() >= positions
                && slot.len() >= positions,
            "rope: a buffer is too small",
        )?;
        launch!(
            self,
            rope_scatter,
            (heads, positions.div_ceil(PAGE), 1),
            128,
            0,
            [
                qkv.address(),
                position.address(),
                slot.address(),
                rope_cos_sin.address(),
                cache.keys.address(),
                cache.values.address(),
                positions as i32,
                heads as i32,
            ]
        )
    }

    /// `attend_rows.cu`, first kernel.
    pub fn attend_prefix(
        &self,
        attention: &CachedAttention,
        tables: &PrefixTables,
        tiles: usize,
    ) -> Result<(), CudaError> {
        let &CachedAttention {
            qkv,
            cache,
            parts,
            heads,
        } = attention;
        require(
            parts.values.len() >= tiles * heads * parts.splits * TILE * TEXT_HEAD
                && parts.max_sums.len() >= tiles * heads * parts.splits * TILE * 2,
            "attention: a buffer is too small",
        )?;
        launch!(
            self,
            attend_prefix,
            (tiles, heads, parts.splits),
            128,
            0,
            [
                qkv.address(),
                cache.keys.address(),
                cache.values.address(),
                tables.pages.address(),
                tables.tile_row.address(),
                tables.tile_table.address(),
                tables.tile_length.address(),
                parts.values.address(),
                parts.max_sums.address(),
                heads as i32,
            ]
        )
    }

    /// `attend_rows.cu`, second kernel.
    pub fn attend_own(
        &self,
        attention: &CachedAttention,
        tables: &OwnTables,
        out: Activations,
        rows: usize,
    ) -> Result<(), CudaError> {
        let &CachedAttention {
            qkv,
            cache,
            parts,
            heads,
        } = attention;
        require(
            out.has_room_for(rows, heads * TEXT_HEAD),
            "attention: a buffer is too small",
        )?;
        let grid = (rows, heads.div_ceil(4), 1);
        let (name, to, stride) = ("launching attend_own", out.address(), out.stride() as i32);
        let inputs = [
            qkv.address(),
            cache.keys.address(),
            cache.values.address(),
            tables.pages.address(),
            tables.own_table.address(),
            tables.own_length.address(),
            tables.place.address(),
            parts.values.address(),
            parts.max_sums.address(),
        ];
        let [q, k, v, pages, own_table, own_length, place, part, mass] = inputs;
        let (heads, splits) = (heads as i32, parts.splits as i32);
        match out {
            Activations::Bf16(_) => launch!(@on self, &self.attend_own, name, grid, 128, 0,
                [q, k, v, pages, own_table, own_length, place, part, mass, to, heads, splits, stride]),
            Activations::E4m3(_, scale) => {
                launch!(@on self, &self.attend_own_e4m3, name, grid, 128, 0,
                [q, k, v, pages, own_table, own_length, place, part, mass, to, heads, splits, stride, scale.value.recip()])
            }
        }
    }
}
