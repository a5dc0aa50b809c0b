//! What an operator wants to see of a fleet with a shared list. Pure.

use std::collections::BTreeMap;

use spotter_core::{CameraId, Mono, NodeId};

use crate::{entries::Heartbeat, state::FleetState};

/// A fleet as one node sees it. Without ages, so that it changes only with what it says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSummary {
    pub nodes: Vec<NodeSummary>,
    /// Looks of cost 1 a second that cameras ask for and nodes cannot do.
    pub missing_hz: f64,
    /// Cameras of the list without a living owner.
    pub unowned: Vec<CameraId>,
    /// Also those whose owner does not live.
    pub owners: BTreeMap<CameraId, NodeId>,
}

/// A node of a fleet.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSummary {
    pub node: NodeId,
    /// The last one.
    pub heartbeat: Heartbeat,
    /// What its cameras ask for, by the list.
    pub work_hz: f64,
    pub is_living: bool,
}

impl FleetState {
    pub fn view(&self, now: Mono) -> FleetSummary {
        let owners = self.owned_cameras();
        let is_unowned = |camera: &&CameraId| {
            let owner = owners.get(*camera);
            owner.is_none_or(|owner| !self.is_living(owner, now))
        };
        let nodes = self.nodes.iter().map(|(node, seen)| {
            let owned = owners.iter().filter(|(_, owner)| *owner == node);
            let listed = owned.filter_map(|(camera, _)| self.cameras.get(camera));
            NodeSummary {
                node: node.clone(),
                heartbeat: seen.heartbeat.clone(),
                // The sum of nothing is -0.0.
                work_hz: listed.fold(0.0, |sum, need| sum + need.work_hz),
                is_living: self.is_living(node, now),
            }
        });
        FleetSummary {
            nodes: nodes.collect(),
            missing_hz: self.assignment(now).missing_hz,
            unowned: self.cameras.keys().filter(is_unowned).cloned().collect(),
            owners,
        }
    }
}
