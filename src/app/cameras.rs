//! All cameras of the configuration, and what is told of each.

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};

use crate::{
    config::{self, Schedule},
    domain::{CameraId, Clock, Mono},
    ingest::{self, CameraHandle, Health, Phase},
    publish::{CameraHealth, ClockHealth, Publisher, Update},
    sampler::Sampler,
};

/// Health is told again after so long, changed or not.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// The running cameras.
pub struct Cameras(Vec<Watched>);

struct Watched {
    id: CameraId,
    handle: CameraHandle,
    health: watch::Receiver<Health>,
    schedule: Option<Schedule>,
    enabled: bool,
    rate_hz: f64,
    keyframes_only: bool,
    warned_of_gop: bool,
    told: Option<(Essence, Mono)>,
}

/// The part of a health whose change is worth a message; measured rates change all the time.
#[derive(PartialEq)]
struct Essence {
    phase: Phase,
    failure: Option<&'static str>,
    attempts: u32,
    size: Option<(u32, u32)>,
    trusted: bool,
    note: Option<&'static str>,
}

impl Cameras {
    /// Starts every camera; each one connects in its own time.
    pub fn start(
        cameras: &[config::Camera],
        sampler: &Arc<Sampler>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let watched = cameras.iter().filter_map(|camera| {
            let sink = sampler.camera_sink(&camera.id)?;
            let handle = ingest::spawn(camera.clone(), Arc::clone(clock), Arc::new(sink));
            Some(Watched {
                id: camera.id.clone(),
                health: handle.health(),
                handle,
                schedule: camera.schedule.clone(),
                enabled: true,
                rate_hz: camera.rate_hz,
                keyframes_only: camera.decode == config::Decode::KeyFrames,
                warned_of_gop: false,
                told: None,
            })
        });
        Self(watched.collect())
    }

    /// Follows the schedules and tells what changed. Returns the cameras that stopped being watched.
    pub async fn tick(&mut self, publisher: &Publisher, clock: &Arc<dyn Clock>) -> Vec<CameraId> {
        let mut stopped = Vec::new();
        for camera in &mut self.0 {
            let wanted = camera
                .schedule
                .as_ref()
                .is_none_or(|schedule| schedule.covers(clock.wall()));
            if wanted != camera.enabled {
                camera.enabled = wanted;
                camera.handle.set_enabled(wanted).await;
            }
            if camera.tell(publisher, clock.now()) {
                stopped.push(camera.id.clone());
            }
        }
        stopped
    }

    /// Ids of the cameras, and whether each delivers.
    pub fn online(&self) -> impl Iterator<Item = (&CameraId, bool)> {
        self.0
            .iter()
            .map(|camera| (&camera.id, camera.health.borrow().phase == Phase::Streaming))
    }

    /// What is wrong with cameras that should deliver and do not, a line each. One that its schedule has switched off and
    /// a file that is over are as they should be.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.0.iter().filter_map(|camera| {
            let health = camera.health.borrow();
            let well = matches!(
                health.phase,
                Phase::Streaming | Phase::Disabled | Phase::Ended
            );
            let why = reason(&health).unwrap_or_else(|| health.phase.to_string());
            (!well).then(|| format!("camera {}: {why}", camera.id))
        })
    }

    /// Says goodbye to all of them at once.
    pub async fn stop(&mut self, limit: Duration) {
        let mut goodbyes = JoinSet::new();
        for camera in self.0.drain(..) {
            goodbyes.spawn(async move {
                if !camera.handle.stop(limit).await {
                    tracing::warn!(camera = %camera.id, "did not stop in time");
                }
            });
        }
        goodbyes.join_all().await;
    }
}

impl Watched {
    /// Publishes status and health when there is something new. True when the camera has just stopped being watched.
    fn tell(&mut self, publisher: &Publisher, now: Mono) -> bool {
        let health = self.health.borrow_and_update().clone();
        let essence = Essence::of(&health);
        let before = self.told.as_ref();
        if before.is_some_and(|(told, at)| *told == essence && now.since(*at) < TELL_EVERY) {
            return false;
        }
        let phase_before = before.map(|(told, _)| told.phase);
        let (camera, online) = (self.id.clone(), health.phase == Phase::Streaming);
        publisher.publish(Update::CameraStatus {
            camera: camera.clone(),
            online,
        });
        let message = Box::new(message(&health));
        publisher.publish(Update::Health {
            camera,
            health: message,
        });
        self.warn_of_rare_key_frames(health.stream.gop_s);
        let off = |phase: Phase| matches!(phase, Phase::Disabled | Phase::Ended);
        let stopped = off(health.phase) && !phase_before.is_some_and(off);
        self.told = Some((essence, now));
        stopped
    }

    fn warn_of_rare_key_frames(&mut self, gop_s: Option<f64>) {
        if !self.keyframes_only || self.warned_of_gop {
            return;
        }
        if let Some(text) =
            gop_s.and_then(|gop_s| config::advice::key_frames_too_rare(self.rate_hz, gop_s))
        {
            tracing::warn!(camera = %self.id, "{text}");
            self.warned_of_gop = true;
        }
    }
}

impl Essence {
    fn of(health: &Health) -> Self {
        Self {
            phase: health.phase,
            failure: health.failure.as_ref().map(|failure| failure.fault.code()),
            attempts: health.attempts,
            size: health.stream.size,
            trusted: health.clock.trusted,
            note: health.clock.note.map(|note| note.as_str()),
        }
    }
}

/// A short code and a text, without any login.
fn reason(health: &Health) -> Option<String> {
    let failure = health.failure.as_ref()?;
    Some(format!("{}: {}", failure.fault.code(), failure.text))
}

fn message(health: &Health) -> CameraHealth {
    let stream = &health.stream;
    CameraHealth {
        state: health.phase.as_str().into(),
        reason: reason(health),
        since_ms: health.since.unix_millis(),
        attempts: health.attempts,
        next_retry_s: rounded(health.next_retry.map(|pause| pause.as_secs_f64())),
        codec: stream.codec.map(Into::into),
        w: stream.size.map(|(width, _)| width),
        h: stream.size.map(|(_, height)| height),
        fps_declared: rounded(stream.fps_declared),
        fps_measured: rounded(stream.fps_measured),
        gop_s: rounded(stream.gop_s),
        transport: stream.transport.map(Into::into),
        rtp_lost: health.rtp_lost,
        frames_corrupt: health.frames_corrupt,
        reconnects_1h: health.reconnects_1h,
        stalls_1h: health.stalls_1h,
        clock: ClockHealth {
            trusted: health.clock.trusted,
            offset_ms: rounded(health.clock.offset_ms),
            drift_ppm: rounded(health.clock.drift_ppm),
            sr_age_s: rounded(health.clock.report_age_s),
            note: health.clock.note.map(|note| note.as_str().into()),
        },
    }
}

/// To a hundredth: more digits are noise that makes every message another one.
fn rounded(value: Option<f64>) -> Option<f64> {
    value.map(|value| (value * 100.0).round() / 100.0)
}
