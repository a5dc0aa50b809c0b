//! Copies the counters of the stages into the metrics.

use std::time::Duration;

use super::{
    board::Facts, camera_supervisor::CameraSupervisor, engine_supervisor::EngineSupervisor,
};
use crate::ops::metrics::{Metrics, label};
use spotter_core::{Latency, STAGES};

/// A detection was handed to the MQTT client.
pub fn sent(metrics: &Metrics, latency: &Latency) {
    let seconds = |tenth_ms: u64| tenth_ms as f64 / 1e4;
    metrics
        .total_seconds
        .observe(seconds(latency.total_tenth_ms));
    for (stage, tenth_ms) in STAGES.iter().zip(latency.stages_tenth_ms) {
        let stage = metrics.stage_seconds.get_or_create(&label("stage", stage));
        stage.observe(seconds(tenth_ms));
    }
}

/// Which engines run, and for how long looks were in flight on them.
pub fn engines(metrics: &Metrics, engines: &EngineSupervisor, busy: &[(String, Duration)]) {
    for (device, progress) in engines.progress() {
        metrics.set_engine(device, progress);
    }
    for (device, busy) in busy {
        metrics.set_engine_busy(device, *busy);
    }
}

pub fn cameras(metrics: &Metrics, cameras: &CameraSupervisor) {
    for ((camera, online), (_, counts)) in cameras.online().zip(cameras.counts()) {
        metrics.set_camera(camera, online, &counts);
    }
}

/// Frames, messages, snapshots, broker and process.
pub fn facts(metrics: &Metrics, facts: &Facts) {
    for (camera, frame_counters) in &facts.frame_counters {
        metrics.set_frame_counters(camera, frame_counters);
    }
    metrics.set_messages(facts.messages.streams_sent, &facts.messages.drops());
    metrics.set_inbound(
        facts.messages.inbound_dropped,
        facts.messages.inbound_retained,
    );
    metrics.set_snapshots(&facts.snapshots.by_outcome());
    metrics
        .broker_online
        .set(i64::from(facts.broker.is_online()));
    metrics
        .spooled
        .set(i64::try_from(facts.spooled).unwrap_or(i64::MAX));
    if let Some(time) = facts.puback_p95 {
        metrics.puback_p95.set(time.as_secs_f64());
    }
}
