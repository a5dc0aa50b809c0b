//! One camera between ingest and the engine: its slot, the filter of its frames, and which engine a frame wakes.

use std::{
    mem,
    sync::{Arc, Mutex},
};

use tokio::sync::Notify;

use super::{
    gate::MotionGate,
    limits::TimeLimits,
    mask::Mask,
    motion::{BrightnessGrid, MotionMeter, PictureMotion},
    motion_region::MotionRegion,
    next_frame::FrameRequests,
    slot::{FrameSlot, MovedRecently, TakenLook},
    strip_maker::StripMaker,
};
use crate::{WholePictures, lock};
use spotter_config::{CameraConfig, MotionConfig, PromptConfig};
use spotter_core::{
    CameraId, Frame, FrameCounters, FrameEnd, Look, LookCounter, LookRate, LookToken, Mono,
    Picture, Prompt, PromptRegion, PromptView, SkippedSinceLast, TriggeredLooks,
};

/// Multiples of it, without their whole parts, fill 0..1 evenly, however many they are.
const GOLDEN_RATIO: f64 = 1.618_033_988_749_895;

pub struct SampledCamera {
    pub id: CameraId,
    /// Ingest's thread takes it too, so it is held for a swap and a few counters, never while a picture is read or freed.
    slot: Mutex<FrameSlot>,
    /// Held by an engine's sampler for some milliseconds, while it reads a picture, so that two frames of a camera are never taken
    /// for the same due time. It is taken before the lock of the slot, never after it, and by nothing else.
    filter: Mutex<FrameFilter>,
    /// What the filter adopts with the next frame, because nothing waits for its lock.
    changes: Mutex<FilterChanges>,
    /// Its lock is the last: it may be taken while the filter and the slot are held.
    pub strips: StripMaker,
    pub requests: FrameRequests,
    /// The engine's signal; `None` while no engine has the camera.
    frame_arrived: Mutex<Option<Arc<Notify>>>,
}

#[derive(Default)]
struct FilterChanges {
    rules: Option<FilterRules>,
    /// The motion gate lets the next frame through.
    restarts: bool,
}

/// What the configuration says of a camera's frames.
struct FilterRules {
    motion: MotionConfig,
    /// A prompt looks where something moved.
    follows_motion: bool,
    mask: Mask,
}

/// What decides whether a camera's frame is worth a look, and what of it may be seen.
struct FrameFilter {
    rules: FilterRules,
    gate: MotionGate,
    meter: MotionMeter,
    moved: MotionRegion,
    /// The last frame that was looked at, and the last that was measured after it.
    looked_at: Option<BrightnessGrid>,
    measured: Option<BrightnessGrid>,
}

impl SampledCamera {
    /// A camera that no engine has yet. `number` counts the cameras that were made: of any that follow each other, the phases of
    /// their looks are spread evenly.
    pub fn new(camera: &CameraConfig, number: usize) -> Self {
        let phase = (number as f64 * GOLDEN_RATIO).fract();
        let sampled = Self {
            id: camera.id.clone(),
            slot: Mutex::new(FrameSlot::new(camera.rate, phase)),
            filter: Mutex::new(FrameFilter::new(FilterRules::of(camera))),
            changes: Mutex::default(),
            strips: StripMaker::default(),
            requests: FrameRequests::default(),
            frame_arrived: Mutex::default(),
        };
        sampled.change(camera);
        sampled
    }

    /// Works on the slot, and drops the frame that is not needed afterwards.
    pub fn slot<T>(&self, work: impl FnOnce(&mut FrameSlot) -> T) -> T {
        let mut slot = lock(&self.slot);
        let (done, unneeded) = (work(&mut slot), slot.unneeded.take());
        drop(slot);
        drop(unneeded);
        done
    }

    /// Where the camera's frames went.
    pub fn counters(&self) -> FrameCounters {
        self.slot(|slot| slot.counters)
    }

    pub fn change(&self, camera: &CameraConfig) {
        lock(&self.changes).rules = Some(FilterRules::of(camera));
        self.strips.change(camera);
        self.slot(|slot| {
            slot.set_triggers(!camera.triggers.is_empty());
            slot.change(camera.rate, asked_prompts(camera));
        });
    }

    /// These looks are taken from now on. The motion gate lets the first frame through.
    pub fn trigger(&self, looks: TriggeredLooks) {
        self.slot(|slot| lock(&self.changes).restarts |= slot.trigger(looks));
    }

    /// From now on frames wake this engine; a frame that waits already wakes it at once.
    pub fn notifies(&self, engine: &Arc<Notify>) {
        *lock(&self.frame_arrived) = Some(Arc::clone(engine));
        if self.slot(|slot| slot.due_since()).is_some() {
            engine.notify_one();
        }
    }

    /// A frame came from ingest.
    pub fn put(&self, frame: Frame, now: Mono) {
        self.requests
            .put(&frame.picture, frame.camera_size, || self.strips.mask());
        let copies = self.strips.due_copies(&frame);
        let waits = self.slot(|slot| slot.put(frame, now));
        if let (true, Some(engine)) = (waits, &*lock(&self.frame_arrived)) {
            engine.notify_one();
        }
        if let Some(copies) = copies {
            self.strips.keep(copies);
        }
    }

    /// Takes the waiting frame; `None` when it was late, gated or unreadable, which is then counted.
    pub fn take(self: &Arc<Self>, limits: TimeLimits, now: Mono) -> Option<Look> {
        let mut filter = lock(&self.filter);
        let mut frame = self.slot(FrameSlot::take)?;
        filter.adopt(mem::take(&mut *lock(&self.changes)));
        let let_go = |end| self.slot(|slot| slot.let_go(end, now));
        if limits.start_by(frame.times.received) < now {
            let_go(FrameEnd::Late);
            return None;
        }
        // What cannot be read is not shown to the model as a black picture.
        let reads_pixels = filter.measures() || !filter.rules.mask.is_empty();
        if reads_pixels && !frame.picture.fetch() {
            let_go(FrameEnd::Failed);
            return None;
        }
        let passes = filter.passes(&frame, now);
        let is_ready = |view: &PromptView| self.strips.is_ready(view, &frame);
        let taken = self.slot(|slot| {
            if passes || slot.is_urgent(is_ready) {
                return slot.look(filter.moved_recently(now), is_ready, now);
            }
            slot.let_go(FrameEnd::Gated, now);
            None
        });
        let TakenLook { prompts, moved } = taken?;
        filter.looked();
        frame.picture = filter.rules.mask.paint(&frame.picture);
        if prompts.iter().any(|prompt| prompt.keeps_look()) {
            frame.picture = frame.picture.unpooled();
        }
        // The copies were there when the prompts were chosen, so it is the frame that cannot be read.
        let Some(strips) = self.strips.strips(&prompts, &frame) else {
            self.slot(|slot| slot.fail(prompts, now));
            return None;
        };
        Some(Look {
            token: LookToken::new(Arc::clone(self) as Arc<dyn LookCounter>, &prompts),
            start_by: limits.start_by(frame.times.received),
            answer_by: limits.answer_by(frame.times.received),
            frame,
            prompts,
            moved,
            strips,
        })
    }
}

impl LookCounter for SampledCamera {
    fn answered(&self, prompt: &Arc<Prompt>) -> SkippedSinceLast {
        self.slot(|slot| slot.answered(prompt))
    }

    fn ended(&self, end: FrameEnd, unanswered: &[Arc<Prompt>]) {
        self.slot(|slot| slot.end(end, unanswered));
    }
}

/// The prompts that are asked, with their looks a second.
fn asked_prompts(camera: &CameraConfig) -> Vec<(Arc<Prompt>, LookRate)> {
    let asked = asked(camera).map(|p| (Arc::new(camera.model_prompt(p)), p.rate));
    asked.collect()
}

fn asked(camera: &CameraConfig) -> impl Iterator<Item = &PromptConfig> {
    camera.prompts.iter().filter(|prompt| prompt.is_asked())
}

impl FilterRules {
    fn of(camera: &CameraConfig) -> Self {
        Self {
            motion: camera.motion,
            follows_motion: asked(camera).any(|p| p.region == PromptRegion::Motion),
            mask: Mask::new(&camera.mask),
        }
    }
}

impl FrameFilter {
    fn new(rules: FilterRules) -> Self {
        Self {
            gate: MotionGate::default(),
            meter: MotionMeter::new(&rules.mask),
            moved: MotionRegion::default(),
            looked_at: None,
            measured: None,
            rules,
        }
    }

    /// Another mask makes another picture, with which the last one is not compared.
    fn adopt(&mut self, changes: FilterChanges) {
        if let Some(rules) = changes.rules {
            if rules.mask != self.rules.mask {
                (self.meter, self.looked_at) = (MotionMeter::new(&rules.mask), None);
            }
            self.rules = rules;
        }
        if changes.restarts {
            self.gate = MotionGate::default();
        }
    }

    /// Measuring costs time.
    fn measures(&self) -> bool {
        self.rules.motion.on || self.rules.follows_motion
    }

    fn passes(&mut self, frame: &Frame, now: Mono) -> bool {
        let measured = self.measures();
        self.measured = measured.then(|| BrightnessGrid::measure(&frame.picture));
        let motion = match (&self.looked_at, &self.measured) {
            (Some(before), Some(now)) => self.meter.motion(before, now),
            _ => PictureMotion::default(),
        };
        if let Some(changed) = motion.changed {
            self.moved.moved(changed, frame.picture.size(), now);
        }
        self.gate.passes(&self.rules.motion, motion.share, now)
    }

    fn moved_recently(&self, now: Mono) -> MovedRecently {
        MovedRecently {
            region: self.moved.current(self.rules.motion.hold, now),
            whole_every: self.rules.motion.at_least_every,
        }
    }

    /// The measured frame is looked at. Compared with the last look and not with the last frame, slow changes add up until they
    /// count.
    fn looked(&mut self) {
        self.looked_at = self.measured.take();
    }
}

impl WholePictures for SampledCamera {
    fn is_wanted(&self) -> bool {
        self.requests.is_waiting()
    }

    fn take_whole(&self, picture: Picture) {
        let (width, height) = picture.size();
        let camera_size = (width as u32, height as u32);
        self.requests
            .put(&picture, camera_size, || self.strips.mask());
    }
}
