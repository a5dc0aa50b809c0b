//! Every metric of the program: `spotter_<stage>_<noun>_<unit>`, counters end in
//! `_total`. Labels are bounded: cameras, prompts' stages, reasons.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use prometheus_client::{
    encoding::text,
    metrics::{
        counter::Counter,
        family::Family,
        gauge::Gauge,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Metric, Registry, Unit},
};

use super::process;
use spotter_core::{CameraId, FrameCounters, StreamCounters};

/// Names and values of the labels of a line.
pub type Labels = Vec<(&'static str, String)>;

pub fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn fate_labels(camera: &CameraId, fate: &str) -> Labels {
    vec![("camera", camera.to_string()), ("fate", fate.to_owned())]
}

/// Finished frames. Each of these only rises; frames waiting and in flight are gauges.
fn by_fate(frame_counters: &FrameCounters) -> [(&'static str, u64); 6] {
    [
        ("replaced", frame_counters.replaced),
        ("skipped", frame_counters.skipped),
        ("gated", frame_counters.gated),
        ("late", frame_counters.late),
        ("looked", frame_counters.looked),
        ("failed", frame_counters.failed),
    ]
}

type Seconds = Family<Labels, Histogram, fn() -> Histogram>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;
type FloatCounter = Counter<f64, AtomicU64>;

/// What is counted of a camera beside its frames, since the start or within the last hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CameraCounts {
    /// Times it stopped streaming.
    pub losses: u64,
    pub reconnects: u64,
    pub reconnects_1h: u32,
    pub stalls: u64,
    pub stalls_1h: u32,
    /// Losses of its stream.
    pub counters: StreamCounters,
    /// Pipelines that did not stop in time.
    pub abandoned: u32,
}

/// Handles to all metrics; usable from any thread, no call blocks.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    frames_in: Counters,
    frames: Counters,
    frames_waiting: Gauges,
    frames_in_flight: Gauges,
    camera_online: Gauges,
    camera_losses: Counters,
    reconnects_1h: Gauges,
    stalls_1h: Gauges,
    reconnects: Counters,
    stalls: Counters,
    abandoned: Counters,
    /// In the order of [`StreamCounters::ALL`].
    stream_counters: Vec<Counters>,
    /// By the label `device`: `cpu`, or `cuda 1, NVIDIA H200`.
    engine_up: Gauges,
    engine_turns: Counters,
    engine_busy: Family<Labels, FloatCounter>,
    /// By the label `stage` of the latency account (decode to out), of each detection.
    pub stage_seconds: Seconds,
    /// Receive to publish, of each detection.
    pub total_seconds: Histogram,
    messages_sent: Counter,
    messages_dropped: Counters,
    inbound_dropped: Counter,
    lines_lost: Counter,
    inbound_retained: Counter,
    snapshots: Counters,
    /// 1 while the broker accepts messages.
    pub broker_online: Gauge,
    /// Events waiting for the broker.
    pub spooled: Gauge,
    /// Hand-over to acknowledgement, 95th percentile, seconds.
    pub puback_p95: Gauge<f64, AtomicU64>,
    memory: Gauge,
    processor: FloatCounter,
}

/// 1 ms to about 8 s, by doubling.
fn latency_buckets() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 2.0, 14))
}

/// Registers a metric and returns its handle.
fn add<M: Metric + Clone + Default>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

/// As [`add`], for a metric in seconds.
fn add_seconds<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("spotter");
        let all = &mut registry;
        // Not of the type info, which only OpenMetrics knows.
        let build: Gauges = add(all, "build_info", "Version of the program");
        let version = label("version", env!("CARGO_PKG_VERSION"));
        build.get_or_create(&version).set(1);
        let memory = Gauge::default();
        all.register_with_unit(
            "process_resident_memory",
            "Resident memory of the daemon",
            Unit::Bytes,
            memory.clone(),
        );
        let stream_counters = StreamCounters::ALL.iter();
        let stream_counters = stream_counters
            .map(|counter| add(all, counter.metric, counter.help))
            .collect();
        Self {
            camera_online: add(all, "ingest_camera_online", "1 while frames arrive"),
            camera_losses: add(
                all,
                "ingest_camera_losses",
                "Times that a camera stopped streaming",
            ),
            reconnects_1h: add(
                all,
                "ingest_camera_reconnects_1h",
                "Reconnections of a camera within the last hour",
            ),
            stalls_1h: add(
                all,
                "ingest_camera_stalls_1h",
                "Stalls of a camera within the last hour",
            ),
            reconnects: add(all, "ingest_camera_reconnects", "Reconnections of a camera"),
            stalls: add(all, "ingest_camera_stalls", "Stalls of a camera"),
            abandoned: add(
                all,
                "ingest_pipelines_abandoned",
                "Pipelines that did not stop in time and were abandoned",
            ),
            frames_in: add(all, "ingest_frames", "Decoded frames"),
            frames: add(
                all,
                "sampler_frames",
                "Decoded frames by fate; with those waiting and in flight they add up to all decoded frames",
            ),
            frames_waiting: add(
                all,
                "sampler_frames_waiting",
                "Frames that wait for the engine",
            ),
            frames_in_flight: add(all, "engine_frames_in_flight", "Frames in the engine"),
            engine_up: add(all, "engine_up", "1 while the engine on the device runs"),
            engine_turns: add(
                all,
                "engine_turns",
                "Iterations of the engine's loop: about one per step under load, about one per second when idle",
            ),
            engine_busy: add_seconds(
                all,
                "engine_busy",
                "Time with a look in progress",
                Default::default(),
            ),
            stage_seconds: add_seconds(
                all,
                "publish_stage",
                "Stages of a detection from reception to publication",
                Family::new_with_constructor(latency_buckets),
            ),
            total_seconds: add_seconds(
                all,
                "publish_latency",
                "Reception to publication of a detection",
                latency_buckets(),
            ),
            messages_sent: add(
                all,
                "publish_messages",
                "Messages handed to the MQTT client",
            ),
            messages_dropped: add(
                all,
                "publish_messages_dropped",
                "Messages not sent, by reason",
            ),
            inbound_dropped: add(
                all,
                "publish_inbound_dropped",
                "Received commands and other messages that were dropped because the queue was full",
            ),
            lines_lost: add(
                all,
                "app_lines_lost",
                "Lines of run --json that were dropped because standard output was read too slowly",
            ),
            inbound_retained: add(
                all,
                "publish_inbound_retained",
                "Commands ignored because they were retained",
            ),
            snapshots: add(
                all,
                "app_snapshots",
                "Requested pictures of events and cameras, by outcome",
            ),
            broker_online: add(
                all,
                "publish_broker_online",
                "1 while the broker accepts messages",
            ),
            spooled: add(
                all,
                "publish_spooled_messages",
                "Events waiting for the broker",
            ),
            puback_p95: add_seconds(
                all,
                "publish_puback_p95",
                "Hand-over of a state to its acknowledgement, 95th percentile",
                Default::default(),
            ),
            processor: add_seconds(
                all,
                "process_cpu",
                "Processor time of the daemon, all threads",
                Default::default(),
            ),
            stream_counters,
            memory,
            registry,
        }
    }
}

impl Metrics {
    /// Copies the state and counters of a camera.
    pub fn set_camera(&self, camera: &CameraId, online: bool, counts: &CameraCounts) {
        let label = label("camera", camera);
        for (gauge, value) in [
            (&self.camera_online, i64::from(online)),
            (&self.reconnects_1h, i64::from(counts.reconnects_1h)),
            (&self.stalls_1h, i64::from(counts.stalls_1h)),
        ] {
            gauge.get_or_create(&label).set(value);
        }
        for (counter, total) in [
            (&self.camera_losses, counts.losses),
            (&self.reconnects, counts.reconnects),
            (&self.stalls, counts.stalls),
            (&self.abandoned, u64::from(counts.abandoned)),
        ] {
            set(&counter.get_or_create(&label), total);
        }
        for (counter, metric) in StreamCounters::ALL.iter().zip(&self.stream_counters) {
            set(
                &metric.get_or_create(&label),
                (counter.get)(&counts.counters),
            );
        }
    }

    /// Copies the loop iterations of an engine; `None` when it failed.
    pub fn set_engine(&self, device: &str, turns: Option<u64>) {
        let label = label("device", device);
        let up = self.engine_up.get_or_create(&label);
        up.set(i64::from(turns.is_some()));
        if let Some(turns) = turns {
            set(&self.engine_turns.get_or_create(&label), turns);
        }
    }

    /// Copies the time with a look in progress in an engine since the start.
    pub fn set_engine_busy(&self, device: &str, busy: Duration) {
        let counter = self.engine_busy.get_or_create(&label("device", device));
        set_seconds(&counter, busy);
    }

    /// Copies the frame counters of a camera.
    pub fn set_frame_counters(&self, camera: &CameraId, frame_counters: &FrameCounters) {
        let label = label("camera", camera);
        set(
            &self.frames_in.get_or_create(&label),
            frame_counters.arrived,
        );
        for (gauge, frames) in [
            (&self.frames_waiting, frame_counters.waiting),
            (&self.frames_in_flight, frame_counters.in_flight),
        ] {
            let frames = i64::try_from(frames).unwrap_or(i64::MAX);
            gauge.get_or_create(&label).set(frames);
        }
        for (fate, frames) in by_fate(frame_counters) {
            let labels = fate_labels(camera, fate);
            set(&self.frames.get_or_create(&labels), frames);
        }
    }

    /// Removes the metrics of a camera that was removed.
    pub fn forget(&self, camera: &CameraId) {
        let label = label("camera", camera);
        for gauge in [
            &self.frames_waiting,
            &self.frames_in_flight,
            &self.camera_online,
            &self.reconnects_1h,
            &self.stalls_1h,
        ] {
            gauge.remove(&label);
        }
        for counter in [
            &self.frames_in,
            &self.camera_losses,
            &self.reconnects,
            &self.stalls,
            &self.abandoned,
        ]
        .into_iter()
        .chain(&self.stream_counters)
        {
            counter.remove(&label);
        }
        for (fate, _) in by_fate(&FrameCounters::default()) {
            self.frames.remove(&fate_labels(camera, fate));
        }
    }

    /// Copies the outbox's counters, which count from the start.
    pub fn set_messages(&self, sent: u64, dropped: &[(&'static str, u64)]) {
        set(&self.messages_sent, sent);
        for (reason, messages) in dropped {
            let counter = self
                .messages_dropped
                .get_or_create(&label("reason", reason));
            set(&counter, *messages);
        }
    }

    /// Copies how many messages to us were dropped since the start, and how many were retained commands.
    pub fn set_inbound(&self, dropped: u64, retained: u64) {
        set(&self.inbound_dropped, dropped);
        set(&self.inbound_retained, retained);
    }

    /// Copies how many lines on standard output were lost since the start.
    pub fn set_lines_lost(&self, lines: u64) {
        set(&self.lines_lost, lines);
    }

    /// Copies the outcomes of requested snapshots since the start.
    pub fn set_snapshots(&self, by_outcome: &[(&'static str, u64)]) {
        for (outcome, snapshots) in by_outcome {
            let counter = self.snapshots.get_or_create(&label("outcome", outcome));
            set(&counter, *snapshots);
        }
    }

    /// OpenMetrics text; memory and processor time are read now.
    pub fn encode(&self) -> String {
        if let Some(mib) = process::resident_mib() {
            self.memory.set((mib * 1024.0 * 1024.0) as i64);
        }
        if let Some(time) = process::processor_time() {
            set_seconds(&self.processor, time);
        }
        let mut page = String::new();
        // Writing to a String cannot fail.
        _ = text::encode(&mut page, &self.registry);
        page
    }
}

fn set(counter: &Counter, total: u64) {
    counter.inner().store(total, Ordering::Relaxed);
}

fn set_seconds(counter: &FloatCounter, total: Duration) {
    let bits = total.as_secs_f64().to_bits();
    counter.inner().store(bits, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
