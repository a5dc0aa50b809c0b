//! What one node of a fleet does now about cameras and owners. Pure: it takes `now` and what the node has seen of the store.
//!
//! ```text
//!   camera without a living owner, assigned to this node     claim                    compare-and-swap on the owner's key
//!   own camera, assigned to another node                     offer it there           in the heartbeat; watched until the other one claims it
//!   camera offered to this node                              prepare, then claim      the stream is there before the camera changes hands
//!   own camera that no node is to have, or with one session  release                  the other one connects afterwards
//! ```
//!
//! The store does not report a heartbeat that expired, so each node measures the ages of the others' on its own clock, from when they arrived.
//! Nothing compares the clocks of two machines.
//!
//! A node that has not renewed its own heartbeat within the lifetime (it was stopped, or cut off) decides nothing: it cannot know who lives. A
//! node that connects waits for a lifetime before it takes another one for dead, because after an outage of the store all heartbeats are gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use spotter_core::{CameraId, Epoch, Mono, NodeId};

use crate::{
    assignment::{Assignment, AssignmentInputs, CameraNeed, NodeOffer},
    entries::{Heartbeat, Ownership},
};

/// How often a node renews its heartbeat.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);
/// How long a heartbeat lives in the store.
pub const HEARTBEAT_LIFETIME: Duration = Duration::from_secs(10);
/// A node without a new heartbeat for this long is dead: the store has forgotten it too.
const DEAD_AFTER: Duration = HEARTBEAT_LIFETIME.saturating_add(Duration::from_millis(500));
/// Cameras that a node that stays offers at a time: each is watched by two nodes for some seconds.
const OFFERED_AT_ONCE: usize = 4;

/// A camera of the list, as far as claims need it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ListedCamera {
    pub need: CameraNeed,
    /// It serves one session at a time: its owner disconnects before the next one connects.
    pub has_one_session: bool,
}

/// What a node does next.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimAction {
    /// Become the owner if the key's revision is still `expected` (`None`: if there is no key). `dead` is the owner so far, whose
    /// heartbeat must be absent in the store, too.
    Claim {
        camera: CameraId,
        expected: Option<Epoch>,
        dead: Option<NodeId>,
    },
    /// Connect the camera without publishing: another node offers it.
    Prepare { camera: CameraId },
    /// Stop watching it, then write that it has no owner.
    Release { camera: CameraId, epoch: Epoch },
}

/// All that a node does next.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decisions {
    pub actions: Vec<ClaimAction>,
    /// For the next heartbeat.
    pub offers: BTreeMap<CameraId, NodeId>,
    pub missing_hz: f64,
}

struct SeenNode {
    heartbeat: Heartbeat,
    /// When it arrived here.
    at: Mono,
}

/// What a node has seen of the store.
pub struct FleetState {
    me: NodeId,
    cameras: BTreeMap<CameraId, ListedCamera>,
    nodes: BTreeMap<NodeId, SeenNode>,
    owners: BTreeMap<CameraId, Ownership>,
    /// Since when the store answers; `None` while it does not.
    connected_at: Option<Mono>,
    /// When the node's own heartbeat was last accepted.
    renewed_at: Option<Mono>,
    /// Rises with each change of cameras, owners and what heartbeats say.
    revision: u64,
}

/// What decisions follow from: while it is the same, they are. With 2,000 cameras and 50 nodes deciding takes some milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecisionBasis {
    revision: u64,
    can_decide: bool,
    living: Vec<NodeId>,
    prepared: BTreeSet<CameraId>,
}

impl FleetState {
    pub fn new(me: NodeId) -> Self {
        Self {
            me,
            cameras: BTreeMap::new(),
            nodes: BTreeMap::new(),
            owners: BTreeMap::new(),
            connected_at: None,
            renewed_at: None,
            revision: 0,
        }
    }

    pub fn connected(&mut self, now: Mono) {
        self.connected_at = Some(now);
    }

    pub fn disconnected(&mut self) {
        self.connected_at = None;
    }

    pub fn set_cameras(&mut self, cameras: BTreeMap<CameraId, ListedCamera>) {
        self.cameras = cameras;
        self.revision += 1;
    }

    /// A heartbeat of any node; of this one, that the store has accepted it.
    pub fn heartbeat(&mut self, node: NodeId, heartbeat: Heartbeat, now: Mono) {
        if node == self.me {
            self.renewed_at = Some(now);
        }
        let before = self.nodes.get(&node);
        if before.is_none_or(|before| before.heartbeat != heartbeat) {
            self.revision += 1;
        }
        self.nodes.insert(node, SeenNode { heartbeat, at: now });
    }

    /// A node has deleted its heartbeat: it has stopped.
    pub fn stopped(&mut self, node: &NodeId) {
        self.nodes.remove(node);
        self.revision += 1;
    }

    /// A camera's owner; older epochs than the one known are ignored.
    pub fn owned(&mut self, camera: CameraId, ownership: Ownership) {
        let known = self.owners.get(&camera).map(|known| known.epoch);
        if known.is_none_or(|known| known <= ownership.epoch) {
            self.owners.insert(camera, ownership);
            self.revision += 1;
        }
    }

    /// The epoch of a camera of this node.
    pub fn own_epoch(&self, camera: &CameraId) -> Option<Epoch> {
        let ownership = self.owners.get(camera)?;
        (ownership.owner.as_ref() == Some(&self.me)).then_some(ownership.epoch)
    }

    /// The cameras of this node, with their epochs.
    pub fn own(&self) -> impl Iterator<Item = (&CameraId, Epoch)> {
        let own = self.owners.iter();
        let own = own.filter(|(_, ownership)| ownership.owner.as_ref() == Some(&self.me));
        own.map(|(camera, ownership)| (camera, ownership.epoch))
    }

    /// Living nodes, those that leave included.
    fn is_living(&self, node: &NodeId, now: Mono) -> bool {
        // After an outage of the store, others have a lifetime to return.
        let returned = self.connected_at.unwrap_or(now);
        let seen = self
            .nodes
            .get(node)
            .map_or(returned, |seen| seen.at.max(returned));
        now.since(seen) <= DEAD_AFTER
    }

    /// Which node each camera is to have.
    pub fn assignment(&self, now: Mono) -> Assignment {
        let staying = self
            .nodes
            .iter()
            .filter(|(node, seen)| !seen.heartbeat.is_leaving && self.is_living(node, now));
        let nodes = staying.map(|(node, SeenNode { heartbeat, .. })| {
            let offer = NodeOffer {
                capacity_hz: heartbeat.capacity_hz,
                labels: heartbeat.labels.clone(),
                refused: heartbeat.refused.keys().cloned().collect(),
            };
            (node.clone(), offer)
        });
        let cameras = self.cameras.iter();
        let owners = self.owners.iter();
        AssignmentInputs {
            cameras: cameras
                .map(|(id, listed)| (id.clone(), listed.need.clone()))
                .collect(),
            nodes: nodes.collect(),
            owners: owners
                .filter_map(|(camera, ownership)| Some((camera.clone(), ownership.owner.clone()?)))
                .collect(),
        }
        .assign()
    }

    /// Connected, and its own heartbeat was accepted within the lifetime.
    fn can_decide(&self, now: Mono) -> bool {
        let is_fresh = |at: Option<Mono>| at.is_some_and(|at| now.since(at) <= HEARTBEAT_LIFETIME);
        self.connected_at.is_some() && is_fresh(self.renewed_at)
    }

    pub fn basis(&self, prepared: &BTreeSet<CameraId>, now: Mono) -> DecisionBasis {
        let owners = self
            .owners
            .values()
            .filter_map(|ownership| ownership.owner.as_ref());
        let known: BTreeSet<&NodeId> = self.nodes.keys().chain(owners).collect();
        let living = known.into_iter().filter(|node| self.is_living(node, now));
        DecisionBasis {
            revision: self.revision,
            can_decide: self.can_decide(now),
            living: living.cloned().collect(),
            prepared: prepared.clone(),
        }
    }

    /// `prepared` are cameras of other nodes that are connected here already.
    pub fn decide(&self, prepared: &BTreeSet<CameraId>, now: Mono) -> Decisions {
        if !self.can_decide(now) {
            return Decisions::default();
        }
        let assignment = self.assignment(now);
        let mut decisions = Decisions {
            missing_hz: assignment.missing_hz,
            ..Decisions::default()
        };
        let is_leaving = self
            .nodes
            .get(&self.me)
            .is_some_and(|me| me.heartbeat.is_leaving);
        let most_offers = if is_leaving {
            usize::MAX
        } else {
            OFFERED_AT_ONCE
        };
        for (camera, epoch) in self.own() {
            let assigned = assignment.owners.get(camera);
            let has_one_session = self.cameras.get(camera).is_some_and(|c| c.has_one_session);
            match assigned {
                Some(node) if *node == self.me => {}
                Some(node) if !has_one_session => {
                    if decisions.offers.len() < most_offers {
                        decisions.offers.insert(camera.clone(), node.clone());
                    }
                }
                // No node is to have it, or it disconnects first.
                _ => decisions.actions.push(ClaimAction::Release {
                    camera: camera.clone(),
                    epoch,
                }),
            }
        }
        let mine = assignment
            .owners
            .iter()
            .filter(|(_, node)| **node == self.me);
        let claims = mine.filter_map(|(camera, _)| self.claim(camera, prepared, now));
        decisions.actions.extend(claims);
        decisions
    }

    /// What leads to this node owning the camera; `None` when it does, or when another one lives that has not offered it.
    fn claim(
        &self,
        camera: &CameraId,
        prepared: &BTreeSet<CameraId>,
        now: Mono,
    ) -> Option<ClaimAction> {
        let known = self.owners.get(camera);
        let claim = |dead: Option<&NodeId>| ClaimAction::Claim {
            camera: camera.clone(),
            expected: known.map(|known| known.epoch),
            dead: dead.cloned(),
        };
        let Some(owner) = known.and_then(|known| known.owner.as_ref()) else {
            return Some(claim(None));
        };
        if *owner == self.me {
            return None;
        }
        if !self.is_living(owner, now) {
            return Some(claim(Some(owner)));
        }
        let offers = self.nodes.get(owner).map(|seen| &seen.heartbeat.offers);
        let is_offered = offers.is_some_and(|offers| offers.get(camera) == Some(&self.me));
        is_offered.then(|| match prepared.contains(camera) {
            true => claim(None),
            false => ClaimAction::Prepare {
                camera: camera.clone(),
            },
        })
    }
}

#[cfg(test)]
mod tests;
