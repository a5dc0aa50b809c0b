//! The source of the status page: the last look of each camera, the latency of its messages over a minute, the looks of each
//! engine, and the figures that the daemon has once a second.
//!
//! Most of the time no browser shows the page, so a look costs little: its answers and five times are kept. HTML and JSON
//! are made on request. A thumbnail is made at most once a second and camera while a browser shows the page, else every
//! half minute, so that the page has a picture at once.

mod camera;
mod engine;
mod minute;
mod status;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use camera::CameraBoard;
pub use engine::Batches;
use engine::EngineBoard;
use tokio::task::spawn_blocking;

use super::{camera_assignment::CameraAssignment, costs::CostBasis, snapshot};
use crate::ops::{
    facts::Facts,
    page::{DaemonStatus, StatusSource, Thumbnail},
    window::PercentileWindow,
};
use spotter_core::{
    CameraId, Clock, Detection, Frame, ModeId, Mono, NodeId, PromptId, PromptState, StageTimes,
    config::{CameraConfig, Config},
};
use spotter_engine::open::ModelCard;
use spotter_fleet::summary::FleetSummary;
use spotter_mqtt::{ConfigReport, ConfigState, SentDetection};

/// A browser that asked for the page within this time still shows it.
const WATCHED_FOR: Duration = Duration::from_secs(10);
/// Looks per second are a mean over this many seconds.
const RATE_TICKS: usize = 10;
const LATENCY_SPAN: Duration = Duration::from_secs(60);
/// Messages that the percentile is taken of.
const LATENCY_VALUES: usize = 8192;

/// Clones share the state; no call blocks for longer than a lock.
#[derive(Clone)]
pub struct Board {
    state: Arc<Mutex<BoardState>>,
    clock: Arc<dyn Clock>,
}

struct BoardState {
    started: Mono,
    page_asked: Option<Mono>,
    address: NodeAddress,
    model: String,
    mode: Option<ModeId>,
    costs: Option<CostBasis>,
    cameras: Vec<CameraBoard>,
    engines: Vec<EngineBoard>,
    totals: PercentileWindow,
    config: ConfigReport,
    facts: Facts,
    /// `None`: the node is not in a fleet, or has not seen it yet.
    fleet: Option<(NodeId, FleetSummary)>,
    /// Analysed frames at the last ticks.
    looked: VecDeque<(Mono, u64)>,
}

/// Node, broker and base topic.
struct NodeAddress {
    name: String,
    broker: String,
    topics: String,
}

impl NodeAddress {
    fn of(config: &Config) -> Self {
        let mqtt = &config.mqtt;
        Self {
            name: config.node.name.to_string(),
            broker: format!("{}:{}", mqtt.broker.host, mqtt.broker.port),
            topics: format!("{}/{}", mqtt.base, config.node.name),
        }
    }
}

fn model(card: &ModelCard) -> String {
    format!("{}, {} ({})", card.name, card.family, card.precision)
}

/// Sets the cameras of each engine; the looks of a known engine are kept.
fn assign(engines: &mut Vec<EngineBoard>, seats: &CameraAssignment) {
    engines.iter_mut().for_each(|engine| engine.cameras.clear());
    for (camera, device) in seats {
        match engines.iter_mut().find(|engine| engine.device == *device) {
            Some(engine) => engine.cameras.push(camera.clone()),
            None => engines.push(EngineBoard::new(device, camera)),
        }
    }
}

impl Board {
    /// `seats` maps each camera to the device of its engine.
    pub fn new(
        config: &Config,
        card: &ModelCard,
        seats: &CameraAssignment,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let mut engines = Vec::new();
        assign(&mut engines, seats);
        let state = BoardState {
            started: clock.now(),
            page_asked: None,
            address: NodeAddress::of(config),
            model: model(card),
            mode: None,
            costs: None,
            cameras: config.cameras.iter().map(CameraBoard::new).collect(),
            engines,
            totals: PercentileWindow::new(LATENCY_SPAN, LATENCY_VALUES),
            config: ConfigReport {
                state: ConfigState::Ok,
                hash: String::new(),
                at: String::new(),
                errors: Vec::new(),
            },
            facts: Facts::default(),
            fleet: None,
            looked: VecDeque::new(),
        };
        let state = Arc::new(Mutex::new(state));
        Self { state, clock }
    }

    /// From now on the page shows what prompts cost.
    pub fn show_costs(&self, basis: CostBasis) {
        self.lock().costs = Some(basis);
    }

    /// Replaces the cameras and their engines; looks of a camera with the same id are kept.
    pub fn change(&self, cameras: &[CameraConfig], seats: &CameraAssignment) {
        let mut state = self.lock();
        let mut before = std::mem::take(&mut state.cameras);
        let board = |camera: &CameraConfig| {
            let index = before.iter().position(|board| board.id == camera.id);
            let mut board =
                index.map_or_else(|| CameraBoard::new(camera), |at| before.swap_remove(at));
            board.set_prompts(camera);
            board
        };
        state.cameras = cameras.iter().map(board).collect();
        assign(&mut state.engines, seats);
    }

    /// The fleet as this node sees it now.
    pub fn show_fleet(&self, name: NodeId, summary: FleetSummary) {
        self.lock().fleet = Some((name, summary));
    }

    /// The active mode; `None`: there is none.
    pub fn show_mode(&self, mode: Option<&ModeId>) {
        self.lock().mode = mode.cloned();
    }

    /// Cameras have another engine.
    pub fn assign(&self, seats: &CameraAssignment) {
        assign(&mut self.lock().engines, seats);
    }

    /// A prompt of a look at `frame` was answered; [`Self::answer`] follows if the answer is published.
    pub fn look(&self, frame: &Frame, marks: &StageTimes) {
        let now = self.clock.now();
        let mut state = self.lock();
        if let Some(engine) = state.engine(&frame.camera) {
            engine.answer(&frame.camera, marks);
        }
        let is_watched = state.is_watched(now);
        let is_wanted = state
            .camera(&frame.camera)
            .is_some_and(|camera| camera.look(frame, now, is_watched));
        drop(state);
        if is_wanted {
            self.make_thumbnail(frame.clone());
        }
    }

    /// An answer, after the prompt's filters.
    pub fn answer(&self, detection: &Detection) {
        if let Some(camera) = self.lock().camera(detection.camera()) {
            camera.answer(detection);
        }
    }

    /// States of a prompt have new values.
    pub fn states(&self, camera: &CameraId, prompt: &PromptId, states: &[PromptState]) {
        if let Some(camera) = self.lock().camera(camera) {
            camera.states(prompt, states);
        }
    }

    /// A message was published.
    pub fn sent(&self, sent: &SentDetection) {
        let now = self.clock.now();
        let mut state = self.lock();
        let total_ms = sent.latency.total_tenth_ms as f64 / 10.0;
        state.totals.add(now, total_ms);
        if let Some(camera) = state.camera(sent.detection.camera()) {
            camera.minute.add(now, &sent.latency);
        }
    }

    /// A configuration was loaded or rejected.
    pub fn configured(&self, report: &ConfigReport) {
        self.lock().config = report.clone();
    }

    /// Once a second.
    pub fn tick(&self, facts: Facts) {
        let now = self.clock.now();
        let mut state = self.lock();
        if state.looked.len() > RATE_TICKS {
            state.looked.pop_front();
        }
        state.looked.push_back((now, facts.frames.looked));
        state.facts = facts;
    }

    /// By device, the time with a look in progress since the start.
    pub fn busy(&self) -> Vec<(String, Duration)> {
        let state = self.lock();
        let busy = |engine: &EngineBoard| (engine.device.clone(), engine.busy());
        state.engines.iter().map(busy).collect()
    }

    /// Images and the steps that encoded them, of all engines since the start.
    pub fn batches(&self) -> Batches {
        let state = self.lock();
        let all = state.engines.iter().map(EngineBoard::batches);
        all.fold(Batches::default(), Batches::and)
    }

    /// On a blocking thread: looks do not wait for it, and the decoder gets its frame back after some milliseconds.
    fn make_thumbnail(&self, frame: Frame) {
        let board = self.clone();
        spawn_blocking(move || {
            let Frame {
                camera,
                number,
                picture,
                ..
            } = frame;
            let thumbnail = snapshot::thumbnail(&picture)
                .inspect_err(
                    |error| tracing::warn!(%camera, "no thumbnail for the status page: {error:#}"),
                )
                .map(|jpeg| Thumbnail {
                    frame: number,
                    jpeg: jpeg.into(),
                });
            drop(picture);
            if let Some(camera) = board.lock().camera(&camera) {
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
    fn status(&self, people: bool) -> DaemonStatus {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut state = self.lock();
        if people {
            state.page_asked = Some(now);
        }
        state.status(now, wall)
    }

    fn thumbnail(&self, camera: &str, look: Option<u64>) -> Option<Arc<Thumbnail>> {
        let state = self.lock();
        let mut cameras = state.cameras.iter();
        cameras
            .find(|board| board.id.as_str() == camera)?
            .thumbnail(look)
    }
}

impl BoardState {
    fn is_watched(&self, now: Mono) -> bool {
        self.page_asked
            .is_some_and(|at| now.since(at) < WATCHED_FOR)
    }

    fn camera(&mut self, id: &CameraId) -> Option<&mut CameraBoard> {
        self.cameras.iter_mut().find(|camera| camera.id == *id)
    }

    fn engine(&mut self, camera: &CameraId) -> Option<&mut EngineBoard> {
        let mut engines = self.engines.iter_mut();
        engines.find(|engine| engine.cameras.contains(camera))
    }
}

#[cfg(test)]
mod tests;
