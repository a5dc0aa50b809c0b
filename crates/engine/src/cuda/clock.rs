//! The GPU's events in the program's time.
//!
//! Events measure the time between two of them exactly, over seconds. Each step's end is placed behind the end of the step
//! before it; when the host really waited for a step, it has ended at this moment, which corrects the drift.

use std::{sync::Arc, time::Duration};

use cudarc::driver::{CudaEvent, result};

use super::{
    error::{CudaError, tried},
    program::StepCounts,
    slot::StepEvents,
};
use crate::scheduler::backend::StepTimes;
use spotter_core::{Clock, Mono, duration_from_secs};

/// Smaller errors are not corrected: a wait ends some microseconds after the step.
const DRIFT: Duration = Duration::from_millis(1);

/// Places steps in time.
pub struct StepClock {
    clock: Arc<dyn Clock>,
    ended: Option<Mono>,
}

impl StepClock {
    /// In the time of `clock`.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, ended: None }
    }

    /// Times of the step with `events`, which has just been waited for; `before` is the end of the step before it.
    pub fn times(
        &mut self,
        events: &StepEvents,
        before: Option<&CudaEvent>,
        counts: &StepCounts,
    ) -> Result<StepTimes, CudaError> {
        let now = self.clock.now();
        let total = between(&events.began, &events.computed)?;
        let ended = match (self.ended, before) {
            (Some(ended), Some(before)) => {
                let placed = ended.after(between(before, &events.computed)?).min(now);
                if now.since(placed) > DRIFT && now.since(placed) > total {
                    now
                } else {
                    placed
                }
            }
            _ => now,
        };
        self.ended = Some(ended);
        let started = Mono::from_nanos(ended.as_nanos().saturating_sub(total.as_nanos() as u64));
        // Without images these events are not recorded: each takes the GPU two microseconds.
        let (prepare, encode, looked) = match counts.images {
            0 => (Duration::ZERO, Duration::ZERO, &events.began),
            _ => (
                between(&events.began, &events.prepared)?,
                between(&events.prepared, &events.encoded)?,
                &events.encoded,
            ),
        };
        let rows = between(looked, &events.forwarded)?;
        let mask_wait = match counts.needs_masks {
            true => between(&events.forwarded, &events.masked)?,
            false => Duration::ZERO,
        };
        Ok(StepTimes {
            started,
            prepare,
            encode,
            rows,
            mask_wait,
            sampling: total.saturating_sub(prepare + encode + rows + mask_wait),
        })
    }
}

/// The GPU has passed both.
fn between(from: &CudaEvent, to: &CudaEvent) -> Result<Duration, CudaError> {
    // SAFETY: both events are borrowed, so they are not destroyed, and were made with timing and recorded on the compute
    // stream; one that was not passed would be an error. The crate's own function waits for both first, which is not needed.
    let ms = unsafe { result::event::elapsed(from.cu_event(), to.cu_event()) }
        .map_err(tried("measuring a step of the GPU"))?;
    Ok(duration_from_secs(f64::from(ms) * 1e-3))
}
