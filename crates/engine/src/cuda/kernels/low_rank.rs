//! What adapters add to products.
//!
//! An adapter has a slot, in the layout of the highest rank ([`ADAPTER_RANK_MAX`]), so that rows of different adapters are one launch: a
//! *part* is a slot, or of experts `slot * experts + expert`. A step has a table of the part of each row, -1 for none.

use half::bf16;

use super::{
    experts::{ExpertShape, Routing},
    launch::{Address, Kernels, launch, require},
};
use crate::{
    cuda::{
        error::CudaError,
        memory::Pointer,
        tensor::{MatrixShape, StridedRows},
    },
    model::ADAPTER_RANK_MAX,
};

/// Rows that a block of each kernel computes.
const NARROW_ROWS: usize = 8;
const ADD_ROWS: usize = 16;
/// Values of `A x` that a block computes, and outputs.
const NARROW_RANKS: usize = 8;
const ADD_OUTPUTS: usize = 256;
/// The ranks that kernels are compiled for: of an expert of eight active ones, and of a layer.
const RANKS: [usize; 2] = [ADAPTER_RANK_MAX / 8, ADAPTER_RANK_MAX];

/// The rank of slots for weights of up to `rank`.
pub fn slot_rank(rank: usize) -> usize {
    let mut ranks = RANKS.into_iter();
    ranks.find(|of| *of >= rank).unwrap_or(ADAPTER_RANK_MAX)
}

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

/// What is added to the products of a layer.
#[derive(Clone, Copy, Debug)]
pub struct LowRankProduct {
    pub weights: LowRankWeights,
    pub table: AdaptedRowTable,
    pub x: StridedRows,
    /// Has room for `[rows, rank]`.
    pub narrow: Pointer<f32>,
    /// `[rows, outputs]`: the products.
    pub sums: StridedRows,
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
        require(
            narrow.len() >= rows * rank
                && table.parts.len() >= rows
                && table.x_rows.is_none_or(|x_rows| x_rows.len() >= rows)
                && sums.has_room_for(rows, outputs)
                && a.len() >= rank * inner
                && b.len() >= rank * outputs
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
        let name = format!("low_rank_add_{rank}");
        launch!(
            self,
            &name,
            grid,
            256,
            [
                narrow,
                table.parts,
                b,
                sums.start,
                rows,
                outputs,
                sums.stride
            ]
        )
    }

    /// The part of each slot of `rows` routed rows into `parts`, `[slots]`, by their adapters, `[rows]`.
    pub fn expert_parts(
        &self,
        routing: &Routing,
        adapters: Pointer<i32>,
        parts: Pointer<i32>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let ExpertShape {
            experts, active, ..
        } = routing.shape;
        let slots = rows * active;
        require(
            routing.has_room_for(rows) && adapters.len() >= rows && parts.len() >= slots,
            "adapters of experts: a buffer is too small",
        )?;
        launch!(
            self,
            "expert_parts",
            (slots.div_ceil(256), 1, 1),
            256,
            [
                adapters,
                routing.offset.start(),
                routing.slot_row.start(),
                parts,
                slots,
                experts
            ]
        )
    }

    /// `gelu(h) * (g + 1)` of the sums of `rows` routed rows, `[slots, 2 * inner]`, into `out`, `[slots, inner]`.
    pub fn gate_experts(
        &self,
        routing: &Routing,
        sums: Pointer<bf16>,
        out: Pointer<bf16>,
        rows: usize,
    ) -> Result<(), CudaError> {
        let ExpertShape {
            experts,
            active,
            inner,
            ..
        } = routing.shape;
        let slots = rows * active;
        require(
            routing.has_room_for(rows)
                && sums.len() >= slots * 2 * inner
                && out.len() >= slots * inner,
            "gates of experts: a buffer is too small",
        )?;
        launch!(
            self,
            "gate_experts",
            (slots, 1, 1),
            256,
            [sums, routing.offset.start(), out, inner, experts]
        )
    }

    /// GELU (tanh) of rows, in place.
    pub fn gelu_rows(&self, x: StridedRows, shape: MatrixShape) -> Result<(), CudaError> {
        let MatrixShape { rows, width } = shape;
        require(
            width.is_multiple_of(8) && x.stride.is_multiple_of(8) && x.has_room_for(rows, width),
            "GELU: widths and strides are multiples of 8, rows are within their buffer",
        )?;
        launch!(
            self,
            "gelu_rows",
            (rows, 1, 1),
            256,
            [x.start, width, x.stride]
        )
    }
}
