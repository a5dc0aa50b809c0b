//! What host and device did when, as it was measured; `bench` draws it.

use std::time::Duration;

use super::backend::{SlotId, StepTimes};
use spotter_core::Mono;

/// Entries that are kept of each kind; later ones are left out.
const KEPT_MAX: usize = 100_000;

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan {
    pub began: Mono,
    /// The first moment after it.
    pub ended: Mono,
}

impl TimeSpan {
    /// How long it is.
    pub fn duration(self) -> Duration {
        self.ended.since(self.began)
    }

    /// How much of it is in the other one too.
    pub fn overlap(self, other: Self) -> Duration {
        self.ended
            .min(other.ended)
            .since(self.began.max(other.began))
    }
}

/// When the device worked on a step: before its wait for masks, and after it. A device whose kernels wait for their own
/// launches works, because its times do not show the waits; they are in its forward pass.
pub fn working(times: &StepTimes) -> [TimeSpan; 2] {
    let forward = times.prepare + times.encode + times.rows;
    let forwarded = times.started.after(forward);
    [
        TimeSpan {
            began: times.started,
            ended: forwarded,
        },
        TimeSpan {
            began: forwarded.after(times.mask_wait),
            ended: times.ended(),
        },
    ]
}

/// What the host does for a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    /// Chooses the rows of the next step.
    Plan,
    /// Hands it to the device.
    Launch,
    /// Makes masks and hands them over.
    Finalize,
    /// Waits for the device.
    Wait,
    /// Takes decisions and answers out.
    Commit,
}

/// Spans of the host and steps of the device, in order.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// What the host did.
    pub host: Vec<(Host, TimeSpan)>,
    /// What the device did, with the slot.
    pub steps: Vec<(SlotId, StepTimes)>,
}

impl Timeline {
    pub(super) fn host(&mut self, what: Host, span: TimeSpan) {
        if self.host.len() < KEPT_MAX {
            self.host.push((what, span));
        }
    }

    pub(super) fn step(&mut self, slot: SlotId, times: StepTimes) {
        if self.steps.len() < KEPT_MAX {
            self.steps.push((slot, times));
        }
    }
}
