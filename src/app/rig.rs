//! Engines on simulated devices, and frames for them, for the tests of this room.

use std::{sync::Arc, time::Duration};

use crate::{
    domain::{CameraId, Clock, Frame, FrameTimes, ManualClock, Mono, Picture, WallTime},
    engine::{
        Options,
        backend::{Backend, BackendError, Committed, Limits, PageId, RowMask, SlotId, Step},
        sequence::Bounds,
    },
    front::Engine,
    sim::{SimBackend, SimCosts, SimModel},
    testing,
};

/// A device whose steps cost nothing; its time is of no importance, so it has its own.
pub fn device() -> SimBackend {
    let (config, _) = testing::micro_model();
    let limits = Limits {
        slots: 2,
        rows: 4,
        pages: 64,
        page_tokens: 16,
        context: 200,
        prefix_positions: config.prefix_positions(),
        images: 1,
        positions: 400,
    };
    let model = SimModel {
        vocab: config.text.vocab_size,
        objects: 1,
        crops: 1,
        memory: false,
    };
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    SimBackend::new(limits, model, costs, ManualClock::default())
}

/// An engine on a device.
pub fn engine(device: impl Backend + 'static, clock: Arc<dyn Clock>) -> Engine {
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 8,
    };
    Engine::new(
        Box::new(device),
        testing::micro_model(),
        (bounds, Options::default()),
        clock,
    )
}

/// A device that breaks when it has run so many steps.
pub struct Fragile {
    device: SimBackend,
    steps_left: usize,
}

impl Fragile {
    /// Breaks at the commit after `steps`.
    pub fn after(steps: usize) -> Self {
        Self {
            device: device(),
            steps_left: steps,
        }
    }
}

impl Backend for Fragile {
    fn limits(&self) -> Limits {
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
