//! What is known of the nodes and fleets, as text and JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;

use crate::cli::{
    out::counted,
    table::{TableRow, TextTable, known},
};
use spotter_core::{Phase, plain_text};
use spotter_mqtt::Stats;

/// All nodes and all fleets that share cameras, in the order of their names.
#[derive(Debug, Serialize)]
pub struct FleetReport {
    pub base: String,
    pub nodes: Vec<FleetNode>,
    pub fleets: Vec<SharedFleet>,
}

#[derive(Debug, Serialize)]
pub struct FleetNode {
    pub node: String,
    pub state: NodeState,
    pub version: Option<String>,
    pub host: Option<String>,
    pub config: &'static str,
    pub cameras: Vec<FleetCamera>,
    /// The last `stats`; of a node that is not online, these are old.
    pub figures: Option<Stats>,
    pub problems: Vec<Problem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    Online,
    /// Its `status` says so.
    Offline,
    /// Its `status` is `online`, and nothing arrives from it.
    Silent,
    /// It has no readable `status`.
    Unknown,
}

#[derive(Clone, Debug, Serialize)]
pub struct FleetCamera {
    pub camera: String,
    /// A [`Phase`]; `missing`: configured, and without health; `unreadable`.
    pub state: &'static str,
    pub reason: Option<String>,
}

/// A fleet whose nodes share cameras.
#[derive(Debug, Serialize)]
pub struct SharedFleet {
    pub fleet: String,
    pub cameras: Vec<OwnedFleetCamera>,
    pub problems: Vec<Problem>,
}

#[derive(Debug, Serialize)]
pub struct OwnedFleetCamera {
    pub camera: String,
    /// `None`: no node has it, or that cannot be read.
    pub node: Option<String>,
}

/// A reason for the exit code.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Problem {
    Offline {
        /// Time of its last figures by its own clock, Unix milliseconds.
        last_ms: Option<i64>,
    },
    Silent {
        last_ms: Option<i64>,
    },
    NoStatus,
    NoInfo,
    /// Two machines have one `node.name`.
    TwoDaemons {
        /// As far as they are known.
        hosts: Vec<String>,
    },
    ConfigRejected {
        errors: Vec<String>,
    },
    /// It does not stream, and it is not disabled.
    Camera(FleetCamera),
    OverBudget {
        p95_ms: Option<f64>,
        budget_ms: u64,
    },
    Unreadable {
        /// Below the node.
        topic: &'static str,
        error: String,
    },
    /// No node has the camera of the fleet.
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
    /// Topics of the node and of the fleet cannot be distinguished.
    NameOfNode,
}

impl FleetReport {
    /// No node at all is a problem, too: the base is wrong, or the broker shows this client nothing.
    pub fn has_problems(&self) -> bool {
        let is_wrong = |fleet: &SharedFleet| !fleet.problems.is_empty();
        self.nodes.is_empty() || self.with_problems() > 0 || self.fleets.iter().any(is_wrong)
    }

    fn with_problems(&self) -> usize {
        let nodes = self.nodes.iter();
        nodes.filter(|node| !node.problems.is_empty()).count()
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
        let nodes = self.nodes.iter().map(|node| (&node.node, &node.problems));
        let fleets = self.fleets.iter();
        let fleets = fleets.map(|fleet| (&fleet.fleet, &fleet.problems));
        for (name, problems) in nodes.chain(fleets) {
            for problem in problems {
                writeln!(f, "{name}: {}", plain_text(&problem.to_string()))?;
            }
        }
        let all = counted(self.nodes.len(), "node");
        match self.with_problems() {
            0 => write!(f, "{all}, no problems")?,
            some => write!(f, "{all}, {some} with problems")?,
        }
        for fleet in &self.fleets {
            let cameras = counted(fleet.cameras.len(), "camera");
            write!(f, "; fleet {}: {cameras}, ", fleet.fleet)?;
            match fleet.problems.len() {
                0 => f.write_str("no problems")?,
                some => f.write_str(&counted(some, "problem"))?,
            }
        }
        Ok(())
    }
}

impl FleetNode {
    fn cells(&self) -> TableRow {
        // Old figures do not describe a node that is not online.
        let figures = self.figures.as_ref();
        let figures = figures.filter(|_| self.state == NodeState::Online);
        let number = |value: Option<f64>, decimals| known(value, decimals);
        let version = self
            .version
            .as_deref()
            .map_or_else(|| "-".into(), plain_text);
        vec![
            ("node", self.node.clone()),
            ("state", self.state.word().into()),
            ("version", version),
            ("config", self.config.into()),
            ("looks/s", number(figures.map(|f| f.frames_analysed_ps), 1)),
            ("late %", number(figures.and_then(late_pct), 0)),
            (
                "p95 ms",
                number(figures.and_then(|f| f.lat_total_p95_ms), 0),
            ),
            (
                "budget ms",
                number(figures.map(|f| f.lat_budget_ms as f64), 0),
            ),
            ("cameras", self.camera_states()),
        ]
    }

    /// `10 streaming, 1 auth_failed`: those that stream first.
    fn camera_states(&self) -> String {
        let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for camera in &self.cameras {
            let streams = camera.state == Phase::Streaming.as_str();
            *counts.entry((!streams, camera.state)).or_default() += 1;
        }
        let parts = counts.iter();
        let parts = parts.map(|((_, state), count)| format!("{count} {state}"));
        let parts: Vec<_> = parts.collect();
        match parts.is_empty() {
            true => "-".into(),
            false => parts.join(", "),
        }
    }
}

/// Frames that were too old, of those that the model should have seen.
fn late_pct(figures: &Stats) -> Option<f64> {
    let due = figures.frames_analysed_ps + figures.frames_late_ps;
    (due > 0.0).then(|| figures.frames_late_ps / due * 100.0)
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

impl FleetCamera {
    /// It streams, or it is off on purpose.
    pub fn is_well(&self) -> bool {
        let well = [Phase::Streaming, Phase::Disabled].map(Phase::as_str);
        well.contains(&self.state)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Offline { last_ms } => write!(f, "offline{}", last_figures(*last_ms)),
            Self::Silent { last_ms } => write!(
                f,
                "silent: its status is online, but it publishes nothing{}",
                last_figures(*last_ms)
            ),
            Self::NoStatus => f.write_str("no status"),
            Self::NoInfo => f.write_str("no info; its cameras and its version are unknown"),
            Self::TwoDaemons { hosts } => write!(
                f,
                "two daemons publish as this node (known hosts: {}); give each box its own node.name",
                hosts.join(", ")
            ),
            Self::ConfigRejected { errors } => write!(
                f,
                "configuration rejected, the previous one is active: {}",
                errors.join("; ")
            ),
            Self::Camera(camera) => camera.fmt(f),
            Self::OverBudget { p95_ms, budget_ms } => write!(
                f,
                "answers are too late: 95 % within {} ms, the budget is {budget_ms} ms",
                known(*p95_ms, 0)
            ),
            Self::Unreadable { topic, error } => write!(f, "{topic} cannot be read: {error}"),
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

impl fmt::Display for FleetCamera {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            "missing" => "configured, and without health",
            "unreadable" => "health cannot be read",
            state => state,
        };
        write!(f, "camera {}: {state}", self.camera)?;
        let Some(reason) = &self.reason else {
            return Ok(());
        };
        // A reason starts with a code, which may be the state.
        let text = reason.strip_prefix(state);
        let text = text.and_then(|text| text.strip_prefix(": "));
        write!(f, ": {}", text.unwrap_or(reason))
    }
}

fn last_figures(last_ms: Option<i64>) -> String {
    let time = last_ms.and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let shown = |time: jiff::Timestamp| {
        let time = time.strftime("%Y-%m-%dT%H:%M:%SZ");
        format!("; last figures at {time} by its own clock")
    };
    time.map(shown).unwrap_or_default()
}
