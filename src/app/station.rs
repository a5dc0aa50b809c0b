//! An engine with the cameras that it looks at, and the looks under way. It fails alone: the cameras of other engines go on.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    birth,
    looks::Looks,
    opening::{Home, Measured, Order},
};
use spotter_cameras::{
    ingest::DeviceMap,
    sampler::{Sampler, Share, TimeLimits},
};
use spotter_core::{
    CameraId, Clock, Outcome,
    config::{self, Camera},
};
use spotter_engine::{
    open::{Device, GpuId, ModelCard, frames_on},
    service::handle::{End, EngineStopped, Handle},
};

/// One of the daemon's engines.
pub struct Station {
    label: String,
    device: Option<Device>,
    gpu: Option<GpuId>,
    look: Option<Duration>,
    device_map: Option<DeviceMap>,
    cameras: Vec<CameraId>,
    share: Arc<Share>,
    /// `None` when the engine has ended.
    running: Option<Running>,
}

struct Running {
    engine: Handle,
    end: End,
    looks: Looks,
}

/// An engine ended by itself. What it was asked is failing.
pub struct Loss {
    /// Which device.
    pub label: String,
    /// Who is not looked at any more.
    pub cameras: Vec<CameraId>,
    /// What the device said.
    pub reason: String,
    running: Running,
}

impl Station {
    /// Opens the engine at its home, and says what it is and what it is not good for.
    pub async fn open(
        device: Device,
        home: Home,
        settings: &config::Model,
        cameras: &[Camera],
        (sampler, clock): (&Sampler, &Arc<dyn Clock>),
    ) -> anyhow::Result<(Self, ModelCard)> {
        let order = Order {
            device: device.clone(),
            settings: settings.clone(),
            tasks: birth::longest_look(cameras),
        };
        let prompts = order.tasks.len();
        let (engine, end, Measured { card, look }) = home.open(order, Arc::clone(clock)).await?;
        let prompts_hz = look.map(|took| prompts as f64 / took.as_secs_f64().max(1e-6));
        tracing::info!(
            model = &*card.name,
            device = card.device,
            cameras = names(cameras.iter().map(|camera| &camera.id)),
            prompts_per_s = prompts_hz.map(f64::round),
            "model loaded"
        );
        let machine = card.gpu.as_ref().map_or("CPU", |_| "GPU");
        if let Some(hz) = prompts_hz
            && let Some(warning) = config::advice::impossible_load(cameras, machine, hz)
        {
            tracing::warn!(device = card.label, "{warning}");
        }
        let share = sampler.share(TimeLimits::new(settings.budget, look));
        let ids = cameras.iter().map(|camera| camera.id.clone()).collect();
        let mut station = Self::new(card.label.clone(), (engine, end), ids, share).on(device);
        (station.gpu, station.look) = (card.gpu.clone(), look);
        // Memory of a GPU that this process has is no other's.
        let reaches_frames = card.gpu.is_some() && home == Home::Thread;
        station.device_map = frames_on(reaches_frames, settings);
        Ok((station, card))
    }

    /// Around an engine that runs already, and that is to have these cameras.
    pub fn new(
        label: String,
        (engine, end): (Handle, End),
        cameras: Vec<CameraId>,
        share: Arc<Share>,
    ) -> Self {
        let looks = Looks::new(engine.clone(), Arc::clone(&share));
        Self {
            label,
            device: None,
            gpu: None,
            look: None,
            device_map: None,
            cameras,
            share,
            running: Some(Running { engine, end, looks }),
        }
    }

    /// The same on a device that it can be opened on again.
    pub fn on(mut self, device: Device) -> Self {
        self.device = Some(device);
        self
    }

    /// These are its cameras from now on.
    pub fn change(&mut self, cameras: Vec<CameraId>, sampler: &Sampler) {
        self.cameras = cameras;
        self.seat(sampler);
    }

    /// Frames of its cameras come to it from now on.
    pub fn seat(&self, sampler: &Sampler) {
        sampler.seat(&self.share, &self.cameras);
    }

    /// Begins looks until outcomes are to be handed on, as [`Looks::outcomes`] does. An error is the engine's end; it is to be
    /// [`lost`](Self::lost) then. For a station that has lost its engine, never ready.
    pub async fn next(&mut self) -> Result<Vec<Outcome>, EngineStopped> {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        tokio::select! {
            // Before the looks that fail with it, so that one reason is told, and the true one.
            biased;
            reason = running.end.reason() => Err(reason),
            outcomes = running.looks.outcomes() => outcomes,
        }
    }

    /// Its engine ended with `reason`. `None` when that was known.
    pub fn lost(&mut self, reason: &EngineStopped) -> Option<Loss> {
        Some(Loss {
            running: self.running.take()?,
            label: self.label.clone(),
            cameras: self.cameras.clone(),
            reason: reason.to_string(),
        })
    }

    /// Begins no more looks, and waits until then at most for those under way. Returns all outcomes that are left.
    pub async fn finish(&mut self, until: Instant) -> Vec<Outcome> {
        match &mut self.running {
            Some(running) => running.looks.finish(until - Instant::now()).await,
            None => Vec::new(),
        }
    }

    /// Lets the engine go. The future is ready when the memory that it held is free, or then at the latest.
    pub fn let_go(&mut self, until: Instant) -> impl Future<Output = ()> + use<> {
        // The handle and the looks are dropped here: nothing is asked any more.
        let end = self.running.take().map(|running| running.end);
        let device = self.label.clone();
        async move {
            let Some(end) = end else {
                return;
            };
            if tokio::time::timeout_at(until, end.over()).await.is_err() {
                tracing::warn!(device, "the engine did not end in time");
            }
        }
    }

    /// What it can be opened on again; `None` for one that was not opened here.
    pub fn device(&self) -> Option<&Device> {
        self.device.as_ref()
    }

    /// The device's short name.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its GPU, when it runs on one and has not failed.
    pub fn gpu(&self) -> Option<&GpuId> {
        self.running.as_ref().and(self.gpu.as_ref())
    }

    /// Time of a look, as it was measured at the start.
    pub fn look(&self) -> Option<Duration> {
        self.look
    }

    /// How frames may stay on its GPU; `None` where they have to come to the host.
    pub fn device_map(&self) -> Option<DeviceMap> {
        self.device_map
    }

    /// Its cameras.
    pub fn cameras(&self) -> &[CameraId] {
        &self.cameras
    }

    /// Whether somebody looks at its frames.
    pub fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Progress of the engine; `None` when it has ended.
    pub fn beats(&self) -> Option<u64> {
        self.running.as_ref().map(|running| running.engine.beats())
    }
}

impl Loss {
    /// Books the looks that the engine had taken as failed, and lets it go. They end at once, because nobody is left to answer
    /// them; those of a thread that hangs do not, and the daemon ends with it.
    pub async fn settle(self, sampler: &Sampler, limit: Duration) {
        let Running { engine, end, looks } = self.running;
        drop((engine, end));
        for outcome in looks.abandon(limit).await {
            sampler.done(&outcome);
        }
    }
}

/// Camera names in one line.
pub fn names<'a>(cameras: impl Iterator<Item = &'a CameraId>) -> String {
    let names: Vec<String> = cameras.map(ToString::to_string).collect();
    names.join(", ")
}
