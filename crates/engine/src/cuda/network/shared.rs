//! Memory between layers that the encoder and the decoder share: a step runs through the one and then through the other, on one stream, and
//! what passes from the first to the second (the tokens of images) is not in it.

use std::sync::Arc;

use cudarc::driver::CudaStream;
use half::bf16;

use super::runner::LayerRunner;
use crate::cuda::{
    error::CudaError,
    memory::{Buffer, Pointer},
};

/// Each buffer starts at a multiple of so many values: of 256 bytes and more, which allows all algorithms of products.
const ALIGNED_VALUES: usize = 256;

/// Values of both kinds: in bf16 and in e4m3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedLengths {
    bf16: usize,
    e4m3: usize,
}

impl SharedLengths {
    /// Of buffers that are in use together.
    pub fn of(bf16: &[usize], e4m3: &[usize]) -> Self {
        let sum = |lengths: &[usize]| lengths.iter().copied().map(aligned).sum();
        Self {
            bf16: sum(bf16),
            e4m3: sum(e4m3),
        }
    }

    /// For users that take turns.
    pub fn or(self, other: Self) -> Self {
        Self {
            bf16: self.bf16.max(other.bf16),
            e4m3: self.e4m3.max(other.e4m3),
        }
    }

    pub fn bytes(self) -> usize {
        self.bf16 * size_of::<bf16>() + self.e4m3
    }
}

/// The memory. Positions in it are valid while it exists.
pub struct SharedMemory {
    bf16: Buffer<bf16>,
    e4m3: Buffer<u8>,
}

/// What the encoder and the decoder are built with.
#[derive(Clone, Copy)]
pub struct NetworkBase<'a> {
    /// Its kernels are on the stream of all buffers.
    pub runner: &'a LayerRunner,
    pub shared: &'a SharedMemory,
}

impl SharedMemory {
    pub fn new(stream: &Arc<CudaStream>, lengths: SharedLengths) -> Result<Self, CudaError> {
        Ok(Self {
            bf16: Buffer::zeros(stream, lengths.bf16)?,
            e4m3: Buffer::zeros(stream, lengths.e4m3)?,
        })
    }

    /// Buffers of a user, from the start of the memory on, one behind the other.
    pub fn in_bf16<const N: usize>(&self, lengths: [usize; N]) -> [Pointer<bf16>; N] {
        parts(self.bf16.start(), lengths)
    }

    /// The same in e4m3.
    pub fn in_e4m3<const N: usize>(&self, lengths: [usize; N]) -> [Pointer<u8>; N] {
        parts(self.e4m3.start(), lengths)
    }
}

fn aligned(values: usize) -> usize {
    values.next_multiple_of(ALIGNED_VALUES)
}

fn parts<T, const N: usize>(start: Pointer<T>, lengths: [usize; N]) -> [Pointer<T>; N] {
    let mut from = 0;
    lengths.map(|length| {
        let part = start.at(from).first(length);
        from += aligned(length);
        part
    })
}
