//! All engines of the daemon, one for each device: opened, assigned to cameras, lost, opened again.
//!
//! ```text
//!   gate, dock ─▶ sampler ─▶ engine on cuda 0 ─▶ answers ─┐
//!   yard       ─▶ sampler ─▶ engine on cuda 1 ─▶ answers ─┴─▶ AnswerRouter     an engine that fails: its cameras go to the others
//! ```
//!
//! A camera moves between engines at once: the answers of all engines are brought into the order of their looks. The looks of a lost
//! engine fail, and its cameras go to the others; they return when it runs again.
//!
//! One engine is a thread of the daemon. Of several engines each is a process, because the driver fails all GPUs of a process
//! together (`engine_launch`). A lost engine is opened again while the others run. The last engine that is lost ends the
//! daemon: it may be a thread of this process, whose driver is unusable now, and systemd starts the process again.

mod retry;

use std::{
    future::{pending, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use anyhow::Context as _;
use tokio::{task::spawn_blocking, time::Instant};

use self::retry::RetrySchedule;
use super::{
    camera_assignment::{CameraAssignment, CameraCosts, EngineCapacity, deal},
    costs::CostBasis,
    engine_launch::EngineHost,
    engine_slot::{EngineRequest, EngineSlot, LostEngine, camera_list},
    looks::LooksInFlight,
    node_reporter::{expected_looks, longest_look},
    notice::{EngineLoss, RunningEngines, StageNotice},
    stage::{Stage, StageContext, StageFuture},
    watchdogs::EngineWatchdogs,
};
use spotter_api::RequestQueue;
use spotter_cameras::{ingest::DeviceMap, sampler::Sampler};
use spotter_config::{CameraConfig, Config, ConfigChange};
use spotter_core::{Clock, LookNews};
use spotter_engine::open::{self, ModelCard, ModelDevice};
use spotter_engine::service::handle::EngineStopped;
use spotter_page::{EngineState, EngineStatus, Readiness};

/// Grace for the looks in flight when the daemon stops.
pub const LAST_LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Grace for devices to free their memory.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// Grace for an engine that is being opened when all stages start again.
const OPENING_LIMIT: Duration = Duration::from_secs(180);

/// Opens the engines of a plan. Tests replace it.
pub type OpenEngines = dyn Fn(EnginePlan) -> OpeningEngines + Send + Sync;
pub type OpeningEngines = Pin<Box<dyn Future<Output = anyhow::Result<OpenedEngines>>>>;

/// The engines with their cameras.
pub struct EngineSupervisor {
    sampler: Arc<Sampler>,
    clock: Arc<dyn Clock>,
    open_engines: Arc<OpenEngines>,
    slots: Vec<EngineSlot>,
    looks: LooksInFlight,
    retries: RetrySchedule,
    reopening: Option<EngineReopening>,
    cameras: CameraCosts,
    /// `None`: a look of each camera is taken to cost as much as of another.
    costs: Option<CostBasis>,
    /// Requests of the API, which engines with room answer; `None`: there is no API.
    requests: Option<Arc<RequestQueue>>,
    /// `None`: nothing watches their progress.
    watchdogs: Option<EngineWatchdogs>,
}

/// What [`EngineSupervisor::next_event`] returns.
pub enum EngineEvent {
    /// News of looks, the answers in the order of each topic.
    Looks(Vec<LookNews>),
    /// An engine ended by itself; hand it to [`EngineSupervisor::on_lost`].
    Lost(LostEngine),
    /// Opening a lost engine succeeded or failed; hand it to [`EngineSupervisor::on_reopened`].
    Reopened(Box<anyhow::Result<OpenedEngines>>),
}

/// What engines are opened for.
#[derive(Clone)]
pub struct EnginePlan {
    pub config: Config,
    pub sampler: Arc<Sampler>,
    pub clock: Arc<dyn Clock>,
    /// Open an engine on this device only, beside engines that run. `None`: open all that `config` names.
    pub only: Option<ModelDevice>,
}

/// Engines that run.
pub struct OpenedEngines {
    pub slots: Vec<EngineSlot>,
    /// The model of the first engine.
    pub card: ModelCard,
}

/// A lost engine that is being opened.
struct EngineReopening {
    label: String,
    opening: OpeningEngines,
}

impl EnginePlan {
    /// Opens the engines one after the other: the second finds the kernels compiled, each is measured with the machine to
    /// itself, and the host's memory holds the weights of one at a time.
    pub async fn open(self) -> anyhow::Result<OpenedEngines> {
        let config = &self.config;
        let (devices, host) = match &self.only {
            Some(device) => (vec![device.clone()], EngineHost::Process),
            None => configured_devices(config).await.context("model")?,
        };
        // The same look for all, so that their times can be compared.
        let looks = expected_looks(&config.cameras);
        let (mut slots, mut first_card) = (Vec::new(), None);
        for device in devices {
            let label = device.label();
            let request = EngineRequest {
                device,
                host,
                model: &config.model,
                looks: &looks,
                sampler: &self.sampler,
                clock: &self.clock,
            };
            let opened = EngineSlot::open(request).await;
            let (slot, card) = opened.with_context(|| format!("model on {label}"))?;
            slots.push(slot);
            first_card.get_or_insert(card);
        }
        // In a fleet, others share the cameras.
        if self.only.is_none() && config.fleet.is_none() {
            warn_of_load(&config.cameras, &slots, longest_look(&looks).len());
        }
        let card = first_card.context("model: no device; name at least one in model.gpus")?;
        Ok(OpenedEngines { slots, card })
    }
}

/// Warns of cameras that ask for more than all engines together did when they were opened.
fn warn_of_load(cameras: &[CameraConfig], slots: &[EngineSlot], prompts: usize) {
    let looks_hz = |slot: &EngineSlot| Some(1.0 / slot.look()?.as_secs_f64().max(1e-6));
    let Some(looks_hz) = slots.iter().map(looks_hz).sum::<Option<f64>>() else {
        return;
    };
    let prompts_of_cameras = cameras.iter().flat_map(|camera| &camera.prompts);
    let asked_hz: f64 = prompts_of_cameras.map(|prompt| prompt.rate.hz()).sum();
    let measured_hz = looks_hz * prompts as f64;
    if asked_hz > measured_hz {
        let text = "the cameras ask for more prompt-frames/s than the engines did when they were opened; frames will be dropped";
        tracing::warn!(asked_hz, measured_hz, "{text}");
    }
}

/// The devices of the configuration, and where their engines run.
async fn configured_devices(config: &Config) -> anyhow::Result<(Vec<ModelDevice>, EngineHost)> {
    let settings = config.model.clone();
    let chosen = spawn_blocking(move || open::choose(&settings)).await?;
    let devices = chosen.map_err(anyhow::Error::msg)?;
    let host = EngineHost::for_engine_count(devices.len());
    Ok((devices, host))
}

impl EngineSupervisor {
    /// Takes over engines that run. From now on they get the frames of their cameras; [`set_cameras`](Self::set_cameras) assigns the
    /// others.
    pub fn new(
        sampler: Arc<Sampler>,
        mut slots: Vec<EngineSlot>,
        clock: Arc<dyn Clock>,
        open_engines: Arc<OpenEngines>,
    ) -> Self {
        let looks = LooksInFlight::default();
        slots.iter_mut().for_each(|slot| slot.begin_looks(&looks));
        Self {
            cameras: CameraCosts::new(),
            costs: None,
            requests: None,
            watchdogs: None,
            sampler,
            clock,
            open_engines,
            slots,
            looks,
            retries: RetrySchedule::default(),
            reopening: None,
        }
    }

    /// From now on engines answer the requests of the API when no camera has a look due.
    pub fn answer_requests(&mut self, queue: &Arc<RequestQueue>) {
        for slot in &mut self.slots {
            slot.answer_requests(queue);
        }
        self.requests = Some(Arc::clone(queue));
    }

    /// From now on their progress is watched and reported.
    pub fn watch_progress(&mut self, readiness: Readiness) {
        let progress: Vec<_> = self.progress().collect();
        let now = self.clock.now();
        self.watchdogs = Some(EngineWatchdogs::new(readiness, &progress, self.look(), now));
    }

    fn note_usage(&mut self, news: &[LookNews]) {
        for news in news {
            if let LookNews::Answer { frame, answer, .. } = news {
                let mut slots = self.slots.iter_mut();
                let of = slots.find(|slot| slot.cameras().contains(&frame.camera));
                if let Some(slot) = of {
                    slot.usage.answer(&frame.camera, &answer.marks);
                }
            }
        }
    }

    /// Begins looks on all engines as permits and frames arrive, until there is an event. Dropping the future loses nothing.
    pub async fn next_event(&mut self) -> EngineEvent {
        tokio::select! {
            biased;
            // Before the looks that fail with the engine, so that the log shows the cause first.
            (index, reason) = first_end(&mut self.slots) => match self.slots[index].lose(&reason) {
                Some(lost) => EngineEvent::Lost(lost),
                // A lost engine does not end, so this branch is not reached.
                None => pending().await,
            },
            opened = reopened(&mut self.reopening) => EngineEvent::Reopened(Box::new(opened)),
            news = self.looks.news() => {
                self.note_usage(&news);
                EngineEvent::Looks(news)
            }
        }
    }

    /// From now on cameras are dealt by what their looks cost.
    pub fn set_costs(&mut self, costs: Option<CostBasis>) {
        self.costs = costs;
    }

    /// Sets the cameras and their settings. They are dealt again when they are others, or cost more or less.
    pub fn set_cameras(&mut self, cameras: &[CameraConfig]) {
        self.sampler.change(cameras);
        let cost = |camera: &CameraConfig| match (&self.costs, camera.enabled) {
            (_, false) => 0.0,
            (Some(costs), true) => costs.work_hz(camera),
            (None, true) => camera.rate.hz(),
        };
        let cameras = cameras
            .iter()
            .map(|camera| (camera.id.clone(), cost(camera)));
        let cameras = cameras.collect();
        if cameras != self.cameras {
            self.cameras = cameras;
            self.deal(CameraAssignment::new());
        }
    }

    /// Logs the cameras of each engine.
    pub fn log_assignment(&self) {
        for slot in &self.slots {
            let cameras = camera_list(slot.cameras().iter());
            tracing::info!(device = slot.label(), cameras, "cameras assigned");
        }
    }

    /// Gives each camera an engine that runs; those in `stay` keep theirs.
    fn deal(&mut self, stay: CameraAssignment) {
        let dealt = deal(&self.cameras, &self.capacities(), stay);
        self.assign(&dealt);
    }

    fn assign(&mut self, dealt: &CameraAssignment) {
        for slot in &mut self.slots {
            let its = dealt.iter().filter(|(_, label)| *label == slot.label());
            slot.set_cameras(its.map(|(id, _)| id.clone()).collect(), &self.sampler);
        }
    }

    /// The engines that run. One that could not be measured is taken as equal to the others.
    fn capacities(&self) -> Vec<EngineCapacity> {
        let running = self.slots.iter().filter(|slot| slot.is_running());
        let capacity = |slot: &EngineSlot| EngineCapacity {
            label: slot.label().to_owned(),
            looks_hz: slot
                .look()
                .map_or(1.0, |look| 1.0 / look.as_secs_f64().max(1e-6)),
        };
        running.map(capacity).collect()
    }

    /// The cameras of all engines.
    pub fn sampler(&self) -> &Arc<Sampler> {
        &self.sampler
    }

    pub fn all_lost(&self) -> bool {
        self.running_count() == 0
    }

    pub fn running_count(&self) -> usize {
        let slots = self.slots.iter();
        slots.filter(|slot| slot.is_running()).count()
    }

    pub fn running(&self) -> RunningEngines {
        RunningEngines {
            count: self.running_count(),
            gpus: self.gpus(),
        }
    }

    /// Begins no more looks and waits at most `limit` for those in flight. Returns all remaining news.
    pub async fn finish_looks(&mut self, limit: Duration) -> Vec<LookNews> {
        let deadline = Instant::now() + limit;
        for slot in &mut self.slots {
            slot.stop_looks().await;
        }
        let mut last = self.looks.finish(deadline).await;
        for slot in &mut self.slots {
            slot.give_up_looks(deadline).await;
        }
        // These fail at once.
        last.extend(self.looks.finish(Instant::now() + CLOSE_LIMIT).await);
        last
    }

    /// Drops all engines. Waits until their memory is free, at most some seconds.
    pub async fn free(&mut self) {
        let deadline = Instant::now() + CLOSE_LIMIT;
        let closing: Vec<_> = self.slots.iter_mut().map(|s| s.close(deadline)).collect();
        for closed in closing {
            closed.await;
        }
    }

    /// Waits for an engine that is being opened and drops it: it cannot be dropped earlier, and its device has to be free
    /// before another model is opened there.
    pub async fn cancel_reopening(&mut self, limit: Duration) {
        let Some(EngineReopening { opening, .. }) = self.reopening.take() else {
            return;
        };
        if let Ok(Ok(mut opened)) = tokio::time::timeout(limit, opening).await {
            let deadline = Instant::now() + CLOSE_LIMIT;
            for slot in &mut opened.slots {
                slot.close(deadline).await;
            }
        }
    }

    /// Gives up an engine that shows no progress. `None` when it is lost already.
    pub fn give_up(&mut self, label: &str) -> Option<LostEngine> {
        let reason = EngineStopped("the device returns no more results".into());
        let mut slots = self.slots.iter_mut();
        slots.find(|slot| slot.label() == label)?.lose(&reason)
    }

    /// Gives the cameras of a lost engine to the other engines, and schedules the attempt to open it again.
    pub fn on_lost(&mut self, lost: LostEngine) -> EngineLoss {
        let reason = format!("engine on {}: {}", lost.label, lost.reason);
        let LostEngine { label, cameras, .. } = lost;
        let is_last = self.all_lost();
        if !is_last {
            let mut stay = self.assignment();
            stay.retain(|_, engine| *engine != label);
            self.deal(stay);
            let retry_s = self.retries.lose(&label, self.clock.now()).as_secs();
            tracing::error!(
                cameras = camera_list(cameras.iter()),
                retry_s,
                "{reason}; the other engines watch its cameras until it is opened again"
            );
        }
        EngineLoss {
            cameras,
            reason,
            is_last,
        }
    }

    /// The last one that is lost ends the run: systemd starts the process again.
    fn lost_notices(&mut self, lost: LostEngine) -> Vec<StageNotice> {
        let loss = self.on_lost(lost);
        let then = match loss.is_last {
            true => StageNotice::End(Err(anyhow::Error::msg(loss.reason.clone()))),
            false => StageNotice::EnginesChanged(self.running()),
        };
        vec![StageNotice::EngineLost(loss), then]
    }

    /// Labels of the engines to give up.
    fn stalled(&mut self) -> Vec<String> {
        let slots = self.slots.iter();
        let progress: Vec<_> = slots.map(|slot| (slot.label(), slot.progress())).collect();
        let watchdogs = self.watchdogs.as_mut();
        watchdogs.map_or_else(Vec::new, |it| it.tick(&progress, self.clock.now()))
    }

    fn statuses(&self) -> Vec<EngineStatus> {
        let counters = self.sampler.counters();
        let status = |slot: &EngineSlot| {
            let its = counters
                .iter()
                .filter(|(id, _)| slot.cameras().contains(id));
            EngineStatus {
                device: slot.label().to_owned(),
                state: match slot.progress() {
                    Some(_) => EngineState::Runs,
                    None if self.is_reopening(slot.label()) => EngineState::Opens,
                    None => EngineState::Ended,
                },
                under_way: its.map(|(_, frames)| frames.in_flight).sum(),
                turns: slot.progress(),
                gpu: slot.gpu().map(|gpu| gpu.uuid.clone()),
                ..slot.usage.status(self.clock.now())
            }
        };
        self.slots.iter().map(status).collect()
    }

    /// Begins to open a lost engine whose pause is over, one at a time.
    pub fn reopen_due(&mut self, effective: impl FnOnce() -> Config) {
        if self.reopening.is_some() {
            return;
        }
        let Some(label) = self.retries.due(self.clock.now()) else {
            return;
        };
        let Some(slot) = self.slots.iter().find(|slot| slot.label() == label) else {
            return;
        };
        let Some(device) = slot.device() else {
            return;
        };
        tracing::info!(device = label, "opening the lost engine again");
        let plan = EnginePlan {
            config: effective(),
            sampler: Arc::clone(&self.sampler),
            clock: Arc::clone(&self.clock),
            only: Some(device.clone()),
        };
        self.reopening = Some(EngineReopening {
            label: label.to_owned(),
            opening: (self.open_engines)(plan),
        });
    }

    pub fn is_reopening(&self, label: &str) -> bool {
        let reopening = self.reopening.as_ref();
        reopening.is_some_and(|reopening| reopening.label == label)
    }

    /// Puts an engine that was opened again in its slot and returns its cameras, or schedules the next attempt. True
    /// when it runs.
    pub fn on_reopened(&mut self, opened: anyhow::Result<OpenedEngines>) -> bool {
        let Some(EngineReopening { label, .. }) = self.reopening.take() else {
            return false;
        };
        let now = self.clock.now();
        match opened {
            Ok(OpenedEngines { slots, .. }) => {
                self.retries.recover(&label, now);
                for mut slot in slots {
                    let mut places = self.slots.iter_mut();
                    if let Some(place) = places.find(|place| place.label() == slot.label()) {
                        slot.begin_looks(&self.looks);
                        slot.usage = std::mem::take(&mut place.usage);
                        if let Some(queue) = &self.requests {
                            slot.answer_requests(queue);
                        }
                        *place = slot;
                    }
                }
                // As before the loss; a camera that goes to another engine by this deal stays where it is.
                let mut dealt = deal(&self.cameras, &self.capacities(), CameraAssignment::new());
                dealt.retain(|_, engine| *engine == label);
                let cameras = camera_list(dealt.keys());
                tracing::info!(device = label, cameras, "the engine runs again");
                let mut stay = self.assignment();
                stay.extend(dealt);
                self.deal(stay);
                true
            }
            Err(error) => {
                let retry_s = self.retries.lose(&label, now).as_secs();
                tracing::error!(
                    retry_s,
                    "engine on {label} cannot be opened again: {error:#}"
                );
                false
            }
        }
    }

    /// How frames stay on the GPU; `None` when they have to be copied to the host. Only a single engine can read them there, and it is never
    /// another one.
    pub fn device_map(&self) -> Option<DeviceMap> {
        self.slots.first()?.device_map()
    }

    pub fn assignment(&self) -> CameraAssignment {
        let labelled = |slot: &EngineSlot| {
            let cameras = slot.cameras().iter();
            let pairs = cameras.map(|camera| (camera.clone(), slot.label().to_owned()));
            pairs.collect::<Vec<_>>()
        };
        self.slots.iter().flat_map(labelled).collect()
    }

    /// One line for each lost engine.
    pub fn troubles(&self) -> impl Iterator<Item = String> {
        self.slots.iter().filter_map(|slot| {
            let (label, why) = (slot.label(), slot.why_ended()?);
            Some(format!(
                "engine on {label}: {why}; opened again automatically"
            ))
        })
    }

    /// Names of the GPUs in use.
    pub fn gpus(&self) -> Vec<String> {
        let gpus = self.slots.iter().filter_map(EngineSlot::gpu);
        gpus.map(|gpu| gpu.name.clone()).collect()
    }

    /// Label and progress counter of each engine; no counter for a lost engine.
    pub fn progress(&self) -> impl Iterator<Item = (&str, Option<u64>)> {
        self.slots
            .iter()
            .map(|slot| (slot.label(), slot.progress()))
    }

    /// The slowest device's time of a look, measured when the engines were opened.
    pub fn look(&self) -> Option<Duration> {
        self.slots.iter().filter_map(EngineSlot::look).max()
    }
}

impl Stage for EngineSupervisor {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            match self.next_event().await {
                EngineEvent::Looks(news) => vec![StageNotice::Looks(news)],
                EngineEvent::Lost(lost) => self.lost_notices(lost),
                EngineEvent::Reopened(opened) => {
                    if !self.on_reopened(*opened) {
                        return Vec::new();
                    }
                    if let Some(watchdogs) = &self.watchdogs {
                        self.watch_progress(watchdogs.readiness());
                    }
                    vec![StageNotice::EnginesChanged(self.running())]
                }
            }
        })
    }

    fn apply(&mut self, change: &ConfigChange, context: &mut StageContext<'_>) {
        if !change.is_empty() {
            self.set_cameras(context.config.cameras());
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        context.status.engines = self.statuses();
        context.status.troubles.extend(self.troubles());
        for label in self.stalled() {
            let lost = self.give_up(&label);
            let notices = lost.map(|lost| self.lost_notices(lost));
            for notice in notices.into_iter().flatten() {
                context.say(notice);
            }
        }
        self.reopen_due(|| context.config.effective());
    }

    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async { vec![StageNotice::Looks(self.finish_looks(LAST_LOOK_LIMIT).await)] })
    }

    /// Before another run begins, an engine that is being opened has to leave its device.
    fn close(&mut self, is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async move {
            self.free().await;
            if is_restart {
                self.cancel_reopening(OPENING_LIMIT).await;
            }
            Vec::new()
        })
    }
}

/// The next engine that ends, by its index.
async fn first_end(slots: &mut [EngineSlot]) -> (usize, EngineStopped) {
    let ends = slots.iter_mut().map(|slot| Box::pin(slot.ended()));
    let mut ends: Vec<_> = ends.collect();
    poll_fn(|context| {
        for (index, end) in ends.iter_mut().enumerate() {
            if let Poll::Ready(reason) = end.as_mut().poll(context) {
                return Poll::Ready((index, reason));
            }
        }
        Poll::Pending
    })
    .await
}

/// Never ready while no engine is being opened. Dropping the future loses nothing.
async fn reopened(reopening: &mut Option<EngineReopening>) -> anyhow::Result<OpenedEngines> {
    match reopening {
        Some(reopening) => (&mut reopening.opening).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests;
