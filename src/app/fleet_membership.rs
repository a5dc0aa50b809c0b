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
    config_store::log_dropped,
    costs::CostBasis,
    fleet_record::FleetRecord,
    logging::remember_secrets,
    notice::{RunEnd, StageNotice},
    stage::{Handles, Stage, StageContext, StageFuture},
    status,
};
use crate::ops::{notify, secret_list::SecretList};
use spotter_api::RefusedCall;
use spotter_config::{
    Config, ConfigChange, ConfigProblems, Environment, FleetConfig, ListReader, SharedCamera,
    SharedCameraList, camera_list,
};
use spotter_control::{ConfigStore, FleetOwner, PromptRule, ReadOverrides, RefusedPrompt};
use spotter_core::{
    AdapterId, CameraId, CameraRights, Epoch, LogThrottle, Mono, NodeId, plain_line,
};
use spotter_fleet::{
    entries::ListRevision,
    member::{Member, MemberCommand, MemberEvent, MemberSettings},
    rights::PublishRights,
    store::FleetStore,
    summary::FleetSummary,
};
use spotter_mqtt::{Identity, Update};
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
/// Cameras whose ignored settings are logged in a minute.
const IGNORED_MAX: usize = 1000;

/// The list and the disk of a node that is about to start.
pub struct FleetStart {
    pub config: FleetConfig,
    store: Arc<FleetStore>,
    rights: Arc<PublishRights>,
    record: FleetRecord,
    list: Option<ListRevision>,
    /// What this node's model can answer.
    rule: PromptRule,
    /// Calls can trigger this node's cameras.
    has_api: bool,
    /// Where people open this node's page.
    page_url: Option<String>,
    /// That prompts of the list may name.
    adapters: Vec<AdapterId>,
}

/// See the module's documentation.
pub struct FleetMembership {
    start: FleetStart,
    parts: FleetParts,
    commands: mpsc::Sender<MemberCommand>,
    events: mpsc::Receiver<MemberEvent>,
    /// Received, and not handled yet.
    waiting: VecDeque<MemberEvent>,
    /// Of the list that is followed.
    list_revision: u64,
    /// Those of the list that this node can watch.
    listed: BTreeMap<CameraId, SharedCamera>,
    /// Those that it cannot watch, with the reason.
    refused: BTreeMap<CameraId, String>,
    own: BTreeMap<CameraId, Epoch>,
    giving_up: BTreeMap<CameraId, GivingUp>,
    /// Why the fleet's store cannot be used.
    store_trouble: Option<String>,
    /// Which node has which camera, by the last view.
    summary: FleetSummary,
    capacity_hz: f64,
    started: Mono,
    leaving_since: Option<Mono>,
    /// Cameras of whose stored settings something is ignored.
    ignored: LogThrottle<CameraId>,
}

/// A camera whose events have ended.
struct GivingUp {
    /// Its last messages and its session may take until then.
    until: Mono,
    has_session: bool,
}

/// What a membership needs of this node.
pub struct FleetParts {
    pub identity: Identity,
    pub costs: CostBasis,
    /// Those of the list are added, so that no log shows them.
    pub secrets: SecretList,
    /// Engines that run.
    pub engines: usize,
    pub handles: Handles,
}

impl FleetStart {
    /// Reads the list from the store, or the last one that was read when the store cannot be reached within some seconds.
    pub async fn read(
        fleet: &FleetConfig,
        config: &Config,
        rule: PromptRule,
        state: StateStore,
    ) -> Self {
        let mut record = FleetRecord::read(state, &fleet.name);
        let store = FleetStore::new(fleet.name.clone(), fleet.store.clone());
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
            config: fleet.clone(),
            store: Arc::new(store),
            rights: Arc::default(),
            record,
            list,
            rule,
            has_api: config.api.is_some(),
            page_url: config.http.url.as_ref().map(|url| url.to_string()),
            adapters: config.adapters.ids().cloned().collect(),
        }
    }

    /// What this node may publish of the fleet's cameras.
    pub fn rights(&self) -> Arc<dyn CameraRights> {
        Arc::clone(&self.rights) as Arc<dyn CameraRights>
    }

    /// The cameras of the list, for which engines are opened.
    pub fn cameras(&self) -> Vec<SharedCamera> {
        let list = self.list.as_ref().map(|list| self.read_list(list));
        list.and_then(Result::ok).unwrap_or_default().cameras
    }

    fn read_list(&self, list: &ListRevision) -> Result<SharedCameraList, Vec<String>> {
        let name = format!("the fleet's list, revision {}", list.revision);
        let reader = ListReader {
            environment: &Environment::process(),
            has_api: self.has_api,
            adapters: &self.adapters,
            rights: &self.config.rights,
        };
        let read = camera_list(&name, &list.text, &reader);
        let lines = |problems: ConfigProblems| {
            let lines = problems.iter().map(ToString::to_string);
            lines.collect::<Vec<_>>()
        };
        let mut list = read.map_err(lines)?;
        for SharedCamera { camera, .. } in &list.cameras {
            if let Some(RefusedPrompt { key, reason }) = self.rule.unfit_in_camera(camera).pop() {
                let reason = format!("{name}: {key}: {reason}");
                list.refused.insert(camera.id.clone(), reason);
            }
        }
        let refused = &list.refused;
        list.cameras
            .retain(|listed| !refused.contains_key(&listed.camera.id));
        Ok(list)
    }
}

impl FleetMembership {
    /// Begins to take part. Cameras come with the first events.
    pub fn start(start: FleetStart, parts: FleetParts) -> Self {
        let clock = Arc::clone(&parts.handles.clock);
        let settings = MemberSettings {
            node: parts.identity.node.clone(),
            machine: parts.identity.machine().to_owned(),
            labels: start.config.labels.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            url: start.page_url.clone(),
            resumed: start.record.kept().own.clone(),
            rights: Arc::clone(&start.rights),
        };
        let (sender, events) = mpsc::channel(EVENTS);
        let (commands, received) = mpsc::channel(COMMANDS);
        let store = Arc::clone(&start.store);
        let member = Member::new(settings, store, Arc::clone(&clock), sender);
        tokio::spawn(member.run(received));
        Self {
            start,
            parts,
            commands,
            events,
            waiting: VecDeque::new(),
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
            // The stages have to forget first what they know of it by an earlier ownership.
            if let MemberEvent::Own(camera, _) = &event
                && before.contains(camera)
            {
                if self.own.contains_key(camera) {
                    self.on_lost(camera, context);
                }
                self.waiting.push_front(event);
                break;
            }
            self.on_event(event, context);
        }
        let own = self.own.keys().cloned().collect();
        if context.config.set_own(own, context.now) {
            context.cameras_changed();
        }
        self.step(context.now);
    }

    fn on_event(&mut self, event: MemberEvent, context: &mut StageContext<'_>) {
        match event {
            MemberEvent::List(list) => self.on_list(&list, context),
            MemberEvent::Settings { camera, text } => self.on_settings(camera, text, context),
            MemberEvent::Own(camera, epoch) => self.on_own(camera, epoch, context),
            MemberEvent::GiveUp(camera) => self.on_give_up(camera, context),
            MemberEvent::HandedOver { camera, released } => {
                self.giving_up.remove(&camera);
                // Topics of a camera that is no longer listed are cleared.
                if let Some(epoch) = released.filter(|_| self.is_listed(&camera)) {
                    self.start.rights.grant(&camera, epoch);
                    self.publish_owner(camera, None);
                }
            }
            MemberEvent::Lost(camera) => {
                tracing::warn!(%camera, "another node has the camera now");
                self.on_lost(&camera, context);
            }
            MemberEvent::View(summary) => {
                self.summary = summary;
                context.config.set_owners(self.other_owners());
            }
            MemberEvent::Trouble(trouble) => {
                match &trouble {
                    None => tracing::info!("connected to the fleet's store"),
                    Some(reason) => tracing::warn!(reason, "no contact with the fleet"),
                }
                self.store_trouble = trouble.map(|reason| format!("fleet: {reason}"));
            }
            MemberEvent::Left => context.say(StageNotice::End(Ok(RunEnd::Stop))),
        }
    }

    fn on_list(&mut self, list: &ListRevision, context: &mut StageContext<'_>) {
        let read = match self.start.read_list(list) {
            Ok(read) => read,
            Err(errors) => {
                for error in &errors {
                    tracing::error!("{error}");
                }
                tracing::error!(
                    "the new list of the fleet is rejected; the previous one stays active"
                );
                context.say(StageNotice::ConfigReported(errors));
                return;
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
        self.start.record.keep_list(list);
        let cameras = read.cameras.iter().map(|shared| shared.camera.clone());
        context.config.replace_list(cameras.collect(), context.now);
        remember_secrets(&self.parts.secrets, context.config.file());
        // Others watch it, so its topics are not cleared.
        let refused: Vec<CameraId> = read.refused.keys().cloned().collect();
        context.say(StageNotice::Moved(refused));
        let errors = read.refused.values().cloned().collect();
        context.say(StageNotice::ConfigReported(errors));
        let listed = read.cameras.into_iter();
        self.listed = listed.map(|c| (c.camera.id.clone(), c)).collect();
        (self.list_revision, self.refused) = (list.revision, read.refused);
        self.send_cameras();
        context.cameras_changed();
    }

    /// With other adapters the node can watch other cameras of the list.
    fn read_list_again(&mut self, context: &mut StageContext<'_>) {
        let adapters: Vec<AdapterId> = context.config.file().adapters.ids().cloned().collect();
        if adapters == self.start.adapters {
            // The reload reports no errors of the file.
            let errors = self.refused.values().cloned().collect();
            return context.say(StageNotice::ConfigReported(errors));
        }
        self.start.adapters = adapters;
        if let Some(list) = self.start.record.kept().list() {
            self.on_list(&list, context);
        }
    }

    fn send_cameras(&self) {
        self.send(MemberCommand::Cameras {
            revision: self.list_revision,
            cameras: self.parts.costs.listed_cameras(self.listed.values()),
            refused: self.refused.clone(),
        });
    }

    fn on_own(&mut self, camera: CameraId, epoch: Epoch, context: &mut StageContext<'_>) {
        if !self.is_listed(&camera) {
            // Other nodes follow a list that this one could not read.
            let reason = "not in the list that this node follows";
            self.refused.insert(camera.clone(), reason.to_owned());
            self.send_cameras();
        }
        if !self.start.rights.grant(&camera, epoch) {
            // What the membership reports next ends it.
            return;
        }
        tracing::info!(%camera, %epoch, "this node has the camera");
        context.say(StageNotice::Owned(camera.clone()));
        let node = self.parts.identity.node.clone();
        self.publish_owner(camera.clone(), Some(node));
        self.giving_up.remove(&camera);
        self.own.insert(camera, epoch);
    }

    fn publish_owner(&self, camera: CameraId, node: Option<NodeId>) {
        let update = Update::Owner { camera, node };
        self.parts.handles.publisher.publish(update);
    }

    /// Its events end, and its session; what waits is published.
    fn on_give_up(&mut self, camera: CameraId, context: &mut StageContext<'_>) {
        tracing::info!(%camera, "handing the camera over");
        self.own.remove(&camera);
        if self.listed.contains_key(&camera) {
            context.say(StageNotice::HandingOver(camera.clone()));
            context.say(StageNotice::Moved(vec![camera.clone()]));
        }
        let mut connected = context.config.cameras().iter();
        let giving_up = GivingUp {
            until: context.now.after(GIVE_UP_LIMIT),
            has_session: connected.any(|known| known.id == camera),
        };
        self.giving_up.insert(camera, giving_up);
    }

    fn on_lost(&mut self, camera: &CameraId, context: &mut StageContext<'_>) {
        // A grant from before the loss was known may have followed it.
        self.start.rights.withdraw(camera);
        context.say(StageNotice::Moved(vec![camera.clone()]));
        self.own.remove(camera);
        self.giving_up.remove(camera);
    }

    /// What commands changed at a camera, by any node.
    fn on_settings(
        &mut self,
        camera: CameraId,
        text: Option<String>,
        context: &mut StageContext<'_>,
    ) {
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
        let config = &mut *context.config;
        if read.is_ok_and(|read| config.set_stored_of(&camera, read.stored, context.now)) {
            context.cameras_changed();
        }
    }

    /// Gives up the cameras of which nothing is left here.
    fn step(&mut self, now: Mono) {
        let publisher = &self.parts.handles.publisher;
        let is_over = |camera: &CameraId, state: &GivingUp| {
            state.until <= now || !(state.has_session || publisher.has_waiting(camera))
        };
        let over = self
            .giving_up
            .extract_if(.., |camera, state| is_over(camera, state));
        for (camera, _) in over.collect::<Vec<_>>() {
            self.start.rights.withdraw(&camera);
            self.send(MemberCommand::GivenUp(camera));
        }
    }

    fn announce_capacity(&mut self, now: Mono) {
        // A node that the broker does not hear must not get cameras of one that it hears.
        let broker = self.parts.handles.publisher.state();
        let is_heard = self.capacity_hz > 0.0 || broker.borrow().is_online();
        if !is_heard && now.since(self.started) < WITHOUT_BROKER {
            return;
        }
        let capacity_hz = self.parts.costs.capacity_hz(self.parts.engines);
        let capacity_hz = capacity_hz.unwrap_or(UNMEASURED_HZ);
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
        if self.own.contains_key(camera) || !self.is_listed(camera) {
            return None;
        }
        let living = self.summary.nodes.iter().filter(|node| node.is_living);
        let owner = self.summary.owners.get(camera);
        let owner = owner.filter(|owner| living.clone().any(|node| node.node == **owner));
        Some(match owner {
            Some(owner) if *owner != self.parts.identity.node => RefusedCall::OtherNode {
                camera: camera.clone(),
                owner: owner.clone(),
            },
            // Or it is about to be this node's.
            _ => RefusedCall::NoNode {
                camera: camera.clone(),
            },
        })
    }

    /// The cameras that other living nodes watch.
    fn other_owners(&self) -> BTreeMap<CameraId, FleetOwner> {
        let nodes = self.summary.nodes.iter().filter(|node| node.is_living);
        let of = |(camera, owner): (&CameraId, &NodeId)| {
            let node = nodes.clone().find(|node| node.node == *owner)?;
            let owner = FleetOwner {
                node: owner.clone(),
                url: node.heartbeat.url.clone(),
            };
            Some((camera.clone(), owner))
        };
        let mut owners: BTreeMap<_, _> = self.summary.owners.iter().filter_map(of).collect();
        owners.retain(|camera, _| !self.own.contains_key(camera));
        owners
    }

    /// Also when this node cannot watch it.
    fn is_listed(&self, camera: &CameraId) -> bool {
        self.listed.contains_key(camera) || self.refused.contains_key(camera)
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
        if let StageNotice::SessionClosed(camera) = notice
            && let Some(state) = self.giving_up.get_mut(camera)
        {
            state.has_session = false;
        }
        if !self.giving_up.is_empty() {
            self.step(context.now);
        }
        match notice {
            StageNotice::FleetDecided => self.handle(context),
            StageNotice::FileApplied => self.read_list_again(context),
            StageNotice::EnginesChanged(running) => self.parts.engines = running.count,
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
        self.start.record.keep_own(&self.own);
        self.announce_capacity(now);
        let fleet = FleetStatus {
            name: self.start.config.name.to_string(),
            own_cameras: self.own.len() as u64,
            ..status::fleet(&self.summary, self.store_trouble.clone())
        };
        context
            .status
            .troubles
            .extend(status::fleet_trouble(&fleet));
        context.status.fleet = Some(fleet);
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
