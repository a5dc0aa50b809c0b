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

/// A reason for the exit code. Other programs read the kind, people the text.
#[derive(Clone, Debug, Serialize)]
pub struct Problem {
    pub kind: &'static str,
    pub text: String,
}

impl Problem {
    pub fn new(kind: &'static str, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { kind, text }
    }
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
                writeln!(f, "{name}: {}", plain_text(&problem.text))?;
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
        let version = self.version.as_deref().map(plain_text);
        vec![
            ("node", self.node.clone()),
            ("state", self.state.word().into()),
            ("version", version.unwrap_or_else(|| "-".into())),
            ("config", self.config.into()),
            ("looks/s", known(figures.map(|f| f.frames_analysed_ps), 1)),
            ("late %", known(figures.and_then(late_pct), 0)),
            ("p95 ms", known(figures.and_then(|f| f.lat_total_p95_ms), 0)),
            (
                "budget ms",
                known(figures.map(|f| f.lat_budget_ms as f64), 0),
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
        let parts = counts
            .iter()
            .map(|((_, state), count)| format!("{count} {state}"));
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
    pub fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Offline => "offline",
            Self::Silent => "silent",
            Self::Unknown => "unknown",
        }
    }
}

impl FleetCamera {
    /// Why its state is a problem; `None`: it streams, or it is off on purpose.
    pub fn problem(&self) -> Option<Problem> {
        let (camera, state) = (&self.camera, self.state);
        let text = match (state, self.reason.as_deref()) {
            (state, _)
                if [Phase::Streaming, Phase::Disabled]
                    .map(Phase::as_str)
                    .contains(&state) =>
            {
                return None;
            }
            ("missing", _) => "configured, and without health".to_owned(),
            ("unreadable", Some(error)) => format!("health cannot be read: {error}"),
            // Most reasons begin with the state.
            (_, Some(reason)) if reason.starts_with(state) => reason.to_owned(),
            (_, Some(reason)) => format!("{state}: {reason}"),
            (_, None) => state.to_owned(),
        };
        Some(Problem::new("camera", format!("camera {camera}: {text}")))
    }
}
