//! From what the store reports to a report. Pure: takes `now`.

use std::collections::{BTreeMap, BTreeSet};

use spotter_core::{
    CameraId, Mono, NodeId,
    config::{Environment, check_camera_list},
};
use spotter_fleet::{
    entries::{ListRevision, StoreEvent},
    state::FleetState,
    summary::{FleetSummary, NodeSummary},
};

use super::report::{
    OwnerState, RoomCamera, RoomHeartbeat, RoomNode, RoomNodeProblem, RoomNodeState, RoomProblem,
    RoomReport,
};
use crate::app::costs::CostBasis;

/// A smaller lack of looks a second is one of rounding.
const LEAST_MISSING_HZ: f64 = 0.005;

/// Whether a report names each camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShownCameras {
    None,
    Each,
}

/// The newest list of cameras.
enum NewestList {
    Absent,
    Read(u64),
    /// Cameras are those of the last list that could be read.
    Unreadable {
        revision: u64,
        errors: Vec<String>,
    },
}

/// The store of one fleet.
pub struct RoomView {
    fleet: NodeId,
    costs: CostBasis,
    environment: Environment,
    state: FleetState,
    list: NewestList,
    /// What the cameras of the list ask for, looks of cost 1 a second.
    work_hz: BTreeMap<CameraId, f64>,
    /// Cameras that nodes cannot watch, with the reason.
    refused: BTreeMap<NodeId, BTreeMap<CameraId, String>>,
}

impl RoomView {
    pub fn new(fleet: NodeId, costs: CostBasis, environment: Environment) -> Self {
        Self {
            fleet,
            costs,
            environment,
            state: FleetState::reader(),
            list: NewestList::Absent,
            work_hz: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }

    /// The store is connected, and has sent all owners.
    pub fn is_current(&self) -> bool {
        self.state.is_current()
    }

    pub fn see(&mut self, event: StoreEvent, now: Mono) {
        match &event {
            StoreEvent::List(list) => self.read_list(list),
            StoreEvent::Heartbeat(entry) => {
                let refused = entry.heartbeat.refused.clone();
                self.refused.insert(entry.node.clone(), refused);
            }
            _ => {}
        }
        self.state.see(event, now);
    }

    fn read_list(&mut self, list: &ListRevision) {
        let revision = list.revision;
        match check_camera_list("list", &list.text, &self.environment) {
            Ok(read) => {
                let listed = self.costs.listed_cameras(&read.cameras);
                let works = listed.iter();
                self.work_hz = works
                    .map(|(id, listed)| (id.clone(), listed.work_hz))
                    .collect();
                self.state.set_cameras(listed);
                self.list = NewestList::Read(revision);
            }
            Err(problems) => {
                let errors = problems.iter().map(ToString::to_string).collect();
                self.list = NewestList::Unreadable { revision, errors };
            }
        }
    }

    pub fn report(&self, now: Mono, shown: ShownCameras) -> RoomReport {
        let summary = self.state.view(now);
        let owned = self.owned(&summary);
        let living = summary.nodes.iter().filter(|node| node.is_living);
        let living: BTreeMap<&NodeId, &NodeSummary> =
            living.map(|node| (&node.node, node)).collect();
        let owners = owned.keys().copied();
        let ids: BTreeSet<&NodeId> = living.keys().copied().chain(owners).collect();
        let nodes = ids.into_iter().map(|id| {
            let cameras = owned.get(id).map_or(&[][..], Vec::as_slice);
            match living.get(id) {
                Some(node) => self.living_node(node, cameras),
                None => self.gone_node(id, cameras),
            }
        });
        let cameras = self.work_hz.iter().map(|(camera, work_hz)| {
            let node = summary.owners.get(camera);
            RoomCamera {
                camera: camera.clone(),
                node: node.cloned(),
                state: match node {
                    None => OwnerState::Unowned,
                    Some(node) if living.contains_key(node) => OwnerState::Owned,
                    Some(_) => OwnerState::Waiting,
                },
                work_hz: *work_hz,
            }
        });
        let nodes: Vec<RoomNode> = nodes.collect();
        RoomReport {
            fleet: self.fleet.clone(),
            list_revision: self.revision(),
            problems: self.problems(&summary, living.is_empty()),
            nodes,
            camera_count: self.work_hz.len(),
            missing_hz: summary.missing_hz,
            cameras: (shown == ShownCameras::Each).then(|| cameras.collect()),
        }
    }

    /// The cameras of the list by their owner: the store keeps owners of cameras that are in no list any more.
    fn owned<'a>(&'a self, summary: &'a FleetSummary) -> BTreeMap<&'a NodeId, Vec<&'a CameraId>> {
        let mut owned: BTreeMap<&NodeId, Vec<&CameraId>> = BTreeMap::new();
        for camera in self.work_hz.keys() {
            if let Some(node) = summary.owners.get(camera) {
                owned.entry(node).or_default().push(camera);
            }
        }
        owned
    }

    fn revision(&self) -> Option<u64> {
        match self.list {
            NewestList::Absent => None,
            NewestList::Read(revision) | NewestList::Unreadable { revision, .. } => Some(revision),
        }
    }

    fn work_of(&self, cameras: &[&CameraId]) -> f64 {
        let works = cameras
            .iter()
            .filter_map(|camera| self.work_hz.get(*camera));
        // The sum of nothing is -0.0.
        works.fold(0.0, |sum, work| sum + work)
    }

    fn living_node(&self, node: &NodeSummary, cameras: &[&CameraId]) -> RoomNode {
        let refused = self.refused.get(&node.node).cloned().unwrap_or_default();
        let work_hz = self.work_of(cameras);
        let has_capacity = node.capacity_hz > 0.0;
        let mut problems = Vec::new();
        if let Some(newest) = self.revision()
            && node.list_revision != Some(newest)
            && !node.is_leaving
        {
            let revision = node.list_revision;
            problems.push(RoomNodeProblem::OtherList { revision, newest });
        }
        problems.extend(refused.iter().map(|(camera, reason)| {
            let (camera, reason) = (camera.clone(), reason.clone());
            RoomNodeProblem::Refused { camera, reason }
        }));
        RoomNode {
            node: node.node.clone(),
            state: match node.is_leaving {
                true => RoomNodeState::Leaving,
                false => RoomNodeState::Online,
            },
            heartbeat: Some(RoomHeartbeat {
                version: node.version.clone(),
                labels: node.labels.iter().cloned().collect(),
                capacity_hz: node.capacity_hz,
                list_revision: node.list_revision,
                refused,
            }),
            work_hz,
            load_pct: has_capacity.then(|| work_hz / node.capacity_hz * 100.0),
            cameras: cameras.len(),
            problems,
        }
    }

    fn gone_node(&self, node: &NodeId, cameras: &[&CameraId]) -> RoomNode {
        let waiting = cameras.iter().map(|camera| (*camera).clone());
        let gone = RoomNodeProblem::Gone {
            cameras: waiting.collect(),
        };
        RoomNode {
            node: node.clone(),
            state: RoomNodeState::Gone,
            heartbeat: None,
            work_hz: self.work_of(cameras),
            load_pct: None,
            cameras: cameras.len(),
            problems: vec![gone],
        }
    }

    /// Those that are no node's.
    fn problems(&self, summary: &FleetSummary, is_empty: bool) -> Vec<RoomProblem> {
        let mut problems = Vec::new();
        if is_empty {
            problems.push(RoomProblem::NoNodes);
        }
        match &self.list {
            NewestList::Absent => problems.push(RoomProblem::NoList),
            NewestList::Read(_) => {}
            NewestList::Unreadable { revision, errors } => {
                let (revision, errors) = (*revision, errors.clone());
                problems.push(RoomProblem::ListUnreadable { revision, errors });
            }
        }
        let unowned = self.work_hz.keys();
        let unowned = unowned.filter(|camera| !summary.owners.contains_key(*camera));
        let cameras: Vec<CameraId> = unowned.cloned().collect();
        if !cameras.is_empty() {
            problems.push(RoomProblem::NoOwner { cameras });
        }
        if summary.missing_hz >= LEAST_MISSING_HZ {
            let missing_hz = summary.missing_hz;
            problems.push(RoomProblem::MissingLooks { missing_hz });
        }
        problems
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
