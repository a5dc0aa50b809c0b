//! The status page, made from the board and from what the daemon knows once a second.

use std::time::Duration;

use super::BoardState;
use crate::ops::{
    facts::{ApiFacts, Facts},
    page::{
        ApiLine, BrokerStatus, CameraStatus, DaemonStatus, EngineStatus, FleetNodeStatus,
        FleetStatus, Mood, NodeStatus, TriggerStatus, WebhookLine,
    },
};
use spotter_core::{Mono, NodeId, Phase, STAGES, WallTime};
use spotter_events::triggers::TriggerReport;
use spotter_fleet::summary::{FleetSummary, NodeSummary};
use spotter_mqtt::{BrokerState, CameraHealth};
use spotter_webhook::{WebhookState, WebhookStatus};

impl BoardState {
    pub(super) fn status(&mut self, now: Mono, wall: WallTime) -> DaemonStatus {
        let is_watched = self.is_watched(now);
        let [total_p95_ms] = self.totals.percentiles(now, [0.95]);
        let facts = &self.facts;
        let node = NodeStatus {
            name: self.address.name.clone(),
            version: env!("CARGO_PKG_VERSION"),
            model: self.model.clone(),
            mode: self.mode.as_ref().map(ToString::to_string),
            uptime_s: now.since(self.started).as_secs(),
            looks_per_s: self.looks_per_s(),
            total_p95_ms,
            rss_mib: facts.process.rss_mib,
            cpu_pct: facts.process.cpu_pct,
        };
        let costs = self.costs.as_ref();
        let mut cameras: Vec<CameraStatus> = self
            .cameras
            .iter_mut()
            .map(|camera| camera.status(now, is_watched, costs))
            .collect();
        for camera in &mut cameras {
            add_facts(camera, facts);
        }
        let engines = self.engines.iter().map(|engine| {
            let mut known = facts.engines.iter();
            let known = known.find(|known| known.device == engine.device);
            let cameras = facts.cameras.iter();
            let its = cameras.filter(|(id, _)| engine.cameras.contains(id));
            EngineStatus {
                state: known.map(|known| known.state).unwrap_or_default(),
                under_way: its.map(|(_, camera)| camera.frames.in_flight).sum(),
                ..engine.status(now)
            }
        });
        DaemonStatus {
            v: 1,
            time_ms: wall.unix_millis(),
            node,
            stages: STAGES.to_vec(),
            cameras,
            engines: engines.collect(),
            broker: BrokerStatus {
                address: self.address.broker.clone(),
                topics: self.address.topics.clone(),
                sent: facts.messages.streams_sent,
                dropped: facts.messages.drops().to_vec(),
                spooled: facts.spooled,
                puback_p95_ms: facts.puback_p95.map(|time| time.as_secs_f64() * 1e3),
                ..broker(&facts.broker, now)
            },
            webhooks: facts.webhooks.iter().map(|w| webhook(w, now)).collect(),
            api: facts.api.as_ref().map(api),
            config: self.config.clone(),
            fleet: self
                .fleet
                .as_ref()
                .map(|(name, summary)| fleet(name, summary, facts)),
        }
    }

    fn looks_per_s(&self) -> Option<f64> {
        let ((first, before), (last, looked)) = self.looked.front().zip(self.looked.back())?;
        let seconds = last.since(*first).as_secs_f64();
        (seconds > 0.0).then(|| looked.saturating_sub(*before) as f64 / seconds)
    }
}

fn add_facts(camera: &mut CameraStatus, facts: &Facts) {
    let mut known = facts.cameras.iter();
    if let Some((_, known)) = known.find(|(id, _)| id.as_str() == camera.id) {
        camera.frames = known.frames;
        camera.triggers = known.triggers.iter().map(trigger).collect();
        add_health(camera, &known.health);
    }
}

fn trigger(report: &TriggerReport) -> TriggerStatus {
    TriggerStatus {
        id: report.id.to_string(),
        active: report.is_active,
        activations: report.activations,
    }
}

fn add_health(camera: &mut CameraStatus, health: &CameraHealth) {
    camera.mood = match (health.state, &health.reason) {
        (Phase::Streaming, _) => Mood::Good,
        (Phase::Disabled | Phase::Ended, _) => Mood::Off,
        (Phase::Connecting | Phase::WaitingKeyframe, None) => Mood::Busy,
        _ => Mood::Bad,
    };
    camera.health = health.clone();
}

fn fleet(name: &NodeId, summary: &FleetSummary, facts: &Facts) -> FleetStatus {
    let nodes = summary.nodes.iter().map(|node| fleet_node(node, summary));
    let nodes: Vec<FleetNodeStatus> = nodes.collect();
    let is_incomplete = !summary.unowned.is_empty()
        || summary.missing_hz > 0.0
        || nodes.iter().any(|node| node.mood == Mood::Bad);
    let trouble = facts.fleet.as_ref().and_then(|fleet| fleet.trouble.clone());
    FleetStatus {
        name: name.to_string(),
        mood: match (&trouble, is_incomplete) {
            (None, false) => Mood::Good,
            _ => Mood::Bad,
        },
        reason: trouble,
        nodes,
        missing_hz: summary.missing_hz,
        unowned: summary.unowned.iter().map(ToString::to_string).collect(),
    }
}

fn fleet_node(node: &NodeSummary, summary: &FleetSummary) -> FleetNodeStatus {
    let (mood, state) = match (node.is_living, node.is_leaving) {
        (false, _) => (Mood::Bad, "no heartbeat"),
        (true, true) => (Mood::Busy, "leaving"),
        (true, false) => (Mood::Good, "online"),
    };
    let cameras = summary.owners.iter();
    let cameras = cameras.filter(|(_, owner)| **owner == node.node);
    FleetNodeStatus {
        name: node.node.to_string(),
        mood,
        state,
        version: node.version.clone(),
        labels: node.labels.iter().cloned().collect(),
        capacity_hz: node.capacity_hz,
        load_pct: 100.0 * node.work_hz / node.capacity_hz.max(f64::MIN_POSITIVE),
        cameras: cameras.map(|(camera, _)| camera.to_string()).collect(),
        refused: node.refused,
        list_revision: node.list_revision,
    }
}

fn api(facts: &ApiFacts) -> ApiLine {
    ApiLine {
        address: facts.address.to_string(),
        tokens: facts.tokens,
        open: facts.open,
        answered: facts.count(|status| status < 400),
        refused: facts.count(|status| (400..500).contains(&status)),
        failed: facts.count(|status| status >= 500),
    }
}

fn webhook(status: &WebhookStatus, now: Mono) -> WebhookLine {
    let (mood, state, reason) = match &status.state {
        WebhookState::Unused => (Mood::Good, "no event yet", None),
        WebhookState::Accepting => (Mood::Good, "accepting", None),
        WebhookState::Refusing { reason } => (Mood::Bad, "refusing", Some(reason)),
        WebhookState::Failing { reason, .. } => (Mood::Bad, "failing", Some(reason)),
    };
    let retry_at = match status.state {
        WebhookState::Failing { retry_at, .. } => Some(retry_at),
        _ => None,
    };
    let reason = reason.or(status.disk_trouble.as_ref());
    WebhookLine {
        name: status.id.to_string(),
        address: status.address.clone(),
        mood: if reason.is_some() { Mood::Bad } else { mood },
        state,
        reason: reason.cloned(),
        next_retry_s: retry_at
            .map(|at| at.since(now).as_secs_f64())
            .filter(|seconds| *seconds >= 1.0),
        waiting: status.waiting,
        posted: status.counters.posted,
        retried: status.counters.retried,
        refused: status.counters.refused,
        dropped: status.counters.dropped(),
    }
}

fn broker(state: &BrokerState, now: Mono) -> BrokerStatus {
    let (mood, word) = match state {
        BrokerState::Connecting => (Mood::Busy, "connecting"),
        BrokerState::Online { .. } => (Mood::Good, "online"),
        BrokerState::Backoff { .. } => (Mood::Bad, "disconnected"),
        BrokerState::Refused { .. } => (Mood::Bad, "connection rejected"),
        BrokerState::TakenOver { .. } => (Mood::Bad, "session taken over"),
        BrokerState::Untrusted { .. } => (Mood::Bad, "certificate not trusted"),
        BrokerState::Stopped => (Mood::Off, "closed"),
    };
    let seconds = |at: Mono| at.since(now).as_secs_f64();
    BrokerStatus {
        mood,
        state: match state {
            BrokerState::Online { protocol } => format!("{word}, MQTT {protocol}"),
            _ => word.to_owned(),
        },
        reason: state.trouble().map(str::to_owned),
        next_retry_s: state
            .retry_at()
            .map(seconds)
            .filter(|s| *s >= Duration::from_secs(1).as_secs_f64()),
        ..BrokerStatus::default()
    }
}
