//! The shell: locks, the clock, and the waiting.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::{
    gate::{Gate, Verdict},
    limits::TimeLimits,
    mask::Mask,
    motion::{Grid, MotionMeter},
    policy::longest_overdue,
    slot::{Arrival, Slot, Taken},
};
use crate::{
    config::{Camera, CameraPrompt},
    domain::{
        Books, CameraId, Clock, Frame, FrameEnd, Look, Mono, Outcome, Prompt, PromptId, SinceLast,
    },
};

/// All cameras of one engine. Ingest's threads put frames in through [`Sampler::camera_sink`], a tokio task takes looks
/// out with [`Sampler::next`] and reports their end with [`Sampler::done`].
pub struct Sampler {
    lanes: Vec<Lane>,
    /// One for each lane. The lock makes choosing and judging a frame one step, so that two callers of `next` never
    /// take two frames of a camera for the same due time; it is never held while waiting.
    judges: Mutex<Vec<Judge>>,
    arrived: Notify,
    limits: TimeLimits,
    clock: Arc<dyn Clock>,
}

struct Lane {
    camera: CameraId,
    /// Held for a swap and a few counters, by ingest's thread too.
    slot: Mutex<Slot>,
}

/// What decides whether a camera's frame is worth a look, and what of it may be seen.
struct Judge {
    gate: Gate,
    meter: MotionMeter,
    looked_at: Option<Grid>,
    mask: Mask,
}

impl Sampler {
    /// The cameras with all prompts at revision 1.
    pub fn new(cameras: &[Camera], limits: TimeLimits, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            lanes: cameras.iter().map(Lane::new).collect(),
            judges: Mutex::new(cameras.iter().map(Judge::new).collect()),
            arrived: Notify::new(),
            limits,
            clock,
        })
    }

    /// Where ingest puts the frames of a camera, on any thread; it never waits. `None` for a camera that is not ours.
    pub fn camera_sink(
        self: &Arc<Self>,
        camera: &CameraId,
    ) -> Option<impl Fn(Frame) + Send + Sync + use<>> {
        let index = self.lanes.iter().position(|l| l.camera == *camera)?;
        let sampler = Arc::clone(self);
        Some(move |frame| sampler.put(index, frame))
    }

    /// Waits for a frame that is due, fresh and worth a look. Call it while holding an engine permit: what it returns
    /// is the newest frame of the camera that has waited longest. Several tasks may call it; dropping the future
    /// loses nothing. [`Sampler::done`] must follow once for every look.
    pub async fn next(&self) -> Look {
        loop {
            // Queued before looking, so that each frame that arrives after the look wakes a caller of its own.
            let mut arrived = pin!(self.arrived.notified());
            arrived.as_mut().enable();
            if let Some(look) = self.try_next() {
                return look;
            }
            arrived.await;
        }
    }

    /// As [`Sampler::next`], without waiting.
    pub fn try_next(&self) -> Option<Look> {
        let mut judges = lock(&self.judges);
        loop {
            // Every round takes a frame out of a slot, so this ends.
            let due = self.lanes.iter().map(|lane| lane.slot().due_since());
            let index = longest_overdue(due)?;
            let look = self.lanes[index].take(&mut judges[index], self.limits, self.clock.now());
            if look.is_some() {
                return look;
            }
        }
    }

    /// A look ended. Call it once for every look.
    pub fn done(&self, outcome: &Outcome) {
        let (frame, end, prompts) = match outcome {
            Outcome::Answered { frame, .. } => (frame, FrameEnd::Looked, [].as_slice()),
            Outcome::Late(look) => (&look.frame, FrameEnd::Late, look.prompts.as_slice()),
            Outcome::Failed(look, _) => (&look.frame, FrameEnd::Failed, look.prompts.as_slice()),
        };
        if let Some(lane) = self.lane(&frame.camera) {
            lane.slot()
                .end(end, prompts.iter().map(|prompt| &prompt.id));
        }
    }

    /// What a prompt lost since this was last asked. Ask when a message of the prompt is made, it counts from zero
    /// again.
    pub fn take_since_last(&self, camera: &CameraId, prompt: &PromptId) -> SinceLast {
        let lane = self.lane(camera);
        lane.map_or_else(SinceLast::default, |l| l.slot().take_since_last(prompt))
    }

    /// The books of every camera, in the order of the configuration. Each is exact, and so balanced, at its moment.
    pub fn books(&self) -> Vec<(CameraId, Books)> {
        let entry = |lane: &Lane| (lane.camera.clone(), lane.slot().books());
        self.lanes.iter().map(entry).collect()
    }

    fn put(&self, index: usize, frame: Frame) {
        let now = self.clock.now();
        let arrival = self.lanes[index].slot().put(frame, now);
        // The lock is free again: a frame that is not needed goes back to its decoder here.
        match arrival {
            Arrival::Skipped(unneeded) => drop(unneeded),
            Arrival::Waiting(replaced) => {
                self.arrived.notify_one();
                drop(replaced);
            }
        }
    }

    fn lane(&self, camera: &CameraId) -> Option<&Lane> {
        self.lanes.iter().find(|lane| lane.camera == *camera)
    }
}

impl Lane {
    fn new(camera: &Camera) -> Self {
        let asked = |p: &CameraPrompt| {
            let prompt = Prompt {
                id: p.id.clone(),
                revision: 1,
                task: p.task.clone(),
            };
            (Arc::new(prompt), p.rate_hz)
        };
        let prompts = camera.prompts.iter().map(asked).collect();
        Self {
            camera: camera.id.clone(),
            slot: Mutex::new(Slot::new(camera.rate_hz, prompts)),
        }
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.slot)
    }

    /// Takes the waiting frame; `None` when it was late, gated or not to be read, which is then in the books.
    fn take(&self, judge: &mut Judge, limits: TimeLimits, now: Mono) -> Option<Look> {
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
        if judge.judge(&frame, now) == Verdict::Closed {
            self.slot().let_go(FrameEnd::Gated, now);
            return None;
        }
        // The frame handed back is freed here, where the slot is not locked.
        let (prompts, _) = self.slot().look(now);
        frame.picture = judge.mask.paint(&frame.picture);
        Some(Look {
            start_by: limits.start_by(frame.times.received),
            answer_by: limits.answer_by(frame.times.received),
            frame,
            prompts,
        })
    }
}

impl Judge {
    fn new(camera: &Camera) -> Self {
        let mask = Mask::new(&camera.mask);
        Self {
            gate: Gate::new(camera.motion),
            meter: MotionMeter::new(&mask),
            looked_at: None,
            mask,
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

/// A poisoned lock means that a thread panicked; its counters are still the best there are.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
