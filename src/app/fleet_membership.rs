//! A node's part in a fleet: carries out what its membership decides, and answers when that is done.
//!
//! ```text
//!   Member ──MemberEvent───▶ FleetMembership ──▶ ConfigStore   the list, and which cameras of it are this node's
//!   (NATS) ◀─MemberCommand──      │         └──▶ Publisher     which cameras it may publish, and with which epoch
//!                                 └──▶ Daemon applies the cameras to all stages
//! ```
//!
//! Belongs here: the order of a hand-over inside this node. Does not belong here: who is to have a camera (`spotter_fleet`), and what is
//! published (`spotter_mqtt`).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use tokio::{sync::mpsc, time::sleep};

use super::{
    answer_router::AnswerRouter,
    camera_supervisor::CameraSupervisor,
    config_store::{ConfigStore, FleetPart, log_dropped},
    costs::CostBasis,
    fleet_record::FleetRecord,
    node_reporter::NodeReporter,
    status,
};
use crate::api::RefusedCall;
use spotter_core::{
    CameraId, Clock, Epoch, Mono, NodeId,
    config::{
        Config, Environment, FleetConfig, ListReader, ListRights, SharedCamera, SharedCameraList,
        camera_list,
    },
    plain_line,
};
use spotter_events::overrides::{DroppedRecord, ReadOverrides};
use spotter_fleet::{
    entries::ListRevision,
    member::{Member, MemberCommand, MemberEvent, MemberSettings},
    store::{FleetStore, StoreSettings},
    summary::FleetSummary,
};
use spotter_mqtt::{DELAYED_AFTER, Identity, Publisher};
use spotter_page::FleetStatus;
use spotter_state::StateStore;

/// Commands to the membership that wait; more than a node has cameras.
const COMMANDS: usize = 4096;
const EVENTS: usize = 1024;
/// Events that are handled before the cameras are applied to the stages.
const EVENTS_AT_ONCE: usize = 256;
/// How often a camera that changes hands is looked at.
const STEP: Duration = Duration::from_millis(100);
/// The longest time for the last messages of a camera that is handed over, and for its session to end. Without the session it is [`DELAYED_AFTER`].
const LAST_SESSION_LIMIT: Duration = Duration::from_secs(11);
/// The longest time for handing over all cameras at a stop; systemd waits a little longer.
const LEAVE_LIMIT: Duration = Duration::from_secs(12);
/// A smaller change of what the engines can do is not announced.
const CAPACITY_CHANGE: f64 = 0.02;
/// Announced while no engine was measured.
const UNMEASURED_HZ: f64 = 1.0;
/// How long health shows that the broker had a false owner.
const WRONG_OWNER_SHOWN: Duration = Duration::from_mins(10);
/// Cameras whose ignored settings are remembered; those of further ones are logged again.
const CAMERAS_REMEMBERED: usize = 10_000;

/// The list and the disk of a node that is about to start.
pub struct FleetStart {
    store: Arc<FleetStore>,
    record: FleetRecord,
    list: Option<ListRevision>,
    /// Calls can trigger this node's cameras.
    has_api: bool,
    rights: ListRights,
}

/// See the module's documentation.
pub struct FleetMembership {
    node: NodeId,
    /// Of the fleet.
    name: NodeId,
    commands: mpsc::Sender<MemberCommand>,
    events: mpsc::Receiver<MemberEvent>,
    /// Received, and not handled yet.
    waiting: VecDeque<MemberEvent>,
    record: FleetRecord,
    has_api: bool,
    rights: ListRights,
    costs: CostBasis,
    /// Of the list that is followed.
    list_revision: u64,
    /// Those of the list that this node can watch.
    listed: BTreeMap<CameraId, SharedCamera>,
    /// Those that it cannot watch, with the reason.
    refused: BTreeMap<CameraId, String>,
    own: BTreeMap<CameraId, Epoch>,
    /// Connected without publishing; true: the membership knows it.
    preparing: BTreeMap<CameraId, bool>,
    /// Silent, and until when their last messages and sessions may take.
    giving_up: BTreeMap<CameraId, Mono>,
    /// Silent and still connected, until the next owner is written.
    silent: BTreeSet<CameraId>,
    store_state: StoreState,
    /// Which node has which camera, by the last view.
    summary: FleetSummary,
    capacity_hz: f64,
    leaving_since: Option<Mono>,
    /// Own cameras of which the broker has shown a false owner: its epoch, and when.
    wrong_owners: BTreeMap<CameraId, (Epoch, Mono)>,
    /// What was last ignored of the stored settings of each camera, so that it is logged once.
    ignored_settings: BTreeMap<CameraId, IgnoredSettings>,
}

/// What of a camera's stored settings is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
enum IgnoredSettings {
    /// The whole text, with the reason.
    Text(String),
    Records(Vec<DroppedRecord>),
}

/// Whether the fleet's store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
enum StoreState {
    Connecting,
    Connected,
    Disconnected(String),
    NameTaken(String),
}

/// The stages that a membership reads and changes.
pub struct FleetContext<'a> {
    pub config: &'a mut ConfigStore,
    pub cameras: &'a mut CameraSupervisor,
    pub answers: &'a mut AnswerRouter,
    pub reporter: &'a mut NodeReporter,
    pub publisher: &'a Publisher,
    pub now: Mono,
}

/// What the daemon has to do after events of the membership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetEffect {
    /// Apply the cameras to all stages.
    pub cameras_changed: bool,
    /// All cameras are handed over: stop.
    pub has_left: bool,
}

impl FleetStart {
    /// Reads the list from the store, or the last one that was read when the store cannot be reached within some seconds.
    pub async fn read(fleet: &FleetConfig, config: &Config, state: StateStore) -> Self {
        let mut record = FleetRecord::read(state, &fleet.name);
        let store = FleetStore::new(StoreSettings::of(fleet));
        let list = match store.list().await {
            Ok(Some(list)) => {
                record.keep_list(&list);
                Some(list)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::warn!(%error, "the list of the fleet cannot be read; starting with the last one that was");
                record.kept().list()
            }
        };
        Self {
            store: Arc::new(store),
            record,
            list,
            has_api: config.api.is_some(),
            rights: fleet.rights.clone(),
        }
    }

    /// The cameras of the list, for which engines are opened.
    pub fn cameras(&self) -> Vec<SharedCamera> {
        let list = self.list.as_ref();
        let list = list.map(|list| read_list(list, self.has_api, &self.rights));
        list.and_then(Result::ok).unwrap_or_default().cameras
    }
}

fn read_list(
    list: &ListRevision,
    has_api: bool,
    rights: &ListRights,
) -> Result<SharedCameraList, Vec<String>> {
    let name = format!("the fleet's list, revision {}", list.revision);
    let reader = ListReader {
        environment: &Environment::process(),
        has_api,
        rights,
    };
    let read = camera_list(&name, &list.text, &reader);
    read.map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

impl FleetMembership {
    /// Begins to take part. Cameras come with the first events.
    pub fn start(
        start: FleetStart,
        fleet: &FleetConfig,
        identity: &Identity,
        costs: CostBasis,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let settings = MemberSettings {
            node: identity.node.clone(),
            machine: identity.machine().to_owned(),
            labels: fleet.labels.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            resumed: start.record.kept().own.clone(),
        };
        let (sender, events) = mpsc::channel(EVENTS);
        let (commands, received) = mpsc::channel(COMMANDS);
        let member = Member::new(settings, start.store, Arc::clone(clock), sender);
        tokio::spawn(member.run(received));
        Self {
            node: identity.node.clone(),
            name: fleet.name.clone(),
            commands,
            events,
            waiting: VecDeque::new(),
            record: start.record,
            has_api: start.has_api,
            rights: start.rights,
            costs,
            list_revision: 0,
            listed: BTreeMap::new(),
            refused: BTreeMap::new(),
            own: BTreeMap::new(),
            preparing: BTreeMap::new(),
            giving_up: BTreeMap::new(),
            silent: BTreeSet::new(),
            store_state: StoreState::Connecting,
            summary: FleetSummary::default(),
            capacity_hz: 0.0,
            leaving_since: None,
            wrong_owners: BTreeMap::new(),
            ignored_settings: BTreeMap::new(),
        }
    }

    /// Waits until there is something to [`handle`](Self::handle): events, or the next step of a camera that changes hands. Dropping the future
    /// loses nothing.
    pub async fn ready(&mut self) {
        if !self.waiting.is_empty() {
            return;
        }
        let is_changing =
            !self.giving_up.is_empty() || self.preparing.values().any(|is_known| !is_known);
        let mut events = Vec::new();
        tokio::select! {
            _ = self.events.recv_many(&mut events, EVENTS_AT_ONCE) => self.waiting.extend(events),
            () = sleep(STEP), if is_changing => {}
        }
    }

    /// Carries out what the membership decided. The daemon applies the cameras afterwards, then there may be more to handle.
    pub fn handle(&mut self, mut context: FleetContext<'_>) -> FleetEffect {
        let mut effect = FleetEffect::default();
        let before: BTreeSet<CameraId> = self.own.keys().cloned().collect();
        while let Some(event) = self.waiting.pop_front() {
            match event {
                // The stages have to forget first what they know of it by an earlier ownership.
                MemberEvent::Own(camera, epoch)
                    if before.contains(&camera) && !self.own.contains_key(&camera) =>
                {
                    self.waiting.push_front(MemberEvent::Own(camera, epoch));
                    break;
                }
                MemberEvent::Left => effect.has_left = true,
                event => effect.cameras_changed |= self.on_event(event, &mut context),
            }
        }
        effect.cameras_changed |= context.config.set_part(self.part(), context.now);
        self.step(&context);
        effect
    }

    /// True when cameras changed that no part shows.
    fn on_event(&mut self, event: MemberEvent, context: &mut FleetContext<'_>) -> bool {
        match event {
            MemberEvent::List(list) => return self.on_list(&list, context),
            MemberEvent::Settings { camera, text } => {
                return self.on_settings(camera, text, context);
            }
            MemberEvent::Prepare(camera) => drop(self.preparing.insert(camera, false)),
            MemberEvent::Dismiss(camera) => drop(self.preparing.remove(&camera)),
            MemberEvent::Own(camera, epoch) => self.on_own(camera, epoch, context),
            MemberEvent::GiveUp(camera) => self.on_give_up(camera, context),
            MemberEvent::HandedOver { camera, released } => {
                self.silent.remove(&camera);
                context.publisher.handed_over(&camera, released);
            }
            MemberEvent::Lost { camera, newer } => self.on_lost(&camera, newer, context),
            MemberEvent::WrongOwner { camera, epoch } => {
                context.publisher.publish_owner_again(&camera);
                self.on_wrong_owner(camera, epoch, context.now);
            }
            MemberEvent::Confirmed { until } => {
                // Their messages were dropped meanwhile: the stages begin again with them, and publish all their states.
                for (camera, epoch) in context.publisher.confirm_ownership(until) {
                    context
                        .reporter
                        .cameras_moved(std::slice::from_ref(&camera));
                    self.own.remove(&camera);
                    self.waiting.push_front(MemberEvent::Own(camera, epoch));
                }
                // Another machine with this node's name has stopped.
                self.store_state = StoreState::Connected;
            }
            MemberEvent::View(summary) => {
                self.summary = summary;
            }
            MemberEvent::Connected => {
                tracing::info!("connected to the fleet's store");
                self.store_state = StoreState::Connected;
            }
            MemberEvent::Disconnected { reason } => {
                tracing::warn!(
                    reason,
                    "the fleet's store cannot be used; this node keeps its cameras"
                );
                self.store_state = StoreState::Disconnected(reason);
            }
            MemberEvent::NameTaken { machine } => {
                tracing::error!(
                    machine,
                    "another machine takes part in the fleet with this node's name; give each box its own node.name"
                );
                self.store_state = StoreState::NameTaken(machine);
            }
            MemberEvent::Left => {}
        }
        false
    }

    fn on_list(&mut self, list: &ListRevision, context: &mut FleetContext<'_>) -> bool {
        let read = match read_list(list, self.has_api, &self.rights) {
            Ok(read) => read,
            Err(errors) => {
                for error in &errors {
                    tracing::error!("{error}");
                }
                tracing::error!(
                    "the new list of the fleet is rejected; the previous one stays active"
                );
                context.reporter.report_config(context.config, errors);
                return false;
            }
        };
        for warning in &read.warnings {
            tracing::warn!("{warning}");
        }
        for (camera, reason) in &read.refused {
            tracing::error!(%camera, "{reason}; other nodes are to watch this camera");
        }
        tracing::info!(
            revision = list.revision,
            cameras = read.cameras.len(),
            "list of the fleet"
        );
        self.record.keep_list(list);
        let cameras = read.cameras.iter().map(|shared| shared.camera.clone());
        context.config.replace_list(cameras.collect(), context.now);
        // Others watch it, so its topics are not cleared.
        let refused: Vec<CameraId> = read.refused.keys().cloned().collect();
        context.reporter.cameras_moved(&refused);
        let errors = read.refused.values().cloned().collect();
        context.reporter.report_config(context.config, errors);
        let listed = read.cameras.into_iter();
        self.listed = listed.map(|c| (c.camera.id.clone(), c)).collect();
        (self.list_revision, self.refused) = (list.revision, read.refused);
        self.send_cameras();
        true
    }

    fn send_cameras(&self) {
        self.send(MemberCommand::Cameras {
            revision: self.list_revision,
            cameras: self.costs.listed_cameras(self.listed.values()),
            refused: self.refused.clone(),
        });
    }

    fn on_own(&mut self, camera: CameraId, epoch: Epoch, context: &mut FleetContext<'_>) {
        if !self.listed.contains_key(&camera) && !self.refused.contains_key(&camera) {
            // Other nodes follow a list that this one could not read.
            let reason = "not in the list that this node follows";
            self.refused.insert(camera.clone(), reason.to_owned());
            self.send_cameras();
        }
        context.cameras.publish_again(&camera);
        if self.own.contains_key(&camera) {
            // After an outage of the store, the node claims its own cameras again.
            tracing::debug!(%camera, %epoch, "this node keeps the camera");
            context.publisher.renew_camera(&camera, epoch);
        } else {
            tracing::info!(%camera, %epoch, "this node has the camera");
            context.publisher.own_camera(&camera, epoch);
        }
        self.preparing.remove(&camera);
        self.giving_up.remove(&camera);
        self.silent.remove(&camera);
        self.own.insert(camera, epoch);
    }

    /// From here on the node is silent about the camera, except for what waits.
    fn on_give_up(&mut self, camera: CameraId, context: &mut FleetContext<'_>) {
        tracing::info!(%camera, "handing the camera over");
        self.own.remove(&camera);
        let listed = self.listed.get(&camera);
        if listed.is_some() {
            context.answers.hand_over(&camera);
            context
                .reporter
                .cameras_moved(std::slice::from_ref(&camera));
        }
        context.publisher.hand_over_camera(&camera);
        let has_one_session = listed.is_none_or(|listed| listed.has_one_session);
        let limit = match has_one_session {
            true => LAST_SESSION_LIMIT,
            false => DELAYED_AFTER,
        };
        if !has_one_session {
            self.silent.insert(camera.clone());
        }
        self.giving_up.insert(camera, context.now.after(limit));
    }

    fn on_lost(&mut self, camera: &CameraId, newer: Epoch, context: &mut FleetContext<'_>) {
        tracing::warn!(%camera, epoch = %newer, "another node has the camera now");
        context.publisher.lose_camera(camera, newer);
        context.reporter.cameras_moved(std::slice::from_ref(camera));
        self.own.remove(camera);
        self.preparing.remove(camera);
        self.giving_up.remove(camera);
        self.silent.remove(camera);
    }

    /// What commands changed at a camera, by any node. True when the effective cameras may be others.
    fn on_settings(
        &mut self,
        camera: CameraId,
        text: Option<String>,
        context: &mut FleetContext<'_>,
    ) -> bool {
        let read = text.map(|text| ReadOverrides::of_json(text.as_bytes()));
        let (read, ignored) = match read.transpose() {
            Ok(read) => {
                let read = read.unwrap_or_default();
                let dropped = read.dropped.clone();
                let ignored = (!dropped.is_empty()).then_some(IgnoredSettings::Records(dropped));
                (Some(read.stored), ignored)
            }
            Err(error) => {
                let reason = plain_line(&error.to_string());
                (None, Some(IgnoredSettings::Text(reason)))
            }
        };
        self.log_ignored(&camera, ignored);
        read.is_some_and(|stored| context.config.set_stored_of(&camera, stored, context.now))
    }

    /// Each connection to the store reports all settings again: what is ignored is logged when it changes.
    fn log_ignored(&mut self, camera: &CameraId, ignored: Option<IgnoredSettings>) {
        if self.ignored_settings.get(camera) == ignored.as_ref() {
            return;
        }
        self.ignored_settings.remove(camera);
        let Some(ignored) = ignored else { return };
        match &ignored {
            IgnoredSettings::Text(reason) => {
                tracing::error!(%camera, reason, "what was changed at the camera cannot be read; the list's values apply");
            }
            IgnoredSettings::Records(dropped) => log_dropped(dropped),
        }
        if self.ignored_settings.len() < CAMERAS_REMEMBERED {
            self.ignored_settings.insert(camera.clone(), ignored);
        }
    }

    /// The broker has shown an owner that the store does not have.
    fn on_wrong_owner(&mut self, camera: CameraId, epoch: Epoch, now: Mono) {
        let before = self.wrong_owners.insert(camera.clone(), (epoch, now));
        if before.is_none() {
            tracing::warn!(
                %camera,
                %epoch,
                "the broker shows an owner of the camera that the fleet's store does not have; the own one is published again; restrict who may publish to the topics `owner`"
            );
        }
    }

    /// Reports the cameras that are connected, and those of which nothing is left here.
    fn step(&mut self, context: &FleetContext<'_>) {
        let streams = |id: &CameraId| {
            context
                .cameras
                .online()
                .any(|(of, is_on)| of == id && is_on)
        };
        // A node that the broker does not hear must not get cameras of one that it hears.
        let is_heard = context.publisher.state().borrow().is_online();
        let mut connected = Vec::new();
        for (camera, is_known) in &mut self.preparing {
            if is_heard && !*is_known && streams(camera) {
                *is_known = true;
                connected.push(camera.clone());
            }
        }
        let publisher = context.publisher;
        let is_over = |camera: &CameraId, until: Mono| {
            let is_open = context.cameras.has(camera) && !self.silent.contains(camera);
            until <= context.now || !(publisher.has_waiting(camera) || is_open)
        };
        let over = self.giving_up.iter();
        let over = over.filter(|(camera, until)| is_over(camera, **until));
        let over: Vec<CameraId> = over.map(|(camera, _)| camera.clone()).collect();
        for camera in connected {
            self.send(MemberCommand::Prepared(camera));
        }
        for camera in over {
            self.giving_up.remove(&camera);
            self.send(MemberCommand::GivenUp(camera));
        }
    }

    fn part(&self) -> FleetPart {
        FleetPart {
            own: self.own.keys().cloned().collect(),
            preparing: self.preparing.keys().chain(&self.silent).cloned().collect(),
        }
    }

    /// Once a second. `engines` run.
    pub fn tick(&mut self, engines: usize, publisher: &Publisher, now: Mono) {
        for (camera, epoch) in publisher.take_overruled_owners() {
            self.on_wrong_owner(camera, epoch, now);
        }
        self.wrong_owners
            .retain(|_, (_, at)| now.since(*at) < WRONG_OWNER_SHOWN);
        self.record.keep_own(&self.own);
        let capacity_hz = self.costs.capacity_hz(engines).unwrap_or(UNMEASURED_HZ);
        if (capacity_hz - self.capacity_hz).abs() > CAPACITY_CHANGE * self.capacity_hz {
            self.capacity_hz = capacity_hz;
            self.send(MemberCommand::Capacity(capacity_hz));
        }
    }

    /// Gives the fleet what commands have changed at own cameras since the last call.
    pub fn store_settings(&self, config: &mut ConfigStore) {
        for (camera, stored) in config.take_unstored() {
            match (!stored.is_empty()).then(|| stored.to_json()).transpose() {
                Ok(text) => self.send(MemberCommand::SetSettings { camera, text }),
                Err(error) => {
                    tracing::error!(%camera, %error, "what was changed at the camera cannot be stored")
                }
            }
        }
    }

    /// The owner of a camera by the broker.
    pub fn seen_owner(&self, camera: CameraId, node: Option<NodeId>, epoch: Epoch) {
        self.send(MemberCommand::SeenOwner {
            camera,
            node,
            epoch,
        });
    }

    /// Why a call for a camera of the list is not for this node; `None`: it is, or no node knows the camera.
    pub fn call_refusal(&self, camera: &CameraId) -> Option<RefusedCall> {
        let is_listed = self.listed.contains_key(camera) || self.refused.contains_key(camera);
        if self.own.contains_key(camera) || !is_listed {
            return None;
        }
        let living = self.summary.nodes.iter().filter(|node| node.is_living);
        let owner = self.summary.owners.get(camera);
        let owner = owner.filter(|owner| living.clone().any(|node| node.node == **owner));
        Some(match owner {
            Some(owner) if *owner != self.node => RefusedCall::OtherNode {
                camera: camera.clone(),
                owner: owner.clone(),
            },
            // Or it is about to be this node's.
            _ => RefusedCall::NoNode {
                camera: camera.clone(),
            },
        })
    }

    /// Begins to hand all cameras over, once.
    pub fn leave(&mut self, now: Mono) {
        if self.leaving_since.is_none() {
            tracing::info!(
                cameras = self.own.len(),
                "handing all cameras over to other nodes"
            );
            self.leaving_since = Some(now);
            self.send(MemberCommand::Leave);
        }
    }

    /// Handing over takes too long: stop without it.
    pub fn is_leaving_overdue(&self, now: Mono) -> bool {
        let since = self.leaving_since;
        since.is_some_and(|since| now.since(since) >= LEAVE_LIMIT)
    }

    /// For the status page.
    pub fn status(&self) -> FleetStatus {
        FleetStatus {
            name: self.name.to_string(),
            own_cameras: self.own.len() as u64,
            ..status::fleet(&self.summary, self.trouble())
        }
    }

    /// Why others may have to act; `None`: all is well.
    pub fn trouble(&self) -> Option<String> {
        match &self.store_state {
            StoreState::Connecting | StoreState::Connected => {
                let (camera, (epoch, _)) = self.wrong_owners.first_key_value()?;
                Some(format!(
                    "fleet: the broker showed a false owner of {} (epoch {epoch}), the last time less than {} min ago; restrict who may publish to the topics `owner`",
                    match self.wrong_owners.len() {
                        1 => format!("camera {camera}"),
                        more => format!("{more} cameras, such as {camera}"),
                    },
                    WRONG_OWNER_SHOWN.as_secs() / 60,
                ))
            }
            StoreState::Disconnected(reason) => Some(format!("fleet: {reason}")),
            StoreState::NameTaken(machine) => Some(format!(
                "fleet: machine {machine} has this node's name; give each box its own node.name"
            )),
        }
    }

    fn send(&self, command: MemberCommand) {
        if let Err(error) = self.commands.try_send(command) {
            tracing::error!(%error, "the membership of the fleet does not answer");
        }
    }
}
