//! A node's membership in a fleet: it renews its heartbeat, carries out decisions, and reports which cameras are its own.
//!
//! ```text
//!   FleetStore::watch ──▶ FleetState ──decide──▶ claims, hand-overs ──▶ FleetStore
//!   MemberCommand ──────▶     │
//!                             ├──▶ MemberEvent: watch this camera with that epoch, give it up, stop
//!                             └──▶ PublishRights: which cameras may be published
//! ```
//!
//! Thin: decisions are in [`claims`](crate::claims). Without the store, the node keeps the cameras that it has; one that starts goes on with
//! those of its last run.
//!
//! Moving a camera:
//!
//! ```text
//!   owner                                                      other node
//!   GiveUp: ends its events, closes its session, is silent
//!   GivenUp: writes the other as its owner
//!   HandedOver                                                 Own: connects and publishes it with the new epoch
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use spotter_core::{CameraId, Clock, Epoch, Mono, NodeId, plain_line};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval, sleep},
};

use crate::{
    assignment::CameraNeed,
    certainty::AcceptedRenewal,
    claims::ClaimAction,
    entries::{
        CAPACITY_HZ_RANGE, HEARTBEAT_PERIOD, Heartbeat, ListRevision, Ownership, Renewal,
        StoreEvent,
    },
    rights::PublishRights,
    state::{FleetState, HandOverState},
    store::{FleetStore, StoreError},
    summary::FleetSummary,
};

/// How often a node decides: many changes arrive at a time when a node is lost.
const DECIDE_PERIOD: Duration = Duration::from_millis(500);
/// A node that starts waits this long for the store before it goes on with the cameras of its last run.
pub const RESUME_AFTER: Duration = Duration::from_secs(5);
/// Writes that are on their way at a time.
const WRITES_AT_ONCE: usize = 32;
/// The heartbeat waits no longer for writes. What was written without an answer, the watch reports; the rest is written at the next decision.
const WRITES_LIMIT: Duration = Duration::from_secs(2);
/// How often what an operator sees is reported.
const VIEW_PERIOD: Duration = Duration::from_secs(1);
const EVENTS: usize = 1024;

/// From the rest of the node to its membership.
#[derive(Clone, Debug)]
pub enum MemberCommand {
    /// The cameras of a list, and those that this node cannot watch, with the reason: unreadable settings, unknown credentials. A node
    /// decides after the first one and after the first [`MemberCommand::Capacity`].
    Cameras {
        revision: u64,
        cameras: BTreeMap<CameraId, CameraNeed>,
        refused: BTreeMap<CameraId, String>,
    },
    /// Looks of cost 1 a second.
    Capacity(f64),
    /// Answers [`MemberEvent::GiveUp`]: nothing is published with its epoch any more. Not for a camera that was lost meanwhile.
    GivenUp(CameraId),
    /// What commands have changed at an own camera; `None`: nothing any more.
    SetSettings {
        camera: CameraId,
        text: Option<String>,
    },
    /// Hand all cameras over, then end.
    Leave,
}

impl MemberCommand {
    /// A camera is not watched until the node acts on it.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::GivenUp(_) | Self::Leave)
    }
}

/// What the rest of the node has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum MemberEvent {
    /// A new list; [`MemberCommand::Cameras`] answers it.
    List(ListRevision),
    /// What commands have changed at a camera of any node; `None`: nothing any more.
    Settings {
        camera: CameraId,
        text: Option<String>,
    },
    /// Watch it, and publish it with this epoch after [`PublishRights::grant`].
    Own(CameraId, Epoch),
    /// End its events, let its last messages go, disconnect it and withdraw its right; [`MemberCommand::GivenUp`] answers it.
    GiveUp(CameraId),
    /// The next owner of a camera that was given up is written.
    HandedOver {
        camera: CameraId,
        /// No node is the next owner, since this epoch.
        released: Option<Epoch>,
    },
    /// Stop at once: another node has it or no node has. It is silent already.
    Lost(CameraId),
    /// At most one a second, when something changed.
    View(FleetSummary),
    /// Why the store cannot be used, or this node owns nothing; `None`: it takes part.
    Trouble(Option<String>),
    /// All cameras are handed over or released, or the limit for that has passed.
    Left,
}

/// How a node takes part.
pub struct MemberSettings {
    pub node: NodeId,
    /// What distinguishes two machines with one node name.
    pub machine: String,
    pub labels: BTreeSet<String>,
    pub version: String,
    /// Where people open its page.
    pub url: Option<String>,
    /// What this node may publish, as the membership knows it.
    pub rights: Arc<PublishRights>,
    /// Cameras that an earlier run of this node owned: they are its own again if the store does not answer within [`RESUME_AFTER`].
    pub resumed: BTreeMap<CameraId, Epoch>,
}

/// What commands have changed at a camera, until it is written.
struct PendingSettings {
    text: Option<String>,
    /// What the watch has reported meanwhile.
    seen: Option<MemberEvent>,
}

/// Runs a node's membership until the commands end or the node has left. Blocks on nothing but the store.
pub struct Member {
    node: NodeId,
    store: Arc<FleetStore>,
    clock: Arc<dyn Clock>,
    rights: Arc<PublishRights>,
    state: FleetState,
    heartbeat: Heartbeat,
    /// Of the last [`MemberCommand::Cameras`].
    list_revision: Option<u64>,
    has_capacity: bool,
    /// The last one that the store accepted.
    renewed: Option<Heartbeat>,
    /// Another machine has this node's name.
    name_trouble: Option<String>,
    /// As reported in events.
    own: BTreeMap<CameraId, Epoch>,
    /// Cameras that an earlier run owned, until the store was read.
    resumed: Option<BTreeMap<CameraId, Epoch>>,
    /// The store has time until then.
    resume_at: Mono,
    /// The newest of each camera that is not written yet.
    settings: BTreeMap<CameraId, PendingSettings>,
    settings_tried: Option<Mono>,
    /// The last [`MemberEvent::View`].
    view: Option<FleetSummary>,
    viewed: Option<Mono>,
    events: mpsc::Sender<MemberEvent>,
}

impl Member {
    pub fn new(
        settings: MemberSettings,
        store: Arc<FleetStore>,
        clock: Arc<dyn Clock>,
        events: mpsc::Sender<MemberEvent>,
    ) -> Self {
        Self {
            state: FleetState::member(settings.node.clone()),
            node: settings.node,
            store,
            resume_at: clock.now().after(RESUME_AFTER),
            clock,
            rights: settings.rights,
            heartbeat: Heartbeat {
                version: settings.version,
                machine: plain_line(&settings.machine),
                labels: settings.labels,
                url: settings.url,
                ..Heartbeat::default()
            },
            list_revision: None,
            has_capacity: false,
            renewed: None,
            name_trouble: None,
            own: BTreeMap::new(),
            resumed: Some(settings.resumed),
            settings: BTreeMap::new(),
            settings_tried: None,
            view: None,
            viewed: None,
            events,
        }
    }

    pub async fn run(mut self, mut commands: mpsc::Receiver<MemberCommand>) {
        let (sender, mut changes) = mpsc::channel(EVENTS);
        let store = self.store.clone();
        let watching = async move { store.watch(sender).await };
        let deciding = async move {
            let mut ticks = interval(DECIDE_PERIOD);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                tokio::select! {
                    // After a stop, what waits to be read comes before a decision.
                    biased;
                    change = changes.recv() => match change {
                        Some(change) => self.change(change).await,
                        None => return,
                    },
                    command = commands.recv() => match command {
                        Some(command) => {
                            if command.is_urgent() {
                                ticks.reset_immediately();
                            }
                            self.command(command).await;
                        }
                        None => return,
                    },
                    _ = ticks.tick() => {
                        if !self.act().await {
                            return;
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = watching => {}
            () = deciding => {}
        }
    }

    async fn change(&mut self, change: StoreEvent) {
        let now = self.clock.now();
        match change {
            StoreEvent::Connected => {
                self.state.connected(now);
                self.send(MemberEvent::Trouble(self.name_trouble.clone()))
                    .await;
            }
            StoreEvent::Current => {
                self.resumed = None;
                self.state.current();
            }
            StoreEvent::Disconnected { reason } => {
                self.state.certainty.disconnected();
                let own_name = "this node keeps its cameras";
                let then = self.name_trouble.as_deref().unwrap_or(own_name);
                let trouble = format!("{reason}; {then}");
                self.send(MemberEvent::Trouble(Some(trouble))).await;
            }
            StoreEvent::List(list) => self.send(MemberEvent::List(list)).await,
            StoreEvent::Heartbeat(entry) => {
                let machine = &entry.heartbeat.machine;
                if entry.node == self.node && *machine != self.heartbeat.machine {
                    self.name_taken_by(Some(machine.clone())).await;
                    self.report_all().await;
                }
                self.state.heartbeat(entry, now);
            }
            StoreEvent::Stopped(node) => self.state.stopped(&node),
            StoreEvent::Owned(camera, ownership) => {
                self.owned(camera, ownership).await;
            }
            StoreEvent::Settings { camera, text } => {
                let pending = self.settings.get_mut(&camera);
                let event = MemberEvent::Settings { camera, text };
                match pending {
                    // A newer value waits to be written.
                    Some(pending) => pending.seen = Some(event),
                    None => self.send(event).await,
                }
            }
        }
    }

    /// The store has this owner of a camera.
    async fn owned(&mut self, camera: CameraId, ownership: Ownership) {
        let before = self.state.hand_over(&camera);
        self.stored(&camera, ownership);
        self.report(camera, before).await;
    }

    fn stored(&mut self, camera: &CameraId, ownership: Ownership) {
        self.rights.stored(camera, ownership.epoch);
        self.state.owned(camera.clone(), ownership);
    }

    async fn command(&mut self, command: MemberCommand) {
        match command {
            MemberCommand::Cameras {
                revision,
                cameras,
                refused,
            } => {
                self.state.cameras = cameras;
                self.list_revision = Some(revision);
                self.heartbeat.refused = refused;
            }
            MemberCommand::Capacity(capacity_hz) => {
                let (least, most) = (*CAPACITY_HZ_RANGE.start(), *CAPACITY_HZ_RANGE.end());
                self.heartbeat.capacity_hz = capacity_hz.max(least).min(most);
                self.has_capacity = true;
            }
            MemberCommand::GivenUp(camera) => {
                self.state.set_hand_over(&camera, HandOverState::GivenUp);
            }
            MemberCommand::SetSettings { camera, text } => {
                let pending = PendingSettings { text, seen: None };
                self.settings.insert(camera, pending);
                self.settings_tried = None;
            }
            MemberCommand::Leave => {
                self.state.leave(self.clock.now());
                self.heartbeat.is_leaving = true;
            }
        }
        // Without a capacity, a node that has a list would give all its cameras away.
        self.heartbeat.list_revision = self.list_revision.filter(|_| self.has_capacity);
    }

    /// False when the node has left.
    async fn act(&mut self) -> bool {
        let now = self.clock.now();
        if let Some(look) = self.state.certainty.look(now) {
            self.rights.looked(look);
        }
        if now >= self.resume_at
            && let Some(cameras) = self.resumed.take()
        {
            self.state.resume(&cameras);
        }
        self.state.certainty.tick(now);
        // First, because others wait for it: decisions may write for seconds.
        let has_changed = self.renewed.as_ref() != Some(&self.heartbeat);
        if self.state.certainty.is_renewal_due(now) || (has_changed && self.state.can_write()) {
            self.renew().await;
        }
        let now = self.clock.now();
        self.decide(now).await;
        self.write_settings(now).await;
        self.report_all().await;
        self.send_view(now).await;
        if !self.state.has_left(now) {
            return true;
        }
        self.end().await;
        false
    }

    async fn decide(&mut self, now: Mono) {
        let Some(actions) = self.state.decide(now) else {
            return;
        };
        for action in &actions {
            if let ClaimAction::GiveUp { camera } = action {
                self.state.set_hand_over(camera, HandOverState::GivingUp);
                self.send(MemberEvent::GiveUp(camera.clone())).await;
            }
        }
        let this = &*self;
        let writes = stream::iter(actions).map(|action| this.write(action));
        let writes = writes.buffer_unordered(WRITES_AT_ONCE);
        let results: Vec<_> = writes.take_until(sleep(WRITES_LIMIT)).collect().await;
        for (camera, ownership) in results.into_iter().flatten() {
            self.owned(camera, ownership).await;
        }
    }

    async fn renew(&mut self) {
        let sent = self.clock.now();
        let last = self.state.certainty.last_revision();
        let Ok(renewal) = self.store.renew(&self.node, &self.heartbeat, last).await else {
            return self.state.certainty.refused();
        };
        let taken_by = match renewal {
            Renewal::Accepted(revision) => {
                self.renewed = Some(self.heartbeat.clone());
                self.state.certainty.accepted(AcceptedRenewal {
                    sent,
                    accepted: self.clock.now(),
                    revision,
                });
                None
            }
            Renewal::NameTaken(machine) => {
                self.state.certainty.refused();
                Some(machine)
            }
        };
        self.name_taken_by(taken_by).await;
    }

    /// Another machine has this node's name, by the store; `None`: this one has it.
    async fn name_taken_by(&mut self, machine: Option<String>) {
        self.name_trouble = machine.map(|machine| {
            format!("machine {machine} has this node's name; give each box its own node.name")
        });
        if self.state.set_name_taken(self.name_trouble.is_some()) {
            self.send(MemberEvent::Trouble(self.name_trouble.clone()))
                .await;
        }
    }

    /// Of own cameras; what a command has changed at another one is its owner's.
    async fn write_settings(&mut self, now: Mono) {
        let is_paused = self
            .settings_tried
            .is_some_and(|at| now.since(at) < HEARTBEAT_PERIOD);
        if self.settings.is_empty() || is_paused || !self.state.can_write() {
            return;
        }
        self.settings_tried = Some(now);
        let is_foreign = |camera: &CameraId| !self.own.contains_key(camera);
        let foreign = self
            .settings
            .extract_if(.., |camera, _| is_foreign(camera))
            .filter_map(|(_, pending)| pending.seen);
        let foreign: Vec<MemberEvent> = foreign.collect();
        for event in foreign {
            self.send(event).await;
        }
        let pending = self.settings.iter();
        let pending = pending.map(|(camera, pending)| (camera.clone(), pending.text.clone()));
        let pending: Vec<_> = pending.collect();
        let store = &self.store;
        let writes = stream::iter(pending).map(async |(camera, text)| {
            let written = store.set_settings(&camera, text).await;
            written.ok().map(|()| camera)
        });
        let writes = writes.buffer_unordered(WRITES_AT_ONCE);
        let written: Vec<_> = writes.take_until(sleep(WRITES_LIMIT)).collect().await;
        for camera in written.into_iter().flatten() {
            self.settings.remove(&camera);
        }
    }

    async fn send_view(&mut self, now: Mono) {
        let is_early = self.viewed.is_some_and(|at| now.since(at) < VIEW_PERIOD);
        if is_early || !self.state.certainty.is_current() {
            return;
        }
        let view = self.state.view(now);
        self.viewed = Some(now);
        if self.view.as_ref() != Some(&view) {
            self.view = Some(view.clone());
            self.send(MemberEvent::View(view)).await;
        }
    }

    async fn end(&mut self) {
        // Of a camera that was not handed over, others wait until the heartbeat expires.
        let is_last = self.state.own().next().is_none() && self.state.can_write();
        if is_last && self.renewed.is_some() {
            _ = self.store.stop(&self.node).await;
        }
        self.send(MemberEvent::Left).await;
    }

    /// Carries out one action. Returns what the store holds now, where it is known.
    async fn write(&self, action: ClaimAction) -> Option<(CameraId, Ownership)> {
        let (camera, owner, written) = match action {
            ClaimAction::Claim {
                camera,
                expected,
                dead,
            } => {
                let written = self.claim(&camera, expected, dead).await;
                (camera, Some(self.node.clone()), written)
            }
            ClaimAction::HandOver { camera, epoch, to } => {
                let written = self.store.set_owner(&camera, to.clone(), Some(epoch)).await;
                (camera, to, written)
            }
            ClaimAction::GiveUp { .. } => return None,
        };
        // After an error or a lost claim, the watch reports the owner.
        let epoch = written.ok()??;
        Some((camera, Ownership { owner, epoch }))
    }

    async fn claim(
        &self,
        camera: &CameraId,
        expected: Option<Epoch>,
        dead: Option<NodeId>,
    ) -> Result<Option<Epoch>, StoreError> {
        if let Some(dead) = dead
            && !self.store.is_absent(&dead).await?
        {
            return Ok(None);
        }
        let owner = Some(self.node.clone());
        self.store.set_owner(camera, owner, expected).await
    }

    /// After a change of many cameras, or of what the broker and the store say.
    async fn report_all(&mut self) {
        let own = self.state.own().map(|(camera, _)| camera);
        let cameras: BTreeSet<CameraId> = own.chain(self.own.keys()).cloned().collect();
        for camera in cameras {
            self.report(camera, None).await;
        }
    }

    /// Reports a camera if this node's part in it is another than before; `before` is how far its hand-over was.
    async fn report(&mut self, camera: CameraId, before: Option<HandOverState>) {
        let known = self.own.get(&camera).copied();
        let own = self.state.own_epoch(&camera);
        let epoch = own.filter(|own| !self.rights.is_silenced(&camera, *own));
        if known == epoch {
            return;
        }
        match epoch {
            // What the store reports is not complete yet.
            Some(_) if !self.state.is_certain_of(&camera) => {}
            Some(epoch) => {
                self.own.insert(camera.clone(), epoch);
                self.send(MemberEvent::Own(camera, epoch)).await;
            }
            None => {
                self.own.remove(&camera);
                self.rights.withdraw(&camera);
                let owner = self.state.ownership(&camera);
                let released = owner.filter(|known| known.owner.is_none());
                let released = released.map(|known| known.epoch);
                let event = match before {
                    Some(HandOverState::GivenUp) => MemberEvent::HandedOver { camera, released },
                    _ => MemberEvent::Lost(camera),
                };
                self.send(event).await;
            }
        }
    }

    async fn send(&self, event: MemberEvent) {
        // Without a receiver the commands end, too.
        _ = self.events.send(event).await;
    }
}

#[cfg(test)]
mod tests;
