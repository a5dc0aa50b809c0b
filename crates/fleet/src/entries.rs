//! What the store of a fleet holds, and what a watch of it reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use spotter_core::{CameraId, Epoch, NodeId};

/// How often a node renews its heartbeat.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);
/// How long a heartbeat lives in the store.
pub const HEARTBEAT_LIFETIME: Duration = Duration::from_secs(10);

/// The value of a node's key, renewed every [`HEARTBEAT_PERIOD`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The program's version.
    pub version: String,
    /// What distinguishes two machines with one node name.
    #[serde(default)]
    pub machine: String,
    /// The list of cameras that the node follows; `None`: none yet, so that it can have no cameras.
    #[serde(default)]
    pub list_revision: Option<u64>,
    /// Looks of cost 1 a second.
    pub capacity_hz: f64,
    pub labels: BTreeSet<String>,
    /// Cameras that it cannot watch, with the reason.
    #[serde(default)]
    pub refused: BTreeMap<CameraId, String>,
    /// Own cameras that other nodes are to prepare.
    #[serde(default)]
    pub offers: BTreeMap<CameraId, NodeId>,
    /// Cameras that others offer to it and that are connected there.
    #[serde(default)]
    pub prepared: BTreeSet<CameraId>,
    /// It stops: its cameras are for others.
    #[serde(default)]
    pub is_leaving: bool,
}

/// A heartbeat as the watch reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatEntry {
    pub node: NodeId,
    pub heartbeat: Heartbeat,
    /// Of the bucket: it rises with each heartbeat of any node.
    pub revision: u64,
}

/// The owner of a camera, and the revision of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// `None`: released.
    pub owner: Option<NodeId>,
    pub epoch: Epoch,
}

/// A revision of the list of cameras.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRevision {
    pub revision: u64,
    pub text: String,
}

/// What changed in the store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// All current values follow, then [`StoreEvent::Current`].
    Connected,
    /// All owners were reported.
    Current,
    Disconnected {
        reason: String,
    },
    List(ListRevision),
    Heartbeat(HeartbeatEntry),
    /// A node has removed its heartbeat.
    Stopped(NodeId),
    Owned(CameraId, Ownership),
    /// What commands have changed at a camera; `None`: nothing any more.
    Settings {
        camera: CameraId,
        text: Option<String>,
    },
}
