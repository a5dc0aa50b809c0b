//! What GPUs exchange that compute one model together: sums of partial hidden states, and parts of buffers (`kernels/sum_ranks.cu`).
//!
//! ```text
//!   rank 0   partial ─▶ receive buffer at rank 1 ─▶ hidden + p0 + p1
//!   rank 1   partial ─▶ receive buffer at rank 0 ─▶ hidden + p0 + p1
//! ```
//!
//! A receive buffer is memory of the GPU that receives, where all GPUs can access each other's, else memory of the host. Its size does not
//! depend on a step's. What a block has exchanged so far is counted on the GPU, so a launch that was recorded can be repeated.
//!
//! All ranks queue the same exchanges in the same order, each on its own thread. A rank whose peer does not come for ten seconds fails with
//! an error of the device.

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use half::bf16;

use super::{
    error::CudaError,
    kernels::{
        BLOCKS_MAX, DecoderWords, FEW_BLOCKS_MAX, Kernels, RANKS_MAX, RECEIVE_BYTES, RankAddresses,
        RankExchange,
    },
    library::Gpu,
    memory::{
        Buffer, CurrentContext, PeerMemory, Pointer, can_access, enable_peer_access,
        wait_for_stream,
    },
    tensor::MatrixShape,
};
use crate::ranks::Seat;

/// An environment variable: `1` makes GPUs exchange through memory of the host, as those do that cannot access each other's memory.
const NO_PEER_VARIABLE: &str = "SPOTTER_NO_PEER";

/// Where receive buffers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerPath {
    /// In the memory of the GPUs, which access each other's (NVLink or PCIe).
    Gpu,
    /// In the memory of the host.
    Host,
}

impl PeerPath {
    /// The shortest one that is allowed.
    fn wanted() -> Self {
        match std::env::var(NO_PEER_VARIABLE).as_deref() {
            Ok("1") => Self::Host,
            _ => Self::Gpu,
        }
    }

    /// Up to so many groups of 16 bytes, `sum_ranks_few` is the faster one.
    fn few_groups(self) -> usize {
        match self {
            Self::Gpu => 64 * 256,
            Self::Host => 32 * 256,
        }
    }
}

/// What the other ranks need to know of a rank while they are built.
#[derive(Clone, Debug)]
pub struct RankNote {
    context: Arc<CudaContext>,
    /// Blocks that it runs at once.
    blocks: usize,
    path: PeerPath,
    /// Of its receive buffers, each rank's behind the previous one's.
    address: u64,
}

/// The exchanges of a rank.
pub struct Peers {
    exchange: RankExchange,
    partial: Buffer<bf16>,
    decoder_words: Option<DecoderWords>,
    // Counts of `exchange`.
    _done: Buffer<u32>,
    _received: PeerMemory,
    stream: Arc<CudaStream>,
    note: RankNote,
    seat: Seat<RankNote>,
}

impl Peers {
    /// On the rank's own thread; waits until all ranks have called it. `partial_values` is the room of [`Self::partial`]. Launches are
    /// queued on `stream`.
    pub fn new(
        seat: Seat<RankNote>,
        gpu: &Gpu,
        stream: &Arc<CudaStream>,
        partial_values: usize,
    ) -> Result<Self, CudaError> {
        let note = RankNote::new(gpu, PeerPath::wanted());
        Self::with(seat, note, stream, partial_values)
    }

    pub(super) fn with(
        seat: Seat<RankNote>,
        mut note: RankNote,
        stream: &Arc<CudaStream>,
        partial_values: usize,
    ) -> Result<Self, CudaError> {
        let others = note.agree_on_path(&seat)?;
        let bytes = (others.len() - 1) * RECEIVE_BYTES;
        let received = match note.path {
            PeerPath::Gpu => PeerMemory::of_gpu(&note.context, bytes)?,
            PeerPath::Host => PeerMemory::of_host(&note.context, bytes)?,
        };
        let done = Buffer::zeros(stream, BLOCKS_MAX + FEW_BLOCKS_MAX)?;
        let partial = Buffer::zeros(stream, partial_values)?;
        note.address = received.address();
        let others = seat.exchange(note.clone())?;
        let buffers: Vec<u64> = others.iter().map(|other| other.address).collect();
        let blocks = others.iter().map(|other| other.blocks).min();
        let exchange = RankExchange {
            addresses: addresses(seat.rank(), &buffers, done.start().address()),
            blocks: blocks.unwrap_or(1),
            few_groups: note.path.few_groups(),
        };
        let has_words = others.len() == 2 && note.path == PeerPath::Gpu;
        let decoder_words = has_words.then(|| DecoderWords::of(&exchange.addresses));
        Ok(Self {
            exchange,
            partial,
            decoder_words,
            _done: done,
            _received: received,
            stream: Arc::clone(stream),
            note,
            seat,
        })
    }

    /// Bytes of its GPU that it takes at most.
    pub fn bytes(ranks: usize, partial_values: usize) -> usize {
        (ranks - 1) * RECEIVE_BYTES
            + (BLOCKS_MAX + FEW_BLOCKS_MAX) * size_of::<u32>()
            + partial_values * size_of::<bf16>()
    }

    /// Where this rank's part of the next sum is written. It is free again behind that sum.
    pub fn partial(&self) -> Pointer<bf16> {
        self.partial.start()
    }

    /// Where the decoder exchanges sums in its one launch. `None` where it cannot: with more than two ranks,
    /// or through memory of the host, which all blocks would poll.
    pub fn decoder_words(&self) -> Option<DecoderWords> {
        self.decoder_words.clone()
    }

    /// `hidden[rows, width] += partial`, of all ranks in their order, rounded once: all get equal bits.
    pub fn sum(
        &self,
        kernels: &Kernels,
        hidden: Pointer<bf16>,
        shape: MatrixShape,
    ) -> Result<(), CudaError> {
        kernels.sum_ranks(&self.exchange, self.partial(), hidden, shape)
    }

    /// `x` becomes the sum of `x` of all ranks, in their order: a few values in f32, a multiple of 4.
    pub fn sum_f32(
        &self,
        kernels: &Kernels,
        x: Pointer<f32>,
        values: usize,
    ) -> Result<(), CudaError> {
        kernels.sum_ranks_f32(&self.exchange, x, values)
    }

    /// Every rank has made `counts[rank]` values of `x`, multiples of 8, behind those of the previous rank; now all have all of them.
    pub fn share(
        &self,
        kernels: &Kernels,
        x: Pointer<bf16>,
        counts: &[usize],
    ) -> Result<(), CudaError> {
        kernels.share_ranks(&self.exchange, x, counts)
    }
}

/// Where a rank sends to and receives from. Of each rank, `buffers` has the address of its first receive buffer.
fn addresses(rank: usize, buffers: &[u64], done: u64) -> RankAddresses {
    // A rank has no buffer for itself.
    let buffer = |receiver: usize, sender: usize| {
        let before = sender - usize::from(sender > receiver);
        buffers[receiver] + (before * RECEIVE_BYTES) as u64
    };
    let (mut to, mut from) = ([0; RANKS_MAX], [0; RANKS_MAX]);
    for other in (0..buffers.len()).filter(|other| *other != rank) {
        to[other] = buffer(other, rank);
        from[other] = buffer(rank, other);
    }
    RankAddresses {
        to,
        from,
        done,
        rank: rank as i32,
        ranks: buffers.len() as i32,
    }
}

impl RankNote {
    pub(super) fn new(gpu: &Gpu, path: PeerPath) -> Self {
        Self {
            context: Arc::clone(&gpu.context),
            blocks: (2 * gpu.multiprocessors).min(BLOCKS_MAX),
            path,
            address: 0,
        }
    }

    /// Makes its path that of all ranks, with the access that it needs.
    fn agree_on_path(&mut self, seat: &Seat<Self>) -> Result<Vec<Self>, CudaError> {
        let ranks = seat.exchange(self.clone())?;
        if ranks.len() > RANKS_MAX {
            return Err(CudaError::Shape(format!(
                "{} GPUs are to work as one, at most {RANKS_MAX} can",
                ranks.len()
            )));
        }
        self.path = self.path_to(&ranks);
        let ranks = seat.exchange(self.clone())?;
        match ranks.iter().all(|rank| rank.path == PeerPath::Gpu) {
            true => self.enable_access(&ranks)?,
            false => self.path = PeerPath::Host,
        }
        Ok(ranks)
    }

    /// Contexts of other GPUs than its own.
    fn others<'a>(&self, ranks: &'a [Self]) -> impl Iterator<Item = &'a Arc<CudaContext>> {
        let own = self.context.cu_device();
        let contexts = ranks.iter().map(|rank| &rank.context);
        contexts.filter(move |context| context.cu_device() != own)
    }

    /// Its path to all ranks.
    fn path_to(&self, ranks: &[Self]) -> PeerPath {
        let own = self.context.cu_device();
        let inaccessible = |other: &&Arc<CudaContext>| !can_access(own, other.cu_device());
        match (self.path, self.others(ranks).find(inaccessible)) {
            (PeerPath::Gpu, Some(other)) => {
                tracing::info!(
                    gpu = self.context.ordinal(),
                    peer = other.ordinal(),
                    "GPU cannot access the memory of its peer; they exchange through memory of the host"
                );
                PeerPath::Host
            }
            (path, _) => path,
        }
    }

    fn enable_access(&self, ranks: &[Self]) -> Result<(), CudaError> {
        let _current = CurrentContext::new(&self.context)?;
        for other in self.others(ranks) {
            enable_peer_access(other).map_err(|source| CudaError::Peer {
                gpu: self.context.ordinal(),
                peer: other.ordinal(),
                source,
            })?;
        }
        Ok(())
    }
}

impl Drop for Peers {
    /// Waits until all ranks are here, so that none of them uses the memory of another one that is gone; if one has left, it does not matter
    /// any more. All ranks must therefore be dropped, each on its own thread.
    fn drop(&mut self) {
        // An error means that the GPU fails, and with it the engine.
        let _ = wait_for_stream(&self.stream, "waiting for the last exchange of a rank");
        let _ = self.seat.exchange(self.note.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_pair_of_ranks_has_a_buffer_of_its_own() {
        for ranks in 2..=RANKS_MAX {
            let buffers: Vec<u64> = (1..=ranks as u64).map(|rank| rank << 40).collect();
            let all = (0..ranks).map(|rank| addresses(rank, &buffers, 0));
            let all: Vec<RankAddresses> = all.collect();
            let mut seen = HashSet::new();
            for (a, b) in (0..ranks).flat_map(|a| (0..ranks).map(move |b| (a, b))) {
                if a == b {
                    continue;
                }
                let (to, from) = (all[a].to[b], all[b].from[a]);
                assert_eq!(to, from, "{a} to {b} of {ranks}");
                assert!(seen.insert(to), "{a} to {b} of {ranks}");
                let end = buffers[b] + Peers::bytes(ranks, 0) as u64;
                assert!(to >= buffers[b] && to + RECEIVE_BYTES as u64 <= end);
            }
        }
    }
}
