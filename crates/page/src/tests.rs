//! A daemon with every figure, as `/metrics` and `/status.json` show it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use serde_json::Value;
use spotter_config::{LineConfig, ZoneConfig, ZonePoint};
use spotter_core::{
    CameraId, DirectionId, FrameCounters, Latency, LineId, Phase, Prompt, PromptId, STAGES,
    StreamCounters, StreamFault, Task, TrackId, TriggerId, TriggerReport, ZoneId,
};

use crate::{
    metrics::{LatencyHistograms, encode},
    status::*,
    trouble::{Trouble, TroubleKind},
};

/// Of version 1; a key is never removed.
const STATUS: &str = include_str!("tests/status.json");
const SITE: &str = include_str!("../tests/page/site.json");
const METRICS: &str = include_str!("tests/metrics.txt");

fn figures() -> Status {
    Status {
        v: 1,
        time_ms: 1_787_393_730_500,
        node: NodeStatus {
            name: "edge1".into(),
            version: "0.1.0",
            cpu_time: Some(Duration::from_millis(2500)),
            lines_lost: 11,
            snapshots: vec![("taken", 5), ("too_soon", 4)],
            ..NodeStatus::default()
        },
        stages: STAGES,
        cameras: vec![camera()],
        engines: vec![engine()],
        broker: BrokerStatus {
            mood: Mood::Good,
            state: "online, MQTT 5".into(),
            sent: 7,
            dropped: vec![("offline", 2)],
            spooled: 8,
            puback_p95_ms: Some(2.5),
            inbound_dropped: 3,
            inbound_retained: 4,
            ..BrokerStatus::default()
        },
        webhooks: vec![WebhookLine {
            name: "door".into(),
            waiting: 7,
            retried: 2,
            by_outcome: vec![("posted", 1), ("spool_full", 4)],
            ..WebhookLine::default()
        }],
        api: Some(api()),
        fleet: Some(fleet()),
        troubles: [
            TroubleKind::Starting,
            TroubleKind::Camera(StreamFault::Device),
        ]
        .map(|kind| Trouble::new(kind, "camera gate".into()))
        .into(),
        ..Status::default()
    }
}

fn camera() -> CameraStatus {
    CameraStatus {
        id: "gate".into(),
        mood: Mood::Good,
        state: Phase::Streaming,
        stream: StreamStatus {
            codec: Some("h265".into()),
            size: Some((2560, 1440)),
            counters: StreamCounters {
                rtp_lost: 6,
                rtp_foreign: 7,
                frames_corrupt: 8,
                frames_late: 10,
            },
            reconnects_1h: 11,
            stalls_1h: 12,
            ..StreamStatus::default()
        },
        triggers: [true, false].map(trigger).into(),
        frames: FrameCounters {
            arrived: 10,
            replaced: 1,
            skipped: 3,
            gated: 2,
            late: 0,
            looked: 1,
            failed: 1,
            waiting: 1,
            in_flight: 1,
        },
        abandoned: 9,
        losses: 3,
        reconnects: 4,
        stalls: 5,
        looks: looks(),
        ..CameraStatus::default()
    }
}

fn trigger(is_active: bool) -> TriggerReport {
    TriggerReport {
        id: TriggerId::new("bell").unwrap(),
        is_active,
        activations: 4,
    }
}

fn looks() -> CameraLooks {
    let kerb = LineId::new("kerb").unwrap();
    let corner = ZoneId::new("corner").unwrap();
    let counts = DirectionId::in_and_out().into_iter().zip([12, 9]);
    let object = "person".to_owned();
    let person = PromptStatus {
        answer: Some(AnswerStatus {
            age_ms: 377,
            count: Some(2),
            dwell_s: BTreeMap::from([(corner.clone(), 4.5)]),
            score: Some(0.83),
            ..AnswerStatus::default()
        }),
        lines: BTreeMap::from([(kerb.clone(), counts.collect())]),
        cost: Some(PromptCost {
            pixels: (1280, 720),
            tflop: 7.98,
            tflop_per_s: 2.666_666,
            share: Some(0.021),
            unshared_tflop: Some(1.8),
            ..PromptCost::default()
        }),
        ..PromptStatus::new(&Prompt::new(
            PromptId::new("person").unwrap(),
            1,
            Task::Detect { object },
        ))
    };
    let mark = |place| PictureMark {
        prompt: 0,
        place,
        score: 0.83,
        polygon: matches!(place, MarkPlace::Box(_)).then(|| vec![vec![[0.1, 0.2], [0.3, 0.2]]]),
        track: TrackId::new("b7c1", &CameraId::of_still(), 1),
    };
    let found = [
        MarkPlace::Box([0.1, 0.2, 0.3, 0.4]),
        MarkPlace::Point([0.97, 0.03]),
    ];
    CameraLooks {
        look: Some(LookStatus {
            frame: 1,
            found: found.map(mark).into(),
            ..LookStatus::default()
        }),
        prompts: vec![person],
        zones: vec![ZoneConfig {
            id: corner,
            polygon: vec![(0.68, 0.55), (0.99, 0.55), (0.99, 0.97)],
            point: ZonePoint::Bottom,
        }],
        lines: vec![LineConfig {
            id: kerb,
            points: vec![(0.46, 0.55), (0.42, 0.95)],
            directions: DirectionId::in_and_out(),
            point: ZonePoint::Bottom,
            reset: None,
        }],
        latency: MinuteLatency {
            messages: 118,
            columns_ms: vec![Some([12.5; STAGES.len()]), None],
            ..MinuteLatency::default()
        },
    }
}

fn engine() -> EngineStatus {
    EngineStatus {
        device: "cpu".into(),
        bars: vec![LookBar {
            camera: "gate".into(),
            marks_ms: [-120.0, -108.0, 40.0, 90.0, 260.0],
        }],
        turns: Some(9),
        busy: Duration::from_millis(1500),
        ..EngineStatus::default()
    }
}

fn api() -> ApiLine {
    let totals = |count, seconds| RequestTotals {
        count,
        time: Duration::from_secs(seconds),
    };
    ApiLine {
        totals: BTreeMap::from([
            (("detect", 200), totals(6, 3)),
            (("detect", 429), totals(2, 1)),
        ]),
        ..ApiLine::default()
    }
}

fn fleet() -> FleetStatus {
    FleetStatus {
        name: "hall".into(),
        nodes: vec![FleetNodeStatus {
            labels: vec!["hall2".into()],
            cameras: vec!["gate".into()],
            ..FleetNodeStatus::default()
        }],
        missing_hz: 1.5,
        unowned: vec!["vault".into(), "shop".into()],
        own_cameras: 12,
        ..FleetStatus::default()
    }
}

fn metrics(status: &Status) -> String {
    let mut latencies = LatencyHistograms::default();
    for total_tenth_ms in [80, 99_999] {
        latencies.observe(&Latency {
            stages_tenth_ms: [10; STAGES.len()],
            total_tenth_ms,
            camera_tenth_ms: None,
        });
    }
    encode(status, &latencies)
}

#[test]
fn status_json_has_the_keys_of_its_version() {
    let json = serde_json::to_value(figures()).unwrap();
    let expected: Value = serde_json::from_str(STATUS).unwrap();
    assert_eq!(json, expected, "{json:#}");
    // What the page is tested with has no others.
    let site: Value = serde_json::from_str(SITE).unwrap();
    let [known, recorded] = [&expected, &site].map(|json| {
        let mut keys = BTreeSet::new();
        add_keys("", json, &mut keys);
        keys
    });
    assert_eq!(recorded.difference(&known).count(), 0, "{recorded:#?}");
}

/// `.cameras.look.frame`
fn add_keys(path: &str, value: &Value, keys: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let path = format!("{path}.{key}");
                add_keys(&path, value, keys);
                keys.insert(path);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| add_keys(path, item, keys)),
        _ => {}
    }
}

// Faults: H15.
#[test]
fn metrics_have_their_names_types_and_values() {
    let text = metrics(&figures());
    let version = format!("version=\"{}\"", env!("CARGO_PKG_VERSION"));
    let without_version = text.replace(&version, "version=\"VERSION\"");
    assert_eq!(without_version, METRICS, "{text}");
    // Each sample of a counter belongs to a type of its own name.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = name_of(line);
        let is_typed = text.contains(&format!("# TYPE {name} counter\n"));
        assert_eq!(is_typed, name.ends_with("_total"), "{line}");
    }
    // Nothing is kept of what was removed.
    assert!(!metrics(&Status::default()).contains("\"door\""));
}

#[test]
fn each_metric_of_the_dashboard_exists() {
    let names: BTreeSet<&str> = METRICS.lines().map(name_of).collect();
    let dashboard = include_str!("../../../configs/grafana/spotter.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut used = BTreeSet::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert_eq!(panel["datasource"]["uid"], "${datasource}", "{panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap();
            let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
            let words = words.filter(|word| word.starts_with("spotter_"));
            used.extend(words.map(str::to_owned));
        }
    }
    assert!(used.len() >= 10, "{used:?}");
    for name in used {
        assert!(names.contains(name.as_str()), "{name} is not in {names:?}");
    }
}

fn name_of(line: &str) -> &str {
    line.split(['{', ' ']).next().unwrap_or_default()
}
