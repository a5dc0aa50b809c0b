//! From the reports of the stages to the types of `/status.json` ([`spotter_page`]), once a second. Pure.

use spotter_core::{Mono, Phase, rounded};
use spotter_fleet::summary::{FleetSummary, NodeSummary};
use spotter_mqtt::{AwayCause, BrokerState, CameraHealth, ConfigReport, ConfigState};
use spotter_page::{
    BrokerStatus, CameraStatus, ClockStatus, ConfigLine, FleetNodeStatus, FleetStatus, Mood,
    StreamStatus, Trouble, TroubleKind, WebhookLine,
};
use spotter_webhook::{WebhookState, WebhookStatus};

/// Without frames, triggers and what the looks found.
pub fn camera(id: String, health: CameraHealth) -> CameraStatus {
    CameraStatus {
        id,
        mood: match (health.state, &health.reason) {
            (Phase::Streaming, _) => Mood::Good,
            (Phase::Disabled | Phase::Ended, _) => Mood::Off,
            (Phase::Connecting | Phase::WaitingKeyframe, None) => Mood::Busy,
            _ => Mood::Bad,
        },
        state: health.state,
        reason: health.reason,
        since_ms: health.since_ms,
        next_retry_s: health.next_retry_s,
        stream: StreamStatus {
            codec: health.codec,
            size: health.w.zip(health.h),
            fps: health.fps_measured,
            fps_declared: health.fps_declared,
            note: health.note,
            transport: health.transport,
            decoder: health.decoder,
            reconnects_1h: health.reconnects_1h,
            stalls_1h: health.stalls_1h,
            clock: ClockStatus {
                trusted: health.clock.trusted,
                offset_ms: health.clock.offset_ms,
                drift_ppm: health.clock.drift_ppm,
                note: health.clock.note,
            },
            counters: health.counters,
        },
        abandoned: health.abandoned,
        ..CameraStatus::default()
    }
}

/// Without address, topics and figures of its messages.
pub fn broker(state: &BrokerState, now: Mono) -> BrokerStatus {
    let (mood, word) = match state {
        BrokerState::Connecting => (Mood::Busy, "connecting"),
        BrokerState::Online { .. } => (Mood::Good, "online"),
        BrokerState::Away { cause, .. } => {
            let word = match cause {
                AwayCause::Refused => "connection rejected",
                AwayCause::TakenOver => "session taken over",
                AwayCause::Untrusted => "certificate not trusted",
                _ => "disconnected",
            };
            (Mood::Bad, word)
        }
        BrokerState::Stopped => (Mood::Off, "closed"),
    };
    BrokerStatus {
        mood,
        state: match state {
            BrokerState::Online { protocol } => format!("{word}, MQTT {protocol}"),
            _ => word.to_owned(),
        },
        reason: state.trouble().map(str::to_owned),
        next_retry_s: state.retry_at().and_then(|at| seconds_until(at, now)),
        ..BrokerStatus::default()
    }
}

pub fn broker_trouble(state: &BrokerState) -> Option<Trouble> {
    let BrokerState::Away { cause, reason, .. } = state else {
        return None;
    };
    let kind = match cause {
        AwayCause::Refused => TroubleKind::BrokerRefused,
        AwayCause::Untrusted => TroubleKind::BrokerUntrusted,
        AwayCause::TakenOver => TroubleKind::BrokerTakenOver,
        _ => TroubleKind::BrokerLost,
    };
    Some(Trouble::new(kind, format!("broker: {reason}")))
}

/// `None` for less than a second.
fn seconds_until(at: Mono, now: Mono) -> Option<f64> {
    Some(at.since(now).as_secs_f64()).filter(|seconds| *seconds >= 1.0)
}

pub fn webhook(status: &WebhookStatus, now: Mono) -> WebhookLine {
    let (state, reason, retry_at) = match &status.state {
        WebhookState::Unused => ("no event yet", None, None),
        WebhookState::Accepting => ("accepting", None, None),
        WebhookState::Refusing { reason } => ("refusing", Some(reason), None),
        WebhookState::Failing { reason, retry_at } => ("failing", Some(reason), Some(*retry_at)),
    };
    WebhookLine {
        name: status.id.to_string(),
        address: status.address.clone(),
        mood: reason.map_or(Mood::Good, |_| Mood::Bad),
        state,
        reason: reason.cloned(),
        next_retry_s: retry_at.and_then(|at| seconds_until(at, now)),
        waiting: status.waiting,
        posted: status.counters.posted,
        retried: status.counters.retried,
        refused: status.counters.refused,
        dropped: status.counters.dropped(),
        by_outcome: status.counters.by_outcome().to_vec(),
    }
}

pub fn webhook_trouble(status: &WebhookStatus) -> Option<Trouble> {
    let kind = match status.state {
        WebhookState::Refusing { .. } => TroubleKind::WebhookRefusing,
        _ => TroubleKind::WebhookFailing,
    };
    Some(Trouble::new(kind, status.trouble()?))
}

pub fn config(report: &ConfigReport) -> ConfigLine {
    ConfigLine {
        state: match report.state {
            ConfigState::Ok => "ok",
            ConfigState::Rejected => "rejected",
        },
        hash: report.hash.clone(),
        at: report.at.clone(),
        errors: report.errors.clone(),
    }
}

pub fn config_trouble(report: &ConfigReport) -> Option<Trouble> {
    let text = match report.errors.len() {
        0 => return None,
        1 => "the new configuration has a mistake".to_owned(),
        count => format!("the new configuration has {count} mistakes"),
    };
    Some(Trouble::new(TroubleKind::ConfigRejected, text))
}

/// Without name and the number of this node's cameras. `trouble`: what is wrong with the store.
pub fn fleet(summary: &FleetSummary, trouble: Option<String>) -> FleetStatus {
    let nodes = summary.nodes.iter().map(|node| fleet_node(node, summary));
    let nodes: Vec<FleetNodeStatus> = nodes.collect();
    let is_incomplete = !summary.unowned.is_empty()
        || summary.missing_hz > 0.0
        || nodes.iter().any(|node| node.mood == Mood::Bad);
    FleetStatus {
        mood: match (&trouble, is_incomplete) {
            (None, false) if nodes.is_empty() => Mood::Busy,
            (None, false) => Mood::Good,
            _ => Mood::Bad,
        },
        reason: trouble,
        nodes,
        missing_hz: summary.missing_hz,
        unowned: summary.unowned.iter().map(ToString::to_string).collect(),
        ..FleetStatus::default()
    }
}

/// Of the store, or else of what no box does.
pub fn fleet_trouble(fleet: &FleetStatus) -> Option<Trouble> {
    if let Some(reason) = &fleet.reason {
        return Some(Trouble::new(TroubleKind::FleetStore, reason.clone()));
    }
    let silent = fleet.nodes.iter().filter(|node| node.mood == Mood::Bad);
    let missing = [
        (silent.count() as f64, "boxes without a heartbeat"),
        (fleet.unowned.len() as f64, "cameras that no box has"),
        (fleet.missing_hz, "looks per second that no box can do"),
    ];
    let missing = missing.iter().filter(|(amount, _)| *amount > 0.0);
    let missing = missing.map(|(amount, what)| format!("{} {what}", rounded(*amount, 1)));
    let missing = missing.collect::<Vec<_>>().join(", ");
    (!missing.is_empty()).then(|| {
        let text = format!("fleet {}: {missing}", fleet.name);
        Trouble::new(TroubleKind::FleetIncomplete, text)
    })
}

fn fleet_node(node: &NodeSummary, summary: &FleetSummary) -> FleetNodeStatus {
    let beat = &node.heartbeat;
    let (mood, state) = match (node.is_living, beat.is_leaving) {
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
        version: beat.version.clone(),
        labels: beat.labels.iter().cloned().collect(),
        capacity_hz: beat.capacity_hz,
        load_pct: 100.0 * node.work_hz / beat.capacity_hz.max(f64::MIN_POSITIVE),
        cameras: cameras.map(|(camera, _)| camera.to_string()).collect(),
        refused: beat.refused.len(),
        list_revision: beat.list_revision,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use spotter_core::WebhookId;
    use spotter_webhook::WebhookCounters;

    #[test]
    fn mood_follows_from_state_and_reason() {
        for (state, reason, mood) in [
            (Phase::Streaming, None, Mood::Good),
            (Phase::Connecting, None, Mood::Busy),
            (Phase::Connecting, Some("unreachable: no route"), Mood::Bad),
            (Phase::AuthFailed, Some("auth_failed: refused"), Mood::Bad),
            (
                Phase::Disabled,
                Some("switched_off: by a command"),
                Mood::Off,
            ),
        ] {
            let health = CameraHealth {
                state,
                reason: reason.map(str::to_owned),
                ..CameraHealth::default()
            };
            let camera = camera("gate".into(), health);
            assert_eq!((camera.mood, camera.state), (mood, state));
            assert_eq!(camera.reason.as_deref(), reason);
        }
    }

    #[test]
    fn broker_shows_reason_and_next_attempt() {
        let now = Mono::default();
        let lost = BrokerState::Away {
            cause: AwayCause::Lost,
            reason: "connection refused".into(),
            retry_at: now.after(Duration::from_secs(30)),
        };
        let shown = broker(&lost, now);
        assert_eq!((shown.mood, shown.next_retry_s), (Mood::Bad, Some(30.0)));
        let kind = broker_trouble(&lost).map(|trouble| trouble.kind);
        assert_eq!(kind, Some(TroubleKind::BrokerLost));
        let online = broker(&BrokerState::Online { protocol: "5" }, now);
        assert_eq!(
            (online.mood, online.state.as_str()),
            (Mood::Good, "online, MQTT 5")
        );
    }

    #[test]
    fn fleet_says_what_is_missing_unless_its_store_is_away() {
        let mut fleet = FleetStatus {
            name: "hall".into(),
            ..FleetStatus::default()
        };
        assert_eq!(fleet_trouble(&fleet), None);
        fleet.missing_hz = 1.54;
        fleet.unowned = vec!["vault".into()];
        let text = "fleet hall: 1 cameras that no box has, 1.5 looks per second that no box can do";
        let missing = Trouble::new(TroubleKind::FleetIncomplete, text.into());
        assert_eq!(fleet_trouble(&fleet), Some(missing));
        fleet.reason = Some("fleet: no contact".into());
        let kind = fleet_trouble(&fleet).map(|trouble| trouble.kind);
        assert_eq!(kind, Some(TroubleKind::FleetStore));
    }

    #[test]
    fn webhook_shows_what_its_receiver_answered_last() {
        let now = Mono::default();
        let reason = "flows:443 answered with HTTP 503".to_owned();
        let retry_at = now.after(Duration::from_secs(30));
        let status = |state| WebhookStatus {
            id: WebhookId::new("door").unwrap(),
            address: "flows:443".into(),
            state,
            counters: WebhookCounters::default(),
            waiting: 2,
        };
        let line = webhook(&status(WebhookState::Accepting), now);
        assert_eq!((line.mood, line.state), (Mood::Good, "accepting"));
        let line = webhook(&status(WebhookState::Failing { reason, retry_at }), now);
        assert_eq!(
            (line.mood, line.state, line.waiting),
            (Mood::Bad, "failing", 2)
        );
        assert!(line.reason.is_some_and(|reason| reason.contains("503")));
        assert_eq!(line.next_retry_s, Some(30.0));
    }
}
