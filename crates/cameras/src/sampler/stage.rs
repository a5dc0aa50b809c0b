//! The shell around all cameras: locks, and the clock.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use super::{lane::Lane, limits::TimeLimits, lock, share::Share};
use spotter_core::{
    CameraId, Clock, Frame, FrameCounters, FrameEnd, Outcome, Prompt, PromptId, SkippedSinceLast,
    config::CameraConfig,
};

/// All cameras, whichever engine has them. Ingest's threads put frames in through [`Sampler::camera_sink`]; each engine takes
/// looks out of its [`Share`], and [`Sampler::done`] hears of their end. An engine comes and goes; a camera's books, pace and
/// sink stay.
pub struct Sampler {
    /// In the order of the configuration. Held for a copy of the list.
    lanes: RwLock<Arc<[Arc<Lane>]>>,
    gone: Mutex<Gone>,
    clock: Arc<dyn Clock>,
}

/// Cameras that are not looked at any more.
#[derive(Default)]
struct Gone {
    /// Those of which a look may be under way.
    lanes: Vec<Arc<Lane>>,
    /// All others together.
    books: FrameCounters,
}

impl Sampler {
    /// For these cameras, which no engine has yet.
    pub fn new(cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Arc<Self> {
        let lane = |camera| Arc::new(Lane::new(camera));
        Arc::new(Self {
            lanes: RwLock::new(cameras.iter().map(lane).collect()),
            gone: Mutex::default(),
            clock,
        })
    }

    /// What an engine takes looks from, with these limits. It has no camera before [`Sampler::seat`].
    pub fn share(&self, limits: TimeLimits) -> Arc<Share> {
        Arc::new(Share::new(limits, Arc::clone(&self.clock)))
    }

    /// These are the cameras of a share from now on; those that are not ours are left out. A camera that another share had
    /// is to be taken from that one by a call of its own: who has a camera last hears of its frames.
    pub fn seat(&self, share: &Share, cameras: &[CameraId]) {
        let lanes = self.lanes();
        let its = lanes.iter().filter(|lane| cameras.contains(&lane.camera));
        share.seat(its.cloned().collect());
    }

    /// These are the cameras from now on, as they are now. One that was there before keeps its books, its sink, its engine, and
    /// the pace of what did not change. Looks under way at cameras that are gone still end in their books.
    pub fn change(&self, cameras: &[CameraConfig]) {
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
    pub fn camera_sink(&self, camera: &CameraId) -> Option<impl Fn(Frame) + Send + Sync + use<>> {
        let lane = self.lane(camera)?;
        let clock = Arc::clone(&self.clock);
        Some(move |frame| lane.put(frame, clock.now()))
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

    /// There is no engine any more, and the looks under way will not end: they have failed.
    pub fn abandon(&self) {
        let gone = lock(&self.gone);
        for lane in self.lanes().iter().chain(&gone.lanes) {
            lane.slot().abandon();
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
    pub fn take_since_last(&self, camera: &CameraId, prompt: &PromptId) -> SkippedSinceLast {
        let lane = self.lane(camera);
        lane.map_or_else(SkippedSinceLast::default, |l| {
            l.slot().take_since_last(prompt)
        })
    }

    /// The books of all cameras together that were taken away.
    pub fn books_of_gone(&self) -> FrameCounters {
        let gone = lock(&self.gone);
        let mut books = gone.books;
        for lane in &gone.lanes {
            books.add(&lane.slot().books());
        }
        books
    }

    /// The books of every camera, in the order of the configuration. Each is exact, and so balanced, at its moment.
    pub fn books(&self) -> Vec<(CameraId, FrameCounters)> {
        let entry = |lane: &Arc<Lane>| (lane.camera.clone(), lane.slot().books());
        self.lanes().iter().map(entry).collect()
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
