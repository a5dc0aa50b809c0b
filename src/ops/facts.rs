//! The figures that the daemon collects once a second, for the metrics and for the status page.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use super::{page::EngineState, process::ProcessUse};
use spotter_core::{CameraId, FrameCounters};
use spotter_events::triggers::TriggerReport;
use spotter_mqtt::{BrokerState, CameraHealth, MessageCounters};
use spotter_webhook::WebhookStatus;

#[derive(Clone, Debug)]
pub struct Facts {
    /// Of all cameras together, with those that were removed: no sum shrinks.
    pub frames: FrameCounters,
    pub cameras: Vec<(CameraId, CameraFacts)>,
    pub engines: Vec<EngineFacts>,
    pub broker: BrokerState,
    pub messages: MessageCounters,
    pub snapshots: SnapshotCounters,
    /// Hand-over to acknowledgement, 95th percentile.
    pub puback_p95: Option<Duration>,
    /// Events waiting for the broker.
    pub spooled: u64,
    pub webhooks: Vec<WebhookStatus>,
    /// Lines on standard output that were lost since the start.
    pub lines_lost: u64,
    pub process: ProcessUse,
    /// `None`: the node is in no fleet.
    pub fleet: Option<FleetFacts>,
    /// `None`: the HTTP API is off.
    pub api: Option<ApiFacts>,
}

impl CameraFacts {
    /// It has triggers, and none of them is active.
    pub fn is_waiting(&self) -> bool {
        !self.triggers.is_empty() && self.active_triggers() == 0
    }

    pub fn active_triggers(&self) -> u64 {
        let active = self.triggers.iter().filter(|trigger| trigger.is_active);
        active.count() as u64
    }
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            frames: FrameCounters::default(),
            cameras: Vec::new(),
            engines: Vec::new(),
            broker: BrokerState::Connecting,
            messages: MessageCounters::default(),
            snapshots: SnapshotCounters::default(),
            puback_p95: None,
            spooled: 0,
            webhooks: Vec::new(),
            lines_lost: 0,
            process: ProcessUse::default(),
            fleet: None,
            api: None,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct CameraFacts {
    /// It streams to an engine.
    pub is_online: bool,
    /// As published.
    pub health: CameraHealth,
    /// Times it stopped streaming since the start.
    pub losses: u64,
    /// Since the start.
    pub reconnects: u64,
    /// Since the start.
    pub stalls: u64,
    /// Empty: it is looked at always.
    pub triggers: Vec<TriggerReport>,
    pub frames: FrameCounters,
}

/// The fleet of this node, as the node sees it.
#[derive(Clone, Debug, Default)]
pub struct FleetFacts {
    pub name: String,
    /// What is wrong with the store, or with this node's name.
    pub trouble: Option<String>,
    /// Of this node.
    pub cameras: u64,
    /// With a heartbeat.
    pub living_nodes: u64,
    /// Cameras of the list without a living owner.
    pub unowned: u64,
    /// Looks of cost 1 a second that cameras ask for and nodes cannot do.
    pub missing_hz: f64,
}

#[derive(Clone, Debug, Default)]
pub struct EngineFacts {
    /// `cpu`, or `cuda 1, NVIDIA H200`.
    pub device: String,
    pub state: EngineState,
    /// Iterations of its loop; `None` when it failed.
    pub turns: Option<u64>,
    /// Time with a look in progress since the start.
    pub busy: Duration,
}

/// Requests with the same endpoint and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    pub count: u64,
    /// From the head of the request to that of its answer.
    pub time: Duration,
}

/// The local HTTP API.
#[derive(Clone, Debug)]
pub struct ApiFacts {
    pub address: SocketAddr,
    /// Tokens of the configuration.
    pub tokens: usize,
    /// Requests in progress.
    pub open: u64,
    /// By endpoint and status.
    pub totals: BTreeMap<(&'static str, u16), RequestTotals>,
    /// Lines for health.
    pub troubles: Vec<String>,
}

impl ApiFacts {
    /// Requests whose status is accepted by `wanted`, without the probes of `/health`.
    pub fn count(&self, wanted: impl Fn(u16) -> bool) -> u64 {
        let totals = self.totals.iter();
        let wanted =
            totals.filter(|((endpoint, status), _)| *endpoint != "health" && wanted(*status));
        wanted.map(|(_, totals)| totals.count).sum()
    }
}

/// Requested snapshots since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCounters {
    pub taken: u64,
    pub busy: u64,
    pub too_soon: u64,
    /// Not encoded.
    pub failed: u64,
}

impl SnapshotCounters {
    /// With the label values of the metric.
    pub fn by_outcome(&self) -> [(&'static str, u64); 4] {
        [
            ("taken", self.taken),
            ("busy", self.busy),
            ("too_soon", self.too_soon),
            ("failed", self.failed),
        ]
    }
}
