//! What is known of the nodes, and its text and JSON.

use std::{collections::BTreeMap, fmt};

use serde::{Serialize, Serializer};

use super::shared::SharedFleet;
use crate::cli::{
    out::counted,
    table::{TableRow, TextTable, known},
};
use spotter_core::{Phase, plain_text};
use spotter_mqtt::Stats;

/// All nodes and all fleets that share cameras, in the order of their names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetReport {
    pub base: String,
    pub nodes: Vec<FleetNode>,
    pub fleets: Vec<SharedFleet>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetNode {
    pub node: String,
    pub state: NodeState,
    pub version: Option<String>,
    pub host: Option<String>,
    pub config: ConfigStatus,
    pub cameras: Vec<FleetCamera>,
    /// The last `stats`; of a node that is not online, these are old.
    pub figures: Option<Stats>,
    pub problems: Vec<NodeProblem>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConfigStatus {
    Accepted,
    /// The previous configuration is active.
    Rejected,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FleetCamera {
    pub camera: String,
    pub state: CameraState,
    pub reason: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CameraState {
    /// As its health says.
    Known(Phase),
    /// Configured, and without health.
    Missing,
    /// Its health cannot be read.
    Unreadable,
}

impl CameraState {
    /// It streams, or it is off on purpose.
    pub fn is_well(&self) -> bool {
        matches!(self, Self::Known(Phase::Streaming | Phase::Disabled))
    }

    fn as_str(&self) -> &'static str {
        match self {
            Self::Known(phase) => phase.as_str(),
            Self::Missing => "missing",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Serialize for CameraState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// A reason for the exit code.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NodeProblem {
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
        if !self.nodes.is_empty() {
            let rows = self.nodes.iter().map(FleetNode::cells);
            writeln!(f, "{}", TextTable::new(rows))?;
        }
        for node in &self.nodes {
            for problem in &node.problems {
                writeln!(f, "{}: {}", node.node, plain_text(&problem.to_string()))?;
            }
        }
        for fleet in &self.fleets {
            for problem in &fleet.problems {
                writeln!(f, "{}: {}", fleet.fleet, plain_text(&problem.to_string()))?;
            }
        }
        self.write_summary(f)
    }
}

impl FleetReport {
    fn write_summary(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nodes.is_empty() {
            let base = &self.base;
            return write!(
                f,
                "no node below {base}/; check --base and the broker's rules for this client"
            );
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
            ("config", self.config.word().into()),
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
            ("cpu %", number(figures.and_then(|f| f.cpu_pct), 0)),
            ("gpu", figures.map_or_else(|| "-".into(), gpu)),
            ("cameras", self.camera_states()),
        ]
    }

    /// `10 streaming, 1 auth_failed`: those that stream first.
    fn camera_states(&self) -> String {
        let mut counts: BTreeMap<(bool, &str), usize> = BTreeMap::new();
        for camera in &self.cameras {
            let streams = camera.state == CameraState::Known(Phase::Streaming);
            *counts.entry((!streams, camera.state.as_str())).or_default() += 1;
        }
        let parts = counts.iter();
        let parts = parts.map(|((_, state), count)| format!("{count} {}", plain_text(state)));
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

/// Use, memory and temperature of the first GPU.
fn gpu(figures: &Stats) -> String {
    let Some(gpu) = figures.gpu else {
        return "-".into();
    };
    let parts = [
        gpu.gpu0_busy_pct.map(|pct| format!("{pct:.0} %")),
        gpu.gpu0_mem_mib.map(|mib| format!("{mib} MiB")),
        gpu.gpu0_temp_c.map(|degrees| format!("{degrees} °C")),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.join(" ")
}

impl NodeState {
    pub fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
        }
    }
}

impl ConfigStatus {
    fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for NodeProblem {
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
        }
    }
}

impl fmt::Display for FleetCamera {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match &self.state {
            CameraState::Missing => "configured, and without health",
            CameraState::Unreadable => "health cannot be read",
            state => state.as_str(),
        };
        write!(f, "camera {}: {state}", self.camera)?;
        match &self.reason {
            // A reason starts with a code, which may be the state.
            Some(reason) => match reason
                .strip_prefix(state)
                .and_then(|r| r.strip_prefix(": "))
            {
                Some(text) => write!(f, ": {text}"),
                None => write!(f, ": {reason}"),
            },
            None => Ok(()),
        }
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
