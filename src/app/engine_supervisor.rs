//! All engines of the daemon, one for each device: opened, assigned to cameras, lost, opened again.
//!
//! ```text
//!   gate, dock ─▶ sampler ─▶ engine on cuda 0 ─▶ answers ─┐
//!   yard       ─▶ sampler ─▶ engine on cuda 1 ─▶ answers ─┴─▶ AnswerRouter     an engine that fails stops its own cameras only
//! ```
//!
//! One engine is a thread of the daemon. Of several engines each is a process, because the driver fails all GPUs of a process
//! together (`engine_launch`). A lost engine is opened again while the others run. The last engine that is lost ends the
//! daemon: it may be a thread of this process, whose driver is unusable now, and systemd starts the process again.

mod retry;

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{task::spawn_blocking, time::Instant};

use self::retry::RetrySchedule;
use super::{
    camera_assignment::{CameraAssignment, assign_cameras, assign_new_cameras},
    engine_launch::EngineHost,
    engine_slot::{EngineRequest, EngineSlot, LostEngine, camera_list},
};
use spotter_cameras::{ingest::DeviceMap, sampler::Sampler};
use spotter_core::{
    CameraId, Clock, Frame, LookNews,
    config::{CameraConfig, Config},
};
use spotter_engine::open::{self, ModelCard, ModelDevice};
use spotter_engine::service::handle::EngineStopped;

/// Grace for devices to free their memory.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Grace for the looks in flight of a lost engine.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// Opens the engines of a plan. Tests replace it.
pub type OpenEngines = dyn Fn(EnginePlan) -> OpeningEngines + Send + Sync;
pub type OpeningEngines = Pin<Box<dyn Future<Output = anyhow::Result<OpenedEngines>>>>;

/// The engines with their cameras.
pub struct EngineSupervisor {
    sampler: Arc<Sampler>,
    clock: Arc<dyn Clock>,
    open_engines: Arc<OpenEngines>,
    slots: Vec<EngineSlot>,
    /// Index of the engine that is polled first.
    first: usize,
    retries: RetrySchedule,
    reopening: Option<EngineReopening>,
}

/// What [`EngineSupervisor::next`] returns.
pub enum EngineEvent {
    /// News of looks, the answers in the order of each topic.
    Looks(Vec<LookNews>),
    /// An engine ended by itself; hand it to [`EngineSupervisor::on_lost`].
    Lost(LostEngine),
    /// Opening a lost engine succeeded or failed; hand it to [`EngineSupervisor::on_reopened`].
    Reopened(anyhow::Result<OpenedEngines>),
}

/// The effect of a lost engine.
pub struct EngineLoss {
    /// The cameras that are off now.
    pub cameras: Vec<CameraId>,
    /// The device and its error.
    pub reason: String,
    /// No engine is left.
    pub is_last: bool,
}

/// What engines are opened for.
#[derive(Clone)]
pub struct EnginePlan {
    pub config: Config,
    pub sampler: Arc<Sampler>,
    pub clock: Arc<dyn Clock>,
    /// Open an engine on this device only, beside engines that run. `None`: open all that `config` names.
    pub only: Option<ModelDevice>,
}

/// Engines that run, each with the cameras that it gets.
pub struct OpenedEngines {
    pub slots: Vec<EngineSlot>,
    /// The model of the first engine.
    pub card: ModelCard,
}

/// A lost engine that is being opened.
struct EngineReopening {
    label: String,
    opening: OpeningEngines,
}

impl EnginePlan {
    /// Opens the engines one after the other: the second finds the kernels compiled, each is measured with the machine to
    /// itself, and the host's memory holds the weights of one at a time.
    pub async fn open(self) -> anyhow::Result<OpenedEngines> {
        let config = &self.config;
        let (devices, host) = match &self.only {
            Some(device) => (vec![device.clone()], EngineHost::Process),
            None => configured_devices(config).await.context("model")?,
        };
        let assigned = assign_cameras(config.cameras.len(), devices.len());
        let (mut slots, mut first_card) = (Vec::new(), None);
        for device in devices {
            let label = device.label();
            let request = EngineRequest {
                device,
                host,
                model: &config.model,
                cameras: &cameras_of(slots.len(), &config.cameras, &assigned),
                sampler: &self.sampler,
                clock: &self.clock,
            };
            let opened = EngineSlot::open(request).await;
            let (slot, card) = opened.with_context(|| format!("model on {label}"))?;
            slots.push(slot);
            first_card.get_or_insert(card);
        }
        let card = first_card.context("model: no device; name at least one in model.gpus")?;
        Ok(OpenedEngines { slots, card })
    }
}

/// The devices of the configuration, and where their engines run.
async fn configured_devices(config: &Config) -> anyhow::Result<(Vec<ModelDevice>, EngineHost)> {
    let settings = config.model.clone();
    let chosen = spawn_blocking(move || open::choose(&settings)).await?;
    let mut devices = chosen.map_err(anyhow::Error::msg)?;
    // A device without a camera would occupy memory for nothing; the configuration's advice warns of it.
    devices.truncate(config.cameras.len());
    let host = EngineHost::for_engine_count(devices.len());
    Ok((devices, host))
}

impl EngineSupervisor {
    /// Takes over engines that run. From now on they get the frames of their cameras.
    pub fn new(
        sampler: Arc<Sampler>,
        slots: Vec<EngineSlot>,
        clock: Arc<dyn Clock>,
        open_engines: Arc<OpenEngines>,
    ) -> Self {
        slots.iter().for_each(|slot| slot.seat(&sampler));
        Self {
            sampler,
            clock,
            open_engines,
            slots,
            first: 0,
            retries: RetrySchedule::default(),
            reopening: None,
        }
    }

    /// Begins looks on all engines as permits and frames arrive, until there is an event. Dropping the future loses nothing.
    pub async fn next(&mut self) -> EngineEvent {
        let (slots, first) = (&mut self.slots, self.first);
        let (index, ended) = tokio::select! {
            ready = next_ready(slots, first) => ready,
            opened = reopened(&mut self.reopening) => return EngineEvent::Reopened(opened),
        };
        self.first = index + 1;
        match ended {
            Ok(news) => EngineEvent::Looks(news),
            Err(reason) => match self.slots[index].lose(&reason) {
                Some(lost) => EngineEvent::Lost(lost),
                // A lost engine is never ready, so this branch is not reached.
                None => pending().await,
            },
        }
    }

    /// Sets the cameras and their settings. No camera moves; a new one goes to the running engine with the fewest cameras.
    pub fn set_cameras(&mut self, cameras: &[CameraConfig]) {
        self.sampler.change(cameras);
        let current_engine = |camera: &CameraConfig| {
            let mut slots = self.slots.iter();
            slots.position(|slot| slot.cameras().contains(&camera.id))
        };
        let current: Vec<_> = cameras.iter().map(current_engine).collect();
        let running: Vec<_> = self.slots.iter().map(EngineSlot::is_running).collect();
        let assigned = assign_new_cameras(&current, &running);
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let cameras = cameras_of(index, cameras, &assigned);
            slot.set_cameras(camera_ids(&cameras), &self.sampler);
        }
    }

    /// True when `config` has a GPU that got no engine for want of cameras and would get one now.
    pub fn would_use_more_gpus(&self, config: &Config) -> bool {
        let engines = config.model.gpus.len().min(config.cameras.len());
        !self.gpus().is_empty() && engines > self.slots.len()
    }

    /// The cameras of all engines.
    pub fn sampler(&self) -> &Arc<Sampler> {
        &self.sampler
    }

    pub fn all_lost(&self) -> bool {
        !self.slots.iter().any(EngineSlot::is_running)
    }

    /// Begins no more looks and waits at most `limit` for those in flight. Returns all remaining news.
    pub async fn finish(&mut self, limit: Duration) -> Vec<LookNews> {
        let deadline = Instant::now() + limit;
        let mut last = Vec::new();
        // One engine after the other; meanwhile the looks of all of them continue.
        for slot in &mut self.slots {
            last.extend(slot.finish(deadline).await);
        }
        last
    }

    /// Drops all engines at once; looks in flight count as failed. Waits until their memory is free, at most some seconds.
    pub async fn close(&mut self) {
        let deadline = Instant::now() + CLOSE_LIMIT;
        let closing: Vec<_> = self.slots.iter_mut().map(|s| s.close(deadline)).collect();
        self.sampler.abandon();
        for closed in closing {
            closed.await;
        }
    }

    /// Waits for an engine that is being opened and drops it: it cannot be dropped earlier, and its device has to be free
    /// before another model is opened there.
    pub async fn cancel_reopening(&mut self, limit: Duration) {
        let Some(EngineReopening { opening, .. }) = self.reopening.take() else {
            return;
        };
        if let Ok(Ok(mut opened)) = tokio::time::timeout(limit, opening).await {
            let deadline = Instant::now() + CLOSE_LIMIT;
            for slot in &mut opened.slots {
                slot.close(deadline).await;
            }
        }
    }

    /// Gives up an engine that shows no progress. `None` when it is lost already.
    pub fn give_up(&mut self, label: &str) -> Option<LostEngine> {
        let reason = EngineStopped("the device returns no more results".into());
        let mut slots = self.slots.iter_mut();
        slots.find(|slot| slot.label() == label)?.lose(&reason)
    }

    /// Counts the looks of a lost engine as failed, and schedules the attempt to open it again.
    pub async fn on_lost(&mut self, lost: LostEngine) -> EngineLoss {
        let reason = format!("engine on {}: {}", lost.label, lost.reason);
        let (label, cameras) = (lost.label.clone(), lost.cameras.clone());
        lost.settle(&self.sampler, SETTLE_LIMIT).await;
        let is_last = self.all_lost();
        if !is_last {
            let retry_s = self.retries.lose(&label, self.clock.now()).as_secs();
            tracing::error!(
                cameras = camera_list(cameras.iter()),
                retry_s,
                "{reason}; its cameras are off until it is opened again, other cameras continue"
            );
        }
        EngineLoss {
            cameras,
            reason,
            is_last,
        }
    }

    /// Begins to open a lost engine whose pause is over, one at a time.
    pub fn reopen_due(&mut self, effective: impl FnOnce() -> Config) {
        if self.reopening.is_some() {
            return;
        }
        let Some(label) = self.retries.due(self.clock.now()) else {
            return;
        };
        let Some(slot) = self.slots.iter().find(|slot| slot.label() == label) else {
            return;
        };
        let Some(device) = slot.device() else {
            return;
        };
        tracing::info!(device = label, "opening the lost engine again");
        let mut config = effective();
        let is_its = |camera: &CameraConfig| slot.cameras().contains(&camera.id);
        config.cameras.retain(is_its);
        let plan = EnginePlan {
            config,
            sampler: Arc::clone(&self.sampler),
            clock: Arc::clone(&self.clock),
            only: Some(device.clone()),
        };
        self.reopening = Some(EngineReopening {
            label: label.to_owned(),
            opening: (self.open_engines)(plan),
        });
    }

    pub fn is_reopening(&self, label: &str) -> bool {
        let reopening = self.reopening.as_ref();
        reopening.is_some_and(|reopening| reopening.label == label)
    }

    /// Puts an engine that was opened again in its slot, or schedules the next attempt. Returns the cameras that have an
    /// engine again.
    pub fn on_reopened(&mut self, opened: anyhow::Result<OpenedEngines>) -> Vec<CameraId> {
        let Some(EngineReopening { label, .. }) = self.reopening.take() else {
            return Vec::new();
        };
        let now = self.clock.now();
        match opened {
            Ok(OpenedEngines { slots, .. }) => {
                self.retries.recover(&label, now);
                let mut recovered = Vec::new();
                for slot in slots {
                    recovered.extend_from_slice(self.put_back(slot));
                }
                let cameras = camera_list(recovered.iter());
                tracing::info!(device = label, cameras, "the engine runs again");
                recovered
            }
            Err(error) => {
                let retry_s = self.retries.lose(&label, now).as_secs();
                tracing::error!(
                    retry_s,
                    "engine on {label} cannot be opened again: {error:#}"
                );
                Vec::new()
            }
        }
    }

    /// The engine gets the cameras that are assigned to its slot by now.
    fn put_back(&mut self, mut slot: EngineSlot) -> &[CameraId] {
        let mut slots = self.slots.iter_mut();
        let Some(place) = slots.find(|place| place.label() == slot.label()) else {
            return &[];
        };
        slot.set_cameras(place.cameras().to_vec(), &self.sampler);
        *place = slot;
        place.cameras()
    }

    /// Where the frames of a camera go; `None` for an unknown camera.
    pub fn sink(&self, camera: &CameraId) -> Option<Arc<dyn Fn(Frame) + Send + Sync>> {
        Some(Arc::new(self.sampler.camera_sink(camera)?))
    }

    /// How frames of a camera stay on the GPU; `None` when they have to be copied to the host.
    pub fn device_map(&self, camera: &CameraId) -> Option<DeviceMap> {
        let mut slots = self.slots.iter();
        slots
            .find(|slot| slot.cameras().contains(camera))?
            .device_map()
    }

    pub fn assignment(&self) -> CameraAssignment {
        let labelled = |slot: &EngineSlot| {
            let cameras = slot.cameras().iter();
            let pairs = cameras.map(|camera| (camera.clone(), slot.label().to_owned()));
            pairs.collect::<Vec<_>>()
        };
        self.slots.iter().flat_map(labelled).collect()
    }

    /// Names of the GPUs in use.
    pub fn gpus(&self) -> Vec<String> {
        let gpus = self.slots.iter().filter_map(EngineSlot::gpu);
        gpus.map(|gpu| gpu.name.clone()).collect()
    }

    /// UUID of the first GPU in use.
    pub fn first_gpu(&self) -> Option<&str> {
        let mut gpus = self.slots.iter().filter_map(EngineSlot::gpu);
        gpus.next().map(|gpu| gpu.uuid.as_str())
    }

    /// Label and progress counter of each engine; no counter for a lost engine.
    pub fn progress(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.slots
            .iter()
            .map(|slot| (slot.label(), slot.progress()))
    }

    /// The slowest device's time of a look, measured when the engines were opened.
    pub fn look(&self) -> Option<Duration> {
        self.slots.iter().filter_map(EngineSlot::look).max()
    }
}

/// The next engine that has news or has ended. Polls another engine first each time, so that a busy engine does not delay
/// the others.
async fn next_ready(
    slots: &mut [EngineSlot],
    first: usize,
) -> (usize, Result<Vec<LookNews>, EngineStopped>) {
    let mut waiting: Vec<_> = slots
        .iter_mut()
        .enumerate()
        .map(|(index, slot)| (index, Box::pin(slot.next())))
        .collect();
    let turn = first % waiting.len().max(1);
    waiting.rotate_left(turn);
    poll_fn(|context| {
        for (index, next) in &mut waiting {
            if let Poll::Ready(ended) = next.as_mut().poll(context) {
                return Poll::Ready((*index, ended));
            }
        }
        Poll::Pending
    })
    .await
}

/// Never ready while no engine is being opened. Dropping the future loses nothing.
async fn reopened(reopening: &mut Option<EngineReopening>) -> anyhow::Result<OpenedEngines> {
    match reopening {
        Some(reopening) => (&mut reopening.opening).await,
        None => pending().await,
    }
}

/// The cameras that are assigned to one of the engines.
fn cameras_of(engine: usize, cameras: &[CameraConfig], assigned: &[usize]) -> Vec<CameraConfig> {
    let all = cameras.iter().zip(assigned);
    let its = all.filter(|(_, of)| **of == engine);
    its.map(|(camera, _)| camera.clone()).collect()
}

fn camera_ids(cameras: &[CameraConfig]) -> Vec<CameraId> {
    cameras.iter().map(|camera| camera.id.clone()).collect()
}

#[cfg(test)]
mod tests;
