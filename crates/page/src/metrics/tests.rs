use super::*;
use crate::status::{BrokerStatus, NodeStatus, StreamStatus};
use spotter_core::{FrameCounters, TriggerId, TriggerReport};

fn requests(count: u64, seconds: u64) -> RequestTotals {
    RequestTotals {
        count,
        time: Duration::from_secs(seconds),
    }
}

fn figures() -> Status {
    let gate = CameraStatus {
        id: "gate".into(),
        state: Phase::Streaming,
        stream: StreamStatus {
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
        abandoned: 9,
        losses: 3,
        reconnects: 4,
        stalls: 5,
        triggers: [true, false]
            .map(|is_active| TriggerReport {
                id: TriggerId::new("bell").unwrap(),
                is_active,
                activations: 4,
            })
            .into(),
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
        ..CameraStatus::default()
    };
    Status {
        node: NodeStatus {
            lines_lost: 11,
            snapshots: vec![("taken", 5), ("too_soon", 4)],
            ..NodeStatus::default()
        },
        cameras: vec![gate],
        engines: vec![EngineStatus {
            device: "cpu".into(),
            turns: Some(9),
            busy: Duration::from_millis(1500),
            ..EngineStatus::default()
        }],
        broker: BrokerStatus {
            sent: 7,
            dropped: vec![("offline", 2)],
            inbound_dropped: 3,
            inbound_retained: 2,
            spooled: 8,
            ..BrokerStatus::default()
        },
        webhooks: vec![WebhookLine {
            name: "door".into(),
            retried: 2,
            waiting: 7,
            by_outcome: vec![("posted", 1), ("spool_full", 4)],
            ..WebhookLine::default()
        }],
        fleet: Some(FleetStatus {
            name: "hall".into(),
            own_cameras: 12,
            unowned: vec!["vault".into(), "shop".into()],
            missing_hz: 1.5,
            ..FleetStatus::default()
        }),
        api: Some(ApiLine {
            totals: BTreeMap::from([
                (("detect", 200), requests(6, 3)),
                (("detect", 429), requests(2, 1)),
            ]),
            ..ApiLine::default()
        }),
        ..Status::default()
    }
}

fn text(status: &Status) -> String {
    let mut latencies = LatencyHistograms::default();
    for total_tenth_ms in [80, 99_999] {
        latencies.observe(&Latency {
            stages_tenth_ms: [10; 8],
            total_tenth_ms,
            camera_tenth_ms: None,
        });
    }
    encode(status, &latencies)
}

#[test]
fn names_follow_the_scheme_and_values_are_the_figures() {
    let page = text(&figures());
    for line in [
        "spotter_api_requests_total{endpoint=\"detect\",status=\"200\"} 6",
        "spotter_api_requests_total{endpoint=\"detect\",status=\"429\"} 2",
        "spotter_api_request_time_seconds_total{endpoint=\"detect\"} 4",
        "spotter_ingest_frames_total{camera=\"gate\"} 10",
        "spotter_sampler_frames_total{camera=\"gate\",fate=\"skipped\"} 3",
        "spotter_sampler_frames_total{camera=\"gate\",fate=\"failed\"} 1",
        "spotter_sampler_frames_waiting{camera=\"gate\"} 1",
        "spotter_engine_frames_in_flight{camera=\"gate\"} 1",
        "spotter_fleet_joined{fleet=\"hall\"} 1",
        "spotter_fleet_cameras{fleet=\"hall\"} 12",
        "spotter_fleet_cameras_unowned{fleet=\"hall\"} 2",
        "spotter_fleet_missing_looks_per_second{fleet=\"hall\"} 1.5",
        "spotter_publish_messages_total 7",
        "spotter_publish_messages_dropped_total{reason=\"offline\"} 2",
        "spotter_publish_inbound_dropped_total 3",
        "spotter_publish_inbound_retained_total 2",
        "spotter_publish_spooled_messages 8",
        "spotter_publish_broker_online 0",
        "spotter_app_lines_lost_total 11",
        "spotter_app_snapshots_total{outcome=\"taken\"} 5",
        "spotter_app_snapshots_total{outcome=\"too_soon\"} 4",
        "spotter_publish_latency_seconds_bucket{le=\"0.008\"} 1",
        "spotter_publish_latency_seconds_bucket{le=\"8.192\"} 1",
        "spotter_publish_latency_seconds_bucket{le=\"+Inf\"} 2",
        "spotter_publish_latency_seconds_sum 10.0079",
        "spotter_publish_latency_seconds_count 2",
        "spotter_publish_stage_seconds_sum{stage=\"decode\"} 0.002",
        "spotter_ingest_camera_online{camera=\"gate\"} 1",
        "spotter_ingest_camera_losses_total{camera=\"gate\"} 3",
        "spotter_ingest_camera_reconnects_total{camera=\"gate\"} 4",
        "spotter_ingest_camera_reconnects_1h{camera=\"gate\"} 11",
        "spotter_ingest_camera_stalls_total{camera=\"gate\"} 5",
        "spotter_ingest_camera_stalls_1h{camera=\"gate\"} 12",
        "spotter_triggers_active{camera=\"gate\"} 1",
        "spotter_triggers_activations_total{camera=\"gate\"} 8",
        "spotter_ingest_rtp_packets_lost_total{camera=\"gate\"} 6",
        "spotter_ingest_rtp_packets_foreign_total{camera=\"gate\"} 7",
        "spotter_ingest_frames_corrupt_total{camera=\"gate\"} 8",
        "spotter_ingest_frames_late_total{camera=\"gate\"} 10",
        "spotter_ingest_pipelines_abandoned_total{camera=\"gate\"} 9",
        "spotter_webhook_events_total{webhook=\"door\",outcome=\"posted\"} 1",
        "spotter_webhook_events_total{webhook=\"door\",outcome=\"spool_full\"} 4",
        "spotter_webhook_retries_total{webhook=\"door\"} 2",
        "spotter_webhook_waiting_events{webhook=\"door\"} 7",
        "spotter_engine_up{device=\"cpu\"} 1",
        "spotter_engine_turns_total{device=\"cpu\"} 9",
        "spotter_engine_busy_seconds_total{device=\"cpu\"} 1.5",
        concat!(
            "spotter_build_info{version=\"",
            env!("CARGO_PKG_VERSION"),
            "\"} 1"
        ),
        "spotter_process_cpu_seconds_total",
    ] {
        assert!(page.contains(line), "{line} is not in\n{page}");
    }
}

// Faults: H15.
#[test]
fn text_names_and_types_counters_as_their_samples() {
    let page = text(&figures());
    for line in [
        "# HELP spotter_ingest_frames_total Decoded frames.",
        "# TYPE spotter_process_cpu_seconds_total counter",
        "# TYPE spotter_ingest_camera_online gauge",
        "# TYPE spotter_publish_latency_seconds histogram",
    ] {
        assert!(
            page.lines().any(|found| found == line),
            "{line} is not in\n{page}"
        );
    }
    // Each sample of a counter belongs to a type of its own name.
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let is_typed = page.contains(&format!("# TYPE {name} counter\n"));
        assert_eq!(is_typed, name.ends_with("_total"), "{line}");
    }
    // Nothing is kept of what was removed.
    assert!(!text(&Status::default()).contains("\"door\""));
}
