//! What the store of a fleet says, and its text and JSON.

use std::{collections::BTreeMap, fmt};

use serde::Serialize;
use spotter_core::{CameraId, NodeId, plain_text};

use crate::cli::{
    out::counted,
    table::{TableRow, TextTable, known},
};

/// A fleet with its nodes, in the order of their names.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoomReport {
    pub fleet: NodeId,
    /// The newest list of cameras.
    pub list_revision: Option<u64>,
    pub nodes: Vec<RoomNode>,
    /// Cameras of the list.
    pub camera_count: usize,
    /// Looks of cost 1 a second that cameras ask for and nodes cannot do.
    pub missing_hz: f64,
    /// If they are to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cameras: Option<Vec<RoomCamera>>,
    pub problems: Vec<RoomProblem>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoomNode {
    pub node: NodeId,
    pub state: RoomNodeState,
    /// By its heartbeat; a node that is gone has none.
    pub heartbeat: Option<RoomHeartbeat>,
    /// Looks of cost 1 a second that its cameras ask for.
    pub work_hz: f64,
    pub load_pct: Option<f64>,
    /// Cameras of the list that it owns.
    pub cameras: usize,
    pub problems: Vec<RoomNodeProblem>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RoomNodeState {
    Online,
    /// It hands its cameras over.
    Leaving,
    /// It has no heartbeat, and owns cameras.
    Gone,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoomHeartbeat {
    pub version: String,
    pub labels: Vec<String>,
    /// Looks of cost 1 a second.
    pub capacity_hz: f64,
    pub list_revision: Option<u64>,
    /// Cameras that it cannot watch, with the reason.
    pub refused: BTreeMap<CameraId, String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RoomCamera {
    pub camera: CameraId,
    /// The owner, which may be gone.
    pub node: Option<NodeId>,
    pub state: OwnerState,
    pub work_hz: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    Owned,
    /// Its owner is gone.
    Waiting,
    /// No node has it.
    Unowned,
}

/// A reason for the exit code.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RoomNodeProblem {
    Gone {
        /// They wait for another owner.
        cameras: Vec<CameraId>,
    },
    OtherList {
        /// That it follows.
        revision: Option<u64>,
        newest: u64,
    },
    Refused {
        camera: CameraId,
        reason: String,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum RoomProblem {
    NoNodes,
    NoList,
    /// By this version of Spotter.
    ListUnreadable {
        revision: u64,
        errors: Vec<String>,
    },
    NoOwner {
        cameras: Vec<CameraId>,
    },
    MissingLooks {
        missing_hz: f64,
    },
}

impl RoomReport {
    pub fn has_problems(&self) -> bool {
        self.problem_count() > 0
    }

    fn problem_count(&self) -> usize {
        let of_nodes = self.nodes.iter().map(|node| node.problems.len());
        self.problems.len() + of_nodes.sum::<usize>()
    }
}

/// A table of the nodes, one of the cameras, a line for each problem, and a summary.
impl fmt::Display for RoomReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cameras = self.cameras.iter().flatten();
        let nodes = TextTable::new(self.nodes.iter().map(RoomNode::cells));
        let cameras = TextTable::new(cameras.map(RoomCamera::cells));
        for table in [nodes, cameras] {
            if !table.is_empty() {
                writeln!(f, "{table}")?;
            }
        }
        for node in &self.nodes {
            for problem in &node.problems {
                writeln!(f, "{}: {}", node.node, plain_text(&problem.to_string()))?;
            }
        }
        for problem in &self.problems {
            writeln!(f, "{}: {}", self.fleet, plain_text(&problem.to_string()))?;
        }
        write!(
            f,
            "fleet {}: {}, {}, ",
            self.fleet,
            counted(self.nodes.len(), "node"),
            counted(self.camera_count, "camera")
        )?;
        match self.problem_count() {
            0 => f.write_str("no problems"),
            some => f.write_str(&counted(some, "problem")),
        }
    }
}

impl RoomNode {
    fn cells(&self) -> TableRow {
        let heartbeat = self.heartbeat.as_ref();
        let text = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let labels = heartbeat.map(|heartbeat| plain_text(&heartbeat.labels.join(",")));
        let revision = heartbeat.and_then(|heartbeat| heartbeat.list_revision);
        vec![
            ("node", self.node.to_string()),
            ("state", self.state.word().into()),
            ("version", text(heartbeat.map(|h| plain_text(&h.version)))),
            ("labels", text(labels.filter(|labels| !labels.is_empty()))),
            ("list", text(revision.map(|revision| revision.to_string()))),
            ("looks/s", known(heartbeat.map(|h| h.capacity_hz), 1)),
            ("asked/s", known(Some(self.work_hz), 1)),
            ("load %", known(self.load_pct, 0)),
            ("cameras", self.cameras.to_string()),
            (
                "refused",
                text(heartbeat.map(|h| h.refused.len().to_string())),
            ),
        ]
    }
}

impl RoomCamera {
    fn cells(&self) -> TableRow {
        let node = self.node.as_ref();
        let node = node.map_or_else(|| "-".to_owned(), NodeId::to_string);
        vec![
            ("camera", self.camera.to_string()),
            ("node", node),
            ("state", self.state.word().into()),
            ("asked/s", known(Some(self.work_hz), 1)),
        ]
    }
}

impl RoomNodeState {
    fn word(self) -> &'static str {
        match self {
            Self::Online => "online",
            Self::Leaving => "leaving",
            Self::Gone => "gone",
        }
    }
}

impl OwnerState {
    fn word(self) -> &'static str {
        match self {
            Self::Owned => "owned",
            Self::Waiting => "waiting",
            Self::Unowned => "unowned",
        }
    }
}

impl fmt::Display for RoomNodeProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone { cameras } => write!(
                f,
                "gone: it has no heartbeat; {} for another box: {}",
                match cameras.len() {
                    1 => "1 camera waits".to_owned(),
                    some => format!("{some} cameras wait"),
                },
                joined(cameras)
            ),
            Self::OtherList { revision, newest } => match revision {
                Some(revision) => write!(
                    f,
                    "follows revision {revision} of the list, the newest is {newest}; its topic `config` has the reason"
                ),
                None => write!(f, "follows no list yet, the newest is revision {newest}"),
            },
            Self::Refused { camera, reason } => write!(f, "cannot watch camera {camera}: {reason}"),
        }
    }
}

impl fmt::Display for RoomProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoNodes => f.write_str("no box takes part"),
            Self::NoList => {
                f.write_str("no list of cameras; write one with `spotter fleet apply FILE`")
            }
            Self::ListUnreadable { revision, errors } => write!(
                f,
                "revision {revision} of the list cannot be read by this version: {}",
                errors.join("; ")
            ),
            Self::NoOwner { cameras } => {
                let count = counted(cameras.len(), "camera");
                write!(f, "no box has {count}: {}", joined(cameras))
            }
            Self::MissingLooks { missing_hz } => write!(
                f,
                "the cameras ask for {missing_hz:.2} looks/s more than the boxes can do"
            ),
        }
    }
}

fn joined(cameras: &[CameraId]) -> String {
    let names: Vec<&str> = cameras.iter().map(CameraId::as_str).collect();
    names.join(", ")
}
