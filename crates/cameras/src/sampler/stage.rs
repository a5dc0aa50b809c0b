//! All cameras: what ingest, the engines and the daemon call. It has the clock and the lock of the list.

use std::sync::{Arc, Mutex};

use super::{lane::Lane, limits::TimeLimits, lock, share::CameraShare};
use spotter_core::{
    CameraId, Clock, Frame, FrameCounters, FrameEnd, Outcome, Prompt, PromptId, SkippedSinceLast,
    config::CameraConfig,
};

/// All cameras of all engines. Ingest's threads put frames in through [`Sampler::camera_sink`]; each engine takes
/// looks out of its [`CameraShare`], and [`Sampler::done`] counts their end. When an engine is replaced, a camera's counters, pace
/// and sink stay.
pub struct Sampler {
    /// Held for a copy of the list by most methods; by [`Sampler::change`], [`Sampler::abandon`], [`Sampler::removed_counters`]
    /// and, for a removed camera, [`Sampler::done`] while they take the locks of cameras, each for a moment. A frame on its way
    /// does not need it: ingest's sink and a [`CameraShare`] keep their cameras.
    cameras: Mutex<SampledCameras>,
    clock: Arc<dyn Clock>,
}

/// The cameras. The lock of this list is taken before that of a camera, never after it.
struct SampledCameras {
    /// In the order of the configuration.
    lanes: Arc<[Arc<Lane>]>,
    removed: RemovedCameras,
}

/// Cameras that are no longer configured.
#[derive(Default)]
struct RemovedCameras {
    /// Those that may have looks in flight.
    lanes: Vec<Arc<Lane>>,
    /// All others together.
    counters: FrameCounters,
}

impl Sampler {
    /// For these cameras, which no engine has yet.
    pub fn new(cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Arc<Self> {
        let lane = |camera| Arc::new(Lane::new(camera));
        Arc::new(Self {
            cameras: Mutex::new(SampledCameras {
                lanes: cameras.iter().map(lane).collect(),
                removed: RemovedCameras::default(),
            }),
            clock,
        })
    }

    /// What an engine takes looks from, with these limits. It has no camera before [`Sampler::assign`].
    pub fn share(&self, limits: TimeLimits) -> Arc<CameraShare> {
        Arc::new(CameraShare::new(limits, Arc::clone(&self.clock)))
    }

    /// Replaces the cameras of a share; unknown ones are left out. A camera of another share must be removed from that one by a
    /// call of its own: frames wake the engine to which their camera was assigned last.
    pub fn assign(&self, share: &CameraShare, cameras: &[CameraId]) {
        let lanes = self.lanes();
        let its = lanes.iter().filter(|lane| cameras.contains(&lane.camera));
        share.assign(its.cloned().collect());
    }

    /// Replaces the cameras and their configuration. A camera that was there before keeps its counters, its sink, its engine, and
    /// the pace of what did not change. The looks in flight of removed cameras are still counted.
    pub fn change(&self, cameras: &[CameraConfig]) {
        let mut current = lock(&self.cameras);
        let mut known: Vec<Arc<Lane>> = current.lanes.iter().cloned().collect();
        // A camera that is configured again before its last look has ended keeps its counters.
        known.append(&mut current.removed.lanes);
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
        current.lanes = after.into();
        for lane in known {
            current.removed.add(lane);
        }
    }

    /// Where ingest puts the frames of a camera, on any thread; it never waits for the engine. `None` for an unknown camera.
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
        if let Some(lane) = lane.or_else(|| lock(&self.cameras).removed.lane(&frame.camera)) {
            lane.lock()
                .end(end, prompts.iter().map(|prompt| &prompt.id));
        }
    }

    /// The engine is lost, and the looks in flight will not end: they count as failed.
    pub fn abandon(&self) {
        let cameras = lock(&self.cameras);
        for lane in cameras.lanes.iter().chain(&cameras.removed.lanes) {
            lane.lock().abandon();
        }
    }

    /// Asks a prompt once, of the camera's next frame, without regard to pace and motion gate. False for an unknown camera.
    pub fn ask_once(&self, camera: &CameraId, prompt: Arc<Prompt>) -> bool {
        let lane = self.lane(camera);
        if let Some(lane) = &lane {
            lane.lock().ask_once(prompt);
        }
        lane.is_some()
    }

    /// Every prompt of the camera is due on its next frame.
    pub fn make_due(&self, camera: &CameraId) {
        if let Some(lane) = self.lane(camera) {
            lane.lock().make_due();
        }
    }

    /// The frames that a prompt lost since the last call. Call it when a message of the prompt is made.
    pub fn take_since_last(&self, camera: &CameraId, prompt: &PromptId) -> SkippedSinceLast {
        let lane = self.lane(camera);
        lane.map_or_else(SkippedSinceLast::default, |l| {
            l.lock().take_since_last(prompt)
        })
    }

    /// The counters of all removed cameras together.
    pub fn removed_counters(&self) -> FrameCounters {
        let cameras = lock(&self.cameras);
        let mut counters = cameras.removed.counters;
        for lane in &cameras.removed.lanes {
            counters.add(&lane.lock().counters());
        }
        counters
    }

    /// The counters of every camera, in the order of the configuration. Each is exact, and so balanced, at its moment.
    pub fn counters(&self) -> Vec<(CameraId, FrameCounters)> {
        let entry = |lane: &Arc<Lane>| (lane.camera.clone(), lane.lock().counters());
        self.lanes().iter().map(entry).collect()
    }

    fn lanes(&self) -> Arc<[Arc<Lane>]> {
        Arc::clone(&lock(&self.cameras).lanes)
    }

    fn lane(&self, camera: &CameraId) -> Option<Arc<Lane>> {
        let lanes = self.lanes();
        lanes.iter().find(|lane| lane.camera == *camera).cloned()
    }
}

impl RemovedCameras {
    /// The camera has no prompts from now on.
    fn add(&mut self, lane: Arc<Lane>) {
        let (unneeded, counters) = {
            let mut state = lane.lock();
            (state.change(1.0, Vec::new()), state.counters())
        };
        drop(unneeded);
        match counters.in_flight {
            0 => self.counters.add(&counters),
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
