//! A configuration, a model, a device that breaks, and frames, for the tests of `app`.

use spotter_core::{
    CameraId, Frame, FrameTimes, Mono, Picture, WallTime,
    config::{self, Config, Environment},
};
use spotter_engine::{
    open::ModelCard,
    scheduler::backend::{
        Backend, BackendError, BackendLimits, Committed, PageId, RowMask, SlotId, Step,
    },
    sim::SimBackend,
    testing::simulated,
};

/// A device that breaks after a number of steps.
pub struct FragileDevice {
    device: SimBackend,
    steps_left: usize,
}

impl FragileDevice {
    /// Breaks at the commit after `steps`.
    pub fn after(steps: usize) -> Self {
        Self {
            device: simulated::device(1),
            steps_left: steps,
        }
    }
}

impl Backend for FragileDevice {
    fn limits(&self) -> BackendLimits {
        self.device.limits()
    }
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        self.device.launch(slot, step)
    }
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.finalize(slot, masks)
    }
    fn commit(&mut self, slot: SlotId) -> Result<Committed, BackendError> {
        let left = self.steps_left.checked_sub(1);
        self.steps_left = left.ok_or_else(|| BackendError("it fell off the bus".into()))?;
        self.device.commit(slot)
    }
    fn release(&mut self, pages: &[PageId]) {
        self.device.release(pages);
    }
}

/// Parses `text`; the state directory does not exist, so nothing of an earlier run is found.
pub fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    std::fs::write(&path, text).unwrap();
    let mut config = config::load(&path, &Environment::process()).unwrap().config;
    config.node.state_dir = folder.path().to_owned();
    config
}

pub fn card() -> ModelCard {
    ModelCard {
        name: "simulated".into(),
        sha256: String::new(),
        precision: "bf16".into(),
        device: String::new(),
        label: String::new(),
        gpu: None,
        max_objects: 5,
        permits: 2,
    }
}

/// The frame `number` of a camera, received `now`.
pub fn frame(camera: &CameraId, number: u64, now: Mono) -> Frame {
    Frame {
        camera: camera.clone(),
        number,
        camera_size: (2, 2),
        key: false,
        times: FrameTimes {
            received: now,
            received_wall: WallTime::default(),
            decoded: now,
            capture: None,
            rtp: None,
        },
        picture: Picture::from_rgb(2, 2, vec![0; 12]).unwrap(),
    }
}
