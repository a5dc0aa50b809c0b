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

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::Context as _;
use futures_util::future::{join_all, select_all};
use tokio::{task::spawn_blocking, time::Instant};

use super::{
    camera_assignment::{CameraAssignment, CameraCosts, EngineCapacity, deal},
    costs::CostBasis,
    engine_launch::{EngineHost, EngineOrder, expected_looks, longest_look},
    engine_slot::{EngineSlot, OpenedEngines, OpeningEngines, SlotEvent, camera_list},
    looks::LooksInFlight,
    notice::{EngineLoss, RunningEngines, StageNotice},
    stage::{Stage, StageContext, StageFuture},
};
use crate::ops::notify;
use spotter_cameras::{ingest::DeviceMap, sampler::Sampler};
use spotter_config::{CameraConfig, Config, ConfigChange};
use spotter_core::{AdapterId, Clock, LookNews};
use spotter_engine::{
    open::{self, ModelDevice},
    service::BrokenAdapter,
};
use spotter_page::{EngineState, EngineStatus, Readiness, Trouble, TroubleKind};
use spotter_requests::RequestQueue;

/// Grace for the looks in flight when the daemon stops.
const LAST_LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Grace for devices to free their memory.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);
/// An engine without progress for this time makes none for `/readyz`.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// An engine without progress for this time is given up, where systemd sets no watchdog interval.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30);
/// An engine shows progress once a step. On a processor a step of a large model takes long, but no longer than its look: one that takes this
/// many times its measured time counts as one that hangs.
const SLOWEST_LOOK: u32 = 10;

/// Opens the engines of a plan. Tests replace it.
pub type OpenEngines = dyn Fn(EnginePlan) -> OpeningEngines + Send + Sync;

/// The engines with their cameras.
pub struct EngineSupervisor {
    parts: EngineParts,
    slots: Vec<EngineSlot>,
    looks: LooksInFlight,
    cameras: CameraCosts,
    /// Adapters that an engine cannot use, with the reason.
    adapter_faults: BTreeMap<AdapterId, Arc<str>>,
}

/// What the supervisor works with.
pub struct EngineParts {
    pub sampler: Arc<Sampler>,
    pub clock: Arc<dyn Clock>,
    pub open_engines: Arc<OpenEngines>,
    pub costs: CostBasis,
    /// Adapters that GPUs have memory for, for the time of the run.
    pub adapter_slots: usize,
    /// Requests of API and page, which engines answer when no camera has a look due.
    pub requests: Arc<RequestQueue>,
    /// Where it is reported whether engines make progress.
    pub readiness: Readiness,
}

/// What engines are opened for.
#[derive(Clone)]
pub struct EnginePlan {
    pub config: Config,
    /// Adapters that GPUs are to have memory for.
    pub adapter_slots: usize,
    pub sampler: Arc<Sampler>,
    pub clock: Arc<dyn Clock>,
    /// Open an engine on this device only, beside engines that run. `None`: open all that `config` names.
    pub only: Option<ModelDevice>,
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
            let order = EngineOrder {
                device,
                settings: config.model.clone(),
                adapters: config.adapters.all.clone(),
                adapter_slots: self.adapter_slots,
                looks: looks.clone(),
            };
            let opened = EngineSlot::open(order, host, &self.sampler, &self.clock).await;
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
    if slots.iter().any(|slot| slot.look.is_none()) {
        return;
    }
    let prompts_of_cameras = cameras.iter().flat_map(|camera| &camera.prompts);
    let asked_hz: f64 = prompts_of_cameras.map(|prompt| prompt.rate.hz()).sum();
    let measured_hz = slots.iter().map(EngineSlot::looks_hz).sum::<f64>() * prompts as f64;
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
    let host = match devices.len() {
        0 | 1 => EngineHost::Thread,
        _ => EngineHost::Process,
    };
    Ok((devices, host))
}

impl EngineSupervisor {
    /// Takes over engines that run. They get the frames of their cameras from now on.
    pub fn start(parts: EngineParts, slots: Vec<EngineSlot>, cameras: &[CameraConfig]) -> Self {
        let mut engines = Self {
            parts,
            slots,
            looks: LooksInFlight::default(),
            cameras: CameraCosts::new(),
            adapter_faults: BTreeMap::new(),
        };
        for slot in &mut engines.slots {
            slot.begin_looks(&engines.looks, &engines.parts.requests);
        }
        for camera in cameras {
            let cost = engines.cost(camera);
            engines.cameras.insert(camera.id.clone(), cost);
        }
        engines.deal(CameraAssignment::new());
        for slot in &engines.slots {
            let cameras = camera_list(&slot.cameras);
            tracing::info!(device = slot.label, cameras, "cameras assigned");
        }
        engines
    }

    /// Looks of cost 1 that a camera asks for in a second.
    fn cost(&self, camera: &CameraConfig) -> f64 {
        match camera.enabled {
            true => self.parts.costs.work_hz(camera),
            false => 0.0,
        }
    }

    /// Cameras are dealt again when they are others, or cost more or less.
    fn change(&mut self, change: &ConfigChange) {
        self.parts.sampler.change(change);
        let mut is_other = false;
        for (id, change) in change.cameras() {
            let cost = change.camera().map(|camera| self.cost(camera));
            let before = match cost {
                Some(cost) => self.cameras.insert(id.clone(), cost),
                None => self.cameras.remove(id),
            };
            is_other |= before != cost;
        }
        if is_other {
            self.deal(CameraAssignment::new());
        }
    }

    /// Gives each camera an engine that runs; those in `stay` keep theirs.
    fn deal(&mut self, stay: CameraAssignment) {
        let dealt = deal(&self.cameras, &self.capacities(), stay);
        for slot in &mut self.slots {
            let its = dealt.iter().filter(|(_, label)| **label == slot.label);
            let its = its.map(|(id, _)| id.clone()).collect();
            slot.set_cameras(its, &self.parts.sampler);
        }
    }

    /// The engines that run.
    fn capacities(&self) -> Vec<EngineCapacity> {
        let running = self.slots.iter().filter(|slot| slot.is_running());
        let capacity = |slot: &EngineSlot| EngineCapacity {
            label: slot.label.clone(),
            looks_hz: slot.looks_hz(),
        };
        running.map(capacity).collect()
    }

    /// The engine of each camera.
    fn assignment(&self) -> CameraAssignment {
        let slots = self.slots.iter();
        let pairs = slots.flat_map(|slot| slot.cameras.iter().map(|id| (id, &slot.label)));
        pairs
            .map(|(id, label)| (id.clone(), label.clone()))
            .collect()
    }

    /// The cameras of all engines.
    pub fn sampler(&self) -> &Arc<Sampler> {
        &self.parts.sampler
    }

    pub fn running(&self) -> RunningEngines {
        let gpus = self.slots.iter().flat_map(EngineSlot::gpus);
        RunningEngines {
            count: self.slots.iter().filter(|slot| slot.is_running()).count(),
            gpus: gpus.map(|gpu| gpu.name.clone()).collect(),
        }
    }

    /// How frames stay on the GPU; `None` when they have to be copied to the host. Only a single engine can read them there, and it is never
    /// another one.
    pub fn device_map(&self) -> Option<DeviceMap> {
        self.slots.first()?.device_map
    }

    /// What names a broken adapter is not asked from now on; what names a mended one is asked again.
    fn report_adapters(&mut self, context: &mut StageContext<'_>) {
        let broken = self.slots.iter().flat_map(EngineSlot::broken_adapters);
        let fault = |one: &BrokenAdapter| (one.id.clone(), Arc::from(&*one.reason));
        let faults: BTreeMap<AdapterId, Arc<str>> = broken.map(fault).collect();
        let before = std::mem::replace(&mut self.adapter_faults, faults.clone());
        for (id, reason) in &faults {
            if before.get(id) != Some(reason) {
                tracing::error!(
                    adapter = %id,
                    "adapter cannot be used; prompts and requests that name it are not answered until its file is mended: {reason}"
                );
            }
        }
        for id in before.keys().filter(|id| !faults.contains_key(id)) {
            tracing::info!(adapter = %id, "adapter is not broken any more");
        }
        if context.config.set_adapter_faults(faults, context.now) {
            context.cameras_changed();
        }
    }

    /// One line for each lost engine and each broken adapter.
    fn troubles(&self) -> impl Iterator<Item = Trouble> {
        let adapters = self.adapter_faults.iter();
        let adapters = adapters.map(|(id, reason)| {
            let text = format!("adapter {id}: {reason}");
            Trouble::new(TroubleKind::BrokenAdapter, text)
        });
        let engines = self.slots.iter().filter_map(|slot| {
            let (label, why) = (&slot.label, slot.why_ended()?);
            let text = format!("engine on {label}: {why}; opened again automatically");
            Some(Trouble::new(TroubleKind::EngineLost, text))
        });
        engines.chain(adapters)
    }

    fn note_usage(&mut self, news: &[LookNews]) {
        for news in news {
            if let LookNews::Answer { frame, answer, .. } = news {
                let mut slots = self.slots.iter_mut();
                let of = slots.find(|slot| slot.cameras.contains(&frame.camera));
                if let Some(slot) = of {
                    slot.usage.answer(&frame.camera, &answer.marks);
                }
            }
        }
    }

    /// An engine ended by itself or is given up: its cameras go to the others. The last one ends the run: systemd starts the process again.
    fn lose(&mut self, index: usize, why: String) -> Vec<StageNotice> {
        let slot = &mut self.slots[index];
        let reason = format!("engine on {}: {why}", slot.label);
        let retry_s = slot.lose(why, self.parts.clock.now()).as_secs();
        let (label, cameras) = (slot.label.clone(), slot.cameras.clone());
        let running = self.running();
        let is_last = running.count == 0;
        let then = match is_last {
            true => StageNotice::End(Err(anyhow::Error::msg(reason.clone()))),
            false => {
                let mut stay = self.assignment();
                stay.retain(|_, engine| *engine != label);
                self.deal(stay);
                tracing::error!(
                    cameras = camera_list(&cameras),
                    retry_s,
                    "{reason}; the other engines watch its cameras until it is opened again"
                );
                StageNotice::EnginesChanged(running)
            }
        };
        let loss = EngineLoss {
            cameras,
            reason,
            is_last,
        };
        vec![StageNotice::EngineLost(loss), then]
    }

    /// Puts an engine that was opened again in its slot and returns its cameras, or schedules the next attempt.
    fn opened(&mut self, index: usize, opened: anyhow::Result<OpenedEngines>) -> Vec<StageNotice> {
        let (slot, now) = (&mut self.slots[index], self.parts.clock.now());
        let label = slot.label.clone();
        let opened = opened.and_then(|mut opened| opened.slots.pop().context("no engine"));
        let new = match opened {
            Ok(new) => new,
            Err(error) => {
                let why = slot.why_ended().unwrap_or_default().to_owned();
                let retry_s = slot.lose(why, now).as_secs();
                tracing::error!(
                    retry_s,
                    "engine on {label} cannot be opened again: {error:#}"
                );
                return Vec::new();
            }
        };
        slot.recover(new, now);
        slot.begin_looks(&self.looks, &self.parts.requests);
        // As before the loss; a camera that goes to another engine by this deal stays where it is.
        let mut dealt = deal(&self.cameras, &self.capacities(), CameraAssignment::new());
        dealt.retain(|_, engine| *engine == label);
        let cameras = camera_list(dealt.keys());
        tracing::info!(device = label, cameras, "the engine runs again");
        let mut stay = self.assignment();
        stay.extend(dealt);
        self.deal(stay);
        vec![StageNotice::EnginesChanged(self.running())]
    }

    /// Begins to open a lost engine whose pause is over, one at a time.
    fn open_due(&mut self, effective: impl FnOnce() -> Config) {
        let now = self.parts.clock.now();
        if self.slots.iter().any(EngineSlot::is_opening) {
            return;
        }
        let mut slots = self.slots.iter_mut();
        let due = slots.find_map(|slot| Some((slot.due(now)?.clone(), slot)));
        if let Some((device, slot)) = due {
            tracing::info!(device = slot.label, "opening the lost engine again");
            slot.open_again((self.parts.open_engines)(EnginePlan {
                config: effective(),
                adapter_slots: self.parts.adapter_slots,
                sampler: Arc::clone(&self.parts.sampler),
                clock: Arc::clone(&self.parts.clock),
                only: Some(device),
            }));
        }
    }

    /// Engines without progress: soon `/readyz` shows them, later they are given up.
    fn check_progress(&mut self) -> Vec<StageNotice> {
        let now = self.parts.clock.now();
        let give_up = notify::watchdog_interval().unwrap_or(PROGRESS_LIMIT);
        let stall = STALL_LIMIT.min(give_up / 2);
        let (mut is_moving, mut hanging) = (false, Vec::new());
        for (index, slot) in self.slots.iter_mut().enumerate() {
            let slowest = slot.look.unwrap_or_default() * SLOWEST_LOOK;
            if let Some(idle) = slot.idle(now) {
                is_moving |= idle < stall.max(slowest);
                hanging.extend((idle >= give_up.max(slowest)).then_some(index));
            }
        }
        self.parts.readiness.turned(is_moving);
        let why = "the device returns no more results";
        let lost = hanging
            .into_iter()
            .flat_map(|index| self.lose(index, why.to_owned()));
        lost.collect()
    }

    fn statuses(&self) -> Vec<EngineStatus> {
        let counters = self.parts.sampler.counters();
        let status = |slot: &EngineSlot| {
            let its = counters.iter().filter(|(id, _)| slot.cameras.contains(id));
            EngineStatus {
                device: slot.label.clone(),
                state: match slot.steps() {
                    Some(_) => EngineState::Runs,
                    None if slot.is_opening() => EngineState::Opens,
                    None => EngineState::Ended,
                },
                under_way: its.map(|(_, frames)| frames.in_flight).sum(),
                turns: slot.steps(),
                gpus: slot.gpus().iter().map(|gpu| gpu.uuid.clone()).collect(),
                ..slot.usage.status(self.parts.clock.now())
            }
        };
        self.slots.iter().map(status).collect()
    }

    /// Begins no more looks and waits some seconds for those in flight. Returns all remaining news.
    async fn finish_looks(&mut self) -> Vec<LookNews> {
        let deadline = Instant::now() + LAST_LOOK_LIMIT;
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
}

impl Stage for EngineSupervisor {
    /// Begins looks on all engines as permits and frames arrive, until something happened.
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            tokio::select! {
                biased;
                // Before the looks that fail with the engine, so that the log shows the cause first.
                (index, event) = first_event(&mut self.slots) => match event {
                    SlotEvent::Ended(why) => self.lose(index, why.to_string()),
                    SlotEvent::Opened(opened) => self.opened(index, *opened),
                    SlotEvent::AdaptersSet(broken) => {
                        self.slots[index].adapters_set(broken, self.parts.clock.now());
                        vec![StageNotice::AdaptersSet]
                    }
                },
                news = self.looks.news() => {
                    self.note_usage(&news);
                    vec![StageNotice::Looks(news)]
                }
            }
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        match notice {
            // A file may have changed with an unchanged list.
            StageNotice::FileApplied => {
                let wanted = &context.config.file().adapters.all;
                for slot in &mut self.slots {
                    slot.give_adapters(wanted, context.now);
                }
            }
            StageNotice::Started | StageNotice::AdaptersSet | StageNotice::EnginesChanged(_) => {
                self.report_adapters(context);
            }
            _ => {}
        }
    }

    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        self.change(change);
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        context.status.engines = self.statuses();
        context.status.troubles.extend(self.troubles());
        for slot in &mut self.slots {
            slot.retry_adapters(&context.config.file().adapters.all, context.now);
        }
        context.say_all(self.check_progress());
        self.open_due(|| context.config.effective());
    }

    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async { vec![StageNotice::Looks(self.finish_looks().await)] })
    }

    /// Devices free their memory.
    fn close(&mut self, is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async move {
            let slots = self.slots.iter_mut();
            join_all(slots.map(|slot| slot.close(CLOSE_LIMIT, is_restart))).await;
            Vec::new()
        })
    }
}

/// The first engine to which something happens, by its index.
async fn first_event(slots: &mut [EngineSlot]) -> (usize, SlotEvent) {
    let events = slots.iter_mut().map(|slot| Box::pin(slot.event()));
    let (event, index, _) = select_all(events).await;
    (index, event)
}

#[cfg(test)]
mod tests;
