//! Every metric of the program: `spotter_<stage>_<noun>_<unit>`, counters end in
//! `_total`. Labels are bounded: cameras, prompts' stages, reasons.

use std::{
    collections::{BTreeMap, BTreeSet},
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

use super::{
    facts::{ApiFacts, CameraFacts, EngineFacts, Facts, FleetFacts},
    process,
};
use spotter_core::{CameraId, FrameCounters, Latency, STAGES, StreamCounters, WebhookId};
use spotter_webhook::{WebhookCounters, WebhookStatus};

type Seconds = Family<Labels, Histogram, fn() -> Histogram>;
type Counters = Family<Labels, Counter>;
type Gauges = Family<Labels, Gauge>;
type FloatCounter = Counter<f64, AtomicU64>;
/// Names and values of the labels of a line.
type Labels = Vec<(&'static str, String)>;

/// A metric that is copied from one value.
struct CopiedMetric<T> {
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> u64,
}

const fn copied<T>(
    name: &'static str,
    help: &'static str,
    value: fn(&T) -> u64,
) -> CopiedMetric<T> {
    CopiedMetric { name, help, value }
}

const CAMERA_GAUGES: [CopiedMetric<CameraFacts>; 6] = [
    copied("ingest_camera_online", "1 while frames arrive", |camera| {
        u64::from(camera.is_online)
    }),
    copied(
        "ingest_camera_reconnects_1h",
        "Reconnections of a camera within the last hour",
        |camera| camera.health.reconnects_1h.into(),
    ),
    copied(
        "ingest_camera_stalls_1h",
        "Stalls of a camera within the last hour",
        |camera| camera.health.stalls_1h.into(),
    ),
    copied(
        "sampler_frames_waiting",
        "Frames that wait for the engine",
        |camera| camera.frames.waiting,
    ),
    copied(
        "engine_frames_in_flight",
        "Frames in the engine",
        |camera| camera.frames.in_flight,
    ),
    copied(
        "triggers_active",
        "Triggers of a camera that are active",
        CameraFacts::active_triggers,
    ),
];

const CAMERA_COUNTERS: [CopiedMetric<CameraFacts>; 6] = [
    copied("ingest_frames", "Decoded frames", |camera| {
        camera.frames.arrived
    }),
    copied(
        "ingest_camera_losses",
        "Times that a camera stopped streaming",
        |camera| camera.losses,
    ),
    copied(
        "ingest_camera_reconnects",
        "Reconnections of a camera",
        |camera| camera.reconnects,
    ),
    copied("ingest_camera_stalls", "Stalls of a camera", |camera| {
        camera.stalls
    }),
    copied(
        "ingest_pipelines_abandoned",
        "Pipelines that did not stop in time and were abandoned",
        |camera| camera.health.abandoned.into(),
    ),
    copied(
        "triggers_activations",
        "Times that a trigger of a camera became active",
        |camera| camera.triggers.iter().map(|t| t.activations).sum(),
    ),
];

const NODE_GAUGES: [CopiedMetric<Facts>; 2] = [
    copied(
        "publish_broker_online",
        "1 while the broker accepts messages",
        |facts| u64::from(facts.broker.is_online()),
    ),
    copied(
        "publish_spooled_messages",
        "Events waiting for the broker",
        |facts| facts.spooled,
    ),
];

/// By the label `fleet`.
const FLEET_GAUGES: [CopiedMetric<FleetFacts>; 4] = [
    copied(
        "fleet_joined",
        "1 while the fleet's store answers and no other box has this one's name",
        |fleet| u64::from(fleet.trouble.is_none()),
    ),
    copied("fleet_cameras", "Cameras of this box", |fleet| {
        fleet.cameras
    }),
    copied("fleet_boxes", "Boxes with a heartbeat", |fleet| {
        fleet.living_nodes
    }),
    copied(
        "fleet_cameras_unowned",
        "Cameras of the list that no living box has",
        |fleet| fleet.unowned,
    ),
];

const NODE_COUNTERS: [CopiedMetric<Facts>; 5] = [
    copied(
        "publish_messages",
        "Messages handed to the MQTT client",
        |facts| facts.messages.streams_sent,
    ),
    copied(
        "publish_inbound_dropped",
        "Received commands and other messages that were dropped because the queue was full",
        |facts| facts.messages.inbound_dropped,
    ),
    copied(
        "publish_inbound_retained",
        "Commands ignored because they were retained",
        |facts| facts.messages.inbound_retained,
    ),
    copied(
        "publish_feed_dropped",
        "Events that no webhook got because the daemon was too busy to read them",
        |facts| facts.messages.feed_dropped,
    ),
    copied(
        "app_lines_lost",
        "Lines of run --json that were dropped because standard output was read too slowly",
        |facts| facts.lines_lost,
    ),
];

/// The text in which metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    OpenMetrics,
    /// The older text of Prometheus, version 0.0.4, for clients that know no other.
    PrometheusText,
}

impl MetricsFormat {
    /// The format that a client prefers, by its `Accept`.
    pub fn accepted(accept: &str) -> Self {
        let open_metrics = quality(
            accept,
            &["application/openmetrics-text", "application/*", "*/*"],
        );
        match quality(accept, &["text/plain", "text/*", "*/*"]) > open_metrics {
            true => Self::PrometheusText,
            false => Self::OpenMetrics,
        }
    }

    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::PrometheusText => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// How much a client wants the first of these media ranges that its `Accept` has, 0..1.
fn quality(accept: &str, ranges: &[&str]) -> f64 {
    let of_range = |range: &&str| {
        accept.split(',').find_map(|part| {
            let mut words = part.split(';').map(str::trim);
            (words.next()? == *range).then(|| {
                let quality = words.find_map(|word| word.strip_prefix("q=")?.parse().ok());
                quality.unwrap_or(1.0)
            })
        })
    };
    ranges.iter().find_map(of_range).unwrap_or_default()
}

/// In OpenMetrics a counter's name has no `_total`, and its samples do; in the older text both have it. Units are unknown there.
fn prometheus_text(open_metrics: &str) -> String {
    let of_counter = |line| match comment(line)? {
        ("TYPE", name, "counter") => Some(name),
        _ => None,
    };
    let counters: BTreeSet<&str> = open_metrics.lines().filter_map(of_counter).collect();
    let mut text = String::with_capacity(open_metrics.len());
    for line in open_metrics.lines() {
        match comment(line) {
            Some(("UNIT", ..)) => continue,
            Some((kind, name, rest)) if counters.contains(name) => {
                text.push_str(&format!("# {kind} {name}_total {rest}"));
            }
            None if line == "# EOF" => continue,
            _ => text.push_str(line),
        }
        text.push('\n');
    }
    text
}

/// `# KIND NAME REST`.
fn comment(line: &str) -> Option<(&str, &str, &str)> {
    let mut words = line.strip_prefix("# ")?.splitn(3, ' ');
    Some((words.next()?, words.next()?, words.next()?))
}

/// Handles to all metrics; usable from any thread, no call blocks.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// In the order of [`CAMERA_GAUGES`].
    camera_gauges: Vec<Gauges>,
    /// In the order of [`CAMERA_COUNTERS`].
    camera_counters: Vec<Counters>,
    /// In the order of [`StreamCounters::ALL`].
    stream_counters: Vec<Counters>,
    /// By camera and fate.
    frames: Counters,
    /// By the label `device`: `cpu`, or `cuda 1, NVIDIA H200`.
    engine_up: Gauges,
    engine_turns: Counters,
    engine_busy: Family<Labels, FloatCounter>,
    /// By the label `stage` of the latency account (decode to out), of each detection.
    stage_seconds: Seconds,
    /// Receive to publish, of each detection.
    total_seconds: Histogram,
    /// In the order of [`NODE_GAUGES`].
    node_gauges: Vec<Gauge>,
    /// In the order of [`NODE_COUNTERS`].
    node_counters: Vec<Counter>,
    /// In the order of [`FLEET_GAUGES`].
    fleet_gauges: Vec<Gauges>,
    fleet_missing_hz: Family<Labels, Gauge<f64, AtomicU64>>,
    messages_dropped: Counters,
    snapshots: Counters,
    /// By webhook and outcome.
    webhook_events: Counters,
    webhook_retries: Counters,
    webhook_waiting: Gauges,
    /// By endpoint and status.
    api_requests: Counters,
    /// By endpoint.
    api_request_time: Family<Labels, FloatCounter>,
    /// Hand-over to acknowledgement, 95th percentile, seconds.
    puback_p95: Gauge<f64, AtomicU64>,
    memory: Gauge,
    processor: FloatCounter,
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn fate_labels(camera: &CameraId, fate: &str) -> Labels {
    vec![("camera", camera.to_string()), ("fate", fate.to_owned())]
}

fn outcome_labels(webhook: &WebhookId, outcome: &str) -> Labels {
    vec![
        ("webhook", webhook.to_string()),
        ("outcome", outcome.to_owned()),
    ]
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

/// As [`add`], for all metrics of a table.
fn add_all<M: Metric + Clone + Default, T>(
    registry: &mut Registry,
    table: &[CopiedMetric<T>],
) -> Vec<M> {
    let metrics = table.iter();
    metrics
        .map(|metric| add(registry, metric.name, metric.help))
        .collect()
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
            camera_gauges: add_all(all, &CAMERA_GAUGES),
            camera_counters: add_all(all, &CAMERA_COUNTERS),
            stream_counters,
            frames: add(
                all,
                "sampler_frames",
                "Decoded frames by fate; with those waiting and in flight they add up to all decoded frames",
            ),
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
            node_gauges: add_all(all, &NODE_GAUGES),
            node_counters: add_all(all, &NODE_COUNTERS),
            fleet_gauges: add_all(all, &FLEET_GAUGES),
            fleet_missing_hz: add(
                all,
                "fleet_missing_looks_per_second",
                "Looks of cost 1 a second that cameras of the fleet ask for and its boxes cannot do",
            ),
            messages_dropped: add(
                all,
                "publish_messages_dropped",
                "Messages not sent, by reason",
            ),
            snapshots: add(
                all,
                "app_snapshots",
                "Requested pictures of events and cameras, by outcome",
            ),
            webhook_events: add(
                all,
                "webhook_events",
                "Events of a webhook by outcome: posted, refused by the receiver, dropped",
            ),
            webhook_retries: add(
                all,
                "webhook_retries",
                "Requests of a webhook that repeated a failed one",
            ),
            webhook_waiting: add(
                all,
                "webhook_waiting_events",
                "Events waiting for the receiver of a webhook",
            ),
            api_requests: add(
                all,
                "api_requests",
                "Requests to the HTTP API by endpoint and status; 499: the client disconnected before the answer",
            ),
            api_request_time: add_seconds(
                all,
                "api_request_time",
                "Time of all requests to the HTTP API, from the head of a request to that of its answer",
                Default::default(),
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
            memory,
            registry,
        }
    }
}

impl Metrics {
    /// Counts the latency of a detection that was handed to the MQTT client.
    pub fn observe(&self, latency: &Latency) {
        let seconds = |tenth_ms: u64| tenth_ms as f64 / 1e4;
        self.total_seconds.observe(seconds(latency.total_tenth_ms));
        for (stage, tenth_ms) in STAGES.iter().zip(latency.stages_tenth_ms) {
            let stage = self.stage_seconds.get_or_create(&label("stage", stage));
            stage.observe(seconds(tenth_ms));
        }
    }

    /// Copies the figures of the daemon.
    pub fn update(&self, facts: &Facts) {
        for (id, camera) in &facts.cameras {
            self.update_camera(id, camera);
        }
        for engine in &facts.engines {
            self.update_engine(engine);
        }
        for (metric, gauge) in NODE_GAUGES.iter().zip(&self.node_gauges) {
            set_gauge(gauge, (metric.value)(facts));
        }
        for (metric, counter) in NODE_COUNTERS.iter().zip(&self.node_counters) {
            set(counter, (metric.value)(facts));
        }
        if let Some(fleet) = &facts.fleet {
            self.update_fleet(fleet);
        }
        for (reason, messages) in facts.messages.drops() {
            let labels = label("reason", reason);
            set(&self.messages_dropped.get_or_create(&labels), messages);
        }
        for (outcome, snapshots) in facts.snapshots.by_outcome() {
            let labels = label("outcome", outcome);
            set(&self.snapshots.get_or_create(&labels), snapshots);
        }
        for webhook in &facts.webhooks {
            self.update_webhook(webhook);
        }
        if let Some(api) = &facts.api {
            self.update_api(api);
        }
        if let Some(time) = facts.puback_p95 {
            self.puback_p95.set(time.as_secs_f64());
        }
    }

    fn update_camera(&self, id: &CameraId, camera: &CameraFacts) {
        let label = label("camera", id);
        for (metric, gauges) in CAMERA_GAUGES.iter().zip(&self.camera_gauges) {
            set_gauge(&gauges.get_or_create(&label), (metric.value)(camera));
        }
        for (metric, counters) in CAMERA_COUNTERS.iter().zip(&self.camera_counters) {
            set(&counters.get_or_create(&label), (metric.value)(camera));
        }
        for (counter, counters) in StreamCounters::ALL.iter().zip(&self.stream_counters) {
            let total = (counter.get)(&camera.health.counters);
            set(&counters.get_or_create(&label), total);
        }
        for (fate, frames) in by_fate(&camera.frames) {
            set(&self.frames.get_or_create(&fate_labels(id, fate)), frames);
        }
    }

    fn update_engine(&self, engine: &EngineFacts) {
        let label = label("device", &engine.device);
        let up = self.engine_up.get_or_create(&label);
        up.set(i64::from(engine.turns.is_some()));
        if let Some(turns) = engine.turns {
            set(&self.engine_turns.get_or_create(&label), turns);
        }
        set_seconds(&self.engine_busy.get_or_create(&label), engine.busy);
    }

    fn update_fleet(&self, fleet: &FleetFacts) {
        let label = label("fleet", &fleet.name);
        for (metric, gauges) in FLEET_GAUGES.iter().zip(&self.fleet_gauges) {
            set_gauge(&gauges.get_or_create(&label), (metric.value)(fleet));
        }
        let missing_hz = self.fleet_missing_hz.get_or_create(&label);
        missing_hz.set(fleet.missing_hz);
    }

    fn update_webhook(&self, webhook: &WebhookStatus) {
        let label = label("webhook", &webhook.id);
        let waiting = self.webhook_waiting.get_or_create(&label);
        set_gauge(&waiting, webhook.waiting);
        let retries = self.webhook_retries.get_or_create(&label);
        set(&retries, webhook.counters.retried);
        for (outcome, events) in webhook.counters.by_outcome() {
            let labels = outcome_labels(&webhook.id, outcome);
            set(&self.webhook_events.get_or_create(&labels), events);
        }
    }

    fn update_api(&self, api: &ApiFacts) {
        let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
        for ((endpoint, status), totals) in &api.totals {
            let status = ("status", status.to_string());
            let labels = vec![("endpoint", (*endpoint).to_owned()), status];
            set(&self.api_requests.get_or_create(&labels), totals.count);
            *times.entry(endpoint).or_default() += totals.time;
        }
        for (endpoint, time) in times {
            let labels = label("endpoint", endpoint);
            set_seconds(&self.api_request_time.get_or_create(&labels), time);
        }
    }

    /// Removes the metrics of a webhook that was removed.
    pub fn forget_webhook(&self, webhook: &WebhookId) {
        let label = label("webhook", webhook);
        self.webhook_waiting.remove(&label);
        self.webhook_retries.remove(&label);
        for (outcome, _) in WebhookCounters::default().by_outcome() {
            self.webhook_events
                .remove(&outcome_labels(webhook, outcome));
        }
    }

    /// Removes the metrics of a camera that was removed.
    pub fn forget(&self, camera: &CameraId) {
        let label = label("camera", camera);
        for gauges in &self.camera_gauges {
            gauges.remove(&label);
        }
        for counters in self.camera_counters.iter().chain(&self.stream_counters) {
            counters.remove(&label);
        }
        for (fate, _) in by_fate(&FrameCounters::default()) {
            self.frames.remove(&fate_labels(camera, fate));
        }
    }

    /// Memory and processor time are read now.
    pub fn encode(&self, format: MetricsFormat) -> String {
        if let Some(mib) = process::resident_mib() {
            self.memory.set((mib * 1024.0 * 1024.0) as i64);
        }
        if let Some(time) = process::processor_time() {
            set_seconds(&self.processor, time);
        }
        let mut page = String::new();
        // Writing to a String cannot fail.
        _ = text::encode(&mut page, &self.registry);
        match format {
            MetricsFormat::OpenMetrics => page,
            MetricsFormat::PrometheusText => prometheus_text(&page),
        }
    }
}

fn set(counter: &Counter, total: u64) {
    counter.inner().store(total, Ordering::Relaxed);
}

fn set_gauge(gauge: &Gauge, value: u64) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}

fn set_seconds(counter: &FloatCounter, total: Duration) {
    let bits = total.as_secs_f64().to_bits();
    counter.inner().store(bits, Ordering::Relaxed);
}

#[cfg(test)]
mod tests;
