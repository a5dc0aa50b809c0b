//! What an operator wants to see of a fleet with a shared list. Pure.

use std::collections::{BTreeMap, BTreeSet};

use spotter_core::{CameraId, NodeId};

/// A fleet as one node or a reader sees it. Without ages, so that it changes only with what it says.
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

/// A node of a fleet, by its last heartbeat.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeSummary {
    pub node: NodeId,
    pub version: String,
    pub labels: BTreeSet<String>,
    /// Looks of cost 1 a second.
    pub capacity_hz: f64,
    /// What its cameras ask for, by the list.
    pub work_hz: f64,
    /// Cameras that it owns.
    pub cameras: usize,
    /// Cameras of the list that it cannot watch.
    pub refused: usize,
    pub is_living: bool,
    pub is_leaving: bool,
    /// The list that it follows.
    pub list_revision: Option<u64>,
}
