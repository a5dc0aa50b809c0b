//! How every frame ended. The sampler counts; metrics, messages and the shutdown report read the counters.

use derive_more::AddAssign;
use serde::Serialize;

/// How a frame ended. Each frame ends once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEnd {
    /// It arrived when no prompt was due: by design, not a loss.
    Skipped,
    /// A newer frame replaced it while the engine was busy.
    Replaced,
    /// The motion gate was closed.
    Gated,
    /// Older than the budget before the engine began, or the engine had not answered when its time was over.
    Late,
    Looked,
    /// The engine could not answer, or the picture could not be read.
    Failed,
}

/// The frames of one camera since the start of the process. `arrived` is the sum of all the others.
#[derive(AddAssign, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameCounters {
    /// Handed over by ingest.
    pub arrived: u64,
    pub skipped: u64,
    pub replaced: u64,
    pub gated: u64,
    pub late: u64,
    pub looked: u64,
    pub failed: u64,
    /// In the slot now: 0 or 1.
    pub waiting: u64,
    /// Taken out of the slot and not ended: being filtered or with the engine.
    pub in_flight: u64,
}

impl FrameCounters {
    /// A frame came from ingest and ended at once.
    pub fn arrive_and_end(&mut self, end: FrameEnd) {
        self.arrived += 1;
        self.count(end);
    }

    /// A frame came from ingest and waits in the slot.
    pub fn arrive(&mut self) {
        self.arrived += 1;
        self.waiting += 1;
    }

    /// The waiting frame ended in the slot.
    pub fn end_waiting(&mut self, end: FrameEnd) {
        self.waiting -= 1;
        self.count(end);
    }

    /// The waiting frame was taken out of the slot.
    pub fn take(&mut self) {
        self.waiting -= 1;
        self.in_flight += 1;
    }

    /// A taken frame ended.
    pub fn end(&mut self, end: FrameEnd) {
        self.in_flight -= 1;
        self.count(end);
    }

    /// True when every frame is accounted for.
    pub fn balanced(&self) -> bool {
        let ended =
            self.skipped + self.replaced + self.gated + self.late + self.looked + self.failed;
        self.arrived == ended + self.waiting + self.in_flight
    }

    fn count(&mut self, end: FrameEnd) {
        *match end {
            FrameEnd::Skipped => &mut self.skipped,
            FrameEnd::Replaced => &mut self.replaced,
            FrameEnd::Gated => &mut self.gated,
            FrameEnd::Late => &mut self.late,
            FrameEnd::Looked => &mut self.looked,
            FrameEnd::Failed => &mut self.failed,
        } += 1;
    }
}

/// Frames on which a prompt was due and not answered since its previous message (`since_last` in docs/mqtt.md section 2).
/// The keys of the message, in alphabetical order.
#[derive(AddAssign, Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SkippedSinceLast {
    /// Replaced by a newer frame while the engine was busy.
    pub busy: u64,
    /// The engine could not answer, or the picture could not be read.
    pub error: u64,
    /// The motion gate was closed.
    pub gated: u64,
    /// Not begun, or not answered, in time.
    pub late: u64,
}

impl SkippedSinceLast {
    /// Counts how a frame ended on which the prompt was due. Skipped frames and answers are no losses.
    pub fn count(&mut self, end: FrameEnd) {
        match end {
            FrameEnd::Gated => self.gated += 1,
            FrameEnd::Late => self.late += 1,
            FrameEnd::Replaced => self.busy += 1,
            FrameEnd::Failed => self.error += 1,
            FrameEnd::Skipped | FrameEnd::Looked => {}
        }
    }
}
