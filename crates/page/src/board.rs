//! What the page shows at this moment: the daemon's figures of this second, with the looks and latencies of each camera until now.
//!
//! Most of the time no browser shows the page, so a look costs little. JSON is made on request. A thumbnail is made at most once
//! a second for a camera whose pictures are asked for, which are those in view, else every half minute, so that the page has a
//! picture at once.

mod camera;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::body::Bytes;
use tokio::task::spawn_blocking;

use self::camera::CameraBoard;
use crate::{
    access::Visitor,
    metrics::{self, LatencyHistograms},
    status::{CameraStatus, PromptCost, Status},
};
use spotter_config::{CameraConfig, ConfigChange};
use spotter_core::{
    CameraId, Clock, Detection, Frame, Latency, ObjectOutline, Picture, PromptId, PromptState,
    STAGES, TrackId,
};

/// With more cameras than these, a card of the page is never wider than [`NARROW`], but on a phone; with one it may be.
const WIDE_CAMERAS_MAX: usize = 4;
/// Pixels across of a thumbnail at most, with a few cameras and with many.
const WIDE: usize = 640;
const NARROW: usize = 320;

/// A small picture of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thumbnail {
    /// Number of the frame.
    pub frame: u64,
    pub jpeg: Bytes,
}

/// A request for `/status.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct StatusRequest {
    /// The looks that have a thumbnail.
    pub pictured: bool,
    pub visitor: Visitor,
    /// The page has tokens.
    pub has_login: bool,
    /// Events are stored.
    pub has_history: bool,
}

/// What the routes answer from. No call blocks for longer than a lock and some copies.
pub trait StatusSource: Send + Sync {
    /// Everything now that the visitor sees.
    fn status_json(&self, request: StatusRequest) -> String;

    fn metrics(&self) -> String;

    /// Current failures, one line each, without any login; empty = healthy.
    fn troubles(&self) -> Vec<String>;

    /// The picture of the last look with one, or of the frame `look` if the one before is of it; `None` before the camera's first
    /// look. The next ones are made more often for some seconds.
    fn thumbnail(&self, camera: &str, look: Option<u64>) -> Option<Arc<Thumbnail>>;
}

/// The cost of each enabled prompt of a camera with frames of this size.
pub type PromptCosts = Arc<dyn Fn(&CameraConfig, (usize, usize)) -> Vec<PromptCost> + Send + Sync>;

/// Makes a JPEG of at most this width. Blocks for some milliseconds.
pub type DrawThumbnail = fn(&Picture, usize) -> anyhow::Result<Vec<u8>>;

/// Clones share the state; no call blocks for longer than a lock.
#[derive(Clone)]
pub struct Board {
    state: Arc<Mutex<BoardState>>,
    clock: Arc<dyn Clock>,
    draw: DrawThumbnail,
    /// `None`: unknown.
    costs: Option<PromptCosts>,
}

struct BoardState {
    /// The cameras that report, without their looks.
    status: Status,
    cameras: Vec<CameraBoard>,
    latencies: LatencyHistograms,
}

impl Board {
    pub fn new(
        cameras: &[CameraConfig],
        clock: Arc<dyn Clock>,
        draw: DrawThumbnail,
        costs: Option<PromptCosts>,
    ) -> Self {
        let state = BoardState {
            status: Status::default(),
            cameras: cameras.iter().map(CameraBoard::new).collect(),
            latencies: LatencyHistograms::default(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            clock,
            draw,
            costs,
        }
    }

    /// Looks of a camera that stays are kept; a new one is shown after the others.
    pub fn apply(&self, change: &ConfigChange) {
        let now = self.clock.now();
        let mut state = self.lock();
        for (id, change) in change.cameras() {
            match (change.camera(), state.camera(id)) {
                (Some(camera), Some(board)) => board.configure(camera, now),
                (Some(camera), None) => state.cameras.push(CameraBoard::new(camera)),
                (None, _) => state.cameras.retain(|board| board.id() != id),
            }
        }
    }

    /// The cameras as they are configured now.
    pub fn cameras(&self) -> Vec<CameraConfig> {
        let state = self.lock();
        let cameras = state.cameras.iter();
        cameras.map(|board| board.config().clone()).collect()
    }

    /// A camera as it is configured now.
    pub fn camera(&self, camera: &str) -> Option<CameraConfig> {
        let state = self.lock();
        let mut cameras = state.cameras.iter();
        let board = cameras.find(|board| board.id().as_str() == camera)?;
        Some(board.config().clone())
    }

    /// Width and height of a camera's stream; `None`: not known yet.
    pub fn stream_size(&self, camera: &CameraId) -> Option<(u32, u32)> {
        let state = self.lock();
        let mut cameras = state.status.cameras.iter();
        cameras
            .find(|known| known.id == camera.as_str())?
            .stream
            .size
    }

    /// Once a second: the daemon's figures. The order of their cameras does not matter.
    pub fn tick(&self, status: Status) {
        self.lock().status = Status {
            v: 1,
            stages: STAGES,
            ..status
        };
    }

    /// A prompt of a look at `frame` was answered; [`Self::answer`] follows if the answer is published.
    pub fn look(&self, frame: &Frame) {
        let now = self.clock.now();
        let mut state = self.lock();
        let width = match state.cameras.len() {
            ..=WIDE_CAMERAS_MAX => WIDE,
            _ => NARROW,
        };
        let camera = state.camera(&frame.camera);
        let is_wanted = camera.is_some_and(|camera| camera.look(frame, now));
        drop(state);
        if is_wanted {
            self.make_thumbnail(frame.clone(), width);
        }
    }

    /// An answer, after the prompt's filters.
    pub fn answer(&self, detection: &Detection) {
        if let Some(camera) = self.lock().camera(detection.camera()) {
            camera.answer(detection);
        }
    }

    /// An object of an answer got an outline.
    pub fn outlined(&self, camera: &CameraId, track: &TrackId, outline: &ObjectOutline) {
        if let Some(camera) = self.lock().camera(camera) {
            camera.outlined(track, outline);
        }
    }

    /// States of a prompt have new values.
    pub fn states(&self, camera: &CameraId, prompt: &PromptId, states: &[PromptState]) {
        if let Some(camera) = self.lock().camera(camera) {
            camera.states(prompt, states);
        }
    }

    /// A detection was handed to the MQTT client.
    pub fn sent(&self, camera: &CameraId, latency: &Latency) {
        let now = self.clock.now();
        let mut state = self.lock();
        state.latencies.observe(latency);
        if let Some(camera) = state.camera(camera) {
            camera.minute.add(now, latency);
        }
    }

    fn status(&self, request: StatusRequest) -> Status {
        let sees_pictures = request.visitor.sees_pictures();
        let pictured = request.pictured && sees_pictures;
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut state = self.lock();
        let BoardState {
            status, cameras, ..
        } = &mut *state;
        let cameras = cameras.iter_mut().map(|board| {
            let mut reported = status.cameras.iter();
            let reported = reported.find(|camera| camera.id == board.id().as_str());
            let mut camera = reported.cloned().unwrap_or_else(|| CameraStatus {
                id: board.id().to_string(),
                ..CameraStatus::default()
            });
            camera.looks = board.looks(now, pictured, self.costs.as_ref());
            camera
        });
        let mut shown = Status {
            time_ms: wall.unix_millis(),
            visitor: request.visitor,
            has_login: request.has_login,
            history: request.has_history,
            cameras: cameras.collect(),
            ..status.clone()
        };
        if !sees_pictures {
            shown.hide();
        }
        shown
    }

    /// On a blocking thread: looks do not wait for it, and the decoder gets its frame back after some milliseconds.
    fn make_thumbnail(&self, frame: Frame, width: usize) {
        let board = self.clone();
        spawn_blocking(move || {
            let camera = &frame.camera;
            let thumbnail = (board.draw)(&frame.picture, width)
                .inspect_err(
                    |error| tracing::warn!(%camera, "no thumbnail for the status page: {error:#}"),
                )
                .map(|jpeg| Thumbnail {
                    frame: frame.number,
                    jpeg: jpeg.into(),
                });
            drop(frame.picture);
            if let Some(camera) = board.lock().camera(camera) {
                camera.set_thumbnail(thumbnail.ok());
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, BoardState> {
        // A thread that panicked may have left a look half written, which only the page shows.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StatusSource for Board {
    fn status_json(&self, request: StatusRequest) -> String {
        // A struct of numbers, texts and lists always serialises.
        serde_json::to_string(&self.status(request)).unwrap_or_default()
    }

    fn metrics(&self) -> String {
        let state = self.lock();
        metrics::encode(&state.status, &state.latencies)
    }

    fn troubles(&self) -> Vec<String> {
        let state = self.lock();
        let failures = state.status.troubles.iter();
        let failures = failures.filter(|trouble| trouble.kind.is_failure());
        failures.map(|trouble| trouble.text.clone()).collect()
    }

    fn thumbnail(&self, camera: &str, look: Option<u64>) -> Option<Arc<Thumbnail>> {
        let now = self.clock.now();
        let mut state = self.lock();
        let mut cameras = state.cameras.iter_mut();
        cameras
            .find(|board| board.id().as_str() == camera)?
            .thumbnail(look, now)
    }
}

impl BoardState {
    fn camera(&mut self, id: &CameraId) -> Option<&mut CameraBoard> {
        self.cameras.iter_mut().find(|camera| camera.id() == id)
    }
}

#[cfg(test)]
mod tests;
