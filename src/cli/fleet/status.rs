//! `spotter fleet status`: the nodes and fleets below the base of a broker, from what they retain there.
//!
//! ```text
//!   broker ──retained messages──▶ FleetView ──▶ FleetReport ─▶ table, JSON, exit code
//!           a client that only    newest value  nodes and fleets with their problems
//!           reads                 of each topic
//! ```
//!
//! Clocks of nodes may differ by hours, so no time of a message is compared with the clock of this machine. Every node publishes `stats` every
//! 10 s: a node that is `online` and of which nothing arrives while the command listens is silent.
//!
//! A name below the base is a node's, or with `owner` topics that of a fleet. Below a fleet's name are the states of its cameras only. What a camera
//! publishes there is its owner's, so its health counts for that node. A payload that cannot be read counts as absent.

use std::{collections::BTreeMap, fmt, time::Duration};

use anyhow::{Context as _, anyhow};
use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::cli::{
    args::FleetStatusArgs,
    out::{counted, removed, say},
    table::{TableRow, TextTable, known},
};
use spotter_config::{BrokerAccess, BrokerOptions, Environment};
use spotter_core::{CameraId, Clock as _, Epoch, NodeId, Phase, SystemClock, plain_text};
use spotter_mqtt::{
    CameraHealth, CameraOwner, ConfigReport, ConfigState, Inbound, Info, NodeTopic, ReadError,
    Stats, TopicReader, read_json, read_status,
};

/// The retained messages have arrived when none came for this time.
const QUIET: Duration = Duration::from_millis(500);

/// The report was printed.
#[derive(Debug, thiserror::Error)]
#[error("something is wrong with a node")]
pub struct FleetTrouble;

pub async fn status(args: &FleetStatusArgs) -> anyhow::Result<()> {
    for (option, replacement) in args.removed() {
        removed(option, replacement);
    }
    let mqtt = args.mqtt.clone().context(
        "fleet status: no broker; --mqtt with the broker of the boxes shows their fleet, and the status page of each box shows loads",
    )?;
    let options = BrokerOptions {
        url: mqtt,
        user: args.user.clone(),
        password_file: args.password_file.clone(),
        ca: args.ca.clone(),
    };
    let broker = BrokerAccess::of_options(&options, &Environment::process())
        .map_err(|wrong| anyhow!("fleet status: {wrong}"))?;
    let context = || format!("reading the broker {}:{}", broker.host, broker.port);
    let view = read(args, &broker).await.with_context(context)?;
    let report = view.report(&args.base, !args.wait.is_zero());
    match args.json {
        true => say(serde_json::to_string(&report)?)?,
        false => say(&report)?,
    }
    match report.has_problems() {
        true => Err(FleetTrouble.into()),
        false => Ok(()),
    }
}

/// The retained messages, and what is published within `--wait`.
async fn read(args: &FleetStatusArgs, broker: &BrokerAccess) -> Result<FleetView, ReadError> {
    let clock = SystemClock::new();
    let mut reader = TopicReader::open(broker, &NodeTopic::filters(&args.base)).await?;
    let mut view = FleetView::default();
    let listened_at = clock.now().after(args.wait);
    let mut quiet_at = clock.now().after(QUIET);
    loop {
        let left = quiet_at.max(listened_at).since(clock.now());
        let Ok(message) = timeout(left, reader.next()).await else {
            return Ok(view);
        };
        let message = message?;
        if message.retained {
            quiet_at = clock.now().after(QUIET);
        }
        view.receive(&args.base, &message);
    }
}

/// The names below a base.
#[derive(Default)]
struct FleetView(BTreeMap<NodeId, NamedTopics>);

/// The newest value of each topic below a name.
#[derive(Default)]
struct NamedTopics {
    online: Option<bool>,
    info: Option<Info>,
    config: Option<ConfigReport>,
    stats: Option<Stats>,
    health: BTreeMap<CameraId, PublishedHealth>,
    /// Of a fleet.
    owners: BTreeMap<CameraId, CameraOwner>,
    /// A message arrived that was not retained.
    has_published: bool,
    /// `stats` of another run than that of `info` arrived.
    has_two_runs: bool,
}

/// A camera's health, with the epoch of its owner in a fleet.
#[derive(Deserialize)]
struct PublishedHealth {
    #[serde(flatten)]
    health: CameraHealth,
    epoch: Option<Epoch>,
}

/// All nodes and all fleets that share cameras, in the order of their names.
#[derive(Debug, Serialize)]
struct FleetReport {
    base: String,
    nodes: Vec<FleetNode>,
    fleets: Vec<SharedFleet>,
}

#[derive(Debug, Serialize)]
struct FleetNode {
    node: NodeId,
    state: NodeState,
    version: Option<String>,
    host: Option<String>,
    config: &'static str,
    cameras: Vec<FleetCamera>,
    /// The last `stats`; of a node that is not online, these are old.
    figures: Option<Stats>,
    problems: Vec<Problem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum NodeState {
    Online,
    /// Its `status` says so.
    Offline,
    /// Its `status` is `online`, and nothing arrives from it.
    Silent,
    /// It has no readable `status`.
    Unknown,
}

#[derive(Debug, Serialize)]
struct FleetCamera {
    camera: CameraId,
    /// A [`Phase`]; `missing`: configured, and without health.
    state: &'static str,
    reason: Option<String>,
}

/// A fleet whose nodes share cameras.
#[derive(Debug, Serialize)]
struct SharedFleet {
    fleet: NodeId,
    cameras: Vec<OwnedFleetCamera>,
    problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
struct OwnedFleetCamera {
    camera: CameraId,
    /// `None`: no node has it.
    node: Option<NodeId>,
}

/// A reason for the exit code. Other programs read the kind, people the text.
#[derive(Debug, Serialize)]
struct Problem {
    kind: &'static str,
    text: String,
}

impl FleetView {
    fn receive(&mut self, base: &str, message: &Inbound) {
        if let Some((name, topic)) = NodeTopic::parse(base, &message.topic) {
            self.0.entry(name).or_default().receive(topic, message);
        }
    }

    /// `has_listened`: long enough to know which nodes publish nothing.
    fn report(&self, base: &str, has_listened: bool) -> FleetReport {
        let nodes = self.0.iter().filter(|(_, topics)| topics.is_node());
        let nodes = nodes.map(|(id, topics)| topics.node(id, self.cameras(id), has_listened));
        let nodes: Vec<FleetNode> = nodes.collect();
        let fleets = self
            .0
            .iter()
            .filter(|(_, topics)| !topics.owners.is_empty());
        FleetReport {
            base: base.to_owned(),
            fleets: fleets
                .map(|(id, topics)| topics.fleet(id, &nodes))
                .collect(),
            nodes,
        }
    }

    /// The configured cameras of a node, those of which it published health (its `info` may be shortened), and those of fleets that it owns.
    fn cameras(&self, node: &NodeId) -> Vec<FleetCamera> {
        let topics = &self.0[node];
        let infos = topics.info.iter().flat_map(|info| &info.cams);
        let mut cameras: BTreeMap<CameraId, Option<&CameraHealth>> = infos
            .filter_map(|camera| Some((CameraId::new(&camera.id).ok()?, None)))
            .collect();
        if topics.owners.is_empty() {
            let health = topics.health.iter();
            cameras.extend(health.map(|(id, of)| (id.clone(), Some(&of.health))));
        }
        for fleet in self.0.values() {
            for (camera, owner) in &fleet.owners {
                if owner.node.as_ref() == Some(node) {
                    // An earlier owner may have left its last state.
                    let health = fleet.health.get(camera);
                    let health = health.filter(|of| of.epoch.is_none_or(|of| of >= owner.epoch));
                    cameras.insert(camera.clone(), health.map(|of| &of.health));
                } else if cameras.get(camera) == Some(&None) {
                    // `info` follows a little later when a camera gets another owner.
                    cameras.remove(camera);
                }
            }
        }
        let cameras = cameras.into_iter();
        let shown = cameras.map(|(camera, health)| FleetCamera {
            camera,
            state: health.map_or("missing", |health| health.state.as_str()),
            reason: health.and_then(|health| health.reason.clone()),
        });
        shown.collect()
    }
}

impl NamedTopics {
    fn receive(&mut self, topic: NodeTopic, message: &Inbound) {
        let payload = &message.payload;
        let is_offline = topic == NodeTopic::Status && read_status(payload) == Ok(false);
        // The broker publishes `offline` for a node, and anyone may clear a topic.
        self.has_published |= !message.retained && !is_offline && !payload.is_empty();
        match topic {
            NodeTopic::Status => self.online = read_status(payload).ok(),
            NodeTopic::Config => self.config = read_json(payload).ok(),
            NodeTopic::Info => self.info = read_json(payload).ok(),
            NodeTopic::Stats => {
                self.stats = read_json(payload).ok();
                // The broker keeps the order of a client's messages. A node of an earlier version does not name the run.
                let run = self.stats.as_ref().map_or(0, |stats| stats.started_ms);
                let is_other = |info: &Info| run != 0 && info.started_ms != run;
                self.has_two_runs |= !message.retained && self.info.as_ref().is_some_and(is_other);
            }
            NodeTopic::Owner(camera) => set(&mut self.owners, camera, payload),
            NodeTopic::Health(camera) => set(&mut self.health, camera, payload),
        }
    }

    /// False for a fleet's name, and when all topics were cleared: the node was removed.
    fn is_node(&self) -> bool {
        let has_status = self.online.is_some() || self.stats.is_some();
        has_status || self.info.is_some() || self.config.is_some()
    }

    fn node(&self, id: &NodeId, cameras: Vec<FleetCamera>, has_listened: bool) -> FleetNode {
        let (info, stats) = (self.info.as_ref(), self.stats.as_ref());
        let state = match self.online {
            None => NodeState::Unknown,
            Some(false) => NodeState::Offline,
            Some(true) if has_listened && !self.has_published => NodeState::Silent,
            Some(true) => NodeState::Online,
        };
        let config = self.config.as_ref().map(|config| config.state);
        FleetNode {
            node: id.clone(),
            state,
            version: info.map(|info| info.daemon.version.clone()),
            host: info.map(|info| info.host.clone()),
            config: match config {
                None => "unknown",
                Some(ConfigState::Ok) => "accepted",
                Some(ConfigState::Rejected) => "rejected",
            },
            problems: self.problems(state, &cameras),
            cameras,
            figures: stats.cloned(),
        }
    }

    fn problems(&self, state: NodeState, cameras: &[FleetCamera]) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut add = |kind, text| problems.push(Problem { kind, text });
        let last = last_figures(self.stats.as_ref());
        match state {
            NodeState::Online => {}
            NodeState::Offline => add("offline", format!("offline{last}")),
            NodeState::Silent => {
                let text = "silent: its status is online, but it publishes nothing";
                add("silent", format!("{text}{last}"));
            }
            NodeState::Unknown => add("no_status", "no readable status".into()),
        }
        match &self.info {
            None => {
                let text = "no readable info; its cameras and its version are unknown";
                add("no_info", text.into());
            }
            Some(Info { host, .. }) if self.has_two_runs => {
                let text = format!(
                    "two daemons publish as this node (known hosts: {host}); give each box its own node.name"
                );
                add("two_daemons", text);
            }
            Some(_) => {}
        }
        if let Some(config) = &self.config
            && config.state == ConfigState::Rejected
        {
            let errors = config.errors.join("; ");
            let text = format!("configuration rejected, the previous one is active: {errors}");
            add("config_rejected", text);
        }
        // Of a node that does not publish, the last figures and states say nothing about now.
        if state != NodeState::Online {
            return problems;
        }
        if let Some(stats) = &self.stats
            && stats.lat_over_budget != 0
        {
            let (p95, budget) = (known(stats.lat_total_p95_ms, 0), stats.lat_budget_ms);
            let text =
                format!("answers are too late: 95 % within {p95} ms, the budget is {budget} ms");
            add("over_budget", text);
        }
        for camera in cameras {
            if let Some(trouble) = camera.trouble() {
                add("camera", format!("camera {}: {trouble}", camera.camera));
            }
        }
        problems
    }

    fn fleet(&self, id: &NodeId, nodes: &[FleetNode]) -> SharedFleet {
        let mut problems = Vec::new();
        let mut add = |kind, text| problems.push(Problem { kind, text });
        let states = nodes.iter().map(|node| (&node.node, node.state));
        let states: BTreeMap<&NodeId, NodeState> = states.collect();
        if states.contains_key(id) {
            let text = "a node has the name of this fleet; give one of them another name";
            add("name_of_node", text.into());
        }
        for (camera, CameraOwner { node, .. }) in &self.owners {
            let Some(node) = node else {
                add("no_owner", format!("camera {camera}: no box has it"));
                continue;
            };
            let state = states.get(node).copied().unwrap_or(NodeState::Unknown);
            if state != NodeState::Online {
                let text = format!("camera {camera}: its box {node} is {}", state.word());
                add("owner_down", text);
            }
        }
        let cameras = self.owners.iter().map(|(camera, owner)| OwnedFleetCamera {
            camera: camera.clone(),
            node: owner.node.clone(),
        });
        SharedFleet {
            fleet: id.clone(),
            cameras: cameras.collect(),
            problems,
        }
    }
}

/// A payload that is cleared or cannot be read removes the value.
fn set<T: DeserializeOwned>(values: &mut BTreeMap<CameraId, T>, camera: CameraId, payload: &[u8]) {
    match read_json(payload) {
        Ok(value) => drop(values.insert(camera, value)),
        Err(_) => drop(values.remove(&camera)),
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

impl FleetReport {
    /// No node at all is a problem, too: the base is wrong, or the broker shows this client nothing.
    fn has_problems(&self) -> bool {
        self.nodes.is_empty() || self.problems().next().is_some()
    }

    /// Each with the name that it is about.
    fn problems(&self) -> impl Iterator<Item = (&NodeId, &Problem)> {
        let nodes = self.nodes.iter().map(|node| (&node.node, &node.problems));
        let fleets = self.fleets.iter();
        let all = nodes.chain(fleets.map(|fleet| (&fleet.fleet, &fleet.problems)));
        all.flat_map(|(name, problems)| problems.iter().map(move |problem| (name, problem)))
    }
}

/// A table of the nodes, a line for each problem, and a summary.
impl fmt::Display for FleetReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes.is_empty() {
            let base = &self.base;
            return write!(
                f,
                "no node below {base}/; check --base and the broker's rules for this client"
            );
        }
        let rows = self.nodes.iter().map(FleetNode::cells);
        writeln!(f, "{}", TextTable::new(rows))?;
        for (name, problem) in self.problems() {
            writeln!(f, "{name}: {}", plain_text(&problem.text))?;
        }
        let wrong = self.nodes.iter().filter(|node| !node.problems.is_empty());
        let all = counted(self.nodes.len(), "node");
        match wrong.count() {
            0 => write!(f, "{all}, no problems")?,
            some => write!(f, "{all}, {some} with problems")?,
        }
        for fleet in &self.fleets {
            let cameras = counted(fleet.cameras.len(), "camera");
            let problems = match fleet.problems.len() {
                0 => "no problems".to_owned(),
                some => counted(some, "problem"),
            };
            write!(f, "; fleet {}: {cameras}, {problems}", fleet.fleet)?;
        }
        Ok(())
    }
}

impl NodeState {
    fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
        }
    }
}

impl FleetNode {
    fn cells(&self) -> TableRow {
        // Old figures do not describe a node that is not online.
        let figures = self.figures.as_ref();
        let figures = figures.filter(|_| self.state == NodeState::Online);
        let figure =
            |of: fn(&Stats) -> Option<f64>, decimals| known(figures.and_then(of), decimals);
        let version = self.version.as_deref().map(plain_text);
        vec![
            ("node", self.node.to_string()),
            ("state", self.state.word().into()),
            ("version", version.unwrap_or_else(|| "-".into())),
            ("config", self.config.into()),
            ("looks/s", figure(|f| Some(f.frames_analysed_ps), 1)),
            ("late %", figure(late_pct, 0)),
            ("p95 ms", figure(|f| f.lat_total_p95_ms, 0)),
            ("budget ms", figure(|f| Some(f.lat_budget_ms as f64), 0)),
            ("cameras", self.camera_states()),
        ]
    }

    /// `10 streaming, 1 auth_failed`: those that stream first.
    fn camera_states(&self) -> String {
        let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for FleetCamera { state, .. } in &self.cameras {
            let streams = *state == Phase::Streaming.as_str();
            *counts.entry((!streams, state)).or_default() += 1;
        }
        let parts = counts.iter();
        let parts = parts.map(|((_, state), count)| format!("{count} {state}"));
        match counts.is_empty() {
            true => "-".into(),
            false => parts.collect::<Vec<_>>().join(", "),
        }
    }
}

/// Frames that were too old, of those that the model should have seen.
fn late_pct(figures: &Stats) -> Option<f64> {
    let due = figures.frames_analysed_ps + figures.frames_late_ps;
    (due > 0.0).then(|| figures.frames_late_ps / due * 100.0)
}

impl FleetCamera {
    /// `None`: it streams, or it is off on purpose.
    fn trouble(&self) -> Option<String> {
        let is_fine = [Phase::Streaming, Phase::Disabled].map(Phase::as_str);
        let text = match (self.state, &self.reason) {
            ("missing", _) => "configured, and without readable health".to_owned(),
            // Most reasons begin with the state.
            (state, Some(reason)) if reason.starts_with(state) => reason.clone(),
            (state, Some(reason)) => format!("{state}: {reason}"),
            (state, None) => state.to_owned(),
        };
        (!is_fine.contains(&self.state)).then_some(text)
    }
}

#[cfg(test)]
mod tests;
