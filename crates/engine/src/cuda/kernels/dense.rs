//! Attention within whole sequences: three kernels for the same formula; the GPU and the head size decide which is the fastest.

use cudarc::driver::CudaFunction;

use super::{
    Activations, Kernels, StridedRows, launch, require, tensor_map::TensorMapSpec, with_shared,
};
use crate::cuda::{error::CudaError, library::Gpu};

/// Shared memory of `attend_dense`: 128 queries and two stages of 64 keys and values, 72 values each.
const TILES_SHARED_BYTES: u32 = ((128 + 4 * 64) * 72 * 2) as u32;
/// Queries of a block of `attend_wide`, its threads, and rows of the boxes that it copies.
const WIDE_QUERIES: usize = 192;
const WIDE_THREADS: u32 = 512;
const WIDE_BOX: usize = 32;
/// Values of a swizzled row of it, and of the rest of a head of 72.
const WIDE_VALUES: usize = 64;
const NARROW_VALUES: usize = 8;
/// The most keys of `attend_dense_any`.
const ANY_KEYS_MAX: usize = 1024;

/// Shared memory of `attend_wide`: two times 192 queries, with 8 zeros behind heads of 72, and six
/// stages of 96 keys and values.
const fn wide_shared_bytes(head_dim: usize) -> u32 {
    let behind = if head_dim > WIDE_VALUES {
        2 * NARROW_VALUES
    } else {
        0
    };
    (2 * WIDE_QUERIES * (WIDE_VALUES + behind) * 2 + 6 * 2 * 96 * head_dim * 2) as u32
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

/// A kernel that writes bf16, and its variant that writes e4m3.
struct KernelPair {
    bf16: CudaFunction,
    e4m3: CudaFunction,
}

impl KernelPair {
    fn find(
        function: impl Fn(&str) -> Result<CudaFunction, CudaError>,
        name: &str,
        shared_bytes: u32,
    ) -> Result<Self, CudaError> {
        let found = |name: &str| match shared_bytes {
            0 => function(name),
            bytes => with_shared(function(name)?, bytes as usize),
        };
        Ok(Self {
            bf16: found(name)?,
            e4m3: found(&format!("{name}_e4m3"))?,
        })
    }
}

pub(super) struct DenseKernels {
    multiprocessors: usize,
    /// For heads of 64 and of 72 values.
    wide: Option<[KernelPair; 2]>,
    tiles: [KernelPair; 2],
    any: KernelPair,
}

impl DenseKernels {
    pub fn find(
        gpu: &Gpu,
        function: impl Fn(&str) -> Result<CudaFunction, CudaError>,
    ) -> Result<Self, CudaError> {
        let wide = |head_dim: usize| {
            let name = format!("attend_wide_{head_dim}");
            KernelPair::find(&function, &name, wide_shared_bytes(head_dim))
        };
        Ok(Self {
            multiprocessors: gpu.multiprocessors,
            wide: match gpu.arch == "sm_90a" {
                true => Some([wide(64)?, wide(72)?]),
                false => None,
            },
            tiles: [
                KernelPair::find(&function, "attend_dense_64", TILES_SHARED_BYTES)?,
                KernelPair::find(&function, "attend_dense_72", TILES_SHARED_BYTES)?,
            ],
            any: KernelPair::find(&function, "attend_dense_any", 0)?,
        })
    }
}

impl Kernels {
    /// The kernels that take heads of this size, the fastest first.
    pub fn dense_kernels(&self, head_dim: usize) -> &'static [DenseKernel] {
        match (head_dim, &self.dense.wide) {
            (64 | 72, Some(_)) => &[DenseKernel::Wide, DenseKernel::Tiles, DenseKernel::Any],
            (64 | 72, None) => &[DenseKernel::Tiles, DenseKernel::Any],
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
        let size = usize::from(head_dim == 72);
        let pair = match (kernel, &self.dense.wide) {
            (DenseKernel::Wide, Some(wide)) => &wide[size],
            (DenseKernel::Tiles, _) => &self.dense.tiles[size],
            _ => &self.dense.any,
        };
        let (function, out_scale) = match out {
            Activations::Bf16(_) => (&pair.bf16, 1.0),
            Activations::E4m3(_, scale) => (&pair.e4m3, scale.value.recip()),
        };
        let scale = 1.0 / (head_dim as f32).sqrt();
        let (from, to) = (qkv.start.address(), out.address());
        let (stride, out_stride) = (qkv.stride as i32, out.stride() as i32);
        let (length_i32, heads_i32) = (length as i32, heads as i32);
        match kernel {
            DenseKernel::Wide => {
                let boxes = |values, is_swizzled| TensorMapSpec {
                    sequences,
                    length,
                    width: 3 * heads * head_dim,
                    box_rows: WIDE_BOX,
                    box_values: values,
                    is_swizzled,
                };
                let wide = boxes(WIDE_VALUES, true).map(qkv)?;
                let narrow = boxes(NARROW_VALUES, false).map(qkv)?;
                let jobs = length.div_ceil(WIDE_QUERIES) * heads * sequences;
                let grid = (jobs.min(self.dense.multiprocessors), 1, 1);
                let (shared, sequences) = (wide_shared_bytes(head_dim), sequences as i32);
                launch!(@on self, function, "launching attend_wide", grid, WIDE_THREADS, shared,
                    [wide, narrow, to, length_i32, out_stride, heads_i32, scale, out_scale, sequences])
            }
            DenseKernel::Tiles => {
                let grid = (length.div_ceil(128), heads, sequences);
                launch!(@on self, function, "launching attend_dense", grid, 128, TILES_SHARED_BYTES,
                    [from, to, length_i32, stride, out_stride, heads_i32, scale, out_scale])
            }
            DenseKernel::Any => {
                let (grid, head_dim) = ((length.div_ceil(4), heads, sequences), head_dim as i32);
                launch!(@on self, function, "launching attend_dense_any", grid, 128, 0,
                    [from, to, length_i32, stride, out_stride, heads_i32, scale, out_scale, head_dim])
            }
        }
    }
}
