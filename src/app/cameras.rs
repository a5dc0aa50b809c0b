//! All cameras of the configuration, and what is told of each.

mod told;

use std::{sync::Arc, time::Duration};

use tokio::{sync::watch, task::JoinSet};

use self::told::{Essence, Reason, counts, is_on, message};
use super::engines::Engines;
use crate::ops::metrics::CameraCounts;
use spotter_cameras::ingest::{self, CameraHandle, Health, Phase};
use spotter_core::{CameraId, Clock, Mono, WallTime, config};
use spotter_mqtt::{CameraHealth, Off, Publisher, Update};

/// Grace for the goodbye to a camera that was taken away.
const GOODBYE_LIMIT: Duration = Duration::from_secs(10);
/// Each pipeline that was left behind keeps its threads and its memory, and may keep its session on the camera. After so
/// many only a new process is clean.
const ABANDONED_MAX: u32 = 8;

/// A camera is watched again, or not any more. One whose connection is lost is neither.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Switched {
    /// It is watched again.
    On(CameraId),
    /// It was switched off, by somebody or by its schedule, or is a file that is over.
    Off(CameraId),
    /// It has no engine any more.
    Lost(CameraId),
}

/// The running cameras.
pub struct Cameras {
    here: Vec<Watched>,
    /// Goodbyes to cameras that were taken away.
    leaving: JoinSet<()>,
}

struct Watched {
    /// As it is in force.
    camera: config::CameraConfig,
    handle: CameraHandle,
    health: watch::Receiver<Health>,
    /// Why nobody looks at it any more.
    engine_lost: Option<String>,
    /// Why it is not to be watched now.
    off: Option<Off>,
    enabled: bool,
    watched: bool,
    warned_of_gop: bool,
    told: Option<(Essence, Mono)>,
}

impl Cameras {
    /// Starts every camera; each one connects in its own time.
    pub fn start(
        cameras: &[config::CameraConfig],
        engines: &Engines,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let here = cameras
            .iter()
            .filter_map(|camera| Watched::start(camera, engines, clock));
        Self {
            here: here.collect(),
            leaving: JoinSet::new(),
        }
    }

    /// These are the cameras from now on, as they are now: one that stays keeps its connection, unless it is to be reached or
    /// decoded in another way. Those that are gone are said goodbye to behind our back. `engines` know the new ones already.
    pub async fn change(
        &mut self,
        cameras: &[config::CameraConfig],
        engines: &Engines,
        clock: &Arc<dyn Clock>,
    ) {
        let mut before = std::mem::take(&mut self.here);
        for camera in cameras {
            match before.iter().position(|old| old.camera.id == camera.id) {
                Some(index) => {
                    let mut watched = before.swap_remove(index);
                    watched.change(camera, engines).await;
                    self.here.push(watched);
                }
                None => self.here.extend(Watched::start(camera, engines, clock)),
            }
        }
        for gone in before {
            self.leaving.spawn(gone.leave(GOODBYE_LIMIT));
        }
        while self.leaving.try_join_next().is_some() {}
    }

    /// Closes a camera's connection and opens it again.
    pub async fn reconnect(&self, camera: &CameraId) {
        let mut here = self.here.iter();
        if let Some(watched) = here.find(|watched| watched.camera.id == *camera) {
            watched.handle.reconnect().await;
        }
    }

    /// Follows the schedules and tells what changed.
    pub async fn tick(&mut self, publisher: &Publisher, clock: &Arc<dyn Clock>) -> Vec<Switched> {
        let mut switched = Vec::new();
        for camera in &mut self.here {
            camera.follow_schedule(clock.wall()).await;
            camera.tell(publisher, clock.now());
            switched.extend(camera.switched());
        }
        switched
    }

    /// Nobody looks at these cameras any more, for that `reason`: they are switched off, and their health says why.
    pub fn lose(&mut self, ids: &[CameraId], reason: &str) {
        let lost = |watched: &&mut Watched| ids.contains(&watched.camera.id);
        for camera in self.here.iter_mut().filter(lost) {
            camera.engine_lost = Some(reason.to_owned());
        }
    }

    /// Somebody looks at these cameras again.
    pub fn regain(&mut self, ids: &[CameraId]) {
        let back = |watched: &&mut Watched| ids.contains(&watched.camera.id);
        for camera in self.here.iter_mut().filter(back) {
            camera.engine_lost = None;
        }
    }

    /// Why nobody looks at a camera any more; `None` while somebody does.
    pub fn engine_lost(&self, camera: &CameraId) -> Option<&str> {
        let mut here = self.here.iter();
        let watched = here.find(|watched| watched.camera.id == *camera)?;
        watched.engine_lost.as_deref()
    }

    /// Ids of the cameras, and whether each delivers to somebody.
    pub fn online(&self) -> impl Iterator<Item = (&CameraId, bool)> {
        self.here
            .iter()
            .map(|watched| (&watched.camera.id, watched.is_online()))
    }

    /// Ids of the cameras with their health.
    pub fn health(&self) -> impl Iterator<Item = (&CameraId, CameraHealth)> {
        self.here.iter().map(|watched| {
            let health = watched.health.borrow();
            let told = message(&health, watched.reason(&health).as_ref());
            (&watched.camera.id, told)
        })
    }

    /// Counters of each camera.
    pub fn counts(&self) -> impl Iterator<Item = (&CameraId, CameraCounts)> {
        let counts = |camera: &Watched| counts(&camera.health.borrow());
        self.here
            .iter()
            .map(move |camera| (&camera.camera.id, counts(camera)))
    }

    /// Why only a new process can go on; `None` while this one can.
    pub fn too_many_abandoned(&self) -> Option<String> {
        too_many_abandoned(self.counts().map(|(id, counts)| (id, counts.abandoned)))
    }

    /// What is wrong with cameras that should deliver and do not, a line each. One that its schedule has switched off and
    /// a file that is over are as they should be.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.here.iter().filter_map(|camera| {
            let health = camera.health.borrow();
            let fine = health.phase == Phase::Streaming || !is_on(health.phase);
            let well = fine && camera.engine_lost.is_none();
            let why = camera.reason(&health);
            let why = why.map_or_else(|| health.phase.to_string(), |why| why.to_string());
            (!well).then(|| format!("camera {}: {why}", camera.camera.id))
        })
    }

    /// Says goodbye to all of them at once.
    pub async fn stop(&mut self, limit: Duration) {
        for camera in self.here.drain(..) {
            self.leaving.spawn(camera.leave(limit));
        }
        while self.leaving.join_next().await.is_some() {}
    }
}

impl Watched {
    /// `None` for a camera that no engine knows.
    fn start(
        camera: &config::CameraConfig,
        engines: &Engines,
        clock: &Arc<dyn Clock>,
    ) -> Option<Self> {
        let sink = engines.sink(&camera.id)?;
        let device = engines.device_map(&camera.id);
        let handle = ingest::spawn(camera.clone(), Arc::clone(clock), sink, device);
        Some(Self::new(camera, handle))
    }

    fn new(camera: &config::CameraConfig, handle: CameraHandle) -> Self {
        Self {
            camera: camera.clone(),
            health: handle.health(),
            handle,
            engine_lost: None,
            off: None,
            enabled: true,
            watched: true,
            warned_of_gop: false,
            told: None,
        }
    }

    async fn change(&mut self, camera: &config::CameraConfig, engines: &Engines) {
        if !is_same_stream(&self.camera, camera) {
            let device = engines.device_map(&camera.id);
            self.handle.change(camera, device).await;
            self.warned_of_gop = false;
        }
        self.camera.clone_from(camera);
    }

    async fn leave(self, limit: Duration) {
        if !self.handle.stop(limit).await {
            tracing::warn!(camera = %self.camera.id, "did not stop in time");
        }
    }

    async fn follow_schedule(&mut self, now: WallTime) {
        let schedule = self.camera.schedule.as_ref();
        let covered = schedule.is_none_or(|schedule| schedule.covers(now));
        self.off = match (self.camera.enabled, covered) {
            (false, _) => Some(Off::SwitchedOff),
            (true, false) => Some(Off::Schedule),
            (true, true) => None,
        };
        let wanted = self.off.is_none() && self.engine_lost.is_none();
        self.enable(wanted).await;
    }

    async fn enable(&mut self, wanted: bool) {
        if wanted != self.enabled {
            self.enabled = wanted;
            self.handle.set_enabled(wanted).await;
        }
    }

    /// Whether it was switched since this was last asked. Off is known at once, on when the camera has heard of it.
    fn switched(&mut self) -> Option<Switched> {
        let watched = self.enabled && is_on(self.health.borrow().phase);
        if watched == self.watched {
            return None;
        }
        self.watched = watched;
        let switched = match (watched, &self.engine_lost) {
            (true, _) => Switched::On,
            (false, None) => Switched::Off,
            (false, Some(_)) => Switched::Lost,
        };
        Some(switched(self.camera.id.clone()))
    }

    /// Publishes status and health when there is something new.
    fn tell(&mut self, publisher: &Publisher, now: Mono) {
        let health = self.health.borrow_and_update().clone();
        // Switched on, and the camera has yet to hear of it: that it is off for no reason would be no news.
        if self.enabled && health.phase == Phase::Disabled {
            return;
        }
        let reason = self.reason(&health);
        let essence = Essence::of(&health, reason.as_ref());
        if !essence.is_news(self.told.as_ref(), now) {
            return;
        }
        let (camera, online) = (self.camera.id.clone(), self.is_online());
        publisher.publish(Update::CameraStatus {
            camera: camera.clone(),
            online,
        });
        let message = Box::new(message(&health, reason.as_ref()));
        publisher.publish(Update::Health {
            camera,
            health: message,
        });
        self.warn_of_rare_key_frames(health.stream.gop_s);
        self.told = Some((essence, now));
    }

    fn is_online(&self) -> bool {
        self.engine_lost.is_none() && self.health.borrow().phase == Phase::Streaming
    }

    fn reason(&self, health: &Health) -> Option<Reason> {
        Reason::of(health, self.engine_lost.as_deref(), self.off)
    }

    fn warn_of_rare_key_frames(&mut self, gop_s: Option<f64>) {
        let camera = &self.camera;
        if camera.decode != config::Decode::KeyFrames || self.warned_of_gop {
            return;
        }
        let warning =
            gop_s.and_then(|gop_s| config::advice::key_frames_too_rare(camera.rate_hz, gop_s));
        if let Some(text) = warning {
            tracing::warn!(camera = %camera.id, "{text}");
            self.warned_of_gop = true;
        }
    }
}

/// Whether two configurations of a camera connect to it and decode it in one way; all else of them is about what happens to
/// its frames.
fn is_same_stream(a: &config::CameraConfig, b: &config::CameraConfig) -> bool {
    let stream = |camera: &config::CameraConfig| {
        (
            camera.width,
            camera.stall,
            camera.first_frame,
            camera.decode,
        )
    };
    a.source == b.source && stream(a) == stream(b)
}

/// Why the pipelines that each camera has left behind are too many.
fn too_many_abandoned<'a>(cameras: impl Iterator<Item = (&'a CameraId, u32)>) -> Option<String> {
    let left: Vec<_> = cameras.filter(|(_, abandoned)| *abandoned > 0).collect();
    let sum: u32 = left.iter().map(|(_, abandoned)| abandoned).sum();
    let each: Vec<String> = left.iter().map(|(id, n)| format!("{id} {n}")).collect();
    (sum >= ABANDONED_MAX).then(|| {
        format!(
            "{sum} pipelines of cameras did not end and were left behind ({}); a new process is needed",
            each.join(", ")
        )
    })
}

#[cfg(test)]
mod tests;
