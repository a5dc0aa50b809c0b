//! One engine with its cameras and its looks in flight. An engine fails alone: the cameras of other engines continue, and its own go to
//! them.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    engine_launch::{EngineHost, EngineOrder, MeasuredEngine},
    looks::LooksInFlight,
    node_reporter::longest_look,
};
use crate::api::RequestQueue;
use spotter_cameras::{
    ingest::DeviceMap,
    sampler::{CameraShare, Sampler, TimeLimits},
};
use spotter_core::{CameraId, Clock, LookNews, config};
use spotter_engine::{
    open::{ExpectedLook, GpuId, ModelCard, ModelDevice, frames_on},
    service::handle::{EngineEnd, EngineHandle, EngineStopped},
};

/// An engine on one device, running or lost.
pub struct EngineSlot {
    label: String,
    device: Option<ModelDevice>,
    gpu: Option<GpuId>,
    look: Option<Duration>,
    device_map: Option<DeviceMap>,
    cameras: Vec<CameraId>,
    share: Arc<CameraShare>,
    /// `None` when the engine has ended.
    running: Option<RunningEngine>,
    /// Why it has ended.
    ended: Option<String>,
}

struct RunningEngine {
    handle: EngineHandle,
    end: EngineEnd,
    looks: LooksInFlight,
}

/// What an engine is opened with.
pub struct EngineRequest<'a> {
    pub device: ModelDevice,
    pub host: EngineHost,
    pub model: &'a config::ModelSettings,
    /// The looks of all cameras; the engine is measured with the longest.
    pub looks: &'a [ExpectedLook],
    pub sampler: &'a Sampler,
    pub clock: &'a Arc<dyn Clock>,
}

/// An engine that ended by itself or was given up. Its looks in flight have yet to fail: [`settle`](Self::settle).
pub struct LostEngine {
    pub label: String,
    pub cameras: Vec<CameraId>,
    /// The error of the device.
    pub reason: String,
    running: RunningEngine,
}

impl EngineSlot {
    /// Opens and measures an engine, which has no camera yet, and logs its model.
    pub async fn open(request: EngineRequest<'_>) -> anyhow::Result<(Self, ModelCard)> {
        let EngineRequest {
            device,
            host,
            model,
            looks,
            sampler,
            clock,
        } = request;
        let tasks = longest_look(looks);
        let order = EngineOrder {
            device: device.clone(),
            settings: model.clone(),
            tasks: tasks.clone(),
            looks: looks.to_vec(),
        };
        let (handle, end, measured) = host.open(order, Arc::clone(clock)).await?;
        let MeasuredEngine { card, look } = measured;
        let looks_hz = look.map(|took| 1.0 / took.as_secs_f64().max(1e-6));
        let prompts_hz = looks_hz.map(|hz| hz * tasks.len() as f64);
        tracing::info!(
            model = &*card.name,
            family = &*card.family,
            device = card.device,
            prompts_per_s = prompts_hz.map(f64::round),
            calibrated_scores = calibrated(&card),
            "model loaded"
        );
        if let Some(warning) = card.warning() {
            tracing::warn!("{warning}");
        }
        // Another process cannot reach the memory of this process's GPU context.
        let reaches_frames = card.gpu.is_some() && host == EngineHost::Thread;
        let device_map = frames_on(reaches_frames, model);
        let limits = TimeLimits::new(model.budget, look);
        let share = sampler.share(limits);
        let started = (handle, end);
        let mut slot = Self::new(card.label.clone(), started, Vec::new(), share).on(device);
        (slot.gpu, slot.look) = (card.gpu.clone(), look);
        slot.device_map = device_map;
        Ok((slot, card))
    }

    /// A slot for an engine that runs already. It gets frames after [`seat`](Self::seat).
    pub fn new(
        label: String,
        started: (EngineHandle, EngineEnd),
        cameras: Vec<CameraId>,
        share: Arc<CameraShare>,
    ) -> Self {
        let (handle, end) = started;
        let looks = LooksInFlight::new(handle.clone(), Arc::clone(&share));
        Self {
            label,
            device: None,
            gpu: None,
            look: None,
            device_map: None,
            cameras,
            share,
            running: Some(RunningEngine { handle, end, looks }),
            ended: None,
        }
    }

    /// Sets the device on which a lost engine is opened again.
    pub fn on(mut self, device: ModelDevice) -> Self {
        self.device = Some(device);
        self
    }

    /// From now on also answers requests of the API.
    pub fn answer_requests(&mut self, queue: &Arc<RequestQueue>) {
        if let Some(running) = &mut self.running {
            running.looks.answer_requests(queue);
        }
    }

    /// Sets the cameras; [`seat`](Self::seat) applies them.
    pub fn set_cameras(&mut self, cameras: Vec<CameraId>) {
        self.cameras = cameras;
    }

    /// From now on the engine gets the frames of its cameras.
    pub fn seat(&self, sampler: &Sampler) {
        self.seat_without(sampler, |_| false);
    }

    /// The same without cameras that are about to leave: their looks in flight are the last.
    pub fn seat_without(&self, sampler: &Sampler, leaves: impl Fn(&CameraId) -> bool) {
        let stay = self.cameras.iter().filter(|camera| !leaves(camera));
        let stay: Vec<CameraId> = stay.cloned().collect();
        sampler.assign(&self.share, &stay);
    }

    /// Begins looks until there is news, as [`LooksInFlight::news`] does. An error is the end of the engine; call
    /// [`lose`](Self::lose) then. Never ready for a lost engine.
    pub async fn next(&mut self) -> Result<Vec<LookNews>, EngineStopped> {
        let Some(running) = &mut self.running else {
            return pending().await;
        };
        tokio::select! {
            // Before the looks that fail with the engine, so that the log shows the cause and shows it once.
            biased;
            reason = running.end.reason() => Err(reason),
            news = running.looks.news() => news,
        }
    }

    /// Marks the engine as lost. `None` when it was lost before.
    pub fn lose(&mut self, reason: &EngineStopped) -> Option<LostEngine> {
        let running = self.running.take()?;
        self.ended = Some(reason.to_string());
        Some(LostEngine {
            running,
            label: self.label.clone(),
            cameras: self.cameras.clone(),
            reason: reason.to_string(),
        })
    }

    /// Begins no more looks and waits for those in flight, at most until `deadline`. Returns all remaining news.
    pub async fn finish(&mut self, deadline: Instant) -> Vec<LookNews> {
        match &mut self.running {
            Some(running) => running.looks.finish(deadline - Instant::now()).await,
            None => Vec::new(),
        }
    }

    /// Drops the engine. The future is ready when its memory is free, at the latest at `deadline`.
    pub fn close(&mut self, deadline: Instant) -> impl Future<Output = ()> + use<> {
        // The handle and the looks are dropped here, so the engine gets no more requests.
        let end = self.running.take().map(|running| running.end);
        let device = self.label.clone();
        async move {
            let Some(end) = end else {
                return;
            };
            if timeout_at(deadline, end.over()).await.is_err() {
                tracing::warn!(
                    device,
                    "the engine did not end in time; continuing without waiting"
                );
            }
        }
    }

    /// `None` when the engine cannot be opened again.
    pub fn device(&self) -> Option<&ModelDevice> {
        self.device.as_ref()
    }

    /// The short name of the device, for example `cuda 1, NVIDIA H200`.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The GPU of an engine that runs on one.
    pub fn gpu(&self) -> Option<&GpuId> {
        self.running.as_ref().and(self.gpu.as_ref())
    }

    /// Why it has ended; `None` while it runs.
    pub fn ended(&self) -> Option<&str> {
        self.ended.as_deref()
    }

    /// Time of the longest look, measured when the engine was opened.
    pub fn look(&self) -> Option<Duration> {
        self.look
    }

    /// How frames stay on the GPU; `None` when they have to be copied to the host.
    pub fn device_map(&self) -> Option<DeviceMap> {
        self.device_map
    }

    pub fn cameras(&self) -> &[CameraId] {
        &self.cameras
    }

    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// A counter that rises with every step of the engine; `None` when it has ended.
    pub fn progress(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.handle.beats())
    }
}

impl LostEngine {
    /// Counts the looks in flight as failed. They end at once, because the last handle of the engine is dropped; those of a
    /// thread that hangs are not waited for after `limit`.
    pub async fn settle(self, sampler: &Sampler, limit: Duration) {
        let RunningEngine { handle, end, looks } = self.running;
        drop((handle, end));
        for news in looks.abandon(limit).await {
            sampler.news(&news);
        }
    }
}

/// CameraConfig names in one line.
pub fn camera_list<'a>(cameras: impl Iterator<Item = &'a CameraId>) -> String {
    let names: Vec<String> = cameras.map(ToString::to_string).collect();
    names.join(", ")
}

/// The kinds of prompts whose scores are calibrated; `None` without any.
fn calibrated(card: &ModelCard) -> Option<String> {
    let kinds: Vec<&str> = card.calibrated.iter().map(|kind| kind.name()).collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}
