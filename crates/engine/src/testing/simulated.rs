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
        picks: usize::MAX,
        picture_pixels: usize::MAX,
        kept_crops: 0,
        adapters: 0,
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
        self.steps_left = left.ok_or_else(|| BackendError::Device("it fell off the bus".into()))?;
        self.device.commit(slot)
    }
    fn release(&mut self, pages: &[PageId]) {
        self.device.release(pages);
    }
}

/// The calls of a device that can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceCall {
    Launch,
    Finalize,
    Commit,
}

/// A device whose calls fail by a script. After a call that fails, the pages that the step was to write are released.
pub struct FaultyDevice<F> {
    device: Box<dyn Backend>,
    fault: F,
    /// Of the step in each slot.
    written: Vec<Vec<PageId>>,
}

impl<F: FnMut(DeviceCall) -> Option<BackendError>> FaultyDevice<F> {
    pub fn new(device: Box<dyn Backend>, fault: F) -> Self {
        let slots = device.limits().slots;
        Self {
            device,
            fault,
            written: vec![Vec::new(); slots],
        }
    }

    fn lose(&mut self, slot: SlotId, error: BackendError) -> BackendError {
        let written = std::mem::take(&mut self.written[slot.0]);
        self.device.release(&written);
        error
    }
}

impl<F: FnMut(DeviceCall) -> Option<BackendError>> Backend for FaultyDevice<F> {
    fn limits(&self) -> BackendLimits {
        self.device.limits()
    }
    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        if let Some(error) = (self.fault)(DeviceCall::Launch) {
            return Err(error);
        }
        let images = step.images.iter().flat_map(|image| image.pages.to_vec());
        let rows = step.rows.iter().flat_map(|row| {
            let read_only =
                (row.position - row.kv.prefix_positions) / self.device.limits().page_tokens;
            row.kv.own[read_only..].to_vec()
        });
        self.written[slot.0] = images.chain(rows).collect();
        self.device.launch(slot, step)
    }
    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.device.finalize(slot, masks)?;
        match (self.fault)(DeviceCall::Finalize) {
            Some(error) => {
                self.device.commit(slot)?;
                Err(self.lose(slot, error))
            }
            None => Ok(()),
        }
    }
    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        let results = self.device.commit(slot)?;
        match (self.fault)(DeviceCall::Commit) {
            Some(error) => Err(self.lose(slot, error)),
            None => Ok(results),
        }
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

/// An engine on this device whose model draws outlines.
pub fn outline_engine(device: impl Backend + 'static, clock: Arc<dyn Clock>) -> Engine {
    let bounds = Bounds {
        max_objects: 5,
        max_tokens: 32,
    };
    Engine::new(Box::new(device), testing::outline_model(), bounds, clock)
}
