//! All cameras: what ingest, the engines and the daemon call. It has the clock and the lock of the list.

use std::sync::{Arc, Mutex};

use super::{
    kept_frames::StripShortage, limits::TimeLimits, sampled_camera::SampledCamera,
    share::CameraShare,
};
use crate::lock;
use spotter_config::CameraConfig;
use spotter_core::{CameraId, Clock, Frame, FrameCounters, Prompt, TriggeredLooks};

/// All cameras of all engines. Ingest's threads put frames in through [`Sampler::camera_sink`]; each engine takes
/// looks out of its [`CameraShare`], and their tokens count their ends. When an engine is replaced, a camera's counters, pace
/// and sink stay.
pub struct Sampler {
    /// Held for a copy of the list, or while a method takes the locks of cameras, each for a moment. A frame on its way does not
    /// need it: ingest's sink and a [`CameraShare`] keep their cameras.
    cameras: Mutex<CameraList>,
    clock: Arc<dyn Clock>,
}

/// The cameras. The lock of this list is taken before that of a camera, never after it.
struct CameraList {
    /// In the order of the configuration.
    cameras: Arc<[Arc<SampledCamera>]>,
    /// Cameras that are no longer configured and may have looks in flight.
    removed: Vec<Arc<SampledCamera>>,
    /// How many cameras there have been.
    made: usize,
    /// Sums over the removed cameras that have no look in flight.
    removed_counters: FrameCounters,
}

impl Sampler {
    /// For these cameras, which no engine has yet.
    pub fn new(cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Arc<Self> {
        let sampled = |(number, camera)| Arc::new(SampledCamera::new(camera, number));
        Arc::new(Self {
            cameras: Mutex::new(CameraList {
                cameras: cameras.iter().enumerate().map(sampled).collect(),
                made: cameras.len(),
                removed: Vec::new(),
                removed_counters: FrameCounters::default(),
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
        let all = self.cameras();
        let its = all.iter().filter(|sampled| cameras.contains(&sampled.id));
        share.assign(its.cloned().collect());
    }

    /// Replaces the cameras and their configuration. A camera that was there before keeps its counters, its sink, its engine, and
    /// the pace of what did not change. The looks in flight of removed cameras are still counted.
    pub fn change(&self, cameras: &[CameraConfig]) {
        let mut current = lock(&self.cameras);
        let mut known: Vec<Arc<SampledCamera>> = current.cameras.iter().cloned().collect();
        // A camera that is configured again before its last look has ended keeps its counters.
        known.append(&mut current.removed);
        let mut after = Vec::new();
        for camera in cameras {
            let place = known.iter().position(|sampled| sampled.id == camera.id);
            after.push(place.map_or_else(
                || {
                    current.made += 1;
                    Arc::new(SampledCamera::new(camera, current.made - 1))
                },
                |place| {
                    known[place].change(camera);
                    known.swap_remove(place)
                },
            ));
        }
        current.cameras = after.into();
        for sampled in known {
            let mut slot = sampled.lock();
            let (unneeded, counters) = (slot.retire(), slot.counters());
            drop(slot);
            drop(unneeded);
            match counters.in_flight {
                0 => current.removed_counters += counters,
                _ => current.removed.push(sampled),
            }
        }
    }

    /// Where ingest puts the frames of a camera, on any thread; it never waits for the engine. `None` for an unknown camera.
    pub fn camera_sink(&self, camera: &CameraId) -> Option<impl Fn(Frame) + Send + Sync + use<>> {
        let sampled = self.sampled(camera)?;
        let clock = Arc::clone(&self.clock);
        Some(move |frame| sampled.put(frame, clock.now()))
    }

    /// Asks a prompt once, of the camera's next frame, without regard to pace and motion gate. False for an unknown camera.
    pub fn ask_once(&self, camera: &CameraId, prompt: Arc<Prompt>) -> bool {
        let sampled = self.sampled(camera);
        if let Some(sampled) = &sampled {
            sampled.lock().ask_once(prompt, self.clock.now());
        }
        sampled.is_some()
    }

    /// Every prompt of the camera is due on its next frame.
    pub fn make_due(&self, camera: &CameraId) {
        if let Some(sampled) = self.sampled(camera) {
            sampled.lock().make_due();
        }
    }

    /// Which looks of a camera with triggers are taken from now on. Its other frames are skipped, except for prompts that are
    /// asked once.
    pub fn trigger(&self, camera: &CameraId, looks: TriggeredLooks) {
        if let Some(sampled) = self.sampled(camera) {
            sampled.trigger(looks);
        }
    }

    /// The counters of all removed cameras together.
    pub fn removed_counters(&self) -> FrameCounters {
        let list = lock(&self.cameras);
        let mut counters = list.removed_counters;
        for sampled in &list.removed {
            counters += sampled.lock().counters();
        }
        counters
    }

    /// The counters of every camera, in the order of the configuration. Each is exact, and so balanced, at its moment.
    pub fn counters(&self) -> Vec<(CameraId, FrameCounters)> {
        let entry = |sampled: &Arc<SampledCamera>| (sampled.id.clone(), sampled.lock().counters());
        self.cameras().iter().map(entry).collect()
    }

    /// The strips of which none could be made for long, though their camera sends frames.
    pub fn strip_shortages(&self) -> Vec<(CameraId, StripShortage)> {
        let all = self.cameras();
        let shortages = all.iter().flat_map(|sampled| {
            let its = sampled.strips.shortages().into_iter();
            its.map(|shortage| (sampled.id.clone(), shortage))
        });
        shortages.collect()
    }

    fn cameras(&self) -> Arc<[Arc<SampledCamera>]> {
        Arc::clone(&lock(&self.cameras).cameras)
    }

    pub(super) fn sampled(&self, camera: &CameraId) -> Option<Arc<SampledCamera>> {
        let cameras = self.cameras();
        let mut all = cameras.iter();
        all.find(|sampled| sampled.id == *camera).cloned()
    }
}
