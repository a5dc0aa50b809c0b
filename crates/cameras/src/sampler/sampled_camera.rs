//! One camera between ingest and the engine: its slot, the filter of its frames, and which engine a frame wakes.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;

use super::{
    gate::{GateDecision, MotionGate},
    limits::TimeLimits,
    lock,
    mask::Mask,
    motion::{BrightnessGrid, MotionMeter},
    slot::{FrameSlot, PutResult, TakenFrame},
};
use spotter_core::{
    CameraId, Frame, FrameEnd, Look, Mono, Prompt,
    config::{CameraConfig, PromptConfig},
};

/// One camera, behind one lock.
pub struct SampledCamera {
    pub id: CameraId,
    /// Ingest's thread takes it too, so it is held for a swap and a few counters, never while a picture is read or freed.
    state: Mutex<SampledCameraState>,
}

/// What the lock of a camera guards.
pub struct SampledCameraState {
    slot: FrameSlot,
    filter: FilterState,
    /// The engine's signal; `None` while no engine has the camera.
    frame_arrived: Option<Arc<Notify>>,
}

/// Reading a picture takes milliseconds, so the filter is taken out of the lock meanwhile.
enum FilterState {
    Idle(Box<FrameFilter>),
    /// With the camera's configuration, if it was changed meanwhile.
    InUse(Option<Box<CameraConfig>>),
}

/// The filter while it is out of the lock. Dropping this puts it back.
struct FilterLoan<'a> {
    sampled: &'a SampledCamera,
    filter: Option<Box<FrameFilter>>,
}

/// What decides whether a camera's frame is worth a look, and what of it may be seen.
struct FrameFilter {
    gate: MotionGate,
    meter: MotionMeter,
    looked_at: Option<BrightnessGrid>,
    mask: Mask,
}

impl SampledCamera {
    /// A camera that no engine has yet.
    pub fn new(camera: &CameraConfig) -> Self {
        Self {
            id: camera.id.clone(),
            state: Mutex::new(SampledCameraState {
                slot: FrameSlot::new(camera.rate_hz, enabled_prompts(camera)),
                filter: FilterState::Idle(Box::new(FrameFilter::new(camera))),
                frame_arrived: None,
            }),
        }
    }

    /// The slot and its counters.
    pub fn lock(&self) -> MutexGuard<'_, SampledCameraState> {
        lock(&self.state)
    }

    /// Applies a changed configuration.
    pub fn change(&self, camera: &CameraConfig) {
        let mut state = self.lock();
        let unneeded = state.change(camera.rate_hz, enabled_prompts(camera));
        match &mut state.filter {
            FilterState::Idle(filter) => filter.change(camera),
            FilterState::InUse(changed) => *changed = Some(Box::new(camera.clone())),
        }
        drop(state);
        drop(unneeded);
    }

    /// From now on frames wake this engine; a frame that waits already wakes it at once.
    pub fn notifies(&self, engine: &Arc<Notify>) {
        let mut state = self.lock();
        state.frame_arrived = Some(Arc::clone(engine));
        state.wake_engine();
    }

    /// A frame came from ingest.
    pub fn put(&self, frame: Frame, now: Mono) {
        let mut state = self.lock();
        let arrival = state.put(frame, now);
        if matches!(arrival, PutResult::Waiting(_)) {
            state.wake_engine();
        }
        // A frame that is not needed goes back to its decoder outside of the lock.
        drop(state);
        match arrival {
            PutResult::Skipped(unneeded) => drop(unneeded),
            PutResult::Waiting(replaced) => drop(replaced),
        }
    }

    /// Takes the waiting frame; `None` when it was late, gated or unreadable, which is then counted.
    pub fn take(&self, limits: TimeLimits, now: Mono) -> Option<Look> {
        let mut state = self.lock();
        let mut loan = state.lend_filter(self)?;
        let taken = state.take(limits, now);
        drop(state);
        let mut frame = match taken? {
            TakenFrame::Fresh(frame) => frame,
            TakenFrame::Late(unneeded) => {
                drop(unneeded);
                return None;
            }
        };
        let filter = loan.filter.as_mut()?;
        // What cannot be read is not shown to the model as a black picture.
        if filter.reads_pixels() && !frame.picture.fetch() {
            self.lock().let_go(FrameEnd::Failed, now);
            return None;
        }
        let decision = filter.decide(&frame, now);
        let mut state = self.lock();
        if decision == GateDecision::Closed && !state.is_urgent() {
            state.let_go(FrameEnd::Gated, now);
            return None;
        }
        let (prompts, unneeded) = state.look(now);
        drop(state);
        drop(unneeded);
        if prompts.is_empty() {
            return None;
        }
        frame.picture = filter.mask.paint(&frame.picture);
        Some(Look {
            start_by: limits.start_by(frame.times.received),
            answer_by: limits.answer_by(frame.times.received),
            frame,
            prompts,
        })
    }
}

impl SampledCameraState {
    /// Since when the waiting frame's look has been due; `None` when no frame waits, and while the filter is in use, so that
    /// two frames of a camera are never taken for the same due time.
    pub fn due_since(&self) -> Option<Mono> {
        match self.filter {
            FilterState::Idle(_) => self.slot.due_since(),
            FilterState::InUse(_) => None,
        }
    }

    fn wake_engine(&self) {
        if let Some(engine) = &self.frame_arrived
            && self.due_since().is_some()
        {
            engine.notify_one();
        }
    }

    fn lend_filter<'a>(&mut self, sampled: &'a SampledCamera) -> Option<FilterLoan<'a>> {
        match std::mem::replace(&mut self.filter, FilterState::InUse(None)) {
            FilterState::Idle(filter) => Some(FilterLoan {
                sampled,
                filter: Some(filter),
            }),
            in_use @ FilterState::InUse(_) => {
                self.filter = in_use;
                None
            }
        }
    }
}

impl Deref for SampledCameraState {
    type Target = FrameSlot;

    fn deref(&self) -> &FrameSlot {
        &self.slot
    }
}

impl DerefMut for SampledCameraState {
    fn deref_mut(&mut self) -> &mut FrameSlot {
        &mut self.slot
    }
}

impl Drop for FilterLoan<'_> {
    fn drop(&mut self) {
        let Some(mut filter) = self.filter.take() else {
            return;
        };
        let mut state = self.sampled.lock();
        if let FilterState::InUse(Some(camera)) = &state.filter {
            filter.change(camera);
        }
        state.filter = FilterState::Idle(filter);
        // A frame that arrived meanwhile has woken no engine.
        state.wake_engine();
    }
}

/// The prompts that are asked, with their looks a second.
fn enabled_prompts(camera: &CameraConfig) -> Vec<(Arc<Prompt>, f64)> {
    let enabled = camera.prompts.iter().filter(|prompt| prompt.enabled);
    let asked = enabled.map(|p: &PromptConfig| {
        let prompt = Prompt {
            id: p.id.clone(),
            revision: p.revision,
            task: p.task.clone(),
        };
        (Arc::new(prompt), p.rate_hz)
    });
    asked.collect()
}

impl FrameFilter {
    fn new(camera: &CameraConfig) -> Self {
        let mask = Mask::new(&camera.mask);
        Self {
            gate: MotionGate::new(camera.motion),
            meter: MotionMeter::new(&mask),
            looked_at: None,
            mask,
        }
    }

    /// Another mask makes another picture, with which the last one is not compared.
    fn change(&mut self, camera: &CameraConfig) {
        self.gate.set_rules(camera.motion);
        let mask = Mask::new(&camera.mask);
        if mask != self.mask {
            (self.meter, self.looked_at) = (MotionMeter::new(&mask), None);
            self.mask = mask;
        }
    }

    /// True when it reads pixels.
    fn reads_pixels(&self) -> bool {
        self.gate.is_on() || !self.mask.is_empty()
    }

    fn decide(&mut self, frame: &Frame, now: Mono) -> GateDecision {
        let grid = self
            .gate
            .is_on()
            .then(|| BrightnessGrid::measure(&frame.picture));
        let changed = match (&self.looked_at, &grid) {
            (Some(before), Some(now)) => self.meter.changed(before, now),
            _ => 0.0,
        };
        let decision = self.gate.decide(changed, now);
        if decision != GateDecision::Closed {
            // Compared with the last look and not with the last frame, slow changes add up until they count.
            self.looked_at = grid;
        }
        decision
    }
}
