//! One engine with its cameras and its sampler. An engine fails alone: the cameras of other engines continue, and its own go to
//! them.

use std::{future::pending, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{Instant, timeout_at},
};

use super::{
    engine_launch::{EngineHost, EngineOrder, MeasuredEngine},
    engine_usage::EngineUsage,
    looks::{LookSource, LooksInFlight},
    node_reporter::longest_look,
    request_turns::EngineRequests,
};
use spotter_api::RequestQueue;
use spotter_cameras::{
    ingest::DeviceMap,
    sampler::{CameraShare, Sampler, TimeLimits},
};
use spotter_config as config;
use spotter_core::{CameraId, Clock};
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
    /// At most one task, which begins looks.
    sampler: JoinSet<()>,
    /// `None` when the engine has ended.
    running: Option<RunningEngine>,
    /// Since the start of the daemon, also when the engine was opened again.
    pub usage: EngineUsage,
    why_ended: Option<String>,
}

struct RunningEngine {
    handle: EngineHandle,
    end: EngineEnd,
    requests: watch::Sender<Option<EngineRequests>>,
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

/// An engine that ended by itself or was given up. Its looks in flight fail.
pub struct LostEngine {
    pub label: String,
    pub cameras: Vec<CameraId>,
    /// The error of the device.
    pub reason: String,
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
        let mut slot = Self::new(card.label.clone(), started, share).on(device);
        (slot.gpu, slot.look) = (card.gpu.clone(), look);
        slot.device_map = device_map;
        Ok((slot, card))
    }

    /// A slot for an engine that runs already. It gets frames after [`begin_looks`](Self::begin_looks).
    pub fn new(label: String, started: (EngineHandle, EngineEnd), share: Arc<CameraShare>) -> Self {
        let (handle, end) = started;
        let running = RunningEngine {
            handle,
            end,
            requests: watch::Sender::default(),
        };
        Self {
            label,
            device: None,
            gpu: None,
            look: None,
            device_map: None,
            cameras: Vec::new(),
            share,
            usage: EngineUsage::default(),
            sampler: JoinSet::new(),
            running: Some(running),
            why_ended: None,
        }
    }

    /// Sets the device on which a lost engine is opened again.
    pub fn on(mut self, device: ModelDevice) -> Self {
        self.device = Some(device);
        self
    }

    /// From now on the engine gets looks at the frames of its cameras, which are followed in `looks`.
    pub fn begin_looks(&mut self, looks: &LooksInFlight) {
        if let (Some(running), Some(sender)) = (&self.running, looks.sender()) {
            let source = LookSource {
                engine: running.handle.clone(),
                share: Arc::clone(&self.share),
                requests: running.requests.subscribe(),
            };
            self.sampler.spawn(source.begin_looks(sender));
        }
    }

    /// From now on also answers requests of the API, when no camera has a look due.
    pub fn answer_requests(&self, queue: &Arc<RequestQueue>) {
        if let Some(running) = &self.running {
            (running.requests).send_replace(Some(EngineRequests::new(queue)));
        }
    }

    /// Replaces the cameras of which the engine gets frames.
    pub fn set_cameras(&mut self, cameras: Vec<CameraId>, sampler: &Sampler) {
        sampler.assign(&self.share, &cameras);
        self.cameras = cameras;
    }

    /// Waits for the end of the engine; call [`lose`](Self::lose) then. Never ready for a lost engine.
    pub async fn ended(&mut self) -> EngineStopped {
        match &mut self.running {
            Some(running) => running.end.reason().await,
            None => pending().await,
        }
    }

    /// Marks the engine as lost; its looks in flight fail at once. `None` when it was lost before.
    pub fn lose(&mut self, reason: &EngineStopped) -> Option<LostEngine> {
        let running = self.running.take()?;
        self.sampler.abort_all();
        running.handle.give_up();
        self.why_ended = Some(reason.to_string());
        Some(LostEngine {
            label: self.label.clone(),
            cameras: self.cameras.clone(),
            reason: reason.to_string(),
        })
    }

    /// Begins no more looks.
    pub async fn stop_looks(&mut self) {
        self.sampler.shutdown().await;
    }

    /// Waits until the begun requests of the API are answered, at most until `deadline`; then looks and requests inside fail.
    pub async fn give_up_looks(&mut self, deadline: Instant) {
        let Some(running) = &self.running else {
            return;
        };
        let requests = running.requests.borrow().clone();
        if let Some(requests) = requests {
            _ = timeout_at(deadline, requests.all_answered()).await;
        }
        running.handle.give_up();
    }

    /// Drops the engine. The future is ready when its memory is free, at the latest at `deadline`.
    pub fn close(&mut self, deadline: Instant) -> impl Future<Output = ()> + use<> {
        // The handles are dropped here, so the engine gets no more looks.
        self.sampler.abort_all();
        let end = self.running.take().map(|running| {
            running.handle.give_up();
            running.end
        });
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
    pub fn why_ended(&self) -> Option<&str> {
        self.why_ended.as_deref()
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
