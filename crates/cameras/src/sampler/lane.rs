//! One camera on its way to looks: its slot, what judges its frames, and whom a frame wakes.

use std::sync::{Arc, Mutex, MutexGuard};

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

/// A camera's frames, between ingest's thread and the engine that has the camera.
pub struct Lane {
    /// Whose.
    pub camera: CameraId,
    /// Held for a swap and a few counters, by ingest's thread too.
    slot: Mutex<Slot>,
    /// Held while a picture is read.
    judge: Mutex<Judge>,
    /// Who waits for frames; `None` while no engine has the camera.
    bell: Mutex<Option<Arc<Notify>>>,
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
            slot: Mutex::new(Slot::new(camera.rate_hz, asked(camera))),
            judge: Mutex::new(Judge::new(camera)),
            bell: Mutex::default(),
        }
    }

    /// The camera is as it is there from now on.
    pub fn change(&self, camera: &CameraConfig) {
        let unneeded = self.slot().change(camera.rate_hz, asked(camera));
        drop(unneeded);
        lock(&self.judge).change(camera);
    }

    /// Frames wake this one from now on; one that waits already does so at once.
    pub fn rings(&self, bell: &Arc<Notify>) {
        *lock(&self.bell) = Some(Arc::clone(bell));
        // After the bell is there: of a frame that arrives meanwhile one of the two threads rings it.
        if self.slot().due_since().is_some() {
            bell.notify_one();
        }
    }

    /// A frame came from ingest.
    pub fn put(&self, frame: Frame, now: Mono) {
        let arrival = self.slot().put(frame, now);
        // The lock is free again: a frame that is not needed goes back to its decoder here.
        match arrival {
            Arrival::Skipped(unneeded) => drop(unneeded),
            Arrival::Waiting(replaced) => {
                if let Some(bell) = &*lock(&self.bell) {
                    bell.notify_one();
                }
                drop(replaced);
            }
        }
    }

    /// The camera's place for a frame, with its books.
    pub fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.slot)
    }

    /// Takes the waiting frame; `None` when it was late, gated or not to be read, which is then in the books.
    pub fn take(&self, limits: TimeLimits, now: Mono) -> Option<Look> {
        let mut judge = lock(&self.judge);
        let taken = self.slot().take(limits, now)?;
        let mut frame = match taken {
            Taken::Fresh(frame) => frame,
            Taken::Late(unneeded) => {
                drop(unneeded);
                return None;
            }
        };
        // The slot is not locked while the picture is read: ingest's thread does not wait for it.
        // What cannot be read is not shown to the model as a black picture.
        if judge.reads() && !frame.picture.fetch() {
            self.slot().let_go(FrameEnd::Failed, now);
            return None;
        }
        let urgent = self.slot().is_urgent();
        if judge.judge(&frame, now) == Verdict::Closed && !urgent {
            self.slot().let_go(FrameEnd::Gated, now);
            return None;
        }
        // The frame handed back is freed here, where the slot is not locked.
        let (prompts, _) = self.slot().look(now);
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

/// The prompts that are asked, with their looks a second.
fn asked(camera: &CameraConfig) -> Vec<(Arc<Prompt>, f64)> {
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
