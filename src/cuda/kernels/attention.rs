//! Attention, and what puts keys and values into the cache.

use half::bf16;

use super::{DENSE_SHARED_BYTES, Kernels, PAGE, Rows, TEXT_HEAD, TILE, Values, launch, need};
use crate::cuda::{error::CudaError, memory::Pointer};
/// Keys that `attend_dense_any` takes.
const ANY_KEYS_MAX: usize = 1024;

/// The cache of one layer.
#[derive(Clone, Copy, Debug)]
pub struct LayerCache {
    /// Keys.
    pub keys: Pointer<bf16>,
    /// Values.
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
    /// Positions.
    pub tile_length: Pointer<i32>,
}

/// Tables of `attend_own`.
#[derive(Clone, Copy, Debug)]
pub struct OwnTables {
    /// Page tables, one after the other.
    pub pages: Pointer<i32>,
    /// First entry in `pages`.
    pub own_table: Pointer<i32>,
    /// Own positions that a row sees.
    pub own_length: Pointer<i32>,
    /// Tile and row in it, or -1.
    pub place: Pointer<i32>,
}

/// What the splits of a prefix give.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// `[tiles, heads, splits, 16, 64]`.
    pub values: Pointer<f32>,
    /// `[tiles, heads, splits, 16, 2]`.
    pub masses: Pointer<f32>,
    /// Splits of a prefix.
    pub splits: usize,
}

impl Kernels {
    /// `attend_dense.cu`: `sequences` of `length` rows each, `heads` heads of `head_dim` values.
    pub fn attend_dense(
        &self,
        qkv: Rows,
        out: Values,
        (sequences, length): (usize, usize),
        (heads, head_dim): (usize, usize),
    ) -> Result<(), CudaError> {
        let rows = sequences * length;
        need(
            qkv.hold(rows, 3 * heads * head_dim) && out.hold(rows, heads * head_dim),
            "attention: rows beyond a buffer",
        )?;
        need(
            matches!(head_dim, 64 | 72) || length <= ANY_KEYS_MAX,
            "attention: heads of this size take up to 1024 keys",
        )?;
        let scale = 1.0 / (head_dim as f32).sqrt();
        let (qkv_stride, out_stride) = (qkv.stride as i32, out.stride() as i32);
        let (length_i, heads_i) = (length as i32, heads as i32);
        let (from, to) = (qkv.start.address(), out.address());
        let tiles = (length.div_ceil(128), heads, sequences);
        let warps = (length.div_ceil(4), heads, sequences);
        let (name, shared, dim) = (
            "launching attend_dense",
            DENSE_SHARED_BYTES,
            head_dim as i32,
        );
        match (out, head_dim) {
            (Values::Bf16(_), 64 | 72) => {
                let function = match head_dim {
                    64 => &self.attend_dense_64,
                    _ => &self.attend_dense_72,
                };
                launch!(@on self, function, name, tiles, 128, shared,
                    [from, to, length_i, qkv_stride, out_stride, heads_i, scale])
            }
            (Values::E4m3(_, e4m3), 64 | 72) => {
                let function = match head_dim {
                    64 => &self.attend_dense_64_e4m3,
                    _ => &self.attend_dense_72_e4m3,
                };
                launch!(@on self, function, name, tiles, 128, shared,
                    [from, to, length_i, qkv_stride, out_stride, heads_i, scale, e4m3.value.recip()])
            }
            (Values::Bf16(_), _) => {
                launch!(@on self, &self.attend_dense_any, name, warps, 128, 0,
                    [from, to, length_i, qkv_stride, out_stride, heads_i, scale, dim])
            }
            (Values::E4m3(_, e4m3), _) => {
                launch!(@on self, &self.attend_dense_any_e4m3, name, warps, 128, 0,
                    [from, to, length_i, qkv_stride, out_stride, heads_i, scale, dim, e4m3.value.recip()])
            }
        }
    }

    /// `rope_scatter.cu`.
    pub fn rope_scatter(
        &self,
        qkv: Pointer<bf16>,
        (position, slot): (Pointer<i32>, Pointer<i32>),
        turns: Pointer<f32>,
        cache: LayerCache,
        (positions, heads): (usize, usize),
    ) -> Result<(), CudaError> {
        need(
            qkv.len() >= positions * 3 * heads * TEXT_HEAD
                && position.len() >= positions
                && slot.len() >= positions,
            "rope: positions beyond a buffer",
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
                turns.address(),
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
        qkv: Pointer<bf16>,
        cache: LayerCache,
        tables: &PrefixTables,
        parts: Parts,
        (tiles, heads): (usize, usize),
    ) -> Result<(), CudaError> {
        need(
            parts.values.len() >= tiles * heads * parts.splits * TILE * TEXT_HEAD
                && parts.masses.len() >= tiles * heads * parts.splits * TILE * 2,
            "attention: more tiles than there is room for",
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
                parts.masses.address(),
                heads as i32,
            ]
        )
    }

    /// `attend_rows.cu`, second kernel.
    #[expect(
        clippy::too_many_arguments,
        reason = "the kernel's own, grouped where they belong together"
    )]
    pub fn attend_own(
        &self,
        qkv: Pointer<bf16>,
        cache: LayerCache,
        tables: &OwnTables,
        parts: Parts,
        out: Values,
        (rows, heads): (usize, usize),
    ) -> Result<(), CudaError> {
        need(
            out.hold(rows, heads * TEXT_HEAD),
            "attention: rows beyond a buffer",
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
            parts.masses.address(),
        ];
        let [q, k, v, pages, own_table, own_length, place, part, mass] = inputs;
        let (heads, splits) = (heads as i32, parts.splits as i32);
        match out {
            Values::Bf16(_) => launch!(@on self, &self.attend_own, name, grid, 128, 0,
                [q, k, v, pages, own_table, own_length, place, part, mass, to, heads, splits, stride]),
            Values::E4m3(_, scale) => launch!(@on self, &self.attend_own_e4m3, name, grid, 128, 0,
                [q, k, v, pages, own_table, own_length, place, part, mass, to, heads, splits, stride, scale.value.recip()]),
        }
    }
}
