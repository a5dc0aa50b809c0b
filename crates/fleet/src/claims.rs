//! What one node of a fleet does now about cameras and owners. Pure: it takes `now` and what the node has seen of the store.
//!
//! ```text
//!   camera without a living owner, assigned to this node     claim       compare-and-swap on the owner's key
//!   own camera, assigned to another node or to none          give up     its events end, its session closes, the node is silent
//!   own camera that was given up                             hand over   the owner writes the next owner, which connects then
//! ```
//!
//! The owner writes its successor, so the one who reads the new epoch knows that the old owner publishes nothing more. Only of a dead owner
//! another node claims.
//!
//! The store does not report a heartbeat that expired, so each node measures the ages of the others' on its own clock, from when they arrived.
//! Nothing compares the clocks of two machines. When a node may decide is in [`certainty`](crate::certainty).
//!
//! A node that connects waits for a lifetime before it takes another one for dead, because after an outage of the store all heartbeats are gone.

use spotter_core::{CameraId, Epoch, Mono, NodeId};

use crate::{
    assignment::{Assignment, AssignmentInputs},
    state::{FleetState, HandOverState},
};

/// Cameras that a node that stays gives up at a time: each is unwatched for some seconds.
const GIVEN_UP_AT_ONCE: usize = 4;

/// What a node does next about a camera.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimAction {
    /// Become the owner if the key's revision is still `expected` (`None`: if there is no key). `dead` is the owner so far, whose
    /// heartbeat must be absent in the store, too.
    Claim {
        camera: CameraId,
        expected: Option<Epoch>,
        dead: Option<NodeId>,
    },
    /// Publish nothing more of it.
    GiveUp { camera: CameraId },
    /// Write the next owner of a camera that was given up; `None`: no node may have it.
    HandOver {
        camera: CameraId,
        epoch: Epoch,
        to: Option<NodeId>,
    },
}

impl FleetState {
    /// True when cameras may be assigned to it.
    fn is_staying(&self, node: &NodeId, now: Mono) -> bool {
        let leaves = self.is_me(node) && self.leaving_since.is_some();
        let takes_part = self.nodes.get(node).is_some_and(|seen| {
            seen.heartbeat.list_revision.is_some() && !seen.heartbeat.is_leaving
        });
        takes_part && !leaves && self.is_living(node, now)
    }

    /// Which node each camera is to have.
    pub fn assignment(&self, now: Mono) -> Assignment {
        let nodes = self.nodes.iter();
        let staying = nodes.filter(|(node, _)| self.is_staying(node, now));
        AssignmentInputs {
            cameras: self.cameras.clone(),
            nodes: staying
                .map(|(node, seen)| (node.clone(), seen.heartbeat.clone()))
                .collect(),
            owners: self.owned_cameras(),
        }
        .assign()
    }

    /// The list is known, or not needed any more, and what is known of the store is new.
    fn can_decide(&self, now: Mono) -> bool {
        let me = self.me.as_ref().and_then(|me| self.nodes.get(me));
        let has_list = me.is_some_and(|me| me.heartbeat.list_revision.is_some());
        let is_ready = has_list || self.leaving_since.is_some();
        is_ready && self.can_write() && self.certainty.is_fresh(now)
    }

    /// `None` while the node knows too little.
    pub fn decide(&self, now: Mono) -> Option<Vec<ClaimAction>> {
        if !self.can_decide(now) {
            return None;
        }
        let assignment = match self.is_leave_over(now) {
            true => Assignment::default(),
            false => self.assignment(now),
        };
        let mut room = match self.leaving_since {
            Some(_) => usize::MAX,
            None => GIVEN_UP_AT_ONCE.saturating_sub(self.hand_overs.len()),
        };
        let mut actions = Vec::new();
        for (camera, epoch) in self.own() {
            let to = assignment.owners.get(camera);
            let is_kept = to.is_some_and(|to| self.is_me(to));
            let camera = camera.clone();
            match self.hand_over(&camera) {
                Some(HandOverState::GivingUp) => {}
                Some(HandOverState::GivenUp) => {
                    let to = to.cloned();
                    actions.push(ClaimAction::HandOver { camera, epoch, to });
                }
                None if is_kept || room == 0 => {}
                None => {
                    room -= 1;
                    actions.push(ClaimAction::GiveUp { camera });
                }
            }
        }
        let mine = assignment.owners.iter();
        let mine = mine.filter(|(_, node)| self.is_me(node));
        actions.extend(mine.filter_map(|(camera, _)| self.claim(camera, now)));
        Some(actions)
    }

    /// What leads to this node owning the camera; `None` when it does, or when another one lives that has not handed it over.
    fn claim(&self, camera: &CameraId, now: Mono) -> Option<ClaimAction> {
        let known = self.owners.get(camera);
        let owner = known.and_then(|known| known.owner.as_ref());
        if owner.is_some_and(|owner| self.is_me(owner) || self.is_living(owner, now)) {
            return None;
        }
        Some(ClaimAction::Claim {
            camera: camera.clone(),
            expected: known.map(|known| known.epoch),
            dead: owner.cloned(),
        })
    }
}

#[cfg(test)]
mod tests;
