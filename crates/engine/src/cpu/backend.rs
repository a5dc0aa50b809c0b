//! [`CpuBackend`]: the caller's side. Checks every call, then hands it to the stream.

use std::sync::Arc;

use super::{
    device::{CpuDevice, SlotState},
    kv::KvCache,
    ops::{linear, linear_in_int8, stored_linear},
    rank::CpuRank,
    region::RegionModel,
    stream::{CpuStream, StreamCommand},
    text::TextModel,
    tiles::FeatureStore,
    vision::VisionModel,
};
use crate::{
    model::{Formats, LinearWeights, ModelConfig, Weights, WeightsError},
    network::{format::Number, shard::Shard},
    scheduler::backend::{Backend, BackendError, BackendLimits, RowMask, SlotId, Step, StepResult},
    step_check::{Flights, check},
};
use spotter_core::Clock;

/// How a [`CpuBackend`] computes, and how much it takes at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuSettings<'a> {
    /// F32 and int8 are known.
    pub formats: Formats<'a>,
    pub slots: usize,
    /// Rows in one step.
    pub rows: usize,
    /// Images in one step.
    pub images: usize,
    /// Pages of the cache; memory is taken from the system when a page is first written.
    pub pages: usize,
    /// Positions of a page.
    pub page_tokens: usize,
    /// Crops whose features are kept; memory is taken from the system when they are first encoded.
    pub kept_crops: usize,
}

/// A model on all cores, through Rayon's global pool.
///
/// The model belongs to a thread of its own, the stream. `launch` and `finalize` hand over and return; `commit`
/// waits. An error of the thread, a panic too, comes out of the next call that needs it.
pub struct CpuBackend {
    limits: BackendLimits,
    vocab: usize,
    flights: Flights,
    stream: CpuStream,
}

impl CpuBackend {
    /// Reads the weights as f32, twice the size of a bf16 file, or int8, half of it, tensor by tensor; those of a model with experts stay as
    /// the file has them, but for layers in int8. The step times are read from `clock`. Starts the thread `cpu-stream`, which ends when the backend is dropped.
    pub fn new(
        config: &ModelConfig,
        weights: Weights,
        settings: CpuSettings<'_>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BackendError> {
        Self::of_rank(config, weights, settings, clock, None)
    }

    /// The same as one of several that work as one, with its part of the weights, or alone.
    pub fn of_rank(
        config: &ModelConfig,
        weights: Weights,
        settings: CpuSettings<'_>,
        clock: Arc<dyn Clock>,
        rank: Option<CpuRank>,
    ) -> Result<Self, BackendError> {
        let shard = rank.as_ref().map_or(Shard::WHOLE, |rank| rank.shard);
        let config = &config.of_shard(shard).map_err(BackendError::Device)?;
        let weights = weights.of_shard(shard);
        let limits = limits(config, settings)?;
        // In f32 the other layers of a model with experts would take more memory than its file.
        let in_f32 = match weights.has_experts() {
            true => stored_linear,
            false => linear,
        };
        let large = |weights: LinearWeights| match settings.formats.of(weights.large).weight {
            Number::Int8 => linear_in_int8(weights),
            _ => in_f32(weights),
        };
        let unreadable = |error: WeightsError| BackendError::Device(error.to_string());
        let text = TextModel::new(config, weights.text, &large).map_err(unreadable)?;
        let device = CpuDevice {
            config: config.clone(),
            vision: VisionModel::new(&config.vision, weights.vision, &large).map_err(unreadable)?,
            region: RegionModel::new(weights.region).map_err(unreadable)?,
            cache: KvCache::new(text.kv_shape(limits.pages, limits.page_tokens)),
            text,
            rank,
            tiles: FeatureStore::new(limits.kept_crops),
            slots: (0..limits.slots).map(|_| SlotState::default()).collect(),
            hidden: Vec::new(),
            clock,
        };
        let vocab = device.text.vocab();
        Ok(Self {
            limits,
            vocab,
            flights: Flights::new(limits.slots, vocab),
            stream: CpuStream::start(device, limits.slots)?,
        })
    }

    /// What `look` sees of the device, once all steps launched so far have run.
    #[cfg(test)]
    pub(super) fn inspect<T: Send + 'static>(
        &mut self,
        look: impl FnOnce(&mut CpuDevice) -> T + Send + 'static,
    ) -> Result<T, BackendError> {
        let (answer, seen) = std::sync::mpsc::sync_channel(1);
        let look = move |device: &mut CpuDevice| answer.send(look(device)).unwrap();
        self.stream.send(StreamCommand::Inspect(Box::new(look)))?;
        seen.recv().map_err(|e| BackendError::Device(e.to_string()))
    }

    /// Stops the stream where it is until the other end of `gate` is dropped.
    #[cfg(test)]
    pub(super) fn hold(&mut self, gate: std::sync::mpsc::Receiver<()>) -> Result<(), BackendError> {
        // An error is what it waits for.
        let wait = move |_: &mut CpuDevice| {
            let _ = gate.recv();
        };
        self.stream.send(StreamCommand::Inspect(Box::new(wait)))
    }
}

impl Backend for CpuBackend {
    fn limits(&self) -> BackendLimits {
        self.limits
    }

    fn launch(&mut self, slot: SlotId, step: Step) -> Result<(), BackendError> {
        check(&step, &self.limits, self.vocab)?;
        self.flights.launch(slot, &step.rows)?;
        self.stream.send(StreamCommand::Run(slot, step))
    }

    fn finalize(&mut self, slot: SlotId, masks: Vec<RowMask>) -> Result<(), BackendError> {
        self.flights.finalize(slot, &masks)?;
        self.stream.send(StreamCommand::Finalize(slot, masks))
    }

    fn commit(&mut self, slot: SlotId) -> Result<StepResult, BackendError> {
        self.flights.commit(slot)?;
        self.stream.receive(slot)
    }
}

/// The capacity and the model's own limits; an error when not even one look fits.
fn limits(config: &ModelConfig, capacity: CpuSettings<'_>) -> Result<BackendLimits, BackendError> {
    let needs = config.prefix_positions() + 1;
    let positions = capacity.pages.saturating_mul(capacity.page_tokens);
    if positions < needs {
        return Err(BackendError::Device(format!(
            "the cache has {} pages of {} positions, one look needs {needs} positions or more",
            capacity.pages, capacity.page_tokens
        )));
    }
    for (what, count) in [
        ("slots", capacity.slots),
        ("rows", capacity.rows),
        ("images", capacity.images),
    ] {
        if count == 0 {
            return Err(BackendError::Device(format!(
                "the backend has 0 {what}, needs one or more"
            )));
        }
    }
    Ok(BackendLimits {
        slots: capacity.slots,
        rows: capacity.rows,
        pages: capacity.pages,
        page_tokens: capacity.page_tokens,
        context: config.context(),
        prefix_positions: config.prefix_positions(),
        images: capacity.images,
        positions: usize::MAX,
        tokens: usize::MAX,
        picks: usize::MAX,
        picture_pixels: usize::MAX,
        kept_crops: capacity.kept_crops,
        adapters: usize::MAX,
    })
}

#[cfg(test)]
mod tests;
