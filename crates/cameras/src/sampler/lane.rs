//! One camera between ingest and the engine: its slot, what judges its frames, and which engine a frame wakes.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::sync::Notify;

use super::{
    gate::{Gate, Verdict},
    limits::TimeLimits,
    lock,
    mask::Mask,
    motion::{Grid, MotionMeter},
    slot::{Arrival, Slot, Taken},
};
use spotter_core::{
    CameraId, Frame, FrameEnd, Look, Mono, Prompt,
    config::{CameraConfig, PromptConfig},
};

/// One camera, behind one lock.
pub struct Lane {
    pub camera: CameraId,
    /// Ingest's thread takes it too, so it is held for a swap and a few counters, never while a picture is read or freed.
    state: Mutex<LaneState>,
}

/// What the lock of a camera guards.
pub struct LaneState {
    slot: Slot,
    judge: JudgeState,
    /// The engine's signal; `None` while no engine has the camera.
    frame_arrived: Option<Arc<Notify>>,
}

/// Reading a picture takes milliseconds, so the judge is taken out of the lock meanwhile.
enum JudgeState {
    Idle(Box<Judge>),
    /// With the camera's configuration, if it was changed meanwhile.
    Judging(Option<Box<CameraConfig>>),
}

/// The judge while it is out of the lock. Dropping it puts it back.
struct JudgeLoan<'a> {
    lane: &'a Lane,
    judge: Option<Box<Judge>>,
}

/// What decides whether a camera's frame is worth a look, and what of it may be seen.
struct Judge {
    gate: Gate,
    meter: MotionMeter,
    looked_at: Option<Grid>,
    mask: Mask,
}

impl Lane {
    /// A camera that no engine has yet.
    pub fn new(camera: &CameraConfig) -> Self {
        Self {
            camera: camera.id.clone(),
            state: Mutex::new(LaneState {
                slot: Slot::new(camera.rate_hz, enabled_prompts(camera)),
                judge: JudgeState::Idle(Box::new(Judge::new(camera))),
                frame_arrived: None,
            }),
        }
    }

    /// The slot and its counters.
    pub fn lock(&self) -> MutexGuard<'_, LaneState> {
        lock(&self.state)
    }

    /// Applies a changed configuration.
    pub fn change(&self, camera: &CameraConfig) {
        let mut state = self.lock();
        let unneeded = state.change(camera.rate_hz, enabled_prompts(camera));
        match &mut state.judge {
            JudgeState::Idle(judge) => judge.change(camera),
            JudgeState::Judging(changed) => *changed = Some(Box::new(camera.clone())),
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
        if matches!(arrival, Arrival::Waiting(_)) {
            state.wake_engine();
        }
        // A frame that is not needed goes back to its decoder outside of the lock.
        drop(state);
        match arrival {
            Arrival::Skipped(unneeded) => drop(unneeded),
            Arrival::Waiting(replaced) => drop(replaced),
        }
    }

    /// Takes the waiting frame; `None` when it was late, gated or unreadable, which is then counted.
    pub fn take(&self, limits: TimeLimits, now: Mono) -> Option<Look> {
        let mut state = self.lock();
        let mut loan = state.lend_judge(self)?;
        let taken = state.take(limits, now);
        drop(state);
        let mut frame = match taken? {
            Taken::Fresh(frame) => frame,
            Taken::Late(unneeded) => {
                drop(unneeded);
                return None;
            }
        };
        let judge = loan.judge.as_mut()?;
        // What cannot be read is not shown to the model as a black picture.
        if judge.reads() && !frame.picture.fetch() {
            self.lock().let_go(FrameEnd::Failed, now);
            return None;
        }
        let verdict = judge.judge(&frame, now);
        let mut state = self.lock();
        if verdict == Verdict::Closed && !state.is_urgent() {
            state.let_go(FrameEnd::Gated, now);
            return None;
        }
        let (prompts, unneeded) = state.look(now);
        drop(state);
        drop(unneeded);
        if prompts.is_empty() {
            return None;
        }
        frame.picture = judge.mask.paint(&frame.picture);
        Some(Look {
            start_by: limits.start_by(frame.times.received),
            answer_by: limits.answer_by(frame.times.received),
            frame,
            prompts,
        })
    }
}

impl LaneState {
    /// Since when the waiting frame's look has been due; `None` when no frame waits, and while another one is judged, so that
    /// two frames of a camera are never taken for the same due time.
    pub fn due_since(&self) -> Option<Mono> {
        match self.judge {
            JudgeState::Idle(_) => self.slot.due_since(),
            JudgeState::Judging(_) => None,
        }
    }

    fn wake_engine(&self) {
        if let Some(engine) = &self.frame_arrived
            && self.due_since().is_some()
        {
            engine.notify_one();
        }
    }

    fn lend_judge<'a>(&mut self, lane: &'a Lane) -> Option<JudgeLoan<'a>> {
        match std::mem::replace(&mut self.judge, JudgeState::Judging(None)) {
            JudgeState::Idle(judge) => Some(JudgeLoan {
                lane,
                judge: Some(judge),
            }),
            judging @ JudgeState::Judging(_) => {
                self.judge = judging;
                None
            }
        }
    }
}

impl Deref for LaneState {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl DerefMut for LaneState {
    fn deref_mut(&mut self) -> &mut Slot {
        &mut self.slot
    }
}

impl Drop for JudgeLoan<'_> {
    fn drop(&mut self) {
        let Some(mut judge) = self.judge.take() else {
            return;
        };
        let mut state = self.lane.lock();
        if let JudgeState::Judging(Some(camera)) = &state.judge {
            judge.change(camera);
        }
        state.judge = JudgeState::Idle(judge);
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

impl Judge {
    fn new(camera: &CameraConfig) -> Self {
        let mask = Mask::new(&camera.mask);
        Self {
            gate: Gate::new(camera.motion),
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

    /// True when it looks at pixels.
    fn reads(&self) -> bool {
        self.gate.is_on() || !self.mask.is_empty()
    }

    fn judge(&mut self, frame: &Frame, now: Mono) -> Verdict {
        let grid = self.gate.is_on().then(|| Grid::measure(&frame.picture));
        let changed = match (&self.looked_at, &grid) {
            (Some(before), Some(now)) => self.meter.changed(before, now),
            _ => 0.0,
        };
        let verdict = self.gate.judge(changed, now);
        if verdict != Verdict::Closed {
            // Compared with the last look and not with the last frame, slow changes add up until they count.
            self.looked_at = grid;
        }
        verdict
    }
}
