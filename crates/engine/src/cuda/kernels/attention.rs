//! Attention to the cache, and the kernel that writes keys and values to it.

use half::bf16;

use super::launch::{Kernels, launch, require};
use crate::cuda::{
    error::CudaError,
    memory::Pointer,
    program::StepTables,
    tensor::{Activations, GpuTau, PAGE, TEXT_HEAD, TILE},
};

/// The most outputs of `tau_parts`, two for each head.
pub const TAU_OUTPUTS_MAX: usize = 64;
/// Up to this number of rows, reading the weights of tau limits its speed.
const TAU_FEW_ROWS: usize = 64;

/// Splits of the sums of tau: 96 of 64 features in Moondream 3.
fn tau_splits(rows: usize) -> usize {
    match rows {
        0..=TAU_FEW_ROWS => 24,
        _ => 4,
    }
}

/// Values of the parts of these sums, in steps of up to `rows` rows.
pub fn tau_values(rows: usize, heads: usize) -> usize {
    let of = |rows: usize| tau_splits(rows) * rows * 2 * heads;
    of(rows).max(of(rows.min(TAU_FEW_ROWS)))
}

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
    /// [`tau_values`]: parts of the sums behind the scales of queries and values, where the network has them.
    pub tau: Pointer<f32>,
    pub heads: usize,
    /// Those of all ranks, among which are `heads` from the first one on.
    pub all_heads: usize,
    pub first_head: usize,
}

impl CachedAttention<'_> {
    /// Values of the parts of the sums of tau.
    pub fn tau_values(&self, positions: usize) -> usize {
        tau_splits(positions) * positions * 2 * self.all_heads
    }
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
    /// `tau.cu`: what a rank has of the sums behind the scales of queries and values of all heads, from its heads of the rows.
    pub fn tau_parts(
        &self,
        attention: &CachedAttention<'_>,
        tau: &GpuTau,
        positions: usize,
    ) -> Result<(), CudaError> {
        let (parts, weight, qkv) = (attention.tau, tau.wq_wv.start(), attention.qkv);
        let (outputs, splits) = (2 * attention.all_heads, tau_splits(positions));
        let features = 3 * attention.heads * TEXT_HEAD;
        require(
            outputs <= TAU_OUTPUTS_MAX
                && weight.len() >= outputs * features
                && qkv.len() >= positions * features
                && parts.len() >= attention.tau_values(positions),
            "tau: up to 32 heads, or a buffer is too small",
        )?;
        launch!(
            self,
            "tau_parts",
            (positions.div_ceil(16), splits, 1),
            128,
            [qkv, weight, parts, positions, outputs, features]
        )
    }

    /// `rope_scatter.cu`: rotates queries and keys in place. With `tau`, behind [`Self::tau_parts`]: queries and values are scaled in place.
    pub fn rope_scatter(
        &self,
        attention: &CachedAttention<'_>,
        tau: Option<&GpuTau>,
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
        if let Some(tau) = tau {
            let (parts, alpha, splits) = (attention.tau, tau.alpha.start(), tau_splits(positions));
            require(
                alpha.len() >= heads
                    && attention.first_head + heads <= attention.all_heads
                    && parts.len() >= attention.tau_values(positions),
                "tau: a buffer is too small",
            )?;
            return launch!(
                self,
                "rope_scatter_tau",
                grid,
                128,
                [
                    qkv,
                    position,
                    slot,
                    angles,
                    keys,
                    values,
                    positions,
                    heads,
                    parts,
                    alpha,
                    splits,
                    attention.all_heads,
                    attention.first_head
                ]
            );
        }
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
        let (tables, parts, heads) = (attention.tables, attention.parts, attention.heads);
        let (layout, tiles) = (tables.layout, tables.counts.tiles);
        require(
            parts.values.len() >= tiles * heads * parts.splits * TILE * TEXT_HEAD
                && parts.max_sums.len() >= tiles * heads * parts.splits * TILE * 2,
            "attention: a buffer is too small",
        )?;
        launch!(
            self,
            "attend_prefix",
            (tiles, heads, parts.splits),
            128,
            [
                attention.qkv,
                attention.cache.keys,
                attention.cache.values,
                tables.at(layout.pages),
                tables.at(layout.tile_row),
                tables.at(layout.tile_table),
                tables.at(layout.tile_length),
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
        let (tables, parts, heads) = (attention.tables, attention.parts, attention.heads);
        require(
            out.has_room_for(rows, heads * TEXT_HEAD),
            "attention: a buffer is too small",
        )?;
        let layout = tables.layout;
        let (name, scale) = out.writer("attend_own");
        launch!(
            self,
            &name,
            (rows, heads.div_ceil(4), 1),
            128,
            [
                attention.qkv,
                attention.cache.keys,
                attention.cache.values,
                tables.at(layout.pages),
                tables.at(layout.own_table),
                tables.at(layout.own_length),
                tables.at(layout.place),
                parts.values,
                parts.max_sums,
                out,
                heads,
                parts.splits,
                out.stride(),
                scale
            ]
        )
    }
}
