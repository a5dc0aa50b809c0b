//! What host and device did when, as it was measured; `bench` draws it.

use super::{
    backend::{SlotId, StepTimes},
    cost::{Host, TimeSpan},
};

/// Entries that are kept of each kind; later ones are left out.
const KEPT_MAX: usize = 100_000;

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
