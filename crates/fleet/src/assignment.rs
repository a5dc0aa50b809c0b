//! Assigns each camera of a fleet to a node by load, labels and priority. Pure.
//!
//! ```text
//!   load of a node = sum of its cameras' work / capacity         both in looks of cost 1 a second
//!
//!   kept      a camera stays with its node while that node lives and may have it
//!   placed    a camera without one: rendezvous hashing, weighted by capacity, among the nodes below the mean load
//!   moved     a camera of a busy node to one that is clearly less busy with it
//! ```
//!
//! With rendezvous hashing, nodes whose views differ a little choose the same node for most cameras, and the cameras of a lost node spread over
//! the others. Every move lowers the larger load of two nodes, so moves end while loads stay the same. The result is stable: an assignment of what
//! was assigned is the same again.
//!
//! If the fleet has too little capacity, its cameras share the lack: loads are balanced above 1. With several priorities, only cameras of the
//! highest one share it; others get a node where there is room, and else none.

use std::collections::BTreeMap;

use spotter_core::{CameraId, NodeId};
use xxhash_rust::xxh3::xxh3_64;

use crate::entries::Heartbeat;

/// What a camera asks of a node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CameraNeed {
    /// Looks of cost 1 a second.
    pub work_hz: f64,
    /// A label that its node must have; `None`: any node.
    pub label: Option<String>,
    /// Higher ones come first.
    pub priority: u8,
}

/// Weighted rendezvous hashing: of all candidates, the one with the highest rank has the camera, each in proportion to its weight.
pub fn rank(candidate: &str, weight: f64, camera: &CameraId) -> f64 {
    let hash = xxh3_64(format!("{candidate}/{camera}").as_bytes());
    // In (0, 1): the upper 53 bits, in the middle of their step.
    let uniform = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -weight / uniform.ln()
}

/// What an assignment follows from.
#[derive(Clone, Debug, Default)]
pub struct AssignmentInputs {
    pub cameras: BTreeMap<CameraId, CameraNeed>,
    /// What nodes that live and stay can do.
    pub nodes: BTreeMap<NodeId, Heartbeat>,
    /// Of the cameras that have one; nodes that are not in `nodes` count as none.
    pub owners: BTreeMap<CameraId, NodeId>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    /// Cameras that no node may have or has room for are not in it.
    pub owners: BTreeMap<CameraId, NodeId>,
    /// Looks of cost 1 a second that cameras ask for and nodes cannot do.
    pub missing_hz: f64,
}

/// A node below this load has room for all its cameras: nothing is gained by a move.
const BUSY_LOAD: f64 = 0.5;
/// How many times the load of the node that a camera comes to, with it, the load of the node is that it leaves. Measured capacities vary by less.
const GAIN: f64 = 1.25;
/// A camera is placed on a node that is at most this much above the mean load with it.
const ABOVE_MEAN: f64 = 1.05;
/// A camera of lower priority leaves a node above this load, and comes to one up to [`FULL_LOAD_TO_COME`].
const FULL_LOAD_TO_LEAVE: f64 = 1.1;
const FULL_LOAD_TO_COME: f64 = 0.95;

impl AssignmentInputs {
    pub fn assign(&self) -> Assignment {
        let mut placement = CameraPlacement::new(self);
        let mut cameras: Vec<_> = self.cameras.iter().collect();
        cameras.sort_by_key(|(_, need)| std::cmp::Reverse(need.priority));
        for class in cameras.chunk_by(|a, b| a.1.priority == b.1.priority) {
            placement.assign_class(class);
        }
        placement.finish()
    }

    fn may_have(&self, node: &NodeId, camera: &CameraId, need: &CameraNeed) -> bool {
        self.nodes.get(node).is_some_and(|offer| {
            let label = need.label.as_ref();
            let has_label = label.is_none_or(|label| offer.labels.contains(label));
            has_label && offer.capacity_hz > 0.0 && !offer.refused.contains_key(camera)
        })
    }
}

/// An assignment while it is made.
struct CameraPlacement<'a> {
    view: &'a AssignmentInputs,
    owners: BTreeMap<&'a CameraId, &'a NodeId>,
    /// Work of each node, looks of cost 1 a second.
    work_hz: BTreeMap<&'a NodeId, f64>,
    mean_load: f64,
    highest_priority: u8,
}

impl<'a> CameraPlacement<'a> {
    fn new(view: &'a AssignmentInputs) -> Self {
        let work: f64 = view.cameras.values().map(|need| need.work_hz).sum();
        let capacity: f64 = view.nodes.values().map(|offer| offer.capacity_hz).sum();
        let priorities = view.cameras.values().map(|need| need.priority);
        Self {
            view,
            owners: BTreeMap::new(),
            work_hz: view.nodes.keys().map(|node| (node, 0.0)).collect(),
            mean_load: work / capacity,
            highest_priority: priorities.max().unwrap_or_default(),
        }
    }

    /// Its load if it had this much more work; of a node that lives.
    fn load_with(&self, node: &NodeId, more_hz: f64) -> f64 {
        (self.work_hz[node] + more_hz) / self.view.nodes[node].capacity_hz
    }

    fn put(&mut self, camera: &'a CameraId, node: &'a NodeId) {
        let work = self.view.cameras[camera].work_hz;
        if let Some(before) = self.owners.insert(camera, node) {
            *self.work_hz.entry(before).or_default() -= work;
        }
        *self.work_hz.entry(node).or_default() += work;
    }

    /// Cameras of one priority, behind those of higher ones.
    fn assign_class(&mut self, class: &[(&'a CameraId, &'a CameraNeed)]) {
        let (kept, mut others): (Vec<_>, Vec<_>) =
            class.iter().partition(|(id, need)| self.can_stay(id, need));
        for (id, _) in kept {
            self.put(id, &self.view.owners[id]);
        }
        // A move can make room.
        loop {
            others.retain(|(id, need)| match self.place(id, need) {
                Some(node) => {
                    self.put(id, node);
                    false
                }
                None => true,
            });
            let mut is_moved = false;
            while let Some((camera, to)) = self.best_move(class) {
                self.put(camera, to);
                is_moved = true;
            }
            if !is_moved {
                return;
            }
        }
    }

    /// Cameras of the highest priority stay wherever they may be.
    fn can_stay(&self, camera: &CameraId, need: &CameraNeed) -> bool {
        let Some(node) = self.view.owners.get(camera) else {
            return false;
        };
        self.view.may_have(node, camera, need)
            && (need.priority == self.highest_priority
                || self.load_with(node, need.work_hz) <= FULL_LOAD_TO_LEAVE)
    }

    fn place(&self, camera: &CameraId, need: &CameraNeed) -> Option<&'a NodeId> {
        let nodes = self.view.nodes.iter();
        let allowed = nodes.filter(|(node, _)| self.view.may_have(node, camera, need));
        let allowed: Vec<(&'a NodeId, &'a Heartbeat, f64)> = allowed
            .map(|(node, offer)| (node, offer, self.load_with(node, need.work_hz)))
            .collect();
        let preferred = (self.mean_load * ABOVE_MEAN).min(self.most_load(need));
        let preferred = allowed.iter().filter(|(.., load)| *load <= preferred);
        let preferred = preferred
            .map(|(node, offer, _)| (*node, rank(node.as_str(), offer.capacity_hz, camera)))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map(|(node, _)| node);
        let least_busy = || {
            let least = allowed.iter().min_by(|a, b| a.2.total_cmp(&b.2));
            let least = least.filter(|(.., load)| *load <= self.most_load(need));
            least.map(|(node, ..)| *node)
        };
        preferred.or_else(least_busy)
    }

    /// From the busiest node from which a move is worth it: the one after which the larger load of the two nodes is the smallest.
    fn best_move(
        &self,
        class: &[(&'a CameraId, &'a CameraNeed)],
    ) -> Option<(&'a CameraId, &'a NodeId)> {
        let nodes = self.view.nodes.keys();
        let loads = nodes.map(|node| (node, self.load_with(node, 0.0)));
        let loads: Vec<(&'a NodeId, f64)> = loads.collect();
        let least = loads.iter().map(|(_, load)| *load);
        let least = least.fold(f64::INFINITY, f64::min);
        let mut busiest = loads.clone();
        // No node is clearly less busy than the others: most often, no move is looked for.
        busiest.retain(|(_, load)| *load >= BUSY_LOAD && least * GAIN <= *load);
        if busiest.is_empty() {
            return None;
        }
        busiest.sort_by(|a, b| b.1.total_cmp(&a.1));
        let mut cameras: BTreeMap<&NodeId, Vec<_>> = BTreeMap::new();
        for (camera, need) in class {
            if let Some(node) = self.owners.get(camera) {
                cameras.entry(node).or_default().push((*camera, *need));
            }
        }
        busiest.into_iter().find_map(|(from, load)| {
            let others = loads.iter().filter(|(node, _)| *node != from);
            let others = others.filter(|(_, less)| *less * GAIN <= load);
            let others: Vec<&'a NodeId> = others.map(|(node, _)| *node).collect();
            let of_it = cameras.get(from).into_iter().flatten();
            let moves = of_it.flat_map(|&(camera, need)| {
                let others = others.iter().copied();
                let allowed = others.filter(move |node| self.view.may_have(node, camera, need));
                allowed.filter_map(move |to| {
                    let received = self.load_with(to, need.work_hz);
                    let is_worth = received * GAIN <= load && received <= self.most_load(need);
                    let left = self.load_with(from, -need.work_hz);
                    is_worth.then_some((left.max(received), camera, to))
                })
            });
            let best = moves.min_by(|a, b| a.0.total_cmp(&b.0));
            best.map(|(_, camera, to)| (camera, to))
        })
    }

    /// Up to which load a node may come with that camera.
    fn most_load(&self, need: &CameraNeed) -> f64 {
        match need.priority == self.highest_priority {
            true => f64::INFINITY,
            false => FULL_LOAD_TO_COME,
        }
    }

    fn finish(self) -> Assignment {
        let is_left = |camera: &&CameraId| !self.owners.contains_key(camera);
        let left = self.view.cameras.keys().filter(is_left);
        let without: f64 = left.map(|camera| self.view.cameras[camera].work_hz).sum();
        let work = self.work_hz.iter();
        let beyond = work.map(|(node, work)| (work - self.view.nodes[*node].capacity_hz).max(0.0));
        // The sum of nothing is -0.0.
        let missing_hz = beyond.fold(0.0 + without, |sum, hz| sum + hz);
        let owned = self.owners.into_iter();
        Assignment {
            owners: owned
                .map(|(camera, node)| (camera.clone(), node.clone()))
                .collect(),
            missing_hz,
        }
    }
}

#[cfg(test)]
mod tests;
