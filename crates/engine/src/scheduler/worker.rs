//! The loop: the only place where the scheduler meets a device.
//!
//! ```text
//!   turn   launch t+1 ─▶ commit t ─▶ finalize t+1        with one slot: launch t ─▶ finalize t ─▶ commit t
//! ```
//!
//! The order is one for all depths: launch when a slot is free, bring masks as soon as everything before is committed, and
//! wait for the device only when there is nothing else to do. The host's work for step t (decisions, answers, the plan and
//! the masks of the next steps) happens while the device runs step t+1.
//!
//! A step that the device does not run fails its looks with the device's reason, and the loop goes on. It ends when the device is lost,
//! or completes none of [`LOST_STEPS_MAX`] steps in a row.

use std::{sync::Arc, time::Duration};

use super::{
    backend::{Backend, BackendError, BackendLimits, GraphUse},
    pace::Pace,
    request::{Ask, LookEvent, LookId, LookRequest, Options, Work},
    schedule::Scheduler,
    timeline::{Host, TimeSpan, Timeline},
};
use spotter_core::{Clock, Mono};

/// Steps without results, one after the other, after which the device counts as lost. Steps that it did not launch do not count: that
/// can be because of what is asked, and the device itself says when it launches nothing any more.
const LOST_STEPS_MAX: u32 = 8;

/// The next step is launched well before the images in flight are encoded: the copies of its own take a part of the time.
const SPARE_PART: u32 = 4;

/// The device is lost: the engine must stop, and what is in flight is lost too.
#[derive(Debug, thiserror::Error)]
#[error("device: {0}")]
pub struct DeviceError(String);

/// A scheduler with the device that it drives.
pub struct Worker {
    backend: Box<dyn Backend>,
    scheduler: Scheduler,
    clock: Arc<dyn Clock>,
    pace: Pace,
    timeline: Option<Timeline>,
    /// Since when the device works on the oldest step in flight.
    oldest_began: Mono,
    /// Steps without results since the last one with results.
    lost_steps: u32,
}

impl Worker {
    /// For a model with `vocab` tokens.
    pub fn new(
        backend: Box<dyn Backend>,
        vocab: usize,
        options: Options,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            scheduler: Scheduler::new(backend.limits(), vocab, options),
            backend,
            oldest_began: clock.now(),
            clock,
            pace: Pace::default(),
            timeline: None,
            lost_steps: 0,
        }
    }

    /// Works in another way from now on, with nothing remembered and all counts at zero: for measurements of one device in
    /// several ways. Nothing may be inside.
    pub fn restart(&mut self, options: Options) {
        debug_assert!(self.is_empty(), "a look inside would be lost");
        self.scheduler = Scheduler::new(self.backend.limits(), self.scheduler.vocab(), options);
        self.pace = Pace::default();
        self.timeline = None;
        self.lost_steps = 0;
    }

    /// By the clock of all its times.
    pub fn now(&self) -> Mono {
        self.clock.now()
    }

    /// What the device offers.
    pub fn limits(&self) -> BackendLimits {
        self.backend.limits()
    }

    /// Keeps the spans of host and device from now on.
    pub fn record(&mut self) {
        self.timeline = Some(Timeline::default());
    }

    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Takes a look; it ends with an event of a later turn. Does not block.
    pub fn admit(&mut self, request: LookRequest) -> LookId {
        self.scheduler.admit(request)
    }

    /// As [`Scheduler::follow_up`].
    pub fn follow_up(&mut self, look: LookId, prompt: usize, asks: Vec<Ask>) -> bool {
        self.scheduler.follow_up(look, prompt, asks)
    }

    /// As [`Scheduler::end_follow_ups`].
    pub fn end_follow_ups(&mut self) {
        self.scheduler.end_follow_ups();
    }

    /// Cancels the look; no event will follow. False when it has ended already.
    pub fn cancel(&mut self, look: LookId) -> bool {
        self.scheduler.cancel(look)
    }

    /// A look that runs for longer than this is in a hurry: no look begins until it has its short answers.
    pub fn hurry_after(&mut self, runs: Duration) {
        self.scheduler.hurry_after(runs);
    }

    /// True when a look that runs is in a hurry, so that no look may begin.
    pub fn is_in_a_hurry(&self) -> bool {
        self.scheduler.is_in_a_hurry(self.clock.now())
    }

    /// As [`Scheduler::is_idle`].
    pub fn is_idle(&self) -> bool {
        self.scheduler.is_idle()
    }

    /// Until when the next step needs no launch, because the device works on the images of another one.
    pub fn spare_until(&self) -> Mono {
        let images = match self.scheduler.pipeline().is_full() {
            true => 0,
            false => self.scheduler.oldest_images(),
        };
        self.oldest_began
            .after(self.pace.images(images) / SPARE_PART)
    }

    /// True when no look is inside.
    pub fn is_empty(&self) -> bool {
        self.scheduler.is_empty()
    }

    /// One turn of the loop; waits for at most one step of the device.
    pub fn turn(&mut self) -> Result<Vec<LookEvent>, DeviceError> {
        let launched = self.launch()?;
        self.finalize()?;
        // Answers that needed no step do not wait for one.
        if self.scheduler.has_events() {
            return Ok(self.scheduler.take_events());
        }
        if !launched || self.scheduler.pipeline().is_full() {
            // The host is about to wait for a long step, so a recording delays nothing.
            if self.scheduler.oldest_images() > 0 {
                self.prepare_shape()?;
            }
            self.commit()?;
            self.finalize()?;
        }
        Ok(self.scheduler.take_events())
    }

    /// Prepares a shape of steps for a faster launch, while the engine is idle. False when nothing is left to prepare.
    pub fn prepare_shape(&mut self) -> Result<bool, DeviceError> {
        let prepared = self.backend.prepare_shape();
        prepared.map_err(|lost| DeviceError(lost.to_string()))
    }

    /// How parts of steps were launched so far.
    pub fn graph_use(&self) -> GraphUse {
        self.backend.graph_use()
    }

    fn launch(&mut self) -> Result<bool, DeviceError> {
        let began = self.clock.now();
        if self.scheduler.pipeline().oldest().is_none() {
            self.oldest_began = began;
        }
        let Some((slot, step)) = self.scheduler.next_step(began) else {
            return Ok(false);
        };
        let planned = self.spent(Host::Plan, began);
        self.backend.release(&self.scheduler.take_freed());
        match self.backend.launch(slot, step) {
            Ok(()) => {}
            Err(BackendError::Image { image, reason }) => {
                self.scheduler.not_launched(Some(image), &reason);
            }
            Err(BackendError::Step(reason)) => self.scheduler.not_launched(None, &reason),
            Err(BackendError::Device(reason)) => return Err(DeviceError(reason)),
        }
        self.spent(Host::Launch, planned);
        Ok(true)
    }

    /// The oldest step has no results.
    fn lose_step(&mut self, error: BackendError) -> Result<(), DeviceError> {
        self.lost_steps += 1;
        match error {
            BackendError::Device(reason) => Err(DeviceError(reason)),
            error if self.lost_steps == LOST_STEPS_MAX => Err(DeviceError(format!(
                "{LOST_STEPS_MAX} steps in a row have no results; the last one: {error}"
            ))),
            error => {
                self.scheduler.lost(&error.to_string());
                Ok(())
            }
        }
    }

    fn finalize(&mut self) -> Result<(), DeviceError> {
        let began = self.clock.now();
        if let Some((slot, masks)) = self.scheduler.masks() {
            if let Err(error) = self.backend.finalize(slot, masks) {
                return self.lose_step(error);
            }
            self.spent(Host::Finalize, began);
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), DeviceError> {
        let Some(slot) = self.scheduler.pipeline().oldest() else {
            return Ok(());
        };
        let began = self.clock.now();
        let results = match self.backend.commit(slot) {
            Ok(results) => results,
            Err(error) => return self.lose_step(error),
        };
        self.lost_steps = 0;
        let times = results.times;
        // From the device's end on it is the host's time: to notice, to fetch, to settle.
        let arrived = times.ended().max(began).min(self.clock.now());
        self.oldest_began = arrived;
        self.book(Host::Wait, began, arrived);
        let images = self.scheduler.committed(results, self.clock.now());
        self.pace.step(&images, times.ended().since(times.started));
        for steps in self.scheduler.take_look_steps() {
            self.pace.look(steps);
        }
        self.spent(Host::Commit, arrived);
        if let Some(timeline) = &mut self.timeline {
            timeline.step(slot, times);
        }
        Ok(())
    }

    /// Notes the time since `began`; returns now.
    fn spent(&mut self, what: Host, began: Mono) -> Mono {
        let now = self.clock.now();
        self.book(what, began, now);
        now
    }

    fn book(&mut self, what: Host, began: Mono, ended: Mono) {
        if let Some(timeline) = &mut self.timeline {
            timeline.host(what, TimeSpan { began, ended });
        }
    }

    /// Pages that looks hold; text that is only remembered does not count.
    pub fn pages_in_use(&self) -> usize {
        self.scheduler.pages_in_use()
    }

    /// Work since the start.
    pub fn work(&self) -> Work {
        self.scheduler.work()
    }

    /// What steps cost now.
    pub fn pace(&self) -> &Pace {
        &self.pace
    }
}
