//! The cameras below a name, and which of them belong to a fleet: a name with `owner` topics is a fleet's. Pure.
//!
//! Below a fleet's name are the states of its cameras only. What a camera publishes there is its owner's, so its health counts for that node.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Deserialize, Serialize};
use spotter_core::{CameraId, Epoch, NodeId};
use spotter_mqtt::{CameraHealth, CameraOwner};

use super::report::{FleetNode, NodeState};

/// A camera's health, with the epoch of its owner in a fleet.
#[derive(Deserialize)]
pub struct PublishedHealth {
    #[serde(flatten)]
    pub health: CameraHealth,
    #[serde(default)]
    epoch: Option<Epoch>,
}

pub type HealthValue = Result<PublishedHealth, String>;

/// The topics of cameras below one name.
#[derive(Default)]
pub struct CameraTopics {
    health: BTreeMap<CameraId, HealthValue>,
    owners: BTreeMap<CameraId, Result<CameraOwner, String>>,
}

impl CameraTopics {
    /// `None`: the topic was cleared.
    pub fn set_health(&mut self, camera: CameraId, value: Option<HealthValue>) {
        match value {
            Some(health) => drop(self.health.insert(camera, health)),
            None => drop(self.health.remove(&camera)),
        }
    }

    pub fn set_owner(&mut self, camera: CameraId, value: Option<Result<CameraOwner, String>>) {
        match value {
            Some(owner) => drop(self.owners.insert(camera, owner)),
            None => drop(self.owners.remove(&camera)),
        }
    }

    pub fn is_fleet(&self) -> bool {
        !self.owners.is_empty()
    }

    pub fn with_health(&self) -> impl Iterator<Item = &CameraId> {
        self.health.keys()
    }

    pub fn health(&self, camera: &CameraId) -> Option<&HealthValue> {
        self.health.get(camera)
    }

    /// What the owner of that epoch published; an earlier one may have left its last state.
    fn health_since(&self, camera: &CameraId, epoch: Epoch) -> Option<&HealthValue> {
        let is_old = |health: &PublishedHealth| health.epoch.is_some_and(|of| of < epoch);
        let health = self.health.get(camera)?;
        let is_its = !health.as_ref().is_ok_and(is_old);
        is_its.then_some(health)
    }
}

/// The cameras of all fleets, by the node that owns them.
#[derive(Default)]
pub struct OwnedCameras<'a> {
    of_nodes: BTreeMap<&'a NodeId, BTreeMap<&'a CameraId, Option<&'a HealthValue>>>,
    all: BTreeSet<&'a CameraId>,
}

impl<'a> OwnedCameras<'a> {
    pub fn of(fleets: impl Iterator<Item = &'a CameraTopics>) -> Self {
        let mut owned = Self::default();
        for fleet in fleets {
            for (camera, owner) in &fleet.owners {
                owned.all.insert(camera);
                if let Ok(owner) = owner
                    && let Some(node) = &owner.node
                {
                    let health = fleet.health_since(camera, owner.epoch);
                    let of_node = owned.of_nodes.entry(node).or_default();
                    of_node.insert(camera, health);
                }
            }
        }
        owned
    }

    pub fn of_node(&self, node: &NodeId) -> impl Iterator<Item = &'a CameraId> {
        let cameras = self.of_nodes.get(node);
        cameras
            .into_iter()
            .flat_map(|cameras| cameras.keys().copied())
    }

    /// `None`: the node does not own it. `Some(None)`: it has published no health of it.
    pub fn health(&self, node: &NodeId, camera: &CameraId) -> Option<Option<&'a HealthValue>> {
        self.of_nodes.get(node)?.get(camera).copied()
    }

    /// It is a fleet's, and this node does not own it.
    pub fn is_of_another(&self, node: &NodeId, camera: &CameraId) -> bool {
        let cameras = self.of_nodes.get(node);
        self.all.contains(camera) && !cameras.is_some_and(|cameras| cameras.contains_key(camera))
    }
}

/// A fleet whose nodes share cameras.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SharedFleet {
    pub fleet: String,
    pub cameras: Vec<OwnedFleetCamera>,
    pub problems: Vec<FleetProblem>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OwnedFleetCamera {
    pub camera: String,
    /// `None`: no node has it, or that cannot be read.
    pub node: Option<String>,
}

/// A reason for the exit code that is no node's.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FleetProblem {
    NoOwner {
        camera: String,
    },
    /// It is not online.
    OwnerDown {
        camera: String,
        node: String,
        state: NodeState,
    },
    OwnerUnreadable {
        camera: String,
        error: String,
    },
    /// Their topics cannot be distinguished.
    NameOfNode,
}

impl SharedFleet {
    pub fn of(name: &NodeId, topics: &CameraTopics, nodes: &BTreeMap<NodeId, FleetNode>) -> Self {
        let cameras = topics
            .owners
            .iter()
            .map(|(camera, owner)| OwnedFleetCamera {
                camera: camera.to_string(),
                node: owner
                    .as_ref()
                    .ok()
                    .and_then(|owner| owner.node.as_ref().map(NodeId::to_string)),
            });
        let state = |node: &NodeId| {
            nodes
                .get(node)
                .map_or(NodeState::Unknown, |node| node.state)
        };
        let wrong = topics.owners.iter().filter_map(|(camera, owner)| {
            let camera = camera.to_string();
            match owner {
                Err(error) => {
                    let error = error.clone();
                    Some(FleetProblem::OwnerUnreadable { camera, error })
                }
                Ok(CameraOwner { node: None, .. }) => Some(FleetProblem::NoOwner { camera }),
                Ok(CameraOwner { node: Some(n), .. }) if state(n) == NodeState::Online => None,
                Ok(CameraOwner { node: Some(n), .. }) => Some(FleetProblem::OwnerDown {
                    camera,
                    node: n.to_string(),
                    state: state(n),
                }),
            }
        });
        let name_of_node = nodes.contains_key(name).then_some(FleetProblem::NameOfNode);
        Self {
            fleet: name.to_string(),
            cameras: cameras.collect(),
            problems: name_of_node.into_iter().chain(wrong).collect(),
        }
    }
}

impl fmt::Display for FleetProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOwner { camera } => write!(f, "camera {camera}: no box has it"),
            Self::OwnerDown {
                camera,
                node,
                state,
            } => write!(f, "camera {camera}: its box {node} is {}", state.word()),
            Self::OwnerUnreadable { camera, error } => {
                write!(f, "camera {camera}: its owner cannot be read: {error}")
            }
            Self::NameOfNode => {
                f.write_str("a node has the name of this fleet; give one of them another name")
            }
        }
    }
}
