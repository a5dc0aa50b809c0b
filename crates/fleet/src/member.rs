//! A node's membership in a fleet: it renews its heartbeat, carries out decisions, and reports which cameras are its own.
//!
//! ```text
//!   FleetStore::watch ──▶ FleetState ──decide──▶ claims, releases ──▶ FleetStore
//!   MemberCommand ──────▶     │
//!                             └──▶ MemberEvent: watch this camera with that epoch, prepare it, stop
//! ```
//!
//! Thin: decisions are in [`claims`](crate::claims). Without the store, the node keeps the cameras that it has.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::{StreamExt as _, stream};
use spotter_core::{CameraId, Clock, Epoch, Mono, NodeId};
use tokio::{
    sync::mpsc,
    time::{MissedTickBehavior, interval},
};

use crate::{
    claims::{ClaimAction, DecisionBasis, FleetState, HEARTBEAT_PERIOD, ListedCamera},
    entries::{Heartbeat, ListRevision, Ownership, StoreEvent},
    store::{FleetStore, StoreError},
    summary::FleetSummary,
};

/// How often a node decides: many changes arrive at a time when a node is lost.
const DECIDE_PERIOD: Duration = Duration::from_millis(500);
/// A node that starts waits this long for the store before it goes on with the cameras of its last run.
pub const RESUME_AFTER: Duration = Duration::from_secs(5);
/// Claims that are on their way at a time.
const CLAIMS_AT_ONCE: usize = 32;
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
    /// The broker's retained `owner` of a camera. One that names this node is ignored.
    SeenOwner {
        camera: CameraId,
        node: NodeId,
        epoch: Epoch,
    },
    /// Hand all cameras over, then end.
    Leave,
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
    HandedOver(CameraId),
    /// Stop at once: another node has it or no node has. `newer` is the epoch that ended the own one.
    Lost {
        camera: CameraId,
        newer: Epoch,
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

/// Runs a node's membership until the commands end or the node has left. Blocks on nothing but the store.
pub struct Member {
    node: NodeId,
    store: Arc<FleetStore>,
    clock: Arc<dyn Clock>,
    state: FleetState,
    heartbeat: Heartbeat,
    renewed_at: Option<Mono>,
    /// Offered by others: reported, and connected here.
    preparing: BTreeSet<CameraId>,
    prepared: BTreeSet<CameraId>,
    /// Of decisions without an action.
    settled: Option<DecisionBasis>,
    /// As reported in events.
    own: BTreeMap<CameraId, Epoch>,
    events: mpsc::Sender<MemberEvent>,
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

impl Member {
    pub fn new(
        settings: MemberSettings,
        store: Arc<FleetStore>,
        clock: Arc<dyn Clock>,
        events: mpsc::Sender<MemberEvent>,
    ) -> Self {
        Self {
            state: FleetState::new(settings.node.clone()),
            node: settings.node,
            store,
            clock,
            heartbeat: Heartbeat {
                version: settings.version,
                machine: settings.machine,
                labels: settings.labels,
                ..Heartbeat::default()
            },
            renewed_at: None,
            preparing: BTreeSet::new(),
            prepared: BTreeSet::new(),
            settled: None,
            own: BTreeMap::new(),
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
                    change = changes.recv() => match change {
                        Some(change) => self.change(change).await,
                        None => return,
                    },
                    command = commands.recv() => match command {
                        Some(command) => self.command(command).await,
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
            StoreEvent::Disconnected { reason } => {
                self.state.disconnected();
                self.send(MemberEvent::Disconnected { reason }).await;
            }
            StoreEvent::List(list) => self.send(MemberEvent::List(list)).await,
            StoreEvent::Heartbeat(entry) => self.state.heartbeat(entry.node, entry.heartbeat, now),
            StoreEvent::Current | StoreEvent::Settings { .. } => {}
            StoreEvent::Stopped(node) => self.state.stopped(&node),
            StoreEvent::Owned(camera, ownership) => self.owned(camera, ownership).await,
        }
    }

    async fn command(&mut self, command: MemberCommand) {
        match command {
            MemberCommand::Cameras {
                revision,
                cameras,
                refused,
            } => {
                self.heartbeat.list_revision = Some(revision);
                self.state.set_cameras(cameras);
                self.heartbeat.refused = refused;
            }
            MemberCommand::Capacity(capacity_hz) => self.heartbeat.capacity_hz = capacity_hz,
            MemberCommand::Prepared(camera) => drop(self.prepared.insert(camera)),
            MemberCommand::GivenUp(_) | MemberCommand::SetSettings { .. } => {}
            MemberCommand::SeenOwner {
                camera,
                node,
                epoch,
            } => {
                let owner = Some(node);
                self.owned(camera, Ownership { owner, epoch }).await;
            }
            MemberCommand::Leave => self.heartbeat.is_leaving = true,
        }
        self.renewed_at = None;
    }

    /// False when the node has left.
    async fn act(&mut self) -> bool {
        let now = self.clock.now();
        let basis = self.state.basis(&self.prepared, now);
        if self.settled.as_ref() != Some(&basis) {
            self.decide(basis, now).await;
        }
        if self
            .renewed_at
            .is_none_or(|at| now.since(at) >= HEARTBEAT_PERIOD)
        {
            self.renewed_at = Some(now);
            // A failure shows as an age: the watch has not reported the heartbeat.
            _ = self.store.renew(&self.node, &self.heartbeat).await;
        }
        self.stay_or_leave().await
    }

    async fn decide(&mut self, basis: DecisionBasis, now: Mono) {
        let decisions = self.state.decide(&self.prepared, now);
        self.settled = decisions.actions.is_empty().then_some(basis);
        if self.heartbeat.offers != decisions.offers {
            self.heartbeat.offers = decisions.offers;
            self.renewed_at = None;
        }
        let mut offered = BTreeSet::new();
        let mut writes = Vec::new();
        for action in decisions.actions {
            match action {
                ClaimAction::Prepare { camera } => drop(offered.insert(camera)),
                write => writes.push(write),
            }
        }
        for camera in offered.difference(&self.preparing) {
            self.send(MemberEvent::Prepare(camera.clone())).await;
        }
        self.preparing = offered;
        for action in &writes {
            if let ClaimAction::Release { camera, .. } = action
                && self.own.remove(camera).is_some()
            {
                let newer = self.state.own_epoch(camera).unwrap_or_default();
                self.send(MemberEvent::Lost {
                    camera: camera.clone(),
                    newer,
                })
                .await;
            }
        }
        let this = &*self;
        let writes = stream::iter(writes).map(|action| this.write(action));
        let results: Vec<_> = writes.buffer_unordered(CLAIMS_AT_ONCE).collect().await;
        for (camera, ownership) in results.into_iter().flatten() {
            self.owned(camera, ownership).await;
        }
    }

    async fn stay_or_leave(&mut self) -> bool {
        if !self.heartbeat.is_leaving || self.state.own().next().is_some() {
            return true;
        }
        _ = self.store.stop(&self.node).await;
        self.send(MemberEvent::Left).await;
        false
    }

    /// Carries out one action. Returns what the store holds now, where it is known.
    async fn write(&self, action: ClaimAction) -> Option<(CameraId, Ownership)> {
        let written = match action {
            ClaimAction::Claim {
                camera,
                expected,
                dead,
            } => {
                let owner = Some(self.node.clone());
                self.claim(&camera, expected, dead)
                    .await
                    .map(|epoch| (camera, owner, epoch))
            }
            ClaimAction::Release { camera, epoch } => {
                let released = self.store.set_owner(&camera, None, Some(epoch)).await;
                released.map(|epoch| (camera, None, epoch))
            }
            ClaimAction::Prepare { .. } => return None,
        };
        // After an error or a lost claim, the watch reports the owner.
        let (camera, owner, epoch) = written.ok()?;
        let epoch = epoch?;
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

    /// A camera's owner is known; reports it if it is another than before.
    async fn owned(&mut self, camera: CameraId, ownership: Ownership) {
        let newer = ownership.epoch;
        self.state.owned(camera.clone(), ownership);
        let epoch = self.state.own_epoch(&camera);
        if self.own.get(&camera).copied() == epoch {
            return;
        }
        match epoch {
            Some(epoch) => {
                self.prepared.remove(&camera);
                self.own.insert(camera.clone(), epoch);
                self.send(MemberEvent::Own(camera, epoch)).await;
            }
            None => {
                self.own.remove(&camera);
                self.send(MemberEvent::Lost { camera, newer }).await;
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
