//! The scheduler: looks in, steps out. Pure: it has no device and no clock, and does not know which backend runs.
//!
//! ```text
//!   admit ─▶ Admission ── BatchPlanner ──▶ Step ─▶ backend ─▶ Committed ─▶ settlement ─▶ events
//!               ▲              │   ▲                                           │
//!               └── evicted ───┘   └──────── ActiveJobs, KvPool ◀──────────────┘
//! ```
//!
//! Each part owns its fields; the scheduler passes values between them:
//!
//! | part | owns |
//! | --- | --- |
//! | `Admission` | looks that are not answered, waiting prompts, drafts |
//! | `ActiveJobs` | prompts with rows and pages |
//! | [`KvPool`](super::kv::KvPool) | pages, their holders, the prefix index |
//! | [`KeptPictures`](super::still::KeptPictures) | what the pictures showed whose features are kept, and the answers to them |
//! | `BatchPlanner` | the rules by which a step is filled |
//! | [`Pipeline`] | slots and their phases |

use super::{
    backend::{BackendLimits, PageId, Row, RowMask, SlotId, Step, StepResult},
    batch::{BatchPlanner, StepRecord},
    failure,
    pipeline::Pipeline,
    request::{Ask, LookEvent, LookId, LookRequest, Options, Work},
    settlement,
    working_set::WorkingSet,
};
use spotter_core::Mono;
use std::time::Duration;

pub struct Scheduler {
    inside: WorkingSet,
    planner: BatchPlanner,
    pipeline: Pipeline<StepRecord>,
    /// Tokens of the model.
    vocab: usize,
}

impl Scheduler {
    /// For a backend with these limits and a model with `vocab` tokens.
    pub fn new(limits: BackendLimits, vocab: usize, options: Options) -> Self {
        Self {
            inside: WorkingSet::new(limits, options),
            planner: BatchPlanner::new(limits, options),
            pipeline: Pipeline::new(options.depth.min(limits.slots)),
            vocab,
        }
    }

    /// Admits a look; it ends with an event.
    pub fn admit(&mut self, request: LookRequest) -> LookId {
        self.inside.admit(request)
    }

    /// Asks the prompts that follow an answer of the look, given by its prompt's index there; they may be none. Their indices follow those
    /// that it has. False when nothing can follow any more: it was asked before, the look waited too long, or it has ended.
    pub fn follow_up(&mut self, look: LookId, prompt: usize, asks: Vec<Ask>) -> bool {
        self.inside.follow_up(look, prompt, asks)
    }

    /// No look waits any more for what follows its answers.
    pub fn end_follow_ups(&mut self) {
        self.inside.end_follow_ups(Mono::from_nanos(u64::MAX));
    }

    /// Ends a look without an event. False when it has ended already.
    pub fn cancel(&mut self, look: LookId) -> bool {
        let is_inside = self.inside.admission.contains(look);
        self.inside.close(look);
        self.inside.sweep();
        is_inside
    }

    /// A look that runs for longer than this is in a hurry: no look begins until it has its short answers.
    pub fn hurry_after(&mut self, runs: Duration) {
        self.inside.admission.hurry_after = runs;
    }

    /// True when a look that runs is in a hurry.
    pub fn is_in_a_hurry(&self, now: Mono) -> bool {
        self.inside
            .admission
            .any_in_a_hurry(&self.inside.active, now)
    }

    /// True when a turn has nothing to do now: no step is in flight, and no look has a prompt to answer. Looks may wait for what follows their
    /// answers.
    pub fn is_idle(&self) -> bool {
        self.inside.admission.only_waits() && self.pipeline.in_flight() == 0 && !self.has_events()
    }

    /// True when no look is inside.
    pub fn is_empty(&self) -> bool {
        self.inside.admission.is_empty()
    }

    pub fn pipeline(&self) -> &Pipeline<StepRecord> {
        &self.pipeline
    }

    pub fn vocab(&self) -> usize {
        self.vocab
    }

    /// Pages that looks use; pages of known texts and kept images alone do not count.
    pub fn pages_in_use(&self) -> usize {
        self.inside.kv.count() - self.inside.kv.available()
    }

    /// Work done so far.
    pub fn work(&self) -> Work {
        self.inside.work
    }

    /// True when something happened since the last call of [`Self::take_events`].
    pub fn has_events(&self) -> bool {
        !self.inside.events.is_empty()
    }

    /// What happened since the last call.
    pub fn take_events(&mut self) -> Vec<LookEvent> {
        std::mem::take(&mut self.inside.events)
    }

    /// Pages that were freed since the last call, for [`Backend::release`](super::backend::Backend::release).
    pub fn take_freed(&mut self) -> Vec<PageId> {
        self.inside.kv.take_freed()
    }

    /// The next step, with the slot to launch it in; `None` when no slot is free or nothing can run now. A step of
    /// free texts alone is not launched behind another: a short answer that wants the next step would wait for it.
    pub fn next_step(&mut self, now: Mono) -> Option<(SlotId, Step)> {
        self.inside.drop_late(now);
        // These answers need no slot.
        self.inside.answer_unchanged(now);
        let slot = self.pipeline.free_slot()?;
        let others = self.pipeline.in_flight();
        if others > 0 && !self.planner.has_short_rows(&self.inside) {
            return None;
        }
        let draft = self.planner.draft(slot, now, others);
        let (step, record) = self.planner.plan(&mut self.inside, draft)?;
        let wants_masks = step.rows.iter().any(Row::wants_mask);
        self.pipeline.launched(slot, wants_masks, record);
        Some((slot, step))
    }

    /// Images of the oldest step in flight.
    pub fn oldest_images(&self) -> usize {
        let oldest = self.pipeline.oldest_load();
        oldest.map_or(0, |record| record.images.len())
    }

    /// The masks of the step that waits for them, once everything before it is committed. Rows that ended meanwhile get
    /// none.
    pub fn masks(&mut self) -> Option<(SlotId, Vec<RowMask>)> {
        let (slot, record) = self.pipeline.awaits_masks()?;
        let masks = settlement::masks(&self.inside, record, self.vocab);
        self.pipeline.finalized();
        Some((slot, masks))
    }

    /// Settles the results of the oldest step, and returns the [work](super::plan::image_work) of each of its images.
    pub fn committed(&mut self, results: StepResult, now: Mono) -> Vec<usize> {
        let Some(record) = self.pipeline.committed() else {
            return Vec::new();
        };
        settlement::settle(&mut self.inside, &record, &results, now);
        record.images.iter().map(|image| image.work).collect()
    }

    /// The device did not launch the step of [`Self::next_step`]: its looks fail, or, with the index of a picture, one of them.
    pub fn not_launched(&mut self, image: Option<usize>, reason: &str) {
        if let Some(record) = self.pipeline.not_launched() {
            failure::not_launched(&mut self.inside, &record, image, reason);
        }
    }

    /// The device has no results of the oldest step, which has its masks: the looks of it and of the steps behind it fail.
    pub fn lost(&mut self, reason: &str) {
        if let Some(record) = self.pipeline.committed() {
            failure::lost(&mut self.inside, &record, self.pipeline.loads(), reason);
        }
    }

    /// Steps of the looks that were answered since the last call.
    pub fn take_look_steps(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.inside.look_steps)
    }
}
