//! A second viewer of a camera, which reads the time that is burnt into its pictures.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::runtime::{Builder, Runtime};

use super::STOP_LIMIT;
use spotter_cameras::ingest::{self, CameraHandle, FrameSink};
use spotter_config::{self as config, Environment};
use spotter_core::{Clock, Frame, SystemClock, WallTime};
use spotter_street::timecode;

type Times = Mutex<BTreeMap<u32, WallTime>>;

/// Watches the first camera of a configuration. All viewers of a shared camera get the same RTP times, so a picture
/// is identified by them across viewers.
pub struct Viewer {
    /// `None` when it has ended.
    watching: Option<(Runtime, CameraHandle)>,
    burnt: Arc<Times>,
}

impl Viewer {
    /// Connects as soon as the camera is there.
    pub fn of(config: &Path) -> Self {
        let loaded = config::load(config, &Environment::process()).expect("a configuration");
        let camera = loaded.config.cameras.first().expect("a camera").clone();
        let burnt = Arc::<Times>::default();
        let seen = Arc::clone(&burnt);
        let note = move |frame: Frame| {
            if let (Some(rtp), Some(wall)) = (frame.times.rtp, timecode::read(&frame.picture)) {
                lock(&seen).insert(rtp, wall);
            }
        };
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let inside = runtime.enter();
        let handle = ingest::spawn(camera, clock, FrameSink::new(note), None);
        drop(inside);
        Self {
            watching: Some((runtime, handle)),
            burnt,
        }
    }

    /// When the picture of that RTP time was drawn; `None` for one that this viewer did not see.
    pub fn burnt(&self, rtp: u32) -> Option<WallTime> {
        lock(&self.burnt).get(&rtp).copied()
    }

    /// Says goodbye to the camera.
    pub fn stop(&mut self) {
        if let Some((runtime, handle)) = self.watching.take() {
            assert!(
                runtime.block_on(handle.stop(STOP_LIMIT)),
                "the viewer did not stop"
            );
        }
    }
}

fn lock(times: &Times) -> MutexGuard<'_, BTreeMap<u32, WallTime>> {
    times.lock().unwrap_or_else(PoisonError::into_inner)
}
