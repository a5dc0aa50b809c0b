//! What a node of a fleet has seen of the store, and how far it is in what it does. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use spotter_core::{CameraId, Epoch, Mono, NodeId};

use crate::{
    assignment::CameraNeed,
    certainty::Certainty,
    entries::{HEARTBEAT_LIFETIME, Heartbeat, HeartbeatEntry, Ownership},
};

/// A node without a new heartbeat for this long is dead: the store has forgotten it too.
pub(crate) const DEAD_AFTER: Duration =
    HEARTBEAT_LIFETIME.saturating_add(Duration::from_millis(500));
/// A node that leaves releases what no other node has taken by then.
const LEAVE_LIMIT: Duration = Duration::from_secs(10);
/// The same without the store, which may return.
pub(crate) const LEAVE_LIMIT_WITHOUT_STORE: Duration = Duration::from_secs(5);
/// How long a node waits for the last cameras to be given up after that.
pub(crate) const GIVE_UP_LIMIT: Duration = Duration::from_secs(2);

/// An own camera that is to be another node's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandOverState {
    /// The node still ends what it publishes.
    GivingUp,
    /// It is silent: the next owner can be written.
    GivenUp,
}

pub(crate) struct SeenNode {
    pub(crate) heartbeat: Heartbeat,
    /// When it arrived here.
    pub(crate) at: Mono,
}

/// What a node has seen of the store.
#[derive(Default)]
pub struct FleetState {
    pub(crate) me: Option<NodeId>,
    /// Of the list.
    pub cameras: BTreeMap<CameraId, CameraNeed>,
    pub(crate) nodes: BTreeMap<NodeId, SeenNode>,
    pub(crate) owners: BTreeMap<CameraId, Ownership>,
    pub certainty: Certainty,
    pub(crate) hand_overs: BTreeMap<CameraId, HandOverState>,
    /// Own cameras by an earlier run; the store was not read yet.
    resumed: BTreeSet<CameraId>,
    /// Cameras whose owner was known before this connection, and was not reported on it yet.
    unreported: BTreeSet<CameraId>,
    is_name_taken: bool,
    pub(crate) leaving_since: Option<Mono>,
}

impl FleetState {
    pub fn member(me: NodeId) -> Self {
        Self {
            me: Some(me),
            ..Self::default()
        }
    }

    pub fn connected(&mut self, now: Mono) {
        self.certainty.connected(now);
        self.unreported = self.owners.keys().cloned().collect();
    }

    /// All owners were reported: a camera that the store does not have belongs to no node, also if the store has lost its data.
    pub fn current(&mut self) {
        self.certainty.current();
        let resumed = std::mem::take(&mut self.resumed);
        for camera in resumed.union(&std::mem::take(&mut self.unreported)) {
            self.owners.remove(camera);
            self.hand_overs.remove(camera);
        }
    }

    /// A heartbeat of any node.
    pub fn heartbeat(&mut self, entry: HeartbeatEntry, now: Mono) {
        let HeartbeatEntry {
            node,
            heartbeat,
            revision,
        } = entry;
        self.certainty.seen(revision);
        self.nodes.insert(node, SeenNode { heartbeat, at: now });
    }

    /// A node has deleted its heartbeat: it has stopped.
    pub fn stopped(&mut self, node: &NodeId) {
        self.nodes.remove(node);
    }

    /// A camera's owner in the store; older epochs than the one that the store had are ignored.
    pub fn owned(&mut self, camera: CameraId, ownership: Ownership) {
        let is_resumed = self.resumed.remove(&camera);
        self.unreported.remove(&camera);
        let known = self.owners.get(&camera).map(|known| known.epoch);
        if !is_resumed && known > Some(ownership.epoch) {
            return;
        }
        if known != Some(ownership.epoch) {
            self.hand_overs.remove(&camera);
        }
        self.owners.insert(camera, ownership);
    }

    /// The store does not answer: the cameras of an earlier run are own again, until it does.
    pub fn resume(&mut self, cameras: &BTreeMap<CameraId, Epoch>) {
        for (camera, epoch) in cameras {
            if !self.owners.contains_key(camera) {
                let owner = self.me.clone();
                let epoch = *epoch;
                let ownership = Ownership { owner, epoch };
                self.owners.insert(camera.clone(), ownership);
                self.resumed.insert(camera.clone());
            }
        }
    }

    /// Whether another machine has this node's name in the store: then this one owns nothing. True when that is news.
    pub fn set_name_taken(&mut self, is_taken: bool) -> bool {
        if is_taken {
            self.hand_overs.clear();
        }
        std::mem::replace(&mut self.is_name_taken, is_taken) != is_taken
    }

    /// Owners can be written: they are known, and no other machine has this node's name.
    pub fn can_write(&self) -> bool {
        self.certainty.is_current() && !self.is_name_taken
    }

    /// What is published of a camera ends, or has ended. Without effect on a camera of another node.
    pub fn set_hand_over(&mut self, camera: &CameraId, state: HandOverState) {
        let known = self.hand_overs.get(camera);
        let is_next = match state {
            HandOverState::GivingUp => known.is_none() && self.own_epoch(camera).is_some(),
            HandOverState::GivenUp => known == Some(&HandOverState::GivingUp),
        };
        if is_next {
            self.hand_overs.insert(camera.clone(), state);
        }
    }

    pub fn hand_over(&self, camera: &CameraId) -> Option<HandOverState> {
        self.hand_overs.get(camera).copied()
    }

    pub fn leave(&mut self, now: Mono) {
        self.leaving_since.get_or_insert(now);
    }

    /// What no other node has taken is released.
    pub(crate) fn is_leave_over(&self, now: Mono) -> bool {
        let limit = match self.certainty.connected_at() {
            Some(_) => LEAVE_LIMIT,
            None => LEAVE_LIMIT_WITHOUT_STORE,
        };
        self.leaving_since
            .is_some_and(|since| now.since(since) >= limit)
    }

    /// This node leaves, and owns nothing or has waited long enough.
    pub fn has_left(&self, now: Mono) -> bool {
        let before = now.before(GIVE_UP_LIMIT);
        self.leaving_since.is_some() && (self.own().next().is_none() || self.is_leave_over(before))
    }

    pub(crate) fn is_me(&self, node: &NodeId) -> bool {
        self.me.as_ref() == Some(node)
    }

    /// All owners were read, or this one is known from an earlier run.
    pub fn is_certain_of(&self, camera: &CameraId) -> bool {
        self.certainty.is_current() || self.resumed.contains(camera)
    }

    /// The newest owner that this node knows.
    pub fn ownership(&self, camera: &CameraId) -> Option<&Ownership> {
        self.owners.get(camera)
    }

    /// The cameras that have an owner, also one that does not live.
    pub(crate) fn owned_cameras(&self) -> BTreeMap<CameraId, NodeId> {
        let owners = self.owners.iter();
        owners
            .filter_map(|(camera, known)| Some((camera.clone(), known.owner.clone()?)))
            .collect()
    }

    /// The epoch of a camera of this node. While another machine has its name, it has none.
    pub fn own_epoch(&self, camera: &CameraId) -> Option<Epoch> {
        let ownership = self.owners.get(camera)?;
        let owner = ownership.owner.as_ref()?;
        (!self.is_name_taken && self.is_me(owner)).then_some(ownership.epoch)
    }

    /// The cameras of this node, with their epochs.
    pub fn own(&self) -> impl Iterator<Item = (&CameraId, Epoch)> {
        let cameras = self.owners.keys();
        cameras.filter_map(|camera| Some((camera, self.own_epoch(camera)?)))
    }

    /// Living nodes, those that leave included.
    pub(crate) fn is_living(&self, node: &NodeId, now: Mono) -> bool {
        // After an outage of the store, others have a lifetime to return.
        let returned = self.certainty.usable_since().unwrap_or(now);
        let seen = self
            .nodes
            .get(node)
            .map_or(returned, |seen| seen.at.max(returned));
        now.since(seen) <= DEAD_AFTER
    }
}
