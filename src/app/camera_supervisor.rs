//! The cameras of the configuration: started, changed, switched on and off, stopped; and their published health.

mod health_report;

use std::{collections::BTreeMap, future::pending, sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};

use self::health_report::{HealthDigest, HealthReason, health_message};
use super::{
    notice::StageNotice,
    stage::{Handles, Stage, StageContext, StageFuture},
    status,
};
use spotter_cameras::{
    ingest::{self, CameraHandle, DeviceMap, FrameSink, Health},
    sampler::StripShortage,
};
use spotter_config::{self as config, CameraChange, ConfigChange};
use spotter_core::{CameraId, LogThrottle, Mono, Phase, PromptId, TriggeredLooks, WallTime};
use spotter_mqtt::{Off, Publisher, Update};
use spotter_page::{CameraStatus, Trouble, TroubleKind};

/// Grace for closing the sessions of the cameras when the daemon stops.
const STOP_LIMIT: Duration = Duration::from_secs(6);
/// Grace for closing the session of a camera that was removed from the configuration.
const CLOSE_LIMIT: Duration = Duration::from_secs(10);
/// An abandoned pipeline keeps its threads and memory, and may keep its session on the camera. This many
/// need a new process.
const ABANDONED_MAX: u32 = 8;

pub struct CameraSupervisor {
    cameras: Vec<SupervisedCamera>,
    /// Sessions of removed cameras that are being closed.
    closing: JoinSet<CameraId>,
    shortages_logged: LogThrottle<CameraId>,
    /// How frames stay on the GPU; `None` when they have to be copied to the host.
    device: Option<DeviceMap>,
    handles: Handles,
}

struct SupervisedCamera {
    camera: config::CameraConfig,
    handle: CameraHandle,
    health: watch::Receiver<Health>,
    /// Why the configuration has it off now.
    off: Option<Off>,
    /// It has triggers, none of them is active, and no look is requested.
    is_waiting: bool,
    /// The last state that [`switched`](Self::switched) reported.
    was_on: bool,
    has_warned_of_gop: bool,
    /// Why prompts have no strips, though it streams.
    no_strips: Option<String>,
    published: Option<HealthDigest>,
}

impl CameraSupervisor {
    /// Starts every camera; does not wait for connections.
    pub fn start(
        cameras: &[config::CameraConfig],
        device: Option<DeviceMap>,
        handles: Handles,
    ) -> Self {
        let mut supervisor = Self {
            cameras: Vec::new(),
            closing: JoinSet::new(),
            shortages_logged: LogThrottle::default(),
            device,
            handles,
        };
        for camera in cameras {
            supervisor.begin(camera);
        }
        supervisor
    }

    /// Not for a camera that the sampler does not know.
    fn begin(&mut self, camera: &config::CameraConfig) {
        let sampler = &self.handles.sampler;
        let (sink, whole) = (
            sampler.camera_sink(&camera.id),
            sampler.whole_pictures(&camera.id),
        );
        let (Some(sink), Some(whole)) = (sink, whole) else {
            return;
        };
        let sink = FrameSink::new(sink).with_whole(whole);
        let clock = Arc::clone(&self.handles.clock);
        let handle = ingest::spawn(camera.clone(), clock, sink, self.device);
        self.cameras.push(SupervisedCamera::new(camera, handle));
    }

    fn find(&mut self, camera: &CameraId) -> Option<&mut SupervisedCamera> {
        let mut all = self.cameras.iter_mut();
        all.find(|watched| watched.camera.id == *camera)
    }

    /// Of which cameras no strips can be made.
    fn set_shortages(&mut self, shortages: &[(CameraId, StripShortage)]) {
        let clock = &self.handles.clock;
        for watched in &mut self.cameras {
            let text = watched.no_strips(shortages, clock.wall());
            let id = &watched.camera.id;
            match (&watched.no_strips, &text) {
                (None, Some(text)) => {
                    if let Some(suppressed) = self.shortages_logged.admit(id.clone(), clock.now()) {
                        tracing::warn!(camera = %id, suppressed, "{text}");
                    }
                }
                (Some(_), None) => tracing::info!(camera = %id, "strips can be made again"),
                _ => {}
            }
            watched.no_strips = text;
        }
    }

    /// One line for each camera that should stream and does not, or of which prompts are not asked. A camera that its schedule
    /// has switched off and a file that has ended are not among them.
    fn troubles(&self) -> impl Iterator<Item = Trouble> {
        self.cameras.iter().filter_map(|camera| {
            let health = camera.health.borrow();
            let why = camera.reason(&health);
            let is_fine = match health.phase {
                Phase::Streaming => why.is_none(),
                phase => !phase.is_meant_to_stream(),
            };
            let kind = why.as_ref().map_or(TroubleKind::Starting, |why| why.kind);
            let why = why.map_or_else(|| health.phase.as_str().to_owned(), |why| why.to_string());
            let text = format!("camera {}: {why}", camera.camera.id);
            (!is_fine).then(|| Trouble::new(kind, text))
        })
    }
}

impl Stage for CameraSupervisor {
    /// A session of a removed camera is closed.
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            match self.closing.join_next().await {
                Some(Ok(closed)) => vec![StageNotice::SessionClosed(closed)],
                Some(Err(_)) => Vec::new(),
                None => pending().await,
            }
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        match notice {
            // The connection stays.
            StageNotice::LookSwitched(camera, looks) => {
                if let Some(watched) = self.find(camera) {
                    let is_looked_at = *looks != TriggeredLooks::None;
                    watched.is_waiting = !is_looked_at && !watched.camera.triggers.is_empty();
                    context.say_all(watched.switched());
                }
            }
            StageNotice::ReconnectAsked(camera) => {
                if let Some(watched) = self.find(camera) {
                    watched.handle.reconnect();
                }
            }
            // At the next tick.
            StageNotice::Owned(camera) => {
                if let Some(watched) = self.find(camera) {
                    watched.published = None;
                }
            }
            _ => {}
        }
    }

    /// A camera keeps its connection unless its source or decoding changes. The sessions of removed cameras are closed in the background.
    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        for (id, change) in change.cameras() {
            let place = self.cameras.iter().position(|known| known.camera.id == *id);
            match (place, change.camera()) {
                (Some(place), Some(_)) => self.cameras[place].apply(change, self.device),
                (Some(place), None) => {
                    let removed = self.cameras.remove(place);
                    self.closing.spawn(removed.close(CLOSE_LIMIT));
                }
                (None, Some(camera)) => self.begin(camera),
                (None, None) => {}
            }
        }
    }

    /// Follows the schedules, publishes changed health, and says which cameras were switched.
    fn tick(&mut self, context: &mut StageContext<'_>) {
        let sampler = Arc::clone(&self.handles.sampler);
        self.set_shortages(&sampler.strip_shortages());
        let counters = sampler.counters();
        for camera in &mut self.cameras {
            camera.follow_schedule(context.wall);
            camera.publish_health(&self.handles.publisher, context.now);
            context.say_all(camera.switched());
            let mut its = counters.iter();
            let its = its.find(|(id, _)| *id == camera.camera.id);
            context.status.cameras.push(CameraStatus {
                frames: its.map(|(_, frames)| *frames).unwrap_or_default(),
                ..camera.status()
            });
        }
        context.status.removed = sampler.removed_counters();
        context.status.troubles.extend(self.troubles());
        let cameras = self.cameras.iter();
        let abandoned = cameras.map(|it| (&it.camera.id, it.health.borrow().abandoned));
        if let Some(why) = too_many_abandoned(abandoned) {
            context.say(StageNotice::End(Err(anyhow::Error::msg(why))));
        }
    }

    /// Closes all sessions at the same time.
    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        for camera in std::mem::take(&mut self.cameras) {
            self.closing.spawn(camera.close(STOP_LIMIT));
        }
        Box::pin(async {
            while self.closing.join_next().await.is_some() {}
            Vec::new()
        })
    }
}

impl SupervisedCamera {
    fn new(camera: &config::CameraConfig, handle: CameraHandle) -> Self {
        Self {
            camera: camera.clone(),
            health: handle.health(),
            handle,
            off: None,
            is_waiting: !camera.triggers.is_empty(),
            was_on: true,
            has_warned_of_gop: false,
            no_strips: None,
            published: None,
        }
    }

    fn apply(&mut self, change: &CameraChange, device: Option<DeviceMap>) {
        let Some(camera) = change.camera() else {
            return;
        };
        if matches!(change, CameraChange::Source(_)) {
            self.handle.change(camera, device);
            self.has_warned_of_gop = false;
        }
        if camera.triggers.is_empty() || self.camera.triggers.is_empty() {
            self.is_waiting = !camera.triggers.is_empty();
        }
        let before = self.broken_adapters();
        self.camera.clone_from(camera);
        if self.broken_adapters() != before {
            // The code of the reason may be the same.
            self.published = None;
        }
    }

    async fn close(self, limit: Duration) -> CameraId {
        if !self.handle.stop(limit).await {
            tracing::warn!(camera = %self.camera.id, "the camera's session did not close in time; abandoning it");
        }
        self.camera.id
    }

    fn follow_schedule(&mut self, now: WallTime) {
        let schedule = self.camera.schedule.as_ref();
        let covered = schedule.is_none_or(|schedule| schedule.covers(now));
        let off = match (self.camera.enabled, covered) {
            (false, _) => Some(Off::SwitchedOff),
            (true, false) => Some(Off::Schedule),
            (true, true) => None,
        };
        if off != self.off {
            self.off = off;
            self.handle.set_enabled(off.is_none());
        }
    }

    /// Whether it was switched since the last call, by its triggers too. Off is reported at once, on when the ingest task has begun to connect.
    fn switched(&mut self) -> Option<StageNotice> {
        let is_streamed = self.off.is_none() && self.health.borrow().phase.is_meant_to_stream();
        let is_on = is_streamed && !self.is_waiting;
        if is_on == self.was_on {
            return None;
        }
        self.was_on = is_on;
        let camera = self.camera.id.clone();
        Some(StageNotice::CameraSwitched { camera, is_on })
    }

    /// Publishes status and health if they changed.
    fn publish_health(&mut self, publisher: &Publisher, now: Mono) {
        let health = self.health.borrow_and_update().clone();
        // Switched on, and the ingest task has not begun yet: its health would show a camera that is off without a reason.
        if self.off.is_none() && health.phase == Phase::Disabled {
            return;
        }
        let reason = self.reason(&health);
        let published = HealthDigest::new(&health, reason.as_ref(), now);
        if !published.is_due_after(self.published.as_ref()) {
            return;
        }
        let camera = self.camera.id.clone();
        publisher.publish(Update::CameraStatus {
            camera: camera.clone(),
            online: health.phase == Phase::Streaming,
        });
        publisher.publish(Update::Health {
            camera,
            health: Box::new(health_message(&health, reason.as_ref())),
        });
        self.warn_of_rare_key_frames(health.stream.gop_s);
        self.published = Some(published);
    }

    fn status(&self) -> CameraStatus {
        let health = self.health.borrow();
        let message = health_message(&health, self.reason(&health).as_ref());
        CameraStatus {
            losses: health.losses,
            reconnects: health.reconnects,
            stalls: health.stalls,
            ..status::camera(self.camera.id.to_string(), message)
        }
    }

    fn reason(&self, health: &Health) -> Option<HealthReason> {
        let broken = self.broken_adapters();
        let broken = broken
            .as_deref()
            .map(|text| (TroubleKind::BrokenAdapter, text));
        let no_strips = self
            .no_strips
            .as_deref()
            .map(|text| (TroubleKind::NoStrips, text));
        HealthReason::of(health, self.off, broken.or(no_strips))
    }

    /// Prompts whose adapters cannot be used, and why.
    fn broken_adapters(&self) -> Option<String> {
        let mut broken = BTreeMap::<_, Vec<&str>>::new();
        for prompt in self.camera.prompts.iter().filter(|prompt| prompt.enabled) {
            if let Some(fault) = prompt.adapter.as_ref().zip(prompt.adapter_fault.as_ref()) {
                broken.entry(fault).or_default().push(prompt.id.as_str());
            }
        }
        let lines = broken.into_iter().map(|((adapter, why), prompts)| {
            let unasked = match prompts[..] {
                [prompt] => format!("prompt {prompt} is not asked"),
                _ => format!("prompts {} are not asked", prompts.join(", ")),
            };
            format!("{unasked}: adapter {adapter}: {why}")
        });
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    /// Why there are no strips. A camera that has just connected fills them first.
    fn no_strips(&self, shortages: &[(CameraId, StripShortage)], now: WallTime) -> Option<String> {
        let health = self.health.borrow();
        let streams_s = now.seconds_since(health.since);
        let is_lasting = |shortage: &StripShortage| {
            health.phase == Phase::Streaming
                && streams_s >= 2.0 * shortage.shape.patience().as_secs_f64()
        };
        let its = shortages.iter().filter(|(id, _)| *id == self.camera.id);
        let lines = its.filter(|(_, shortage)| is_lasting(shortage));
        let lines = lines.map(|(_, shortage)| {
            let prompts: Vec<&str> = shortage.prompts.iter().map(PromptId::as_str).collect();
            let StripShortage {
                shape, frame_every, ..
            } = shortage;
            let why = config::advice::no_strip(*shape, *frame_every, self.camera.decode);
            format!(
                "no question about a strip is asked ({}): {why}",
                prompts.join(", ")
            )
        });
        let lines: Vec<String> = lines.collect();
        (!lines.is_empty()).then(|| lines.join("; "))
    }

    fn warn_of_rare_key_frames(&mut self, gop_s: Option<f64>) {
        let camera = &self.camera;
        if camera.decode != config::Decode::KeyFrames || self.has_warned_of_gop {
            return;
        }
        let warning =
            gop_s.and_then(|gop_s| config::advice::key_frames_too_rare(camera.rate, gop_s));
        if let Some(text) = warning {
            tracing::warn!(camera = %camera.id, "{text}");
            self.has_warned_of_gop = true;
        }
    }
}

/// Why the process has to be restarted; `None` while it can continue.
fn too_many_abandoned<'a>(cameras: impl Iterator<Item = (&'a CameraId, u32)>) -> Option<String> {
    let left: Vec<_> = cameras.filter(|(_, abandoned)| *abandoned > 0).collect();
    let sum: u32 = left.iter().map(|(_, abandoned)| abandoned).sum();
    let each: Vec<String> = left.iter().map(|(id, n)| format!("{id} {n}")).collect();
    (sum >= ABANDONED_MAX).then(|| {
        format!(
            "{sum} camera pipelines did not end and were abandoned ({}); the process has to be restarted",
            each.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
