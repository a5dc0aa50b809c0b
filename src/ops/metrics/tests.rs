use super::*;

#[test]
fn names_follow_the_scheme_and_counters_are_copied() {
    let metrics = Metrics::default();
    let frame_counters = FrameCounters {
        arrived: 10,
        replaced: 1,
        skipped: 3,
        gated: 2,
        late: 0,
        looked: 1,
        failed: 1,
        waiting: 1,
        in_flight: 1,
    };
    metrics.set_frame_counters(&CameraId::new("gate").unwrap(), &frame_counters);
    metrics.set_messages(7, &[("offline", 2)]);
    metrics.set_lines_lost(11);
    metrics.set_inbound(3, 2);
    metrics.set_snapshots(&[("taken", 5), ("too_soon", 4)]);
    metrics.total_seconds.observe(0.066);
    let counts = CameraCounts {
        losses: 3,
        reconnects: 4,
        stalls: 5,
        counters: StreamCounters {
            rtp_lost: 6,
            rtp_foreign: 7,
            frames_corrupt: 8,
            frames_late: 10,
        },
        abandoned: 9,
        ..CameraCounts::default()
    };
    metrics.set_camera(&CameraId::new("gate").unwrap(), true, &counts);
    metrics.set_engine("cpu", Some(9));
    metrics.set_engine_busy("cpu", Duration::from_millis(1500));
    let page = metrics.encode();
    for line in [
        "spotter_ingest_frames_total{camera=\"gate\"} 10",
        "spotter_sampler_frames_total{camera=\"gate\",fate=\"skipped\"} 3",
        "spotter_sampler_frames_total{camera=\"gate\",fate=\"failed\"} 1",
        "spotter_sampler_frames_waiting{camera=\"gate\"} 1",
        "spotter_engine_frames_in_flight{camera=\"gate\"} 1",
        "spotter_publish_messages_dropped_total{reason=\"offline\"} 2",
        "spotter_publish_inbound_dropped_total 3",
        "spotter_app_lines_lost_total 11",
        "spotter_publish_inbound_retained_total 2",
        "spotter_app_snapshots_total{outcome=\"taken\"} 5",
        "spotter_app_snapshots_total{outcome=\"too_soon\"} 4",
        "spotter_publish_latency_seconds_count 1",
        "spotter_ingest_camera_online{camera=\"gate\"} 1",
        "spotter_ingest_camera_losses_total{camera=\"gate\"} 3",
        "spotter_ingest_camera_reconnects_total{camera=\"gate\"} 4",
        "spotter_ingest_camera_stalls_total{camera=\"gate\"} 5",
        "spotter_ingest_rtp_packets_lost_total{camera=\"gate\"} 6",
        "spotter_ingest_rtp_packets_foreign_total{camera=\"gate\"} 7",
        "spotter_ingest_frames_corrupt_total{camera=\"gate\"} 8",
        "spotter_ingest_frames_late_total{camera=\"gate\"} 10",
        "spotter_ingest_pipelines_abandoned_total{camera=\"gate\"} 9",
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

#[test]
fn a_camera_that_is_taken_away_leaves_no_line() {
    let metrics = Metrics::default();
    for id in ["gate", "yard"].map(|id| CameraId::new(id).unwrap()) {
        metrics.set_frame_counters(&id, &FrameCounters::default());
        metrics.set_camera(&id, true, &CameraCounts::default());
    }
    metrics.forget(&CameraId::new("gate").unwrap());
    let page = metrics.encode();
    assert!(
        !page.contains("\"gate\"") && page.contains("\"yard\""),
        "{page}"
    );
}
