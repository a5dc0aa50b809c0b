//! All cameras: what ingest, the engines and the daemon call. It has the clock and the lock of the list.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use tokio::sync::oneshot;

use super::{
    kept_frames::StripShortage, limits::TimeLimits, next_frame::NextFrame,
    sampled_camera::SampledCamera, share::CameraShare, slot::FrameSlot,
};
use crate::{WholePictures, lock};
use spotter_config::{CameraConfig, ConfigChange};
use spotter_core::{CameraId, Clock, Frame, FrameCounters, Prompt, TriggeredLooks};

/// All cameras of all engines. Ingest's threads put frames in through [`Sampler::camera_sink`]; each engine takes
/// looks out of its [`CameraShare`], and their tokens count their ends. When an engine is replaced, a camera's counters, pace
/// and sink stay.
pub struct Sampler {
    /// Held while cameras are looked up, and while a method takes their locks, each for a moment. A frame on its way does not
    /// need it: ingest's sink and a [`CameraShare`] keep their cameras.
    list: Mutex<CameraList>,
    clock: Arc<dyn Clock>,
}

/// The cameras. The lock of this list is taken before that of a camera, never after it.
#[derive(Default)]
struct CameraList {
    cameras: BTreeMap<CameraId, Arc<SampledCamera>>,
    /// Cameras that are no longer configured and may have looks in flight.
    removed: BTreeMap<CameraId, Arc<SampledCamera>>,
    /// How many cameras there have been.
    made: usize,
    /// Sums over the removed cameras that have no look in flight.
    removed_counters: FrameCounters,
}

impl Sampler {
    /// For these cameras, which no engine has yet.
    pub fn new(cameras: &[CameraConfig], clock: Arc<dyn Clock>) -> Arc<Self> {
        let list = Mutex::default();
        let sampler = Self { list, clock };
        sampler.change(&ConfigChange::between(&[], cameras));
        Arc::new(sampler)
    }

    /// What an engine takes looks from, with these limits. It has no camera before [`Sampler::assign`].
    pub fn share(&self, limits: TimeLimits) -> Arc<CameraShare> {
        Arc::new(CameraShare::new(limits, Arc::clone(&self.clock)))
    }

    /// Replaces the cameras of a share; unknown ones are left out. A camera of another share must be removed from that one by a
    /// call of its own: frames wake the engine to which their camera was assigned last.
    pub fn assign(&self, share: &CameraShare, cameras: &[CameraId]) {
        let its = cameras.iter().filter_map(|id| self.sampled(id));
        share.assign(its.collect());
    }

    /// A camera that was there before keeps its counters, its sink, its engine, and the pace of what did not change. The looks in
    /// flight of removed cameras are still counted.
    pub fn change(&self, change: &ConfigChange) {
        let CameraList {
            cameras,
            removed,
            made,
            removed_counters,
        } = &mut *lock(&self.list);
        for (id, change) in change.cameras() {
            // A camera that is configured again before its last look has ended keeps its counters.
            let known = cameras.remove(id).or_else(|| removed.remove(id));
            let configured = match (change.camera(), known) {
                (Some(camera), None) => {
                    *made += 1;
                    Arc::new(SampledCamera::new(camera, *made - 1))
                }
                (Some(camera), Some(known)) => {
                    known.change(camera);
                    known
                }
                (None, known) => {
                    let retired = known.inspect(|known| known.slot(FrameSlot::retire));
                    removed.extend(retired.map(|known| (id.clone(), known)));
                    continue;
                }
            };
            cameras.insert(id.clone(), configured);
        }
        removed.retain(|_, sampled| {
            let counters = sampled.counters();
            if counters.in_flight == 0 {
                *removed_counters += counters;
            }
            counters.in_flight > 0
        });
    }

    /// Where ingest puts the frames of a camera, on any thread; it never waits for the engine. `None` for an unknown camera.
    pub fn camera_sink(&self, camera: &CameraId) -> Option<impl Fn(Frame) + Send + Sync + use<>> {
        let sampled = self.sampled(camera)?;
        let clock = Arc::clone(&self.clock);
        Some(move |frame| sampled.put(frame, clock.now()))
    }

    /// Where ingest puts pictures of a camera before it scales them. `None` for an unknown camera.
    pub fn whole_pictures(&self, camera: &CameraId) -> Option<Arc<dyn WholePictures>> {
        Some(self.sampled(camera)?)
    }

    /// The camera's next frame, at any pace, in the size that the camera sends where it can be had; it comes with none of its looks. `None` for an unknown camera. The receiver ends without a frame
    /// when the camera is removed.
    pub fn next_frame(&self, camera: &CameraId) -> Option<oneshot::Receiver<NextFrame>> {
        Some(self.sampled(camera)?.requests.add())
    }

    /// Asks a prompt once, of the camera's next frame, without regard to pace and motion gate. False for an unknown camera.
    pub fn ask_once(&self, camera: &CameraId, prompt: Arc<Prompt>) -> bool {
        let sampled = self.sampled(camera);
        let asked = sampled.map(|it| it.slot(|slot| slot.ask_once(prompt, self.clock.now())));
        asked.is_some()
    }

    /// Every prompt of the camera is due on its next frame.
    pub fn make_due(&self, camera: &CameraId) {
        if let Some(sampled) = self.sampled(camera) {
            sampled.slot(FrameSlot::make_due);
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
        let list = lock(&self.list);
        let mut counters = list.removed_counters;
        for sampled in list.removed.values() {
            counters += sampled.counters();
        }
        counters
    }

    /// The counters of every camera. Each is exact, and so balanced, at its moment.
    pub fn counters(&self) -> Vec<(CameraId, FrameCounters)> {
        let list = lock(&self.list);
        let counters = list.cameras.values();
        counters.map(|it| (it.id.clone(), it.counters())).collect()
    }

    /// The strips of which none could be made for long, though their camera sends frames.
    pub fn strip_shortages(&self) -> Vec<(CameraId, StripShortage)> {
        let list = lock(&self.list);
        let shortages = list.cameras.values().flat_map(|sampled| {
            let its = sampled.strips.shortages().into_iter();
            its.map(|shortage| (sampled.id.clone(), shortage))
        });
        shortages.collect()
    }

    pub(super) fn sampled(&self, camera: &CameraId) -> Option<Arc<SampledCamera>> {
        lock(&self.list).cameras.get(camera).cloned()
    }
}
