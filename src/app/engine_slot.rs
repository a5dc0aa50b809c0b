//! One engine with its cameras and its sampler. An engine fails alone: the cameras of other engines continue, and its own go to
//! them.
//!
//! ```text
//!   running ── failed, or no progress ──▶ lost ── 10 s, then 1, 5, 15 min ──▶ opening ─┬─▶ running
//!                                          ▲                                           │
//!                                          └────────────── failed ◀────────────────────┘
//! ```

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, timeout, timeout_at},
};

use super::{
    engine_launch::{EngineHost, EngineOrder, MeasuredEngine, longest_look},
    engine_usage::EngineUsage,
    looks::{LookSource, LooksInFlight},
    request_turns::EngineRequests,
    watchdogs::ProgressClock,
};
use spotter_cameras::{
    ingest::DeviceMap,
    sampler::{CameraShare, Sampler, TimeLimits},
};
use spotter_config::AdapterConfig;
use spotter_core::{CameraId, Clock, Mono};
use spotter_engine::{
    open::{GpuId, ModelCard, ModelDevice, frames_on},
    service::{
        BrokenAdapter,
        handle::{EngineEnd, EngineHandle, EngineStopped},
    },
};
use spotter_requests::RequestQueue;

/// The opening of engines.
pub type OpeningEngines = Pin<Box<dyn Future<Output = anyhow::Result<OpenedEngines>>>>;

/// Engines that run.
pub struct OpenedEngines {
    pub slots: Vec<EngineSlot>,
    /// The model of the first engine.
    pub card: ModelCard,
}

impl OpenedEngines {
    /// The slowest device's time of a look, measured when the engines were opened.
    pub fn look(&self) -> Option<Duration> {
        self.slots.iter().filter_map(|slot| slot.look).max()
    }
}

/// Pauses before a lost engine is opened again; the last one applies to all further attempts. Each attempt loads a model beside the looks
/// of the other engines.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(900),
];
/// Grace for an engine that is being opened when all stages start again.
const OPENING_LIMIT: Duration = Duration::from_secs(180);
/// How often the files of broken adapters are looked at.
const ADAPTER_RETRY: Duration = Duration::from_secs(5);
/// An engine that ran for so long was good; when it is lost again, the pauses begin from the first.
const STABLE_AFTER: Duration = Duration::from_secs(3600);

/// An engine on one device.
pub struct EngineSlot {
    /// The short name of the device, for example `cuda 1, NVIDIA H200`.
    pub label: String,
    /// On which a lost engine is opened again; `None`: it is not.
    pub device: Option<ModelDevice>,
    /// Time of the longest look, measured when the engine was opened.
    pub look: Option<Duration>,
    /// How frames stay on the GPU; `None` when they have to be copied to the host.
    pub device_map: Option<DeviceMap>,
    pub cameras: Vec<CameraId>,
    /// Since the start of the daemon, also when the engine was opened again.
    pub usage: EngineUsage,
    gpus: Vec<GpuId>,
    broken_adapters: Vec<BrokenAdapter>,
    share: Arc<CameraShare>,
    state: EngineSlotState,
    retry: EngineRetry,
    progress: ProgressClock,
}

enum EngineSlotState {
    Running(RunningEngine),
    Lost {
        why: String,
        retry_at: Mono,
    },
    Opening {
        why: String,
        opening: OpeningEngines,
    },
    Closed,
}

struct RunningEngine {
    handle: EngineHandle,
    end: EngineEnd,
    /// `None`: it begins no looks.
    requests: Option<EngineRequests>,
    /// At most one task, which begins looks.
    sampler: JoinSet<()>,
    adapters: AdapterChange,
}

/// The list of adapters that an engine is being given.
#[derive(Default)]
struct AdapterChange {
    setting: Option<SettingAdapters>,
    /// To be given afterwards.
    next: Option<Vec<AdapterConfig>>,
    /// When the last list was given.
    at: Mono,
}

/// `None`: the engine has ended.
type SettingAdapters = Pin<Box<dyn Future<Output = Option<Vec<BrokenAdapter>>>>>;

impl AdapterChange {
    /// Waits until the engine has the list. Never ready when none is given, or when the engine ends, which is an event of its own.
    async fn done(&mut self) -> Vec<BrokenAdapter> {
        let Some(setting) = &mut self.setting else {
            return pending().await;
        };
        let broken = setting.await;
        self.setting = None;
        match broken {
            Some(broken) => broken,
            None => pending().await,
        }
    }
}

/// What happened to an engine by itself.
pub enum SlotEvent {
    Ended(EngineStopped),
    /// Opening a lost engine succeeded or failed.
    Opened(Box<anyhow::Result<OpenedEngines>>),
    /// It has the adapters that it was given, but for these.
    AdaptersSet(Vec<BrokenAdapter>),
}

/// How often an engine was lost. Pure.
#[derive(Debug, Default)]
struct EngineRetry {
    attempts: usize,
    running_since: Mono,
}

impl EngineRetry {
    /// It was lost (`was_running`), or could not be opened again. Returns the pause before the next attempt.
    fn lose(&mut self, was_running: bool, now: Mono) -> Duration {
        if was_running && now.since(self.running_since) >= STABLE_AFTER {
            self.attempts = 0;
        }
        let pause = PAUSES[self.attempts.min(PAUSES.len() - 1)];
        self.attempts += 1;
        pause
    }
}

impl EngineSlot {
    /// Opens and measures an engine, which has no camera yet, and logs its model.
    pub async fn open(
        order: EngineOrder,
        host: EngineHost,
        sampler: &Sampler,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<(Self, ModelCard)> {
        let (handle, end, measured) = host.open(order.clone(), Arc::clone(clock)).await?;
        let MeasuredEngine {
            card,
            look,
            broken_adapters,
        } = measured;
        let prompts = longest_look(&order.looks).len() as f64;
        let prompts_hz = look.map(|took| prompts / took.as_secs_f64().max(1e-6));
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
        // Another process cannot reach the memory of this process's GPU context, and another GPU does not read that of the decoder's.
        let reaches_frames = card.gpus.len() == 1 && host == EngineHost::Thread;
        let share = sampler.share(TimeLimits::new(order.settings.budget, look));
        let slot = Self {
            device: Some(order.device),
            gpus: card.gpus.clone(),
            look,
            device_map: frames_on(reaches_frames, &order.settings),
            broken_adapters,
            ..Self::new(card.label.clone(), (handle, end), share)
        };
        Ok((slot, card))
    }

    /// A slot for an engine that runs already. It gets frames after [`begin_looks`](Self::begin_looks).
    pub fn new(label: String, started: (EngineHandle, EngineEnd), share: Arc<CameraShare>) -> Self {
        let (handle, end) = started;
        Self {
            label,
            device: None,
            look: None,
            device_map: None,
            cameras: Vec::new(),
            usage: EngineUsage::default(),
            gpus: Vec::new(),
            broken_adapters: Vec::new(),
            share,
            state: EngineSlotState::Running(RunningEngine {
                handle,
                end,
                requests: None,
                sampler: JoinSet::new(),
                adapters: AdapterChange::default(),
            }),
            retry: EngineRetry::default(),
            progress: ProgressClock::default(),
        }
    }

    /// From now on the engine gets looks at the frames of its cameras, which are followed in `looks`; and answers requests of API and page, when
    /// no camera has a look due.
    pub fn begin_looks(&mut self, looks: &LooksInFlight, queue: &Arc<RequestQueue>) {
        if let (EngineSlotState::Running(running), Some(sender)) = (&mut self.state, looks.sender())
        {
            let requests = EngineRequests::new(queue);
            running.requests = Some(requests.clone());
            let source = LookSource {
                engine: running.handle.clone(),
                share: Arc::clone(&self.share),
                requests,
            };
            running.sampler.spawn(source.begin_looks(sender));
        }
    }

    /// Replaces the cameras of which the engine gets frames.
    pub fn set_cameras(&mut self, cameras: Vec<CameraId>, sampler: &Sampler) {
        sampler.assign(&self.share, &cameras);
        self.cameras = cameras;
    }

    /// Waits until the engine ends; [`lose`](Self::lose) it then. Never ready for a lost engine.
    pub async fn ended(&mut self) -> EngineStopped {
        match &mut self.state {
            EngineSlotState::Running(running) => running.end.reason().await,
            _ => pending().await,
        }
    }

    /// Never ready for an engine that is neither running nor being opened. Dropping the future loses nothing.
    pub async fn event(&mut self) -> SlotEvent {
        match &mut self.state {
            EngineSlotState::Opening { opening, .. } => SlotEvent::Opened(Box::new(opening.await)),
            EngineSlotState::Running(running) => tokio::select! {
                biased;
                why = running.end.reason() => SlotEvent::Ended(why),
                broken = running.adapters.done() => SlotEvent::AdaptersSet(broken),
            },
            _ => pending().await,
        }
    }

    /// Gives the engine these adapters. It reads new and changed files beside its work, and then reports [`SlotEvent::AdaptersSet`].
    pub fn give_adapters(&mut self, wanted: &[AdapterConfig], now: Mono) {
        if let EngineSlotState::Running(RunningEngine {
            handle, adapters, ..
        }) = &mut self.state
        {
            if adapters.setting.is_some() {
                adapters.next = Some(wanted.to_vec());
                return;
            }
            adapters.at = now;
            adapters.setting = Some(Box::pin(handle.set_adapters(wanted.to_vec())));
        }
    }

    /// Has the engine look at the files of broken adapters again, from time to time.
    pub fn retry_adapters(&mut self, wanted: &[AdapterConfig], now: Mono) {
        if let EngineSlotState::Running(RunningEngine { adapters, .. }) = &self.state
            && !self.broken_adapters.is_empty()
            && adapters.setting.is_none()
            && now.since(adapters.at) >= ADAPTER_RETRY
        {
            self.give_adapters(wanted, now);
        }
    }

    /// After [`SlotEvent::AdaptersSet`].
    pub fn adapters_set(&mut self, broken: Vec<BrokenAdapter>, now: Mono) {
        self.broken_adapters = broken;
        if let EngineSlotState::Running(RunningEngine { adapters, .. }) = &mut self.state
            && let Some(next) = adapters.next.take()
        {
            self.give_adapters(&next, now);
        }
    }

    /// Adapters that the running engine cannot use.
    pub fn broken_adapters(&self) -> &[BrokenAdapter] {
        match self.is_running() {
            true => &self.broken_adapters,
            false => &[],
        }
    }

    /// The engine ended or is given up, or opening it failed; its looks in flight fail at once. Returns the pause before it is opened again.
    pub fn lose(&mut self, why: String, now: Mono) -> Duration {
        let was_running = match &self.state {
            EngineSlotState::Running(running) => {
                running.handle.give_up();
                true
            }
            _ => false,
        };
        let pause = self.retry.lose(was_running, now);
        let retry_at = now.after(pause);
        self.state = EngineSlotState::Lost { why, retry_at };
        pause
    }

    /// The device of a lost engine whose pause is over.
    pub fn due(&self, now: Mono) -> Option<&ModelDevice> {
        match self.state {
            EngineSlotState::Lost { retry_at, .. } if retry_at <= now => self.device.as_ref(),
            _ => None,
        }
    }

    pub fn open_again(&mut self, opening: OpeningEngines) {
        if let Some(why) = self.why_ended() {
            let why = why.to_owned();
            self.state = EngineSlotState::Opening { why, opening };
        }
    }

    pub fn is_opening(&self) -> bool {
        matches!(self.state, EngineSlotState::Opening { .. })
    }

    /// The engine was opened again, as `new`.
    pub fn recover(&mut self, new: Self, now: Mono) {
        let attempts = self.retry.attempts;
        *self = Self {
            usage: std::mem::take(&mut self.usage),
            retry: EngineRetry {
                attempts,
                running_since: now,
            },
            ..new
        };
    }

    /// Begins no more looks.
    pub async fn stop_looks(&mut self) {
        if let EngineSlotState::Running(running) = &mut self.state {
            running.sampler.shutdown().await;
        }
    }

    /// Waits until the begun requests of API and page are answered, at most until `deadline`; then looks and requests inside fail.
    pub async fn give_up_looks(&mut self, deadline: Instant) {
        if let EngineSlotState::Running(running) = &self.state {
            if let Some(requests) = &running.requests {
                _ = timeout_at(deadline, requests.all_answered()).await;
            }
            running.handle.give_up();
        }
    }

    /// Drops the engine. The future is ready when its memory is free, or after `limit`. Before another model is opened on its device
    /// (`is_restart`), an engine that is being opened is waited for: it cannot be dropped earlier.
    pub async fn close(&mut self, limit: Duration, is_restart: bool) {
        match std::mem::replace(&mut self.state, EngineSlotState::Closed) {
            EngineSlotState::Running(RunningEngine {
                handle,
                end,
                requests,
                sampler,
                adapters,
            }) => {
                handle.give_up();
                // The engine gets no more looks.
                drop((handle, requests, sampler, adapters));
                if timeout(limit, end.over()).await.is_err() {
                    tracing::warn!(
                        device = self.label,
                        "the engine did not end in time; continuing without waiting"
                    );
                }
            }
            EngineSlotState::Opening { opening, .. } if is_restart => {
                if let Ok(Ok(opened)) = timeout(OPENING_LIMIT, opening).await {
                    for mut slot in opened.slots {
                        Box::pin(slot.close(limit, false)).await;
                    }
                }
            }
            _ => {}
        }
    }

    /// The GPUs of an engine that runs on some.
    pub fn gpus(&self) -> &[GpuId] {
        match self.is_running() {
            true => &self.gpus,
            false => &[],
        }
    }

    /// Why it has ended; `None` while it runs.
    pub fn why_ended(&self) -> Option<&str> {
        match &self.state {
            EngineSlotState::Lost { why, .. } | EngineSlotState::Opening { why, .. } => Some(why),
            EngineSlotState::Running(_) | EngineSlotState::Closed => None,
        }
    }

    /// Looks that it does in a second; one that could not be measured is taken as equal to the others.
    pub fn looks_hz(&self) -> f64 {
        self.look
            .map_or(1.0, |look| 1.0 / look.as_secs_f64().max(1e-6))
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, EngineSlotState::Running(_))
    }

    /// A counter that rises with every step of the engine; `None` when it has ended.
    pub fn steps(&self) -> Option<u64> {
        match &self.state {
            EngineSlotState::Running(running) => Some(running.handle.beats()),
            _ => None,
        }
    }

    /// For how long it has made no step; `None` when it has ended.
    pub fn idle(&mut self, now: Mono) -> Option<Duration> {
        let steps = self.steps()?;
        Some(self.progress.idle(steps, now))
    }
}

/// Names of cameras in one line.
pub fn camera_list<'a>(cameras: impl IntoIterator<Item = &'a CameraId>) -> String {
    let names: Vec<&str> = cameras.into_iter().map(CameraId::as_str).collect();
    names.join(", ")
}

/// The kinds of prompts whose scores are calibrated; `None` without any.
fn calibrated(card: &ModelCard) -> Option<String> {
    let kinds: Vec<&str> = card.calibrated.iter().map(|kind| kind.name()).collect();
    (!kinds.is_empty()).then(|| kinds.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: D10.
    #[test]
    fn pauses_grow_until_an_hour_of_running() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut retry = EngineRetry::default();
        let mut lose = |was_running, now| retry.lose(was_running, at(now)).as_secs();
        let pauses = [10, 70, 370, 1270].map(|now| lose(now == 10, now));
        assert_eq!(pauses, [10, 60, 300, 900]);
        assert_eq!(lose(false, 1_000_000), 900, "attempts never end");
        retry.running_since = at(1_000_000);
        assert_eq!(retry.lose(true, at(1_003_599)).as_secs(), 900);
        assert_eq!(retry.lose(true, at(1_003_600)).as_secs(), 10);
    }
}
