//! What the app tells the page: the last look of each camera, the last minute of its messages, the looks of each engine,
//! and what the daemon knows once a second.
//!
//! Nobody looks most of the time, so little is done then: a look leaves its answers and five moments here. Words for the
//! page are made when it is asked for, a picture is copied at most once a second and camera while somebody watches.

mod minute;
mod recent;
mod shown;
mod shrink;
pub mod telling;

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

pub use recent::Batches;
use recent::Recent;
use shown::Shown;
use tokio::task::spawn_blocking;

use super::{SnapshotCounters, seats::Seats};
use crate::ops::{page, process::ProcessUse, window::Window};
use spotter_core::{
    CameraId, Clock, Detection, Frame, FrameCounters, Mono, Outcome,
    config::{Camera, Config},
};
use spotter_engine::open::ModelCard;
use spotter_mqtt::{BrokerState, CameraHealth, ConfigReport, Sent, Tally};

/// Somebody watches who has asked for the page within this time.
const WATCHED_FOR: Duration = Duration::from_secs(10);
/// Looks a second are counted over so many seconds.
const RATE_TICKS: usize = 10;
/// What the 95th percentile of all messages looks back over.
const LATENCY_SPAN: Duration = Duration::from_secs(60);
/// Messages that it remembers.
const LATENCY_VALUES: usize = 8192;

/// What is known for the page. Clones share it; no call waits for more than a lock.
#[derive(Clone)]
pub struct Board {
    state: Arc<Mutex<State>>,
    clock: Arc<dyn Clock>,
}

struct State {
    started: Mono,
    watched: Option<Mono>,
    place: Place,
    model: String,
    cameras: Vec<Shown>,
    engines: Vec<Recent>,
    totals: Window,
    config: page::Config,
    facts: Facts,
    /// Looks that had ended at the last ticks.
    looked: VecDeque<(Mono, u64)>,
}

/// Where everything is told.
struct Place {
    name: String,
    broker: String,
    topics: String,
}

impl Place {
    fn of(config: &Config) -> Self {
        let mqtt = &config.mqtt;
        Self {
            name: config.node.name.to_string(),
            broker: format!("{}:{}", mqtt.host, mqtt.port),
            topics: format!("{}/{}", mqtt.base, config.node.name),
        }
    }
}

fn model(card: &ModelCard) -> String {
    format!("{} ({})", card.name, card.precision)
}

/// What the daemon knows once a second.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Health of every camera.
    pub cameras: Vec<(CameraId, CameraHealth)>,
    /// Books of every camera.
    pub books: Vec<(CameraId, FrameCounters)>,
    /// Every engine, and what it is at.
    pub engines: Vec<(String, page::EngineState)>,
    /// The connection to the broker.
    pub broker: BrokerState,
    /// What became of messages.
    pub tally: Tally,
    /// What became of wanted snapshots.
    pub snapshots: SnapshotCounters,
    /// Hand-over to acknowledgement, 95th percentile.
    pub puback_p95: Option<Duration>,
    /// Events waiting on disk.
    pub spooled: u64,
    /// What the process costs.
    pub process: ProcessUse,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            cameras: Vec::new(),
            books: Vec::new(),
            engines: Vec::new(),
            broker: BrokerState::Connecting,
            tally: Tally::default(),
            snapshots: SnapshotCounters::default(),
            puback_p95: None,
            spooled: 0,
            process: ProcessUse::default(),
        }
    }
}

/// Notes which engine looks at which camera. What is known of an engine stays.
fn seat(engines: &mut Vec<Recent>, seats: &Seats) {
    engines.iter_mut().for_each(|engine| engine.cameras.clear());
    for (camera, device) in seats {
        match engines.iter_mut().find(|engine| engine.device == *device) {
            Some(engine) => engine.cameras.push(camera.clone()),
            None => engines.push(Recent::new(device, camera)),
        }
    }
}

impl Board {
    /// Nothing was looked at yet. `seats` says which engine looks at which camera.
    pub fn new(config: &Config, card: &ModelCard, seats: &Seats, clock: Arc<dyn Clock>) -> Self {
        let mut engines = Vec::new();
        seat(&mut engines, seats);
        let state = State {
            started: clock.now(),
            watched: None,
            place: Place::of(config),
            model: model(card),
            cameras: config.cameras.iter().map(Shown::new).collect(),
            engines,
            totals: Window::new(LATENCY_SPAN, LATENCY_VALUES),
            config: page::Config::default(),
            facts: Facts::default(),
            looked: VecDeque::new(),
        };
        let state = Arc::new(Mutex::new(state));
        Self { state, clock }
    }

    /// These are the cameras from now on, as they are now, and this is who looks at which.
    pub fn change(&self, cameras: &[Camera], seats: &Seats) {
        let mut state = self.lock();
        let mut before = std::mem::take(&mut state.cameras);
        let shown = |camera: &Camera| {
            let place = before.iter().position(|shown| shown.id == camera.id);
            let mut shown = place.map_or_else(|| Shown::new(camera), |at| before.swap_remove(at));
            shown.ask(camera);
            shown
        };
        state.cameras = cameras.iter().map(shown).collect();
        seat(&mut state.engines, seats);
    }

    /// Other engines look from now on. Of those that are gone nothing more is told.
    pub fn answered_by(&self, card: &ModelCard, seats: &Seats) {
        let mut state = self.lock();
        state.model = model(card);
        let stays = |engine: &Recent| seats.values().any(|device| *device == engine.device);
        state.engines.retain(stays);
        seat(&mut state.engines, seats);
    }

    /// Everything is told there from now on.
    pub fn told_at(&self, config: &Config) {
        self.lock().place = Place::of(config);
    }

    /// A look ended; its answers follow.
    pub fn look(&self, outcome: &Outcome) {
        let Outcome::Answered { frame, answers, .. } = outcome else {
            return;
        };
        let now = self.clock.now();
        let mut state = self.lock();
        if let Some(engine) = state.engine(&frame.camera) {
            engine.look(&frame.camera, answers.iter().map(|answer| &answer.marks));
        }
        let watched = state.is_watched(now);
        let wanted = state
            .camera(&frame.camera)
            .is_some_and(|camera| camera.look(frame, now, watched));
        drop(state);
        if wanted {
            self.picture(frame.clone());
        }
    }

    /// An answer of the look that ended last, with what the prompt's filters let through.
    pub fn answer(&self, detection: &Detection) {
        if let Some(camera) = self.lock().camera(detection.camera()) {
            camera.answer(detection);
        }
    }

    /// A message went out.
    pub fn sent(&self, sent: &Sent) {
        let now = self.clock.now();
        let mut state = self.lock();
        let total_ms = sent.latency.total_tenth_ms as f64 / 10.0;
        state.totals.add(now, total_ms);
        if let Some(camera) = state.camera(sent.detection.camera()) {
            camera.minute.add(now, &sent.latency);
        }
    }

    /// A configuration was read.
    pub fn configured(&self, report: &ConfigReport) {
        self.lock().config = page::Config {
            hash: report.hash.clone(),
            at: report.at.clone(),
            errors: report.errors.clone(),
        };
    }

    /// Once a second.
    pub fn tick(&self, facts: Facts) {
        let now = self.clock.now();
        let mut state = self.lock();
        let looked = facts.books.iter().map(|(_, books)| books.looked).sum();
        if state.looked.len() > RATE_TICKS {
            state.looked.pop_front();
        }
        state.looked.push_back((now, looked));
        if !state.is_watched(now) {
            state.cameras.iter_mut().for_each(Shown::nobody_watches);
        }
        state.facts = facts;
    }

    /// Every engine with the time that looks have been under way in it since the start.
    pub fn busy(&self) -> Vec<(String, Duration)> {
        let state = self.lock();
        let busy = |engine: &Recent| (engine.device.clone(), engine.busy());
        state.engines.iter().map(busy).collect()
    }

    /// Images and the steps that encoded them, of all engines since the start.
    pub fn batches(&self) -> Batches {
        let state = self.lock();
        let all = state.engines.iter().map(Recent::batches);
        all.fold(Batches::default(), Batches::and)
    }

    /// Copies the picture on a thread of its own: looks do not wait for it, and the decoder has its frame back in a moment.
    fn picture(&self, frame: Frame) {
        let board = self.clone();
        spawn_blocking(move || {
            let still = shrink::still(&frame);
            let camera = frame.camera.clone();
            drop(frame);
            if let Some(camera) = board.lock().camera(&camera) {
                camera.pictured(still);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // What a thread that panicked left is still the best there is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl page::Scene for Board {
    fn view(&self, people: bool) -> page::View {
        let (now, wall) = (self.clock.now(), self.clock.wall());
        let mut state = self.lock();
        if people {
            state.watched = Some(now);
        }
        state.view(now, wall)
    }

    fn still(&self, camera: &str) -> Option<Arc<page::Still>> {
        let state = self.lock();
        let mut cameras = state.cameras.iter();
        cameras.find(|shown| shown.id.as_str() == camera)?.still()
    }
}

impl State {
    fn is_watched(&self, now: Mono) -> bool {
        self.watched.is_some_and(|at| now.since(at) < WATCHED_FOR)
    }

    fn camera(&mut self, id: &CameraId) -> Option<&mut Shown> {
        self.cameras.iter_mut().find(|camera| camera.id == *id)
    }

    fn engine(&mut self, camera: &CameraId) -> Option<&mut Recent> {
        let mut engines = self.engines.iter_mut();
        engines.find(|engine| engine.cameras.contains(camera))
    }
}

#[cfg(test)]
mod tests;
