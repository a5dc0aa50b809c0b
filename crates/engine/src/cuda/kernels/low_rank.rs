//! What adapters add to products.
//!
//! An adapter has a slot, in the layout of the highest rank ([`ADAPTER_RANK_MAX`]), so that rows of different adapters are one launch: a
//! *part* is a slot, or of experts `slot * experts + expert`. A step brings the part of each row in a table, -1 for none.
//!
//! Where it belongs in a block: behind `qkv` and before tau; to the first layer's sums before their GELU, which is then a kernel of its own;
//! to the experts' sums of `h` and `g` before `gelu(h) * (g + 1)`, with the routed rows as `x_rows`; to the experts' results before their shares; to
//! the hidden states for `proj` and `fc2`. Steps without adapters launch what they launch today.
#![cfg_attr(
    not(test),
    expect(dead_code, reason = "no step on a GPU has adapters yet")
)]

use half::bf16;

use super::launch::{Address, Kernels, launch, require};
use crate::{
    cuda::{error::CudaError, memory::Pointer, tensor::StridedRows},
    model::ADAPTER_RANK_MAX,
};

/// Rows that a block of each kernel computes.
const NARROW_ROWS: usize = 8;
const ADD_ROWS: usize = 16;
/// Values of `A x` that a block computes, and outputs.
const NARROW_RANKS: usize = 8;
const ADD_OUTPUTS: usize = 256;
/// The ranks that kernels are compiled for: of a layer, and of an expert of eight active ones.
const RANKS: [usize; 2] = [ADAPTER_RANK_MAX, ADAPTER_RANK_MAX / 8];

/// The low-rank weights of a layer, of all slots.
#[derive(Clone, Copy, Debug)]
pub struct LowRankWeights {
    /// `[parts, rank, inner]`
    pub a: Pointer<bf16>,
    /// `[parts, outputs, rank]`
    pub b: Pointer<bf16>,
    pub rank: usize,
    pub inner: usize,
    pub outputs: usize,
}

/// Which rows get what.
#[derive(Clone, Copy, Debug)]
pub struct AdaptedRowTable {
    /// `[rows]`, checked on the host: below the number of parts, or -1.
    pub parts: Pointer<i32>,
    /// `[rows]`, of the inputs; `None`: a row reads its own.
    pub x_rows: Option<Pointer<i32>>,
    pub rows: usize,
}

/// Where the products are.
#[derive(Clone, Copy, Debug)]
pub enum LowRankSums {
    Bf16(StridedRows),
    /// `[rows, outputs]`.
    F32(Pointer<f32>),
}

/// What is added to the products of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LowRankProduct {
    pub weights: LowRankWeights,
    pub table: AdaptedRowTable,
    pub x: StridedRows,
    /// Has room for `[rows, rank]`.
    pub narrow: Pointer<f32>,
    pub sums: LowRankSums,
}

impl Kernels {
    /// `low_rank.cu`.
    pub fn add_low_rank(&self, product: &LowRankProduct) -> Result<(), CudaError> {
        let LowRankProduct {
            weights,
            table,
            x,
            narrow,
            sums,
        } = *product;
        let LowRankWeights {
            a,
            b,
            rank,
            inner,
            outputs,
        } = weights;
        let rows = table.rows;
        require(
            RANKS.contains(&rank) && inner.is_multiple_of(8) && x.stride.is_multiple_of(8),
            "adapter: the kernel does not support this layer",
        )?;
        let (out, out_stride, suffix, has_room) = match sums {
            LowRankSums::Bf16(out) => {
                let has_room = out.has_room_for(rows, outputs);
                (out.start.address(), out.stride, "", has_room)
            }
            LowRankSums::F32(out) => (out.address(), outputs, "_f32", out.len() >= rows * outputs),
        };
        require(
            narrow.len() >= rows * rank
                && table.parts.len() >= rows
                && table.x_rows.is_none_or(|x_rows| x_rows.len() >= rows)
                && has_room
                && (table.x_rows.is_some() || x.has_room_for(rows, inner)),
            "adapter: a buffer is too small",
        )?;
        let x_rows = Address(table.x_rows.map_or(0, |x_rows| x_rows.address()));
        let grid = (rows.div_ceil(NARROW_ROWS), rank.div_ceil(NARROW_RANKS), 1);
        let name = format!("low_rank_narrow_{rank}");
        launch!(
            self,
            &name,
            grid,
            256,
            [
                x.start,
                x_rows,
                table.parts,
                a,
                narrow,
                rows,
                inner,
                x.stride
            ]
        )?;
        let grid = (outputs.div_ceil(ADD_OUTPUTS), rows.div_ceil(ADD_ROWS), 1);
        let name = format!("low_rank_add_{rank}{suffix}");
        launch!(
            self,
            &name,
            grid,
            256,
            [
                narrow,
                table.parts,
                b,
                Address(out),
                rows,
                outputs,
                out_stride
            ]
        )
    }
}
