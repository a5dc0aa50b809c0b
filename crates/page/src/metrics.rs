//! Every metric of the program: `spotter_<stage>_<noun>_<unit>`, counters end in `_total`. Labels are bounded: cameras, prompts'
//! stages, reasons.
//!
//! Written from [`Status`] for each request, so that a camera that was removed leaves no line. Only the histograms have state here.
//! The text is that of Prometheus, version 0.0.4, which all collectors read.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use crate::status::{
    ApiLine, CameraStatus, EngineStatus, FleetStatus, Mood, RequestTotals, Status, WebhookLine,
};
use spotter_core::{Latency, Phase, STAGES, StreamCounters};

pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Names and values of labels. All values are ids and words of this program.
type Labels = Vec<(&'static str, String)>;
type MetricSamples = Vec<(Labels, f64)>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum MetricKind {
    Counter,
    Gauge,
}

/// A metric, its help text, and its samples; without one it is not written.
struct Metric(
    MetricKind,
    &'static str,
    &'static str,
    fn(&Status) -> MetricSamples,
);

macro_rules! metrics {
    (|$status:ident| $($kind:ident $name:literal, $help:literal, $samples:expr;)+) => {
        const METRICS: &[Metric] =
            &[$(Metric(MetricKind::$kind, $name, $help, |$status| $samples)),+];
    };
}

metrics! { |status|
    // Not of the type info, which the format does not have.
    Gauge "build_info", "Version of the program",
        { _ = status; vec![(label("version", env!("CARGO_PKG_VERSION")), 1.0)] };
    Gauge "process_resident_memory_bytes", "Resident memory of the daemon",
        one((status.node.rss_mib.unwrap_or_default() * 1024.0 * 1024.0).trunc());
    Counter "process_cpu_seconds", "Processor time of the daemon, all threads",
        one(status.node.cpu_time.unwrap_or_default().as_secs_f64());
    Counter "app_lines_lost", "Lines of run --json that were dropped because standard output was read too slowly",
        one(status.node.lines_lost as f64);
    Counter "app_snapshots", "Requested pictures of events and cameras, by outcome", by("outcome", &status.node.snapshots);

    Gauge "publish_broker_online", "1 while the broker accepts messages", one(truth(status.broker.mood == Mood::Good));
    Gauge "publish_spooled_messages", "Events waiting for the broker", one(status.broker.spooled as f64);
    Counter "publish_messages", "Messages handed to the MQTT client", one(status.broker.sent as f64);
    Counter "publish_messages_dropped", "Messages not sent, by reason", by("reason", &status.broker.dropped);
    Counter "publish_inbound_dropped", "Received commands and other messages that were dropped because the queue was full",
        one(status.broker.inbound_dropped as f64);
    Counter "publish_inbound_retained", "Commands ignored because they were retained", one(status.broker.inbound_retained as f64);
    Counter "publish_feed_dropped", "Always 0: webhooks get events from the event log", { _ = status; one(0.0) };
    Gauge "publish_puback_p95_seconds", "Hand-over of a state to its acknowledgement, 95th percentile",
        one(status.broker.puback_p95_ms.unwrap_or_default() / 1e3);

    Gauge "ingest_camera_online", "1 while frames arrive", cameras(status, |camera| u64::from(camera.state == Phase::Streaming));
    Gauge "ingest_camera_reconnects_1h", "Reconnections of a camera within the last hour",
        cameras(status, |camera| camera.stream.reconnects_1h.into());
    Gauge "ingest_camera_stalls_1h", "Stalls of a camera within the last hour",
        cameras(status, |camera| camera.stream.stalls_1h.into());
    Gauge "sampler_frames_waiting", "Frames that wait for the engine", cameras(status, |camera| camera.frames.waiting);
    Gauge "engine_frames_in_flight", "Frames in the engine", cameras(status, |camera| camera.frames.in_flight);
    Gauge "triggers_active", "Triggers of a camera that are active",
        cameras(status, |camera| camera.triggers.iter().map(|trigger| u64::from(trigger.is_active)).sum());
    Counter "triggers_activations", "Times that a trigger of a camera became active",
        cameras(status, |camera| camera.triggers.iter().map(|trigger| trigger.activations).sum());
    Counter "ingest_frames", "Decoded frames", cameras(status, |camera| camera.frames.arrived);
    Counter "ingest_camera_losses", "Times that a camera stopped streaming", cameras(status, |camera| camera.losses);
    Counter "ingest_camera_reconnects", "Reconnections of a camera", cameras(status, |camera| camera.reconnects);
    Counter "ingest_camera_stalls", "Stalls of a camera", cameras(status, |camera| camera.stalls);
    Counter "ingest_pipelines_abandoned", "Pipelines that did not stop in time and were abandoned",
        cameras(status, |camera| camera.abandoned.into());
    Counter "sampler_frames", "Decoded frames by fate; with those waiting and in flight they add up to all decoded frames",
        fates(status);

    Gauge "engine_up", "1 while the engine on the device runs", engines(status, |engine| Some(truth(engine.turns.is_some())));
    Counter "engine_turns", "Iterations of the engine's loop: about one per step under load, about one per second when idle",
        engines(status, |engine| Some(engine.turns? as f64));
    Counter "engine_busy_seconds", "Time with a look in progress", engines(status, |engine| Some(engine.busy.as_secs_f64()));

    Counter "webhook_retries", "Requests of a webhook that repeated a failed one", webhooks(status, |webhook| webhook.retried);
    Gauge "webhook_waiting_events", "Events waiting for the receiver of a webhook", webhooks(status, |webhook| webhook.waiting);
    Counter "webhook_events", "Events of a webhook by outcome: posted, refused by the receiver, dropped", webhook_events(status);

    Gauge "fleet_joined", "1 while the fleet's store answers and no other box has this one's name",
        fleet(status, |fleet| truth(fleet.reason.is_none()));
    Gauge "fleet_cameras", "Cameras of this box", fleet(status, |fleet| fleet.own_cameras as f64);
    Gauge "fleet_boxes", "Boxes with a heartbeat",
        fleet(status, |fleet| fleet.nodes.iter().filter(|node| node.mood != Mood::Bad).count() as f64);
    Gauge "fleet_cameras_unowned", "Cameras of the list that no living box has", fleet(status, |fleet| fleet.unowned.len() as f64);
    Gauge "fleet_missing_looks_per_second", "Looks of cost 1 a second that cameras of the fleet ask for and its boxes cannot do",
        fleet(status, |fleet| fleet.missing_hz);

    Counter "api_requests", "Requests to the HTTP API by endpoint and status; 499: the client disconnected before the answer",
        status.api.as_ref().map(api_requests).unwrap_or_default();
    Counter "api_request_time_seconds", "Time of all requests to the HTTP API, from the head of a request to that of its answer",
        status.api.as_ref().map(api_times).unwrap_or_default();
}

fn truth(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

fn one(value: f64) -> MetricSamples {
    vec![(Labels::new(), value)]
}

fn by(name: &'static str, counts: &[(&'static str, u64)]) -> MetricSamples {
    let counts = counts.iter();
    counts
        .map(|(word, count)| (label(name, word), *count as f64))
        .collect()
}

fn cameras(status: &Status, value: impl Fn(&CameraStatus) -> u64) -> MetricSamples {
    let cameras = status.cameras.iter();
    cameras
        .map(|camera| (label("camera", &camera.id), value(camera) as f64))
        .collect()
}

/// Each fate only rises; frames waiting and in flight are gauges.
fn fates(status: &Status) -> MetricSamples {
    let of_camera = |camera: &CameraStatus| {
        let frames = &camera.frames;
        let fates = [
            ("replaced", frames.replaced),
            ("skipped", frames.skipped),
            ("gated", frames.gated),
            ("late", frames.late),
            ("looked", frames.looked),
            ("failed", frames.failed),
        ];
        fates.map(|(fate, count)| {
            let labels = vec![("camera", camera.id.clone()), ("fate", fate.to_owned())];
            (labels, count as f64)
        })
    };
    status.cameras.iter().flat_map(of_camera).collect()
}

fn engines(status: &Status, value: impl Fn(&EngineStatus) -> Option<f64>) -> MetricSamples {
    let engines = status.engines.iter();
    engines
        .filter_map(|engine| Some((label("device", &engine.device), value(engine)?)))
        .collect()
}

fn webhooks(status: &Status, value: impl Fn(&WebhookLine) -> u64) -> MetricSamples {
    let webhooks = status.webhooks.iter();
    webhooks
        .map(|webhook| (label("webhook", &webhook.name), value(webhook) as f64))
        .collect()
}

fn webhook_events(status: &Status) -> MetricSamples {
    let of_webhook = |webhook: &WebhookLine| {
        let name = webhook.name.clone();
        let outcomes = by("outcome", &webhook.by_outcome).into_iter();
        outcomes.map(move |(outcome, count)| {
            let labels = [vec![("webhook", name.clone())], outcome].concat();
            (labels, count)
        })
    };
    status.webhooks.iter().flat_map(of_webhook).collect()
}

fn fleet(status: &Status, value: impl Fn(&FleetStatus) -> f64) -> MetricSamples {
    let fleet = status.fleet.iter();
    fleet
        .map(|fleet| (label("fleet", &fleet.name), value(fleet)))
        .collect()
}

fn api_requests(api: &ApiLine) -> MetricSamples {
    let request = |((endpoint, status), totals): (&(&'static str, u16), &RequestTotals)| {
        let labels = vec![
            ("endpoint", (*endpoint).to_owned()),
            ("status", status.to_string()),
        ];
        (labels, totals.count as f64)
    };
    api.totals.iter().map(request).collect()
}

fn api_times(api: &ApiLine) -> MetricSamples {
    let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
    for ((endpoint, _), totals) in &api.totals {
        *times.entry(endpoint).or_default() += totals.time;
    }
    let times = times.into_iter();
    times
        .map(|(endpoint, time)| (label("endpoint", endpoint), time.as_secs_f64()))
        .collect()
}

/// Buckets of a histogram: 1 ms to about 8 s, by doubling.
const BUCKETS: usize = 14;

#[derive(Clone, Copy, Debug, Default)]
struct Histogram {
    /// The last one is of all that is longer.
    counts: [u64; BUCKETS + 1],
    sum_tenth_ms: u64,
}

impl Histogram {
    const fn limit_tenth_ms(bucket: usize) -> u64 {
        10 << bucket
    }

    fn observe(&mut self, tenth_ms: u64) {
        let bucket = (0..BUCKETS).find(|bucket| tenth_ms <= Self::limit_tenth_ms(*bucket));
        self.counts[bucket.unwrap_or(BUCKETS)] += 1;
        self.sum_tenth_ms += tenth_ms;
    }
}

/// Stages of detections, and the whole.
#[derive(Clone, Debug, Default)]
pub struct LatencyHistograms {
    /// By stage.
    stages: [Histogram; STAGES.len()],
    total: Histogram,
}

impl LatencyHistograms {
    /// A detection was handed to the MQTT client.
    pub fn observe(&mut self, latency: &Latency) {
        self.total.observe(latency.total_tenth_ms);
        for (stage, tenth_ms) in self.stages.iter_mut().zip(latency.stages_tenth_ms) {
            stage.observe(tenth_ms);
        }
    }
}

/// All metrics as text.
pub fn encode(status: &Status, latencies: &LatencyHistograms) -> String {
    let mut text = MetricsText::default();
    let stages = STAGES
        .iter()
        .zip(&latencies.stages)
        .map(|(stage, histogram)| (label("stage", stage), histogram));
    text.histograms(
        "publish_stage_seconds",
        "Stages of a detection from reception to publication",
        stages,
    );
    text.histograms(
        "publish_latency_seconds",
        "Reception to publication of a detection",
        [(Labels::new(), &latencies.total)],
    );
    for Metric(kind, name, help, samples) in METRICS {
        text.metric(*kind, name, help, samples(status));
    }
    for counter in StreamCounters::ALL {
        let samples = cameras(status, |camera| (counter.get)(&camera.stream.counters));
        text.metric(MetricKind::Counter, counter.metric, counter.help, samples);
    }
    text.0
}

#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    /// Nothing without samples.
    fn metric(&mut self, kind: MetricKind, name: &str, help: &str, samples: MetricSamples) {
        if samples.is_empty() {
            return;
        }
        let (kind, name) = match kind {
            MetricKind::Counter => ("counter", format!("{name}_total")),
            MetricKind::Gauge => ("gauge", name.to_owned()),
        };
        self.head(kind, &name, help);
        for (labels, value) in samples {
            self.sample(&name, &labels, value);
        }
    }

    fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        histograms: impl IntoIterator<Item = (Labels, &'a Histogram)>,
    ) {
        self.head("histogram", name, help);
        for (labels, histogram) in histograms {
            let mut count = 0;
            for (bucket, more) in histogram.counts.iter().enumerate() {
                count += more;
                let limit = match bucket {
                    BUCKETS => "+Inf".to_owned(),
                    _ => (Histogram::limit_tenth_ms(bucket) as f64 / 1e4).to_string(),
                };
                let labels = [labels.clone(), label("le", limit)].concat();
                self.sample(&format!("{name}_bucket"), &labels, count as f64);
            }
            let sum = histogram.sum_tenth_ms as f64 / 1e4;
            self.sample(&format!("{name}_sum"), &labels, sum);
            self.sample(&format!("{name}_count"), &labels, count as f64);
        }
    }

    fn head(&mut self, kind: &str, name: &str, help: &str) {
        // Writing to a String cannot fail.
        _ = write!(
            self.0,
            "# HELP spotter_{name} {help}.\n# TYPE spotter_{name} {kind}\n"
        );
    }

    fn sample(&mut self, name: &str, labels: &Labels, value: f64) {
        let labels = labels
            .iter()
            .map(|(name, value)| format!("{name}={value:?}"));
        let labels = labels.collect::<Vec<_>>().join(",");
        _ = match labels.is_empty() {
            true => writeln!(self.0, "spotter_{name} {value}"),
            false => writeln!(self.0, "spotter_{name}{{{labels}}} {value}"),
        };
    }
}
