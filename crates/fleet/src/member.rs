//! A node's membership in a fleet: it renews its heartbeat, carries out decisions, and reports which cameras are its own.
//!
//! ```text
//!   FleetStore::watch ──▶ FleetState ──decide──▶ claims, hand-overs ──▶ FleetStore
//!   MemberCommand ──────▶     │
//!                             └──▶ MemberEvent: prepare this camera, watch it with that epoch, give it up, stop
//! ```
//!
//! Thin: decisions are in [`claims`](crate::claims). Without the store, the node keeps the cameras that it has; one that starts goes on with
//! those of its last run.
//!
//! Moving a camera, one that allows two sessions:
//!
//! ```text
//!   owner                                    other node
//!   offers it in its heartbeat               Prepare: connects it
//!                                            Prepared: says so in its heartbeat
//!   GiveUp: ends its events                  keeps it connected
//!   GivenUp: writes the other as its owner
//!   HandedOver: disconnects it               Own: publishes it with the new epoch
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
    time::{MissedTickBehavior, interval, sleep, timeout},
};

use crate::{
    certainty::AcceptedRenewal,
    claims::{ClaimAction, DecisionBasis, ListedCamera},
    entries::{
        CAPACITY_HZ_RANGE, HEARTBEAT_PERIOD, Heartbeat, ListRevision, Ownership, StoreEvent,
    },
    state::{FleetState, HandOverState, NodeIdentity},
    store::{FleetStore, StoreAccess, StoreError},
    summary::FleetSummary,
};

/// How often a node decides: many changes arrive at a time when a node is lost.
const DECIDE_PERIOD: Duration = Duration::from_millis(500);
/// A node that starts waits this long for the store before it goes on with the cameras of its last run.
pub const RESUME_AFTER: Duration = Duration::from_secs(5);
/// Writes that are on their way at a time.
const WRITES_AT_ONCE: usize = 32;
/// Disputed cameras of which the store is asked in one decision: each question delays the heartbeat.
const DISPUTES_AT_ONCE: usize = 8;
const DISPUTE_LIMIT: Duration = Duration::from_secs(1);
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
        cameras: BTreeMap<CameraId, ListedCamera>,
        refused: BTreeMap<CameraId, String>,
    },
    /// Looks of cost 1 a second.
    Capacity(f64),
    /// Answers [`MemberEvent::Prepare`]: the camera is connected.
    Prepared(CameraId),
    /// Answers [`MemberEvent::GiveUp`]: nothing is published with its epoch any more. Not for a camera that was lost meanwhile.
    GivenUp(CameraId),
    /// What commands have changed at an own camera; `None`: nothing any more.
    SetSettings {
        camera: CameraId,
        text: Option<String>,
    },
    /// The broker's `owner` of a camera, which is newer than this node's.
    SeenOwner {
        camera: CameraId,
        /// `None`: no node.
        node: Option<NodeId>,
        epoch: Epoch,
    },
    /// Hand all cameras over, then end.
    Leave,
}

impl MemberCommand {
    /// A camera is not watched, or is watched twice, until the node acts on it.
    fn is_urgent(&self) -> bool {
        matches!(self, Self::Prepared(_) | Self::GivenUp(_) | Self::Leave)
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
    /// Connect it without publishing; [`MemberCommand::Prepared`] answers it.
    Prepare(CameraId),
    /// Close a camera that was prepared: it is no longer offered.
    Dismiss(CameraId),
    /// Watch and publish it with this epoch. Of a camera that is watched already: publish with this epoch from now on.
    Own(CameraId, Epoch),
    /// End its events, disconnect it if it allows one session only, let its last messages go; [`MemberCommand::GivenUp`] answers it.
    GiveUp(CameraId),
    /// Close a camera that was given up: its next owner is written.
    HandedOver {
        camera: CameraId,
        /// No node is the next owner, since this epoch.
        released: Option<Epoch>,
    },
    /// Stop at once: another node has it or no node has. `newer` is the epoch that ended the own one.
    Lost {
        camera: CameraId,
        newer: Epoch,
    },
    /// The broker has shown an owner with this epoch, which is above the store's newest: the camera is still this node's.
    WrongOwner {
        camera: CameraId,
        epoch: Epoch,
    },
    /// Until then no other node can have claimed a camera of this node.
    Confirmed {
        until: Mono,
    },
    /// Another machine takes part with this node's name: this one owns nothing until the other one stops.
    NameTaken {
        machine: String,
    },
    /// At most one a second, when something changed.
    View(FleetSummary),
    Connected,
    /// The store cannot be used; repeated when the reason changes.
    Disconnected {
        reason: String,
    },
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
    /// Cameras that an earlier run of this node owned: they are its own again if the store does not answer within [`RESUME_AFTER`].
    pub resumed: BTreeMap<CameraId, Epoch>,
}

/// Where a camera is that another node offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Preparation {
    Connecting,
    Connected,
}

/// What commands have changed at a camera, until it is written.
struct PendingSettings {
    text: Option<String>,
    /// What the watch has reported meanwhile.
    seen: Option<MemberEvent>,
}

/// What another machine's use of the name has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameState {
    Own,
    /// The other machine was reported.
    Taken,
}

/// Cameras that an earlier run owned.
enum Resumption {
    /// The store has time until then.
    Waiting {
        until: Mono,
        cameras: BTreeMap<CameraId, Epoch>,
    },
    Done,
}

/// Runs a node's membership until the commands end or the node has left. Blocks on nothing but the store.
pub struct Member {
    node: NodeId,
    store: Arc<FleetStore>,
    clock: Arc<dyn Clock>,
    state: FleetState,
    heartbeat: Heartbeat,
    /// Of the last [`MemberCommand::Cameras`].
    list_revision: Option<u64>,
    has_capacity: bool,
    /// The last one that the store accepted.
    renewed: Option<Heartbeat>,
    preparing: BTreeMap<CameraId, Preparation>,
    /// Of decisions without an action.
    settled: Option<DecisionBasis>,
    /// As reported in events.
    own: BTreeMap<CameraId, Epoch>,
    confirmed: Option<Mono>,
    name: NameState,
    /// When it last acted.
    could_write: bool,
    resumption: Resumption,
    /// The newest of each camera that is not written yet.
    settings: BTreeMap<CameraId, PendingSettings>,
    settings_tried: Option<Mono>,
    /// Own cameras of which the broker has shown a newer owner than the store, until the store was asked.
    disputed: BTreeMap<CameraId, Epoch>,
    view: ReportedView,
    events: mpsc::Sender<MemberEvent>,
}

/// The last [`MemberEvent::View`].
#[derive(Default)]
struct ReportedView {
    at: Option<Mono>,
    basis: Option<DecisionBasis>,
    view: Option<FleetSummary>,
}

impl Member {
    pub fn new(
        settings: MemberSettings,
        store: Arc<FleetStore>,
        clock: Arc<dyn Clock>,
        events: mpsc::Sender<MemberEvent>,
    ) -> Self {
        let until = clock.now().after(RESUME_AFTER);
        let cameras = settings.resumed;
        Self {
            state: FleetState::member(NodeIdentity {
                node: settings.node.clone(),
                machine: plain_line(&settings.machine),
            }),
            node: settings.node,
            store,
            clock,
            heartbeat: Heartbeat {
                version: settings.version,
                machine: plain_line(&settings.machine),
                labels: settings.labels,
                ..Heartbeat::default()
            },
            list_revision: None,
            has_capacity: false,
            renewed: None,
            preparing: BTreeMap::new(),
            settled: None,
            own: BTreeMap::new(),
            confirmed: None,
            name: NameState::Own,
            could_write: false,
            resumption: Resumption::Waiting { until, cameras },
            settings: BTreeMap::new(),
            settings_tried: None,
            disputed: BTreeMap::new(),
            view: ReportedView::default(),
            events,
        }
    }

    pub async fn run(mut self, mut commands: mpsc::Receiver<MemberCommand>) {
        let (sender, mut changes) = mpsc::channel(EVENTS);
        let store = self.store.clone();
        let watching = async move { store.watch(StoreAccess::Member, sender).await };
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
                self.send(MemberEvent::Connected).await;
            }
            StoreEvent::Current => self.current(now).await,
            StoreEvent::Disconnected { reason } => {
                self.state.disconnected();
                self.send(MemberEvent::Disconnected { reason }).await;
            }
            StoreEvent::List(list) => self.send(MemberEvent::List(list)).await,
            StoreEvent::Heartbeat(entry) => {
                let is_namesake = entry.node == self.node;
                self.state.heartbeat(entry, now);
                if is_namesake {
                    self.check_name().await;
                }
            }
            StoreEvent::Stopped(node) => self.state.stopped(&node),
            StoreEvent::Owned(camera, ownership) => {
                let before = self.state.hand_over(&camera);
                self.state.owned(camera.clone(), ownership);
                self.report(camera, before).await;
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

    /// All owners are known. Before it takes part, the node looks for another machine with its name.
    async fn current(&mut self, now: Mono) {
        if let Ok(Some(entry)) = self.store.heartbeat(&self.node).await
            && entry.heartbeat.machine != self.heartbeat.machine
        {
            self.state.heartbeat(entry, now);
        }
        self.resumption = Resumption::Done;
        self.state.current();
        self.check_name().await;
        self.report_all().await;
    }

    /// Reports another machine with this node's name once, and that all cameras are lost to it.
    async fn check_name(&mut self) {
        let Some(machine) = self.state.name_taken_by() else {
            return;
        };
        if self.name == NameState::Own {
            let machine = machine.to_owned();
            self.name = NameState::Taken;
            self.send(MemberEvent::NameTaken { machine }).await;
            self.prepare(BTreeSet::new(), &[]).await;
            self.report_all().await;
        }
    }

    async fn command(&mut self, command: MemberCommand) {
        match command {
            MemberCommand::Cameras {
                revision,
                cameras,
                refused,
            } => {
                self.state.set_cameras(cameras);
                self.list_revision = Some(revision);
                self.heartbeat.refused = refused;
            }
            MemberCommand::Capacity(capacity_hz) => {
                let (least, most) = (*CAPACITY_HZ_RANGE.start(), *CAPACITY_HZ_RANGE.end());
                self.heartbeat.capacity_hz = capacity_hz.max(least).min(most);
                self.has_capacity = true;
            }
            MemberCommand::Prepared(camera) => {
                if let Some(preparation) = self.preparing.get_mut(&camera) {
                    *preparation = Preparation::Connected;
                    self.heartbeat.prepared.insert(camera);
                }
            }
            MemberCommand::GivenUp(camera) => {
                self.state.set_hand_over(&camera, HandOverState::GivenUp);
            }
            MemberCommand::SetSettings { camera, text } => {
                let pending = PendingSettings { text, seen: None };
                self.settings.insert(camera, pending);
                self.settings_tried = None;
            }
            MemberCommand::SeenOwner {
                camera,
                node,
                epoch,
            } => {
                let before = self.state.hand_over(&camera);
                let ownership = Ownership { owner: node, epoch };
                if self.state.seen_owner(camera.clone(), ownership) {
                    let disputed = self.disputed.entry(camera.clone()).or_default();
                    *disputed = epoch.max(*disputed);
                }
                self.report(camera, before).await;
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
        self.resume(now).await;
        self.state.tick(now);
        self.take_part_again().await;
        // First, because others wait for it: decisions may write for seconds.
        if self.state.is_renewal_due(now) {
            self.renew().await;
        }
        let now = self.clock.now();
        let basis = self.state.basis(now);
        if self.settled.as_ref() != Some(&basis) {
            self.decide(basis, now).await;
        }
        self.say_changes().await;
        self.write_settings(now).await;
        self.confirm().await;
        self.settle_disputes().await;
        self.send_view(now).await;
        if !self.state.has_left(now) {
            return true;
        }
        self.end().await;
        false
    }

    /// The other machine with this node's name has stopped.
    async fn take_part_again(&mut self) {
        let can_write = self.state.can_write();
        if can_write && !self.could_write {
            self.name = NameState::Own;
            self.report_all().await;
        }
        self.could_write = can_write;
    }

    async fn resume(&mut self, now: Mono) {
        if let Resumption::Waiting { until, cameras } = &self.resumption
            && now >= *until
        {
            self.state.resume(cameras);
            self.resumption = Resumption::Done;
            self.report_all().await;
        }
    }

    async fn decide(&mut self, basis: DecisionBasis, now: Mono) {
        let Some(decisions) = self.state.decide(now) else {
            return;
        };
        self.settled = decisions.actions.is_empty().then_some(basis);
        self.heartbeat.offers = decisions.offers;
        let (silences, writes): (Vec<_>, Vec<_>) = decisions
            .actions
            .into_iter()
            .partition(|action| matches!(action, ClaimAction::GiveUp { .. }));
        self.prepare(decisions.prepare, &writes).await;
        for action in silences {
            if let ClaimAction::GiveUp { camera } = action {
                self.state.set_hand_over(&camera, HandOverState::GivingUp);
                self.send(MemberEvent::GiveUp(camera)).await;
            }
        }
        let this = &*self;
        let writes = stream::iter(writes).map(|action| this.write(action));
        let writes = writes.buffer_unordered(WRITES_AT_ONCE);
        let results: Vec<_> = writes.take_until(sleep(WRITES_LIMIT)).collect().await;
        for (camera, ownership) in results.into_iter().flatten() {
            let before = self.state.hand_over(&camera);
            self.state.owned(camera.clone(), ownership);
            self.report(camera, before).await;
        }
    }

    /// Reports which cameras are offered, and which are no longer. A camera that this node claims now stays connected.
    async fn prepare(&mut self, offered: BTreeSet<CameraId>, writes: &[ClaimAction]) {
        let is_claimed = |camera: &CameraId| {
            let claims = |write: &ClaimAction| matches!(write, ClaimAction::Claim { camera: claimed, .. } if claimed == camera);
            writes.iter().any(claims)
        };
        let known = self.preparing.keys();
        let ended = known.filter(|camera| !offered.contains(*camera) && !is_claimed(camera));
        let ended: Vec<CameraId> = ended.cloned().collect();
        for camera in ended {
            self.preparing.remove(&camera);
            self.heartbeat.prepared.remove(&camera);
            self.send(MemberEvent::Dismiss(camera)).await;
        }
        for camera in offered {
            if !self.preparing.contains_key(&camera) {
                self.preparing
                    .insert(camera.clone(), Preparation::Connecting);
                self.send(MemberEvent::Prepare(camera)).await;
            }
        }
    }

    /// Sends the heartbeat if it says something else than the last one.
    async fn say_changes(&mut self) {
        if self.state.can_write() && self.renewed.as_ref() != Some(&self.heartbeat) {
            self.renew().await;
        }
    }

    async fn renew(&mut self) {
        let sent = self.clock.now();
        match self.store.renew(&self.node, &self.heartbeat).await {
            Ok(revision) => {
                self.renewed = Some(self.heartbeat.clone());
                self.state.accepted(AcceptedRenewal {
                    sent,
                    accepted: self.clock.now(),
                    revision,
                });
            }
            Err(_) => self.state.refused(),
        }
    }

    async fn confirm(&mut self) {
        let until = self.state.confirmed_until();
        if let Some(until) = until
            && self.confirmed != Some(until)
        {
            self.confirmed = Some(until);
            self.send(MemberEvent::Confirmed { until }).await;
        }
    }

    /// Asks the store who the owner is. Without an answer in time, the watch decides, if it has just shown this node's heartbeat; else no
    /// event is sent, and the question is not repeated.
    async fn settle_disputes(&mut self) {
        for _ in 0..DISPUTES_AT_ONCE {
            let Some((camera, epoch)) = self.disputed.pop_first() else {
                return;
            };
            let asked = timeout(DISPUTE_LIMIT, self.store.owner(&camera)).await;
            let newest = asked.ok().and_then(Result::ok);
            let is_answered = newest.is_some();
            if let Some(newest) = newest.flatten() {
                let before = self.state.hand_over(&camera);
                self.state.owned(camera.clone(), newest);
                self.report(camera.clone(), before).await;
            }
            let own = self.state.own_epoch(&camera);
            let is_known = is_answered || self.state.certainty.is_fresh(self.clock.now());
            if is_known && self.state.is_current() && own.is_some_and(|own| own < epoch) {
                self.send(MemberEvent::WrongOwner { camera, epoch }).await;
            }
            if !is_answered {
                return;
            }
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
        let is_early = self.view.at.is_some_and(|at| now.since(at) < VIEW_PERIOD);
        let basis = self.state.basis(now);
        if is_early || !self.state.is_current() || self.view.basis.as_ref() == Some(&basis) {
            return;
        }
        let view = self.state.view(now);
        self.view.basis = Some(basis);
        self.view.at = Some(now);
        if self.view.view.as_ref() != Some(&view) {
            self.view.view = Some(view.clone());
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

    /// After a change of all cameras.
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
        let epoch = self.state.own_epoch(&camera);
        if known == epoch {
            return;
        }
        match epoch {
            // What the store reports is not complete yet.
            Some(_) if !self.state.is_certain_of(&camera) => {}
            Some(epoch) => {
                self.preparing.remove(&camera);
                self.heartbeat.prepared.remove(&camera);
                self.own.insert(camera.clone(), epoch);
                self.send(MemberEvent::Own(camera, epoch)).await;
            }
            None => {
                self.own.remove(&camera);
                let event = match before {
                    Some(HandOverState::GivenUp) => MemberEvent::HandedOver {
                        released: self.released_epoch(&camera),
                        camera,
                    },
                    _ => MemberEvent::Lost {
                        newer: self.newer_epoch(&camera, known),
                        camera,
                    },
                };
                self.send(event).await;
            }
        }
    }

    fn released_epoch(&self, camera: &CameraId) -> Option<Epoch> {
        let ownership = self.state.ownership(camera)?;
        ownership.owner.is_none().then_some(ownership.epoch)
    }

    /// The epoch that ended an own one. To another machine with this node's name, cameras are lost with their own.
    fn newer_epoch(&self, camera: &CameraId, own: Option<Epoch>) -> Epoch {
        let ownership = self.state.ownership(camera);
        let newer = ownership.map(|ownership| ownership.epoch);
        newer.or(own).unwrap_or_default()
    }

    async fn send(&self, event: MemberEvent) {
        // Without a receiver the commands end, too.
        _ = self.events.send(event).await;
    }
}

#[cfg(test)]
mod tests;
