//! Attention to the cache, and the kernel that writes keys and values to it.

use half::bf16;

use super::{Activations, Kernels, PAGE, TEXT_HEAD, TILE, launch, require};
use crate::cuda::{error::CudaError, memory::Pointer, program::StepTables};

/// What a step's positions attend with in one layer.
#[derive(Clone, Copy)]
pub struct CachedAttention<'a> {
    pub tables: StepTables<'a>,
    /// `[positions, 3 * heads * 64]`: queries, keys and values.
    pub qkv: Pointer<bf16>,
    /// `[context, 16, 2]`: cosine and sine of each angle.
    pub rope_cos_sin: Pointer<f32>,
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
    /// `rope_scatter.cu`: rotates queries and keys in place.
    pub fn rope_scatter(
        &self,
        attention: &CachedAttention<'_>,
        positions: usize,
    ) -> Result<(), CudaError> {
        let &CachedAttention {
            tables,
            qkv,
            heads,
            cache: LayerCache { keys, values },
            ..
        } = attention;
        let (position, slot) = (
            tables.at(tables.layout.position),
            tables.at(tables.layout.slot),
        );
        require(
            qkv.len() >= positions * 3 * heads * TEXT_HEAD
                && position.len() >= positions
                && slot.len() >= positions,
            "rope: a buffer is too small",
        )?;
        let grid = (heads, positions.div_ceil(PAGE), 1);
        let angles = attention.rope_cos_sin;
        launch!(
            self,
            "rope_scatter",
            grid,
            128,
            [qkv, position, slot, angles, keys, values, positions, heads]
        )
    }

    /// `attend_rows.cu`, first kernel.
    pub fn attend_prefix(&self, attention: &CachedAttention<'_>) -> Result<(), CudaError> {
        let &CachedAttention {
            tables,
            qkv,
            heads,
            cache: LayerCache { keys, values },
            parts,
            ..
        } = attention;
        let (layout, tiles) = (tables.layout, tables.counts.tiles);
        require(
            parts.values.len() >= tiles * heads * parts.splits * TILE * TEXT_HEAD
                && parts.max_sums.len() >= tiles * heads * parts.splits * TILE * 2,
            "attention: a buffer is too small",
        )?;
        let grid = (tiles, heads, parts.splits);
        let pages = tables.at(layout.pages);
        let [row, table, length] =
            [layout.tile_row, layout.tile_table, layout.tile_length].map(|t| tables.at(t));
        launch!(
            self,
            "attend_prefix",
            grid,
            128,
            [
                qkv,
                keys,
                values,
                pages,
                row,
                table,
                length,
                parts.values,
                parts.max_sums,
                heads
            ]
        )
    }

    /// `attend_rows.cu`, second kernel.
    pub fn attend_own(
        &self,
        attention: &CachedAttention<'_>,
        out: Activations,
        rows: usize,
    ) -> Result<(), CudaError> {
        let &CachedAttention {
            tables,
            qkv,
            heads,
            cache: LayerCache { keys, values },
            parts,
            ..
        } = attention;
        require(
            out.has_room_for(rows, heads * TEXT_HEAD),
            "attention: a buffer is too small",
        )?;
        let layout = tables.layout;
        let [pages, table, length, place] = [
            layout.pages,
            layout.own_table,
            layout.own_length,
            layout.place,
        ]
        .map(|t| tables.at(t));
        let grid = (rows, heads.div_ceil(4), 1);
        let (name, scale) = out.writer("attend_own");
        launch!(
            self,
            &name,
            grid,
            128,
            [
                qkv,
                keys,
                values,
                pages,
                table,
                length,
                place,
                parts.values,
                parts.max_sums,
                out,
                heads,
                parts.splits,
                out.stride(),
                scale,
            ]
        )
    }
}
