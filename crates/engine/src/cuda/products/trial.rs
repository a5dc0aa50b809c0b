//! The fastest algorithm of a product, found by running the candidates.
//!
//! They run on operands of their own (zeros, so results are zeros too) and disturb no work in flight. Weights
//! are read from a region larger than the cache of any GPU, run after run from another place, because in the network they
//! are read from memory too.

use std::sync::Arc;

use cudarc::driver::{CudaEvent, CudaStream, sys::CUevent_flags};

use super::plan::{ALIGNED_BYTES, Algorithm, Descriptors, Operands, ProductQueue, ProductShape};
use crate::cuda::{
    error::{CudaError, tried},
    memory::{Buffer, Pointer, wait_between},
};

/// How often candidates are measured; the best counts.
const ROUNDS: usize = 3;
/// Candidates that took so much longer than the fastest in the rounds before are not measured again.
const SLOW: f32 = 1.1;
/// Runs in a measurement, behind one that is not counted.
const RUNS: usize = 2;
/// After this time of the GPU the best so far is chosen.
const LIMIT_MS: f32 = 60.0;
/// Among candidates that are nearly as fast as the fastest, the first in the order of cuBLASLt is chosen, so that noise matters little.
const NEARLY: f32 = 1.01;
/// Region of the weights.
const WEIGHT_BYTES: usize = 160 << 20;

/// Operands and events for measurements.
pub(super) struct Trial {
    shape: ProductShape,
    x: Pointer<u8>,
    weights: Pointer<u8>,
    out: Pointer<u8>,
    events: [CudaEvent; 3],
    /// The memory of all three; `None` where they are in memory that is there anyway.
    _own: Option<Buffer<u8>>,
}

impl Trial {
    /// For products of this shape, in `idle` memory of zeros if that is large enough.
    pub fn new(
        stream: &Arc<CudaStream>,
        shape: &ProductShape,
        idle: Option<Pointer<u8>>,
    ) -> Result<Self, CudaError> {
        let aligned = |bytes: usize| (bytes + 1).next_multiple_of(ALIGNED_BYTES as usize);
        // X and out begin up to so many bytes behind their places (`skew`).
        let [x, weights, out] = shape.bytes().map(|bytes| aligned(bytes) + aligned(0));
        let weights = weights.max(WEIGHT_BYTES);
        let all = x + weights + out;
        let (memory, own) = match idle.filter(|idle| idle.len() >= all) {
            Some(idle) => (idle, None),
            None => {
                let own = Buffer::zeros(stream, all)?;
                (own.start(), Some(own))
            }
        };
        let event = || {
            let event = stream
                .context()
                .new_event(Some(CUevent_flags::CU_EVENT_DEFAULT));
            event.map_err(tried("making an event"))
        };
        Ok(Self {
            shape: *shape,
            weights: memory.first(weights),
            x: memory.at(weights),
            out: memory.at(weights + x),
            events: [event()?, event()?, event()?],
            _own: own,
        })
    }

    /// The fastest of the candidates; `None` when none of them runs. `queue` has the stream of the trial. Waits for it.
    pub fn fastest(
        &self,
        queue: ProductQueue<'_>,
        descriptors: &Descriptors,
        candidates: &[Algorithm],
    ) -> Result<Option<Algorithm>, CudaError> {
        let mut best = vec![f32::INFINITY; candidates.len()];
        let (mut spent, mut turn) = (0.0, 0);
        'rounds: for _ in 0..ROUNDS {
            let least = best.iter().copied().fold(f32::INFINITY, f32::min);
            for (candidate, best) in candidates.iter().zip(&mut best) {
                if spent > LIMIT_MS {
                    break 'rounds;
                }
                if *best > least * SLOW {
                    continue;
                }
                let run = |run| {
                    let operands = self.operands(run);
                    // SAFETY: the operands are this trial's own and large enough; they and the workspace are used on this
                    // stream alone, and freed behind it.
                    unsafe { descriptors.queue(queue, candidate, &operands) }
                };
                let (all, counted) = self.time(queue.stream, turn, run)?;
                turn += 1 + RUNS;
                spent += all;
                *best = best.min(counted);
            }
        }
        let least = best.iter().copied().fold(f32::INFINITY, f32::min);
        let chosen = best.iter().position(|ms| *ms <= least * NEARLY);
        Ok(chosen
            .filter(|_| least.is_finite())
            .and_then(|at| candidates.get(at).copied()))
    }

    /// Milliseconds of all runs, and of those that count; infinite when cuBLASLt refuses one.
    fn time<E>(
        &self,
        stream: &CudaStream,
        turn: usize,
        queue: impl Fn(usize) -> Result<(), E>,
    ) -> Result<(f32, f32), CudaError> {
        let [began, warm, ended] = &self.events;
        let mark = |event: &CudaEvent| event.record(stream).map_err(tried("timing products"));
        mark(began)?;
        let mut queued = queue(turn);
        mark(warm)?;
        for run in 1..=RUNS {
            queued = queued.and_then(|()| queue(turn + run));
        }
        mark(ended)?;
        let between = |from: &CudaEvent| wait_between(from, ended, "timing products");
        let (all, counted) = (between(began)?, between(warm)?);
        match queued {
            Ok(()) => Ok((all, counted)),
            Err(_) => Ok((all, f32::INFINITY)),
        }
    }

    fn operands(&self, run: usize) -> Operands {
        let shape = &self.shape;
        let [_, weight, _] = shape.bytes();
        let step = weight.next_multiple_of(ALIGNED_BYTES as usize);
        let places = (self.weights.len() / step).max(1);
        Operands {
            weight: self.weights.at(run % places * step).address(),
            bias: self.weights.address(),
            x: self.x.address() + shape.skew.0,
            out: self.out.address() + shape.skew.1,
            scales: [self.weights.address(); 3],
        }
    }
}
