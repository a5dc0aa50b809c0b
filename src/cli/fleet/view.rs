//! From messages to a report: the newest value of each topic, and when a node published last. Pure: takes `now`.
//!
//! Clocks of nodes may differ by hours, so no time of a message is compared with the clock of this machine. Every node
//! publishes `stats` every 10 s: a node that is `online` and of which nothing arrives while we listen is silent.
//!
//! A name below the base is a node's, or that of a fleet whose nodes share cameras ([`super::shared`]).

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use serde::de::DeserializeOwned;

use super::{
    report::{
        CameraState, ConfigStatus, FleetCamera, FleetNode, FleetReport, NodeProblem, NodeState,
    },
    shared::{CameraTopics, HealthValue, OwnedCameras, PublishedHealth, SharedFleet},
};
use spotter_core::{CameraId, Mono, NodeId};
use spotter_mqtt::{
    ConfigReport, ConfigState, Inbound, Info, NodeTopic, Stats, read_json, read_status,
};

/// Two daemons of one name show themselves every 10 s or every minute; after this time without a sign there is one.
const TWO_DAEMONS_FOR: Duration = Duration::from_secs(300);
/// Runs of a node that are remembered.
const RUNS_MAX: usize = 16;
/// `info` has this among its features when it does not list all cameras.
const SHORTENED: &str = "info_shortened";

/// The value of a topic: absent, read, or not readable.
type TopicValue<T> = Option<Result<T, String>>;

/// All nodes and fleets below a base.
pub struct FleetView {
    base: String,
    since: Mono,
    nodes: BTreeMap<NodeId, NodeView>,
}

#[derive(Default)]
struct NodeView {
    online: TopicValue<bool>,
    info: TopicValue<Info>,
    config: TopicValue<ConfigReport>,
    stats: TopicValue<Stats>,
    /// Also those of a fleet.
    cameras: CameraTopics,
    /// When the node last published while we listened.
    published_at: Option<Mono>,
    runs: RunHistory,
}

impl FleetView {
    /// `since`: the subscriptions are complete.
    pub fn new(base: &str, since: Mono) -> Self {
        Self {
            base: base.to_owned(),
            since,
            nodes: BTreeMap::new(),
        }
    }

    pub fn since(&self) -> Mono {
        self.since
    }

    pub fn receive(&mut self, message: &Inbound, now: Mono) {
        if let Some((node, topic)) = NodeTopic::parse(&self.base, &message.topic) {
            let node = self.nodes.entry(node).or_default();
            node.receive(topic, message, now);
        }
    }

    /// `silent_after`: without a message for this time a node is silent; `None` = that is not judged.
    pub fn report(&self, now: Mono, silent_after: Option<Duration>) -> FleetReport {
        let is_silent = |node: &NodeView| {
            let heard_at = node.published_at.unwrap_or(self.since);
            silent_after.is_some_and(|limit| now.since(heard_at) >= limit)
        };
        let fleets = || {
            let names = self.nodes.iter();
            names.filter(|(_, name)| name.cameras.is_fleet())
        };
        let owned = OwnedCameras::of(fleets().map(|(_, fleet)| &fleet.cameras));
        let nodes = self.nodes.iter().filter(|(_, node)| node.is_node());
        let nodes = nodes.map(|(id, node)| {
            let cameras = node.cameras(id, &owned);
            let state = node.state(is_silent(node));
            (id.clone(), node.report(id, state, cameras, now))
        });
        let nodes: BTreeMap<NodeId, FleetNode> = nodes.collect();
        let fleets = fleets().map(|(id, fleet)| SharedFleet::of(id, &fleet.cameras, &nodes));
        FleetReport {
            base: self.base.clone(),
            fleets: fleets.collect(),
            nodes: nodes.into_values().collect(),
        }
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

impl NodeView {
    fn receive(&mut self, topic: NodeTopic, message: &Inbound, now: Mono) {
        let payload = &message.payload;
        let is_offline = topic == NodeTopic::Status && read_status(payload) == Ok(false);
        // The broker publishes `offline` for a node, and anyone may clear a topic.
        if !message.retained && !is_offline && !payload.is_empty() {
            self.published_at = Some(now);
        }
        match topic {
            NodeTopic::Status => self.online = value(payload, read_status),
            NodeTopic::Config => self.config = json(payload),
            NodeTopic::Info => {
                self.info = json(payload);
                if let Some(info) = known(&self.info) {
                    self.runs.announced(info, now);
                }
            }
            NodeTopic::Stats => {
                self.stats = json(payload);
                if let Some(stats) = known(&self.stats).filter(|_| !message.retained) {
                    self.runs.active(stats.started_ms, now);
                }
            }
            NodeTopic::Owner(camera) => self.cameras.set_owner(camera, json(payload)),
            NodeTopic::Health(camera) => self.cameras.set_health(camera, json(payload)),
        }
    }

    /// False for a fleet's name, and when all topics were cleared: the node was removed.
    fn is_node(&self) -> bool {
        self.online.is_some()
            || self.info.is_some()
            || self.config.is_some()
            || self.stats.is_some()
            || (!self.cameras.is_fleet() && self.cameras.with_health().next().is_some())
    }

    fn state(&self, is_silent: bool) -> NodeState {
        match known(&self.online) {
            None => NodeState::Unknown,
            Some(false) => NodeState::Offline,
            Some(true) if is_silent => NodeState::Silent,
            Some(true) => NodeState::Online,
        }
    }

    fn report(
        &self,
        id: &NodeId,
        state: NodeState,
        cameras: Vec<FleetCamera>,
        now: Mono,
    ) -> FleetNode {
        let info = known(&self.info);
        FleetNode {
            node: id.to_string(),
            state,
            version: info.map(|info| info.daemon.version.clone()),
            host: info.map(|info| info.host.clone()),
            config: match known(&self.config).map(|config| config.state) {
                None => ConfigStatus::Unknown,
                Some(ConfigState::Ok) => ConfigStatus::Accepted,
                Some(ConfigState::Rejected) => ConfigStatus::Rejected,
            },
            problems: self.problems(state, &cameras, now),
            cameras,
            figures: known(&self.stats).cloned(),
        }
    }

    /// The configured cameras, and those of fleets that it owns; its own ones with a health message when `info` does not list all.
    fn cameras(&self, id: &NodeId, owned: &OwnedCameras<'_>) -> Vec<FleetCamera> {
        let info = known(&self.info);
        let is_complete =
            info.is_some_and(|info| !info.features.iter().any(|feature| feature == SHORTENED));
        let configured = info.iter().flat_map(|info| &info.cams);
        let mut ids: BTreeSet<&str> = configured.map(|camera| camera.id.as_str()).collect();
        ids.extend(owned.of_node(id).map(CameraId::as_str));
        if !is_complete && !self.cameras.is_fleet() {
            ids.extend(self.cameras.with_health().map(CameraId::as_str));
        }
        let camera = |text: &str| {
            let camera = CameraId::new(text).ok();
            let health = camera.as_ref().and_then(|camera| {
                let of_fleet = owned.health(id, camera);
                of_fleet.unwrap_or_else(|| self.cameras.health(camera))
            });
            // `info` follows a little later when a camera gets another owner.
            let has_moved = health.is_none()
                && camera
                    .as_ref()
                    .is_some_and(|camera| owned.is_of_another(id, camera));
            (!has_moved).then(|| camera_state(text, health))
        };
        ids.into_iter().filter_map(camera).collect()
    }

    /// Of a node that does not publish, the last states of its cameras say nothing about now.
    fn problems(&self, state: NodeState, cameras: &[FleetCamera], now: Mono) -> Vec<NodeProblem> {
        let last_ms = known(&self.stats).map(|stats| stats.time_ms);
        let of_node = match state {
            NodeState::Online => None,
            NodeState::Offline => Some(NodeProblem::Offline { last_ms }),
            NodeState::Silent => Some(NodeProblem::Silent { last_ms }),
            NodeState::Unknown => Some(NodeProblem::NoStatus),
        };
        let mut problems: Vec<_> = of_node.into_iter().collect();
        problems.extend(self.runs.two_daemons(now));
        if self.info.is_none() {
            problems.push(NodeProblem::NoInfo);
        }
        if let Some(config) = known(&self.config)
            && config.state == ConfigState::Rejected
        {
            let errors = config.errors.clone();
            problems.push(NodeProblem::ConfigRejected { errors });
        }
        problems.extend(self.unreadable());
        if state == NodeState::Online {
            problems.extend(known(&self.stats).and_then(over_budget));
            let silent = cameras.iter().filter(|camera| !camera.state.is_well());
            problems.extend(silent.map(|camera| NodeProblem::Camera(camera.clone())));
        }
        problems
    }

    /// Cameras excepted: those have a state for it.
    fn unreadable(&self) -> Vec<NodeProblem> {
        fn wrong<T>(value: &TopicValue<T>) -> Option<&String> {
            value.as_ref()?.as_ref().err()
        }
        let topics = [
            ("status", wrong(&self.online)),
            ("info", wrong(&self.info)),
            ("config", wrong(&self.config)),
            ("stats", wrong(&self.stats)),
        ];
        let unreadable = topics.into_iter().filter_map(|(topic, wrong)| {
            let error = wrong?.clone();
            Some(NodeProblem::Unreadable { topic, error })
        });
        unreadable.collect()
    }
}

fn camera_state(id: &str, health: Option<&HealthValue>) -> FleetCamera {
    let (state, reason) = match health {
        None => (CameraState::Missing, None),
        Some(Err(error)) => (CameraState::Unreadable, Some(error.clone())),
        Some(Ok(PublishedHealth { health, .. })) => {
            (CameraState::Known(health.state), health.reason.clone())
        }
    };
    FleetCamera {
        camera: id.to_owned(),
        state,
        reason,
    }
}

fn over_budget(stats: &Stats) -> Option<NodeProblem> {
    (stats.lat_over_budget != 0).then_some(NodeProblem::OverBudget {
        p95_ms: stats.lat_total_p95_ms,
        budget_ms: stats.lat_budget_ms,
    })
}

/// The runs of a node, each named by `started_ms`. One daemon has one run after the other and never returns to an earlier one.
#[derive(Default)]
struct RunHistory {
    /// Of `info`, the newest last: run and host.
    announced: VecDeque<(i64, String)>,
    /// When the last sign of a second daemon arrived.
    two_at: Option<Mono>,
}

impl RunHistory {
    /// Two daemons with one client id take the session from each other; each publishes `info` when it has it.
    fn announced(&mut self, info: &Info, now: Mono) {
        let run = info.started_ms;
        let place = self.announced.iter().position(|(known, _)| *known == run);
        if place.is_some_and(|place| place + 1 < self.announced.len()) {
            self.two_at = Some(now);
        }
        if let Some(place) = place {
            self.announced.remove(place);
        } else if self.announced.len() == RUNS_MAX {
            self.announced.pop_front();
        }
        self.announced.push_back((run, info.host.clone()));
    }

    /// Two daemons with two client ids publish side by side. The broker keeps the order of a client's messages, so `stats` of a
    /// run that is not that of `info` come from another daemon. A node of an earlier version does not name the run.
    fn active(&mut self, run: i64, now: Mono) {
        let announced = self.announced.back();
        if run != 0 && announced.is_some_and(|(newest, _)| *newest != run) {
            self.two_at = Some(now);
        }
    }

    fn two_daemons(&self, now: Mono) -> Option<NodeProblem> {
        let is_recent = self
            .two_at
            .is_some_and(|at| now.since(at) < TWO_DAEMONS_FOR);
        let hosts: BTreeSet<_> = self
            .announced
            .iter()
            .map(|(_, host)| host.clone())
            .collect();
        is_recent.then(|| NodeProblem::TwoDaemons {
            hosts: hosts.into_iter().collect(),
        })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
