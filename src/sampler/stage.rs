//! The shell: locks, the clock, and the waiting.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock},
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
    /// In the order of the configuration. Held for a copy of the list.
    lanes: RwLock<Arc<[Arc<Lane>]>>,
    gone: Mutex<Gone>,
    /// Makes choosing and judging a frame one step, so that two callers of `next` never take two frames of a camera for the
    /// same due time; it is never held while waiting.
    choosing: Mutex<()>,
    arrived: Notify,
    limits: TimeLimits,
    clock: Arc<dyn Clock>,
}

/// Cameras that are not looked at any more.
#[derive(Default)]
struct Gone {
    /// Those of which a look may be under way.
    lanes: Vec<Arc<Lane>>,
    /// All others together.
    books: Books,
}

struct Lane {
    camera: CameraId,
    /// Held for a swap and a few counters, by ingest's thread too.
    slot: Mutex<Slot>,
    /// Held while a picture is read.
    judge: Mutex<Judge>,
}

/// What decides whether a camera's frame is worth a look, and what of it may be seen.
struct Judge {
    gate: Gate,
    meter: MotionMeter,
    looked_at: Option<Grid>,
    mask: Mask,
}

impl Sampler {
    /// For these cameras.
    pub fn new(cameras: &[Camera], limits: TimeLimits, clock: Arc<dyn Clock>) -> Arc<Self> {
        let lane = |camera| Arc::new(Lane::new(camera));
        Arc::new(Self {
            lanes: RwLock::new(cameras.iter().map(lane).collect()),
            gone: Mutex::default(),
            choosing: Mutex::new(()),
            arrived: Notify::new(),
            limits,
            clock,
        })
    }

    /// These are the cameras from now on, as they are now. One that was there before keeps its books, its sink, and the pace of
    /// what did not change. Looks under way at cameras that are gone still end in their books.
    pub fn change(&self, cameras: &[Camera]) {
        let before = self.lanes();
        let mut gone = lock(&self.gone);
        let mut known: Vec<Arc<Lane>> = before.iter().cloned().collect();
        // One that comes back before its last look has ended is the same one.
        known.append(&mut gone.lanes);
        let mut after = Vec::new();
        for camera in cameras {
            let place = known.iter().position(|lane| lane.camera == camera.id);
            after.push(place.map_or_else(
                || Arc::new(Lane::new(camera)),
                |place| {
                    known[place].change(camera);
                    known.swap_remove(place)
                },
            ));
        }
        *self.lanes.write().unwrap_or_else(PoisonError::into_inner) = after.into();
        for lane in known {
            gone.take(lane);
        }
    }

    /// Where ingest puts the frames of a camera, on any thread; it never waits. `None` for a camera that is not ours.
    pub fn camera_sink(
        self: &Arc<Self>,
        camera: &CameraId,
    ) -> Option<impl Fn(Frame) + Send + Sync + use<>> {
        let lane = self.lane(camera)?;
        let sampler = Arc::clone(self);
        Some(move |frame| sampler.put(&lane, frame))
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
        let _one_at_a_time = lock(&self.choosing);
        let lanes = self.lanes();
        loop {
            // Every round takes a frame out of a slot, so this ends.
            let due = lanes.iter().map(|lane| lane.slot().due_since());
            let index = longest_overdue(due)?;
            let look = lanes[index].take(self.limits, self.clock.now());
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
        let lane = self.lane(&frame.camera);
        if let Some(lane) = lane.or_else(|| lock(&self.gone).lane(&frame.camera)) {
            lane.slot()
                .end(end, prompts.iter().map(|prompt| &prompt.id));
        }
    }

    /// A prompt is to be asked once, of the camera's next frame, whatever its pace and its gate. False when the camera is not
    /// ours. Its look ends like every other.
    pub fn ask_once(&self, camera: &CameraId, prompt: Arc<Prompt>) -> bool {
        let lane = self.lane(camera);
        if let Some(lane) = &lane {
            lane.slot().ask_once(prompt);
        }
        lane.is_some()
    }

    /// Every prompt of the camera is due on its next frame.
    pub fn hurry(&self, camera: &CameraId) {
        if let Some(lane) = self.lane(camera) {
            lane.slot().hurry();
        }
    }

    /// What a prompt lost since this was last asked. Ask when a message of the prompt is made, it counts from zero
    /// again.
    pub fn take_since_last(&self, camera: &CameraId, prompt: &PromptId) -> SinceLast {
        let lane = self.lane(camera);
        lane.map_or_else(SinceLast::default, |l| l.slot().take_since_last(prompt))
    }

    /// The books of all cameras together that were taken away.
    pub fn books_of_gone(&self) -> Books {
        let gone = lock(&self.gone);
        let mut books = gone.books;
        for lane in &gone.lanes {
            books.add(&lane.slot().books());
        }
        books
    }

    /// The books of every camera, in the order of the configuration. Each is exact, and so balanced, at its moment.
    pub fn books(&self) -> Vec<(CameraId, Books)> {
        let entry = |lane: &Arc<Lane>| (lane.camera.clone(), lane.slot().books());
        self.lanes().iter().map(entry).collect()
    }

    fn put(&self, lane: &Lane, frame: Frame) {
        let now = self.clock.now();
        let arrival = lane.slot().put(frame, now);
        // The lock is free again: a frame that is not needed goes back to its decoder here.
        match arrival {
            Arrival::Skipped(unneeded) => drop(unneeded),
            Arrival::Waiting(replaced) => {
                self.arrived.notify_one();
                drop(replaced);
            }
        }
    }

    fn lanes(&self) -> Arc<[Arc<Lane>]> {
        let lanes = self.lanes.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&lanes)
    }

    fn lane(&self, camera: &CameraId) -> Option<Arc<Lane>> {
        let lanes = self.lanes();
        lanes.iter().find(|lane| lane.camera == *camera).cloned()
    }
}

impl Gone {
    /// A camera is taken away; nothing is asked of its frames any more.
    fn take(&mut self, lane: Arc<Lane>) {
        let (unneeded, books) = {
            let mut slot = lane.slot();
            (slot.change(1.0, Vec::new()), slot.books())
        };
        drop(unneeded);
        match books.in_flight {
            0 => self.books.add(&books),
            _ => self.lanes.push(lane),
        }
    }

    fn lane(&self, camera: &CameraId) -> Option<Arc<Lane>> {
        self.lanes
            .iter()
            .find(|lane| lane.camera == *camera)
            .cloned()
    }
}

/// The prompts that are asked, with their looks a second.
fn asked(camera: &Camera) -> Vec<(Arc<Prompt>, f64)> {
    let enabled = camera.prompts.iter().filter(|prompt| prompt.enabled);
    let asked = enabled.map(|p: &CameraPrompt| {
        let prompt = Prompt {
            id: p.id.clone(),
            revision: p.revision,
            task: p.task.clone(),
        };
        (Arc::new(prompt), p.rate_hz)
    });
    asked.collect()
}

impl Lane {
    fn new(camera: &Camera) -> Self {
        Self {
            camera: camera.id.clone(),
            slot: Mutex::new(Slot::new(camera.rate_hz, asked(camera))),
            judge: Mutex::new(Judge::new(camera)),
        }
    }

    fn change(&self, camera: &Camera) {
        let unneeded = self.slot().change(camera.rate_hz, asked(camera));
        drop(unneeded);
        lock(&self.judge).change(camera);
    }

    fn slot(&self) -> MutexGuard<'_, Slot> {
        lock(&self.slot)
    }

    /// Takes the waiting frame; `None` when it was late, gated or not to be read, which is then in the books.
    fn take(&self, limits: TimeLimits, now: Mono) -> Option<Look> {
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

    /// Another mask makes another picture, with which the last one is not compared.
    fn change(&mut self, camera: &Camera) {
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

/// A poisoned lock means that a thread panicked; its counters are still the best there are.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
