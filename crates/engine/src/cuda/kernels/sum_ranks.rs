//! Sums over ranks, and copies between them (`sum_ranks.cu`).

use half::bf16;

use super::launch::{ByValue, Kernels, launch, require};
use crate::cuda::{error::CudaError, memory::Pointer, tensor::MatrixShape};

/// Ranks at most.
pub const RANKS_MAX: usize = 8;
/// Blocks of a kernel at most, and where values are few.
pub const BLOCKS_MAX: usize = 256;
pub const FEW_BLOCKS_MAX: usize = 64;
/// Bytes of what a rank receives from another one: `struct ReceiveBuffer` of the kernel.
pub const RECEIVE_BYTES: usize = 18_875_392;
/// Where in it the words of `decode_step_ranks.cu` begin.
pub const DECODER_WORDS_AT: usize = 17_826_816;
/// Groups of 16 bytes of a piece, and of a block where there are few.
const PIECE: usize = 1024;
const BLOCK_FEW: usize = 256;
/// Threads of a block for pieces, and where there are few groups.
const PIECE_THREADS: u32 = 512;
const FEW_THREADS: u32 = 256;
/// Bytes of a group.
const GROUP_BYTES: usize = 16;

/// Where a rank sends to and receives from: `struct Ranks` of the kernel, the same fields in the same order.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct RankAddresses {
    /// Its receive buffers at the others.
    pub to: [u64; RANKS_MAX],
    /// Those of the others at this one.
    pub from: [u64; RANKS_MAX],
    /// `[BLOCKS_MAX + FEW_BLOCKS_MAX]`: what each block has exchanged so far, at first zeros.
    pub done: u64,
    pub rank: i32,
    pub ranks: i32,
}

/// How ranks exchange: the same on all of them.
#[derive(Clone, Copy, Debug)]
pub struct RankExchange {
    pub addresses: RankAddresses,
    /// Blocks that run at once on every rank, two on each multiprocessor, up to [`BLOCKS_MAX`].
    pub blocks: usize,
    /// Up to so many groups of 16 bytes each 4 bytes are signalled by themselves.
    pub few_groups: usize,
}

/// `struct Parts` of the kernel.
#[repr(C)]
struct RankCounts {
    first: [i32; RANKS_MAX + 1],
}

/// How a sum is launched.
struct SumLaunch {
    is_few: bool,
    blocks: usize,
    threads: u32,
}

impl RankExchange {
    fn sum_launch(&self, groups: usize) -> SumLaunch {
        let few_blocks = (self.blocks / 2).min(FEW_BLOCKS_MAX);
        let is_few = groups <= self.few_groups.min(few_blocks * BLOCK_FEW);
        let (blocks, threads) = match is_few {
            true => (groups.div_ceil(BLOCK_FEW), FEW_THREADS),
            false => (self.piece_blocks(groups), PIECE_THREADS),
        };
        SumLaunch {
            is_few,
            blocks,
            threads,
        }
    }

    /// Blocks for groups that are exchanged piece by piece.
    fn piece_blocks(&self, groups: usize) -> usize {
        self.blocks.min(groups.div_ceil(PIECE))
    }
}

impl Kernels {
    /// `hidden += partial`, of all ranks in their order, rounded once; rows without gaps.
    pub fn sum_ranks(
        &self,
        ranks: &RankExchange,
        partial: Pointer<bf16>,
        hidden: Pointer<bf16>,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        let values = shape.rows * shape.width;
        require(
            partial.len().min(hidden.len()) >= values,
            "sum over ranks: a buffer is too small",
        )?;
        let groups = groups::<bf16>(values)?;
        let launch = ranks.sum_launch(groups);
        let name = match launch.is_few {
            true => "sum_ranks_few",
            false => "sum_ranks",
        };
        launch!(
            self,
            name,
            (launch.blocks, 1, 1),
            launch.threads,
            [ByValue(ranks.addresses), hidden, partial, groups]
        )
    }

    /// `x` becomes the sum of `x` of all ranks, in their order.
    pub fn sum_ranks_f32(
        &self,
        ranks: &RankExchange,
        x: Pointer<f32>,
        values: usize,
    ) -> Result<(), CudaError> {
        require(x.len() >= values, "sum over ranks: a buffer is too small")?;
        let groups = groups::<f32>(values)?;
        let launch = ranks.sum_launch(groups);
        let name = match launch.is_few {
            true => "sum_ranks_few_f32",
            false => "sum_ranks_f32",
        };
        launch!(
            self,
            name,
            (launch.blocks, 1, 1),
            launch.threads,
            [ByValue(ranks.addresses), x, x, groups]
        )
    }

    /// Every rank gets the parts of `x` that the others have made, which are behind each other: `counts` values of each rank.
    pub fn share_ranks(
        &self,
        ranks: &RankExchange,
        x: Pointer<bf16>,
        counts: &[usize],
    ) -> Result<(), CudaError> {
        require(
            counts.len() == ranks.addresses.ranks as usize
                && x.len() >= counts.iter().sum::<usize>(),
            "copy between ranks: each rank has a part, all of them in the buffer",
        )?;
        let (mut first, mut end, mut longest) = ([0; RANKS_MAX + 1], 0, 0);
        for (rank, &count) in counts.iter().enumerate() {
            let groups = groups::<bf16>(count)?;
            end += groups;
            longest = longest.max(groups);
            first[rank + 1] = end as i32;
        }
        if longest == 0 {
            return Ok(());
        }
        launch!(
            self,
            "share_ranks",
            (ranks.piece_blocks(longest), 1, 1),
            PIECE_THREADS,
            [
                ByValue(ranks.addresses),
                x,
                ByValue(RankCounts { first }),
                longest
            ]
        )
    }
}

/// Groups of 16 bytes of so many values.
fn groups<T>(values: usize) -> Result<usize, CudaError> {
    let bytes = values * size_of::<T>();
    require(
        bytes.is_multiple_of(GROUP_BYTES),
        "ranks exchange multiples of 16 bytes",
    )?;
    Ok(bytes / GROUP_BYTES)
}
