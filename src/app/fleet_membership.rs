//! A node's part in a fleet: carries out what its membership decides, and answers when that is done.
//!
//! ```text
//!   Member ──MemberEvent───▶ FleetMembership ──▶ ConfigStore   the list, and which cameras of it are this node's
//!   (NATS) ◀─MemberCommand──      │         └──▶ Publisher     `owner` of each camera
//!                                 ├──▶ the other stages hear of it, and apply the cameras
//!                                 └──▶ PublishRights which of them may be published
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
    camera_sessions::CameraSessions,
    config_store::log_dropped,
    costs::CostBasis,
    fleet_record::FleetRecord,
    logging::remember_secrets,
    notice::{RunEnd, StageNotice},
    stage::{Handles, Stage, StageContext, StageFuture},
    status,
};
use crate::ops::{notify, telemetry::SecretList};
use spotter_api::RefusedCall;
use spotter_config::{
    Config, ConfigChange, Environment, FleetConfig, ListReader, ListRights, SharedCamera,
    SharedCameraList, camera_list,
};
use spotter_control::{ConfigStore, ReadOverrides};
use spotter_core::{CameraId, CameraRights, Epoch, LogThrottle, Mono, NodeId, plain_line};
use spotter_fleet::{
    entries::ListRevision,
    member::{Member, MemberCommand, MemberEvent, MemberSettings},
    rights::PublishRights,
    store::{FleetStore, StoreSettings},
    summary::FleetSummary,
};
use spotter_mqtt::{Identity, Publisher, Update};
use spotter_page::FleetStatus;
use spotter_state::StateStore;

/// Commands to the membership that wait; more than a node has cameras.
const COMMANDS: usize = 4096;
const EVENTS: usize = 1024;
/// Events that are handled before the cameras are applied to the stages.
const EVENTS_AT_ONCE: usize = 256;
/// How often a camera that changes hands is looked at.
const STEP: Duration = Duration::from_millis(100);
/// The longest time for the last messages of a camera that is handed over, and for its session to end.
const GIVE_UP_LIMIT: Duration = Duration::from_secs(5);
/// A node that its broker does not accept takes part after this time: the broker may be down for all nodes.
const WITHOUT_BROKER: Duration = Duration::from_mins(1);
/// The longest time for handing over all cameras at a stop; systemd waits a little longer.
const LEAVE_LIMIT: Duration = Duration::from_secs(12);
/// A smaller change of what the engines can do is not announced.
const CAPACITY_CHANGE: f64 = 0.02;
/// Announced while no engine was measured.
const UNMEASURED_HZ: f64 = 1.0;
/// How long health shows that the broker had a false owner.
const WRONG_OWNER_SHOWN: Duration = Duration::from_mins(10);
/// Cameras whose ignored settings are logged in a minute.
const IGNORED_MAX: usize = 1000;

/// The list and the disk of a node that is about to start.
pub struct FleetStart {
    store: Arc<FleetStore>,
    rights: Arc<PublishRights>,
    record: FleetRecord,
    list: Option<ListRevision>,
    /// Calls can trigger this node's cameras.
    has_api: bool,
    list_rights: ListRights,
}

/// See the module's documentation.
pub struct FleetMembership {
    node: NodeId,
    /// Of the fleet.
    name: NodeId,
    publisher: Publisher,
    sessions: CameraSessions,
    secrets: SecretList,
    engines: usize,
    commands: mpsc::Sender<MemberCommand>,
    events: mpsc::Receiver<MemberEvent>,
    /// Received, and not handled yet.
    waiting: VecDeque<MemberEvent>,
    record: FleetRecord,
    has_api: bool,
    list_rights: ListRights,
    rights: Arc<PublishRights>,
    costs: CostBasis,
    /// Of the list that is followed.
    list_revision: u64,
    /// Those of the list that this node can watch.
    listed: BTreeMap<CameraId, SharedCamera>,
    /// Those that it cannot watch, with the reason.
    refused: BTreeMap<CameraId, String>,
    own: BTreeMap<CameraId, Epoch>,
    /// Their events have ended, and until when their last messages and sessions may take.
    giving_up: BTreeMap<CameraId, Mono>,
    /// Why the fleet's store cannot be used.
    store_trouble: Option<String>,
    /// Which node has which camera, by the last view.
    summary: FleetSummary,
    capacity_hz: f64,
    started: Mono,
    leaving_since: Option<Mono>,
    /// Own cameras of which the broker has shown a false owner: its epoch, and when.
    wrong_owners: BTreeMap<CameraId, (Epoch, Mono)>,
    /// Cameras of whose stored settings something is ignored.
    ignored: LogThrottle<CameraId>,
}

/// What a membership needs of this node.
pub struct FleetParts {
    pub identity: Identity,
    pub costs: CostBasis,
    pub sessions: CameraSessions,
    /// Those of the list are added, so that no log shows them.
    pub secrets: SecretList,
    /// Engines that run.
    pub engines: usize,
    pub handles: Handles,
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
            rights: Arc::default(),
            record,
            list,
            has_api: config.api.is_some(),
            list_rights: fleet.rights.clone(),
        }
    }

    /// What this node may publish of the fleet's cameras.
    pub fn rights(&self) -> Arc<dyn CameraRights> {
        Arc::clone(&self.rights) as Arc<dyn CameraRights>
    }

    /// The cameras of the list, for which engines are opened.
    pub fn cameras(&self) -> Vec<SharedCamera> {
        let list = self.list.as_ref();
        let list = list.map(|list| read_list(list, self.has_api, &self.list_rights));
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
    pub fn start(start: FleetStart, fleet: &FleetConfig, parts: FleetParts) -> Self {
        let FleetParts {
            identity, handles, ..
        } = parts;
        let Handles {
            publisher, clock, ..
        } = handles;
        let settings = MemberSettings {
            node: identity.node.clone(),
            machine: identity.machine().to_owned(),
            labels: fleet.labels.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            resumed: start.record.kept().own.clone(),
            rights: Arc::clone(&start.rights),
        };
        let (sender, events) = mpsc::channel(EVENTS);
        let (commands, received) = mpsc::channel(COMMANDS);
        let member = Member::new(settings, start.store, Arc::clone(&clock), sender);
        tokio::spawn(member.run(received));
        Self {
            node: identity.node.clone(),
            name: fleet.name.clone(),
            publisher,
            sessions: parts.sessions,
            secrets: parts.secrets,
            engines: parts.engines,
            commands,
            events,
            waiting: VecDeque::new(),
            record: start.record,
            has_api: start.has_api,
            list_rights: start.list_rights,
            rights: start.rights,
            costs: parts.costs,
            list_revision: 0,
            listed: BTreeMap::new(),
            refused: BTreeMap::new(),
            own: BTreeMap::new(),
            giving_up: BTreeMap::new(),
            store_trouble: None,
            summary: FleetSummary::default(),
            capacity_hz: 0.0,
            started: clock.now(),
            leaving_since: None,
            wrong_owners: BTreeMap::new(),
            ignored: LogThrottle::with_max_kinds(IGNORED_MAX),
        }
    }

    /// Waits until there is something to [`handle`](Self::handle): events, or the next step of a camera that changes hands. Dropping the future
    /// loses nothing.
    async fn ready(&mut self) {
        if !self.waiting.is_empty() {
            return;
        }
        let mut events = Vec::new();
        tokio::select! {
            _ = self.events.recv_many(&mut events, EVENTS_AT_ONCE) => self.waiting.extend(events),
            () = sleep(STEP), if !self.giving_up.is_empty() => {}
        }
    }

    /// Carries out what the membership decided. The stages apply the cameras afterwards, then there may be more to handle.
    fn handle(&mut self, context: &mut StageContext<'_>) {
        let before: BTreeSet<CameraId> = self.own.keys().cloned().collect();
        while let Some(event) = self.waiting.pop_front() {
            match event {
                // The stages have to forget first what they know of it by an earlier ownership.
                MemberEvent::Own(camera, epoch) if before.contains(&camera) => {
                    if self.own.contains_key(&camera) {
                        self.on_lost(&camera, context);
                    }
                    self.waiting.push_front(MemberEvent::Own(camera, epoch));
                    break;
                }
                MemberEvent::Left => context.say(StageNotice::End(Ok(RunEnd::Stop))),
                event => {
                    if self.on_event(event, context) {
                        context.cameras_changed();
                    }
                }
            }
        }
        let own = self.own.keys().cloned().collect();
        if context.config.set_own(own, context.now) {
            context.cameras_changed();
        }
        self.step(context.now);
    }

    /// True when cameras changed that no part shows.
    fn on_event(&mut self, event: MemberEvent, context: &mut StageContext<'_>) -> bool {
        match event {
            MemberEvent::List(list) => return self.on_list(&list, context),
            MemberEvent::Settings { camera, text } => {
                return self.on_settings(camera, text, context);
            }
            MemberEvent::Own(camera, epoch) => self.on_own(camera, epoch, context),
            MemberEvent::GiveUp(camera) => self.on_give_up(camera, context),
            MemberEvent::HandedOver { camera, released } => {
                self.giving_up.remove(&camera);
                // Topics of a camera that is no longer listed are cleared.
                if let Some(epoch) = released.filter(|_| self.listed.contains_key(&camera)) {
                    self.rights.grant(&camera, epoch);
                    self.publisher.publish(Update::Owner { camera, node: None });
                }
            }
            MemberEvent::Lost(camera) => {
                tracing::warn!(%camera, "another node has the camera now");
                self.on_lost(&camera, context);
            }
            MemberEvent::WrongOwner { camera, epoch } => {
                self.publish_owner(&camera);
                self.on_wrong_owner(camera, epoch, context.now);
            }
            MemberEvent::View(summary) => {
                self.summary = summary;
            }
            MemberEvent::Connected => {
                tracing::info!("connected to the fleet's store");
                self.store_trouble = None;
            }
            MemberEvent::Disconnected { reason } => {
                tracing::warn!(
                    reason,
                    "the fleet's store cannot be used; this node keeps its cameras"
                );
                self.store_trouble = Some(format!("fleet: {reason}"));
            }
            MemberEvent::NameTaken { machine } => {
                tracing::error!(
                    machine,
                    "another machine takes part in the fleet with this node's name; give each box its own node.name"
                );
                self.store_trouble = Some(format!(
                    "fleet: machine {machine} has this node's name; give each box its own node.name"
                ));
            }
            MemberEvent::Left => {}
        }
        false
    }

    fn on_list(&mut self, list: &ListRevision, context: &mut StageContext<'_>) -> bool {
        let read = match read_list(list, self.has_api, &self.list_rights) {
            Ok(read) => read,
            Err(errors) => {
                for error in &errors {
                    tracing::error!("{error}");
                }
                tracing::error!(
                    "the new list of the fleet is rejected; the previous one stays active"
                );
                context.say(StageNotice::ConfigReported(errors));
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
        remember_secrets(&self.secrets, context.config.file());
        // Others watch it, so its topics are not cleared.
        let refused: Vec<CameraId> = read.refused.keys().cloned().collect();
        context.say(StageNotice::Moved(refused));
        let errors = read.refused.values().cloned().collect();
        context.say(StageNotice::ConfigReported(errors));
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

    fn on_own(&mut self, camera: CameraId, epoch: Epoch, context: &mut StageContext<'_>) {
        if !self.listed.contains_key(&camera) && !self.refused.contains_key(&camera) {
            // Other nodes follow a list that this one could not read.
            let reason = "not in the list that this node follows";
            self.refused.insert(camera.clone(), reason.to_owned());
            self.send_cameras();
        }
        if !self.rights.grant(&camera, epoch) {
            // What the membership reports next ends it.
            return;
        }
        tracing::info!(%camera, %epoch, "this node has the camera");
        context.say(StageNotice::Owned(camera.clone()));
        self.publish_owner(&camera);
        self.giving_up.remove(&camera);
        self.own.insert(camera, epoch);
    }

    fn publish_owner(&self, camera: &CameraId) {
        self.publisher.publish(Update::Owner {
            camera: camera.clone(),
            node: Some(self.node.clone()),
        });
    }

    /// Its events end, and its session; what waits is published.
    fn on_give_up(&mut self, camera: CameraId, context: &mut StageContext<'_>) {
        tracing::info!(%camera, "handing the camera over");
        self.own.remove(&camera);
        if self.listed.contains_key(&camera) {
            context.say(StageNotice::HandingOver(camera.clone()));
            context.say(StageNotice::Moved(vec![camera.clone()]));
        }
        self.giving_up
            .insert(camera, context.now.after(GIVE_UP_LIMIT));
    }

    fn on_lost(&mut self, camera: &CameraId, context: &mut StageContext<'_>) {
        // A grant from before the loss was known may have followed it.
        self.rights.withdraw(camera);
        context.say(StageNotice::Moved(vec![camera.clone()]));
        self.own.remove(camera);
        self.giving_up.remove(camera);
    }

    /// What commands changed at a camera, by any node. True when the effective cameras may be others.
    fn on_settings(
        &mut self,
        camera: CameraId,
        text: Option<String>,
        context: &mut StageContext<'_>,
    ) -> bool {
        let read = text.map(|text| ReadOverrides::of_json(text.as_bytes()));
        let read = read.transpose().map(Option::unwrap_or_default);
        let is_odd = read.as_ref().map_or(true, |read| !read.dropped.is_empty());
        // Each connection to the store reports all settings again.
        if is_odd && self.ignored.admit(camera.clone(), context.now).is_some() {
            match &read {
                Ok(read) => log_dropped(&read.dropped),
                Err(error) => {
                    let reason = plain_line(&error.to_string());
                    tracing::error!(%camera, reason, "what was changed at the camera cannot be read; the list's values apply");
                }
            }
        }
        read.is_ok_and(|read| {
            context
                .config
                .set_stored_of(&camera, read.stored, context.now)
        })
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

    /// Gives up the cameras of which nothing is left here.
    fn step(&mut self, now: Mono) {
        let is_over = |camera: &CameraId, until: Mono| {
            until <= now || !(self.publisher.has_waiting(camera) || self.sessions.has(camera))
        };
        let over = self
            .giving_up
            .extract_if(.., |camera, until| is_over(camera, *until));
        for (camera, _) in over.collect::<Vec<_>>() {
            self.rights.withdraw(&camera);
            self.send(MemberCommand::GivenUp(camera));
        }
    }

    fn announce_capacity(&mut self, now: Mono) {
        // A node that the broker does not hear must not get cameras of one that it hears.
        let is_heard = self.capacity_hz > 0.0 || self.publisher.state().borrow().is_online();
        if !is_heard && now.since(self.started) < WITHOUT_BROKER {
            return;
        }
        let capacity_hz = self
            .costs
            .capacity_hz(self.engines)
            .unwrap_or(UNMEASURED_HZ);
        if (capacity_hz - self.capacity_hz).abs() > CAPACITY_CHANGE * self.capacity_hz {
            self.capacity_hz = capacity_hz;
            self.send(MemberCommand::Capacity(capacity_hz));
        }
    }

    /// Gives the fleet what commands have changed at own cameras since the last call.
    fn store_settings(&self, config: &mut ConfigStore) {
        for (camera, stored) in config.take_unstored() {
            match (!stored.is_empty()).then(|| stored.to_json()).transpose() {
                Ok(text) => self.send(MemberCommand::SetSettings { camera, text }),
                Err(error) => {
                    tracing::error!(%camera, %error, "what was changed at the camera cannot be stored")
                }
            }
        }
    }

    /// Why a call for a camera of the list is not for this node; `None`: it is, or no node knows the camera.
    fn call_refusal(&self, camera: &CameraId) -> Option<RefusedCall> {
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

    /// For the status page.
    fn status(&self) -> FleetStatus {
        FleetStatus {
            name: self.name.to_string(),
            own_cameras: self.own.len() as u64,
            ..status::fleet(&self.summary, self.trouble())
        }
    }

    /// Why others may have to act; `None`: all is well.
    fn trouble(&self) -> Option<String> {
        let wrong_owner = || {
            let (camera, (epoch, _)) = self.wrong_owners.first_key_value()?;
            let more = match self.wrong_owners.len() {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            Some(format!(
                "fleet: the broker showed a false owner of camera {camera} (epoch {epoch}){more}, the last time less than {} min ago; restrict who may publish to the topics `owner`",
                WRONG_OWNER_SHOWN.as_secs() / 60,
            ))
        };
        self.store_trouble.clone().or_else(wrong_owner)
    }

    fn send(&self, command: MemberCommand) {
        if let Err(error) = self.commands.try_send(command) {
            tracing::error!(%error, "the membership of the fleet does not answer");
        }
    }
}

impl Stage for FleetMembership {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            self.ready().await;
            vec![StageNotice::FleetDecided]
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        if !self.giving_up.is_empty() {
            self.step(context.now);
        }
        match notice {
            StageNotice::FleetDecided => self.handle(context),
            StageNotice::EnginesChanged(running) => self.engines = running.count,
            StageNotice::TriggerCalled(request) => {
                let camera = request.as_ref().map(|request| &request.camera);
                let refusal = camera.and_then(|camera| self.call_refusal(camera));
                if let Some((request, refusal)) =
                    request.take_if(|_| refusal.is_some()).zip(refusal)
                {
                    // The client may have disconnected.
                    _ = request.reply.send(Err(refusal));
                }
            }
            _ => {}
        }
    }

    /// What commands changed is stored for the next owner.
    fn apply(&mut self, _change: &ConfigChange, context: &mut StageContext<'_>) {
        self.store_settings(context.config);
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let now = context.now;
        self.wrong_owners
            .retain(|_, (_, at)| now.since(*at) < WRONG_OWNER_SHOWN);
        self.record.keep_own(&self.own);
        self.announce_capacity(now);
        context.status.fleet = Some(self.status());
        context.status.troubles.extend(self.trouble());
        if self
            .leaving_since
            .is_some_and(|since| now.since(since) >= LEAVE_LIMIT)
        {
            tracing::warn!("not all cameras could be handed over in time; stopping");
            context.say(StageNotice::End(Ok(RunEnd::Stop)));
        }
    }

    /// Other nodes take the cameras before this one stops.
    fn leave(&mut self, now: Mono) -> bool {
        if self.leaving_since.is_none() {
            notify::stopping("handing cameras over to other nodes");
            tracing::info!(
                cameras = self.own.len(),
                "handing all cameras over to other nodes"
            );
            self.leaving_since = Some(now);
            self.send(MemberCommand::Leave);
        }
        true
    }
}
