//! From what the stages count to the metrics. Totals are counted where things happen; here they are copied.

use std::time::Duration;

use super::{
    board::{Facts, telling::dropped},
    cameras::Cameras,
    engines::Engines,
};
use crate::ops::metrics::{Metrics, OfStage};
use spotter_core::{Latency, STAGES};

/// A detection left.
pub fn sent(metrics: &Metrics, latency: &Latency) {
    let seconds = |tenth_ms: u64| tenth_ms as f64 / 1e4;
    metrics
        .total_seconds
        .observe(seconds(latency.total_tenth_ms));
    for (stage, tenth_ms) in STAGES.iter().zip(latency.stages_tenth_ms) {
        let stage = metrics.stage_seconds.get_or_create(&OfStage { stage });
        stage.observe(seconds(tenth_ms));
    }
}

/// Which engines run, and how much of their time looks were under way.
pub fn engines(metrics: &Metrics, engines: &Engines, busy: &[(String, Duration)]) {
    for (device, beats) in engines.beats() {
        metrics.set_engine(device, beats);
    }
    for (device, busy) in busy {
        metrics.set_engine_busy(device, *busy);
    }
}

/// How cameras are.
pub fn cameras(metrics: &Metrics, cameras: &Cameras) {
    for ((camera, online), (_, counts)) in cameras.online().zip(cameras.counts()) {
        metrics.set_camera(camera, online, &counts);
    }
}

/// Frames, messages, snapshots, broker and process.
pub fn facts(metrics: &Metrics, facts: &Facts) {
    for (camera, books) in &facts.books {
        metrics.set_books(camera, books);
    }
    metrics.set_messages(facts.tally.streams_sent, &dropped(&facts.tally));
    metrics.set_inbound(facts.tally.inbound_dropped, facts.tally.inbound_retained);
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
