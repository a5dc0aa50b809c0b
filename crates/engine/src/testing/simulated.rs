//! Engines on simulated devices, for tests of the code around an engine.

use std::{sync::Arc, time::Duration};

use crate::{
    scheduler::{
        backend::{
            Backend, BackendError, BackendLimits, PageId, RowMask, SlotId, Step, StepResult,
        },
        sequence::Bounds,
    },
    service::Engine,
    sim::{SimBackend, SimCosts, SimModel},
    testing,
};
use spotter_core::{Clock, ManualClock};

/// A device whose steps cost nothing, and which finds this many objects; its time is of no importance, so it has its own.
pub fn device(objects: u64) -> SimBackend {
    let config = testing::micro_model().config;
    let limits = BackendLimits {
        slots: 2,
        rows: 4,
        pages: 64,
        page_tokens: 16,
        context: 200,
        prefix_positions: config.prefix_positions(),
        images: 1,
        positions: 400,
        tokens: 400,
        kept_crops: 0,
    };
    let model = SimModel {
        vocab: config.text.vocab_size,
        objects,
        crops: 1,
        memory: false,
    };
    let costs = SimCosts::constant(Duration::ZERO, Duration::ZERO, Duration::ZERO);
    SimBackend::new(limits, model, costs, ManualClock::default())
}

/// A device that fails after a number of steps.
pub struct FragileDevice {
    device: SimBackend,
    steps_left: usize,
}

impl FragileDevice {
    /// Fails at the commit after `steps`.
    pub fn new(device: SimBackend, steps: usize) -> Self {
        Self {
            device,
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
    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let left = self.steps_left.checked_sub(1);
        self.steps_left = left.ok_or_else(|| BackendError("it fell off the bus".into()))?;
        self.device.commit(slot)
    }
    fn release(&mut self, pages: &[PageId]) {
        self.device.release(pages);
    }
}

/// A device for which something is done before each step.
pub struct BeforeLaunch<D, F> {
    device: D,
    before: F,
}

impl<D: Backend, F: FnMut(&Step)> BeforeLaunch<D, F> {
    pub fn new(device: D, before: F) -> Self {
        Self { device, before }
    }
}

impl<D: Backend, F: FnMut(&Step)> Backend for BeforeLaunch<D, F> {
    fn limits(&self) -> BackendLimits {
        self.device.limits()
    }
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        (self.before)(&step);
        self.device.launch(slot, step)
    }
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.finalize(slot, masks)
    }
    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        self.device.commit(slot)
    }
    fn release(&mut self, pages: &[PageId]) {
        self.device.release(pages);
    }
}

/// An engine on a device.
pub fn engine(device: impl Backend + 'static, clock: Arc<dyn Clock>) -> Engine {
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 8,
    };
    Engine::new(Box::new(device), testing::micro_model(), bounds, clock)
}
