//! From messages to a report: the newest value of each topic. Pure.
//!
//! Clocks of nodes may differ by hours, so no time of a message is compared with the clock of this machine. Every node publishes `stats` every
//! 10 s: a node that is `online` and of which nothing arrives while the command listens is silent.
//!
//! A name below the base is a node's, or with `owner` topics that of a fleet. Below a fleet's name are the states of its cameras only. What a camera
//! publishes there is its owner's, so its health counts for that node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, de::DeserializeOwned};

use super::report::{
    FleetCamera, FleetNode, FleetReport, NodeState, OwnedFleetCamera, Problem, SharedFleet,
};
use crate::cli::table::known as shown;
use spotter_core::{CameraId, Epoch, NodeId};
use spotter_mqtt::{
    CameraHealth, CameraOwner, ConfigReport, ConfigState, Inbound, Info, NodeTopic, Stats,
    read_json, read_status,
};

/// `info` has this among its features when it does not list all cameras.
const SHORTENED: &str = "info_shortened";

/// The value of a topic: absent, read, or not readable.
type TopicValue<T> = Option<Result<T, String>>;

/// A camera's health, with the epoch of its owner in a fleet.
#[derive(Deserialize)]
struct PublishedHealth {
    #[serde(flatten)]
    health: CameraHealth,
    #[serde(default)]
    epoch: Option<Epoch>,
}

type HealthValue = Result<PublishedHealth, String>;

/// All nodes and fleets below a base.
pub struct FleetView {
    base: String,
    names: BTreeMap<NodeId, NamedTopics>,
}

/// What is below one name.
#[derive(Default)]
struct NamedTopics {
    online: TopicValue<bool>,
    info: TopicValue<Info>,
    config: TopicValue<ConfigReport>,
    stats: TopicValue<Stats>,
    health: BTreeMap<CameraId, HealthValue>,
    /// Of a fleet.
    owners: BTreeMap<CameraId, Result<CameraOwner, String>>,
    /// A message arrived that was not retained.
    has_published: bool,
    /// `stats` of another run than that of `info` arrived.
    has_two_runs: bool,
}

impl FleetView {
    pub fn new(base: &str) -> Self {
        Self {
            base: base.to_owned(),
            names: BTreeMap::new(),
        }
    }

    pub fn receive(&mut self, message: &Inbound) {
        if let Some((name, topic)) = NodeTopic::parse(&self.base, &message.topic) {
            self.names.entry(name).or_default().receive(topic, message);
        }
    }

    /// `has_listened`: long enough to know which nodes publish nothing.
    pub fn report(&self, has_listened: bool) -> FleetReport {
        let nodes = self.names.iter().filter(|(_, topics)| topics.is_node());
        let nodes = nodes.map(|(id, topics)| {
            let cameras = self.cameras(id, topics);
            (id, topics.report(id, cameras, has_listened))
        });
        let nodes: BTreeMap<&NodeId, FleetNode> = nodes.collect();
        let fleets = self.names.iter().filter(|(_, topics)| topics.is_fleet());
        FleetReport {
            base: self.base.clone(),
            fleets: fleets.map(|(id, fleet)| fleet.shared(id, &nodes)).collect(),
            nodes: nodes.into_values().collect(),
        }
    }

    /// The configured cameras, and those of fleets that the node owns; those with a health message when `info` does not list all.
    fn cameras(&self, id: &NodeId, topics: &NamedTopics) -> Vec<FleetCamera> {
        let info = known(&topics.info);
        let is_complete = info.is_some_and(|info| !info.features.iter().any(|of| of == SHORTENED));
        let configured = info.iter().flat_map(|info| &info.cams);
        let configured = configured.filter_map(|camera| CameraId::new(&camera.id).ok());
        let mut ids: BTreeSet<CameraId> = configured.collect();
        if !is_complete && !topics.is_fleet() {
            ids.extend(topics.health.keys().cloned());
        }
        let with_health = |id: CameraId| {
            let health = topics.health.get(&id);
            (id, health)
        };
        let mut cameras: BTreeMap<_, _> = ids.into_iter().map(with_health).collect();
        for fleet in self.names.values() {
            for (camera, owner) in &fleet.owners {
                let owner = owner.as_ref().ok();
                if let Some(owner) = owner.filter(|owner| owner.node.as_ref() == Some(id)) {
                    let health = fleet.health_since(camera, owner.epoch);
                    cameras.insert(camera.clone(), health);
                } else if cameras.get(camera).is_some_and(Option::is_none) {
                    // `info` follows a little later when a camera gets another owner.
                    cameras.remove(camera);
                }
            }
        }
        let reported = |(camera, health): (CameraId, _)| reported(&camera, health);
        cameras.into_iter().map(reported).collect()
    }
}

fn reported(camera: &CameraId, health: Option<&HealthValue>) -> FleetCamera {
    let (state, reason) = match health {
        None => ("missing", None),
        Some(Err(error)) => ("unreadable", Some(error.clone())),
        Some(Ok(PublishedHealth { health, .. })) => (health.state.as_str(), health.reason.clone()),
    };
    FleetCamera {
        camera: camera.to_string(),
        state,
        reason,
    }
}

/// An empty payload clears a topic.
fn value<T>(payload: &[u8], read: impl FnOnce(&[u8]) -> Result<T, String>) -> TopicValue<T> {
    (!payload.is_empty()).then(|| read(payload))
}

fn json<T: DeserializeOwned>(payload: &[u8]) -> TopicValue<T> {
    value(payload, read_json)
}

fn known<T>(value: &TopicValue<T>) -> Option<&T> {
    value.as_ref()?.as_ref().ok()
}

fn set<T>(values: &mut BTreeMap<CameraId, T>, camera: CameraId, value: Option<T>) {
    match value {
        Some(value) => drop(values.insert(camera, value)),
        None => drop(values.remove(&camera)),
    }
}

impl NamedTopics {
    fn receive(&mut self, topic: NodeTopic, message: &Inbound) {
        let payload = &message.payload;
        let is_offline = topic == NodeTopic::Status && read_status(payload) == Ok(false);
        // The broker publishes `offline` for a node, and anyone may clear a topic.
        self.has_published |= !message.retained && !is_offline && !payload.is_empty();
        match topic {
            NodeTopic::Status => self.online = value(payload, read_status),
            NodeTopic::Config => self.config = json(payload),
            NodeTopic::Info => self.info = json(payload),
            NodeTopic::Stats => {
                self.stats = json(payload);
                // The broker keeps the order of a client's messages. A node of an earlier version does not name the run.
                let run = known(&self.stats).map_or(0, |stats| stats.started_ms);
                let announced = known(&self.info).map(|info| info.started_ms);
                self.has_two_runs |=
                    !message.retained && run != 0 && announced.is_some_and(|known| known != run);
            }
            NodeTopic::Owner(camera) => set(&mut self.owners, camera, json(payload)),
            NodeTopic::Health(camera) => set(&mut self.health, camera, json(payload)),
        }
    }

    fn is_fleet(&self) -> bool {
        !self.owners.is_empty()
    }

    /// False for a fleet's name, and when all topics were cleared: the node was removed.
    fn is_node(&self) -> bool {
        self.online.is_some()
            || self.info.is_some()
            || self.config.is_some()
            || self.stats.is_some()
            || (!self.is_fleet() && !self.health.is_empty())
    }

    /// What the owner of that epoch published; an earlier one may have left its last state.
    fn health_since(&self, camera: &CameraId, epoch: Epoch) -> Option<&HealthValue> {
        let is_old = |health: &PublishedHealth| health.epoch.is_some_and(|of| of < epoch);
        let health = self.health.get(camera);
        health.filter(|health| !health.as_ref().is_ok_and(is_old))
    }

    fn report(&self, id: &NodeId, cameras: Vec<FleetCamera>, has_listened: bool) -> FleetNode {
        let info = known(&self.info);
        let state = match known(&self.online) {
            None => NodeState::Unknown,
            Some(false) => NodeState::Offline,
            Some(true) if has_listened && !self.has_published => NodeState::Silent,
            Some(true) => NodeState::Online,
        };
        FleetNode {
            node: id.to_string(),
            state,
            version: info.map(|info| info.daemon.version.clone()),
            host: info.map(|info| info.host.clone()),
            config: match known(&self.config).map(|config| config.state) {
                None => "unknown",
                Some(ConfigState::Ok) => "accepted",
                Some(ConfigState::Rejected) => "rejected",
            },
            problems: self.problems(state, &cameras),
            cameras,
            figures: known(&self.stats).cloned(),
        }
    }

    /// Of a node that does not publish, the last states of its cameras say nothing about now.
    fn problems(&self, state: NodeState, cameras: &[FleetCamera]) -> Vec<Problem> {
        fn wrong<T>(topic: &str, value: &TopicValue<T>) -> Option<Problem> {
            let error = value.as_ref()?.as_ref().err()?;
            let text = format!("{topic} cannot be read: {error}");
            Some(Problem::new("unreadable", text))
        }
        let (info, stats) = (known(&self.info), known(&self.stats));
        let last = last_figures(stats);
        let of_state = match state {
            NodeState::Online => None,
            NodeState::Offline => Some(Problem::new("offline", format!("offline{last}"))),
            NodeState::Silent => {
                let text = format!("silent: its status is online, but it publishes nothing{last}");
                Some(Problem::new("silent", text))
            }
            NodeState::Unknown => Some(Problem::new("no_status", "no status")),
        };
        let two = info.filter(|_| self.has_two_runs).map(|info| {
            let hosts = &info.host;
            let text = format!("two daemons publish as this node (known hosts: {hosts}); give each box its own node.name");
            Problem::new("two_daemons", text)
        });
        let no_info = self.info.is_none().then(|| {
            Problem::new(
                "no_info",
                "no info; its cameras and its version are unknown",
            )
        });
        let config = known(&self.config).filter(|config| config.state == ConfigState::Rejected);
        let rejected = config.map(|config| {
            let errors = config.errors.join("; ");
            let text = format!("configuration rejected, the previous one is active: {errors}");
            Problem::new("config_rejected", text)
        });
        let unreadable = [
            wrong("status", &self.online),
            wrong("info", &self.info),
            wrong("config", &self.config),
            wrong("stats", &self.stats),
        ];
        let now = || state == NodeState::Online;
        let over_budget = stats.filter(|stats| now() && stats.lat_over_budget != 0);
        let late = over_budget.map(|stats| {
            let (p95, budget) = (shown(stats.lat_total_p95_ms, 0), stats.lat_budget_ms);
            let text =
                format!("answers are too late: 95 % within {p95} ms, the budget is {budget} ms");
            Problem::new("over_budget", text)
        });
        let cameras = cameras.iter().filter(|_| now()).map(FleetCamera::problem);
        let of_node = [of_state, two, no_info, rejected]
            .into_iter()
            .chain(unreadable);
        of_node.chain([late]).chain(cameras).flatten().collect()
    }

    fn shared(&self, id: &NodeId, nodes: &BTreeMap<&NodeId, FleetNode>) -> SharedFleet {
        let name_of_node = nodes.contains_key(id).then(|| {
            let text = "a node has the name of this fleet; give one of them another name";
            Problem::new("name_of_node", text)
        });
        let wrong = self.owners.iter().filter_map(|(camera, owner)| {
            let (kind, text) = match owner.as_ref().map(|owner| owner.node.as_ref()) {
                Err(error) => (
                    "owner_unreadable",
                    format!("its owner cannot be read: {error}"),
                ),
                Ok(None) => ("no_owner", "no box has it".to_owned()),
                Ok(Some(node)) => {
                    let known = nodes.get(node);
                    let state = known.map_or(NodeState::Unknown, |node| node.state);
                    let text = format!("its box {node} is {}", state.word());
                    (state != NodeState::Online).then_some(("owner_down", text))?
                }
            };
            Some(Problem::new(kind, format!("camera {camera}: {text}")))
        });
        let cameras = self.owners.iter().map(|(camera, owner)| {
            let node = owner.as_ref().ok().and_then(|owner| owner.node.as_ref());
            OwnedFleetCamera {
                camera: camera.to_string(),
                node: node.map(NodeId::to_string),
            }
        });
        SharedFleet {
            fleet: id.to_string(),
            cameras: cameras.collect(),
            problems: name_of_node.into_iter().chain(wrong).collect(),
        }
    }
}

/// Of a node that is not online, when it was.
fn last_figures(stats: Option<&Stats>) -> String {
    let time = stats.and_then(|stats| Timestamp::from_millisecond(stats.time_ms).ok());
    time.map_or_else(String::new, |time| {
        let time = time.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!("; last figures at {time} by its own clock")
    })
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
