//! Attention within whole sequences: three kernels for the same formula; the GPU and the head size decide which is the fastest.

use cudarc::driver::sys::{
    CUtensorMap, CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    CUtensorMapSwizzle as Swizzle,
};

use super::{
    launch::{ByValue, Kernels, launch, require},
    tensor_map::TensorLayout,
};
use crate::cuda::{
    error::CudaError,
    tensor::{Activations, StridedRows},
};

/// Shared memory of `attend_dense`: 128 queries and two stages of 64 keys and values, 72 values each.
const TILES_SHARED_BYTES: usize = (128 + 4 * 64) * 72 * 2;
/// Queries of a block of `attend_wide`, its threads, and rows of the boxes that it copies.
const WIDE_QUERIES: usize = 192;
const WIDE_THREADS: u32 = 512;
const WIDE_BOX: usize = 32;
/// Values of a swizzled row of it, and of the rest of a head of 72.
const WIDE_VALUES: usize = 64;
const NARROW_VALUES: usize = 8;
/// The most keys of `attend_dense_any`.
const ANY_KEYS_MAX: usize = 1024;

/// Keys and values of a stage of it, and stages.
const WIDE_KEYS: usize = 96;
const WIDE_STAGES: usize = 6;

/// Shared memory of `attend_wide`: two times 192 queries, and six stages of 96 keys and values, of which heads of 72 have the last 8
/// apart: behind queries with 8 zeros, of keys beside each other, of values in rows of 64 for all stages.
fn wide_shared_bytes(head_dim: usize) -> usize {
    let (queries, keys) = (2 * WIDE_QUERIES, WIDE_STAGES * WIDE_KEYS);
    let values = (queries + 2 * keys) * WIDE_VALUES;
    let apart = match head_dim > WIDE_VALUES {
        true => (2 * queries + keys) * NARROW_VALUES + WIDE_KEYS * WIDE_VALUES,
        false => 0,
    };
    (values + apart) * 2
}

/// A kernel of dense attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DenseKernel {
    /// `attend_wide.cu`: heads of 64 or 72 values, products of warpgroups (sm_90a).
    Wide,
    /// `attend_dense.cu`: heads of 64 or 72 values.
    Tiles,
    /// `attend_dense.cu`, last kernel: heads of any size.
    Any,
}

/// Sequences of rows that attend to themselves.
#[derive(Clone, Copy, Debug)]
pub struct DenseAttention {
    /// `[sequences * length, 3 * heads * head_dim]`.
    pub qkv: StridedRows,
    /// `[sequences * length, heads * head_dim]`.
    pub out: Activations,
    pub sequences: usize,
    /// Rows of a sequence.
    pub length: usize,
    pub heads: usize,
    /// Values of each head.
    pub head_dim: usize,
}

/// The kernels with dynamic shared memory, and its bytes.
pub(super) fn shared_bytes() -> impl Iterator<Item = (String, usize)> {
    [64, 72].into_iter().flat_map(|head_dim| {
        [
            (format!("attend_dense_{head_dim}"), TILES_SHARED_BYTES),
            (
                format!("attend_wide_{head_dim}"),
                wide_shared_bytes(head_dim),
            ),
        ]
    })
}

impl Kernels {
    /// The kernels that take heads of this size, the fastest first.
    pub fn dense_kernels(&self, head_dim: usize) -> &'static [DenseKernel] {
        match (head_dim, self.has("attend_wide_64")) {
            (64 | 72, true) => &[DenseKernel::Wide, DenseKernel::Tiles, DenseKernel::Any],
            (64 | 72, false) => &[DenseKernel::Tiles, DenseKernel::Any],
            _ => &[DenseKernel::Any],
        }
    }

    /// Queues the fastest kernel.
    pub fn attend_dense(&self, attention: &DenseAttention) -> Result<(), CudaError> {
        self.attend_dense_by(self.dense_kernels(attention.head_dim)[0], attention)
    }

    /// Queues one of [`Kernels::dense_kernels`].
    pub fn attend_dense_by(
        &self,
        kernel: DenseKernel,
        attention: &DenseAttention,
    ) -> Result<(), CudaError> {
        let &DenseAttention {
            qkv,
            out,
            sequences,
            length,
            heads,
            head_dim,
        } = attention;
        let rows = sequences * length;
        require(
            qkv.has_room_for(rows, 3 * heads * head_dim)
                && out.has_room_for(rows, heads * head_dim),
            "attention: a buffer is too small",
        )?;
        require(
            self.dense_kernels(head_dim).contains(&kernel)
                && (kernel != DenseKernel::Any || length <= ANY_KEYS_MAX),
            "attention: this kernel does not support these heads or this number of keys",
        )?;
        if rows == 0 {
            return Ok(());
        }
        let scale = 1.0 / (head_dim as f32).sqrt();
        let (from, stride, out_stride) = (qkv.start, qkv.stride, out.stride());
        match kernel {
            DenseKernel::Wide => {
                require(
                    out_stride.is_multiple_of(8),
                    "attention: rows of results begin at multiples of 8 values",
                )?;
                let (name, out_scale) = out.writer(&format!("attend_wide_{head_dim}"));
                let wide = tensor_map(attention, WIDE_VALUES, Swizzle::CU_TENSOR_MAP_SWIZZLE_128B)?;
                let narrow = tensor_map(
                    attention,
                    NARROW_VALUES,
                    Swizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
                )?;
                let jobs = length.div_ceil(WIDE_QUERIES) * heads * sequences;
                let grid = (jobs.min(self.multiprocessors), 1, 1);
                launch!(
                    self,
                    &name,
                    grid,
                    WIDE_THREADS,
                    [
                        ByValue(wide),
                        ByValue(narrow),
                        from,
                        out,
                        length,
                        stride,
                        out_stride,
                        heads,
                        scale,
                        out_scale,
                        sequences,
                    ]
                )
            }
            DenseKernel::Tiles => {
                let (name, out_scale) = out.writer(&format!("attend_dense_{head_dim}"));
                let grid = (length.div_ceil(128), heads, sequences);
                launch!(
                    self,
                    &name,
                    grid,
                    128,
                    [
                        from, out, length, stride, out_stride, heads, scale, out_scale
                    ]
                )
            }
            DenseKernel::Any => {
                let (name, out_scale) = out.writer("attend_dense_any");
                let grid = (length.div_ceil(4), heads, sequences);
                launch!(
                    self,
                    &name,
                    grid,
                    128,
                    [
                        from, out, length, stride, out_stride, heads, scale, out_scale, head_dim
                    ]
                )
            }
        }
    }
}

/// The sequences in memory, for copies of boxes of [`WIDE_BOX`] rows and `box_values` values.
fn tensor_map(
    attention: &DenseAttention,
    box_values: usize,
    swizzle: Swizzle,
) -> Result<CUtensorMap, CudaError> {
    let &DenseAttention {
        qkv,
        sequences,
        length,
        heads,
        head_dim,
        ..
    } = attention;
    let row_bytes = qkv.stride * size_of::<half::bf16>();
    TensorLayout {
        address: qkv.start.address(),
        number: CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        sizes: [3 * heads * head_dim, length, sequences],
        stride_bytes: [row_bytes, row_bytes * length],
        box_sizes: [box_values, WIDE_BOX, 1],
        swizzle,
    }
    .encode()
}
