//! Every metric of the program: `spotter_<stage>_<noun>_<unit>`, counters end in `_total`. Labels are bounded: cameras, prompts'
//! stages, reasons.
//!
//! Written from [`Status`] for each request, so that a camera that was removed leaves no line. Only the histograms have state here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    iter::once,
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{
        DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, MetricEncoder, NoLabelSet, text,
    },
    metrics::{
        MetricType,
        family::Family,
        histogram::{Histogram, exponential_buckets},
    },
    registry::{Registry, Unit},
};

use crate::status::{ApiLine, CameraStatus, FleetStatus, Mood, Status, WebhookLine};
use spotter_core::{Latency, Phase, STAGES, StreamCounters};

/// Names and values of the labels of a line.
type Labels = Vec<(&'static str, String)>;

/// How a metric is declared.
struct MetricHead {
    kind: MetricType,
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
}

/// A metric with one value of each `T`.
struct StatusMetric<T> {
    head: MetricHead,
    value: fn(&T) -> u64,
}

const fn head(kind: MetricType, name: &'static str, help: &'static str) -> MetricHead {
    MetricHead {
        kind,
        name,
        help,
        unit: None,
    }
}

macro_rules! status_metrics {
    ($name:ident of $of:ty { $($kind:ident $metric:literal, $help:literal, $value:expr;)+ }) => {
        const $name: &[StatusMetric<$of>] =
            &[$(StatusMetric { head: head(MetricType::$kind, $metric, $help), value: $value }),+];
    };
}

// By the label `camera`.
status_metrics!(OF_CAMERA of CameraStatus {
    Gauge "ingest_camera_online", "1 while frames arrive", |camera| u64::from(camera.state == Phase::Streaming);
    Gauge "ingest_camera_reconnects_1h", "Reconnections of a camera within the last hour", |camera| camera.stream.reconnects_1h.into();
    Gauge "ingest_camera_stalls_1h", "Stalls of a camera within the last hour", |camera| camera.stream.stalls_1h.into();
    Gauge "sampler_frames_waiting", "Frames that wait for the engine", |camera| camera.frames.waiting;
    Gauge "engine_frames_in_flight", "Frames in the engine", |camera| camera.frames.in_flight;
    Gauge "triggers_active", "Triggers of a camera that are active",
        |camera| camera.triggers.iter().map(|trigger| u64::from(trigger.is_active)).sum();
    Counter "ingest_frames", "Decoded frames", |camera| camera.frames.arrived;
    Counter "ingest_camera_losses", "Times that a camera stopped streaming", |camera| camera.losses;
    Counter "ingest_camera_reconnects", "Reconnections of a camera", |camera| camera.reconnects;
    Counter "ingest_camera_stalls", "Stalls of a camera", |camera| camera.stalls;
    Counter "ingest_pipelines_abandoned", "Pipelines that did not stop in time and were abandoned", |camera| camera.abandoned.into();
    Counter "triggers_activations", "Times that a trigger of a camera became active",
        |camera| camera.triggers.iter().map(|trigger| trigger.activations).sum();
});

status_metrics!(OF_NODE of Status {
    Gauge "publish_broker_online", "1 while the broker accepts messages", |status| u64::from(status.broker.mood == Mood::Good);
    Gauge "publish_spooled_messages", "Events waiting for the broker", |status| status.broker.spooled;
    Counter "publish_messages", "Messages handed to the MQTT client", |status| status.broker.sent;
    Counter "publish_inbound_dropped", "Received commands and other messages that were dropped because the queue was full",
        |status| status.broker.inbound_dropped;
    Counter "publish_inbound_retained", "Commands ignored because they were retained", |status| status.broker.inbound_retained;
    Counter "publish_feed_dropped", "Always 0: webhooks get events from the event log", |_| 0;
    Counter "app_lines_lost", "Lines of run --json that were dropped because standard output was read too slowly",
        |status| status.node.lines_lost;
});

// By the label `webhook`.
status_metrics!(OF_WEBHOOK of WebhookLine {
    Counter "webhook_retries", "Requests of a webhook that repeated a failed one", |webhook| webhook.retried;
    Gauge "webhook_waiting_events", "Events waiting for the receiver of a webhook", |webhook| webhook.waiting;
});

// By the label `fleet`.
status_metrics!(OF_FLEET of FleetStatus {
    Gauge "fleet_joined", "1 while the fleet's store answers and no other box has this one's name",
        |fleet| u64::from(fleet.reason.is_none());
    Gauge "fleet_cameras", "Cameras of this box", |fleet| fleet.own_cameras;
    Gauge "fleet_boxes", "Boxes with a heartbeat",
        |fleet| fleet.nodes.iter().filter(|node| node.mood != Mood::Bad).count() as u64;
    Gauge "fleet_cameras_unowned", "Cameras of the list that no living box has", |fleet| fleet.unowned.len() as u64;
});

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

/// Stages of detections, and the whole. Clones share the state; no call blocks.
#[derive(Clone, Debug)]
pub struct LatencyHistograms {
    /// By the label `stage`.
    stages: Family<Labels, Histogram, fn() -> Histogram>,
    total: Histogram,
}

impl Default for LatencyHistograms {
    fn default() -> Self {
        // 1 ms to about 8 s, by doubling.
        let empty = || Histogram::new(exponential_buckets(0.001, 2.0, 14));
        Self {
            stages: Family::new_with_constructor(empty),
            total: empty(),
        }
    }
}

impl LatencyHistograms {
    /// A detection was handed to the MQTT client.
    pub fn observe(&self, latency: &Latency) {
        let seconds = |tenth_ms: u64| tenth_ms as f64 / 1e4;
        self.total.observe(seconds(latency.total_tenth_ms));
        for (stage, tenth_ms) in STAGES.iter().zip(latency.stages_tenth_ms) {
            let stage = self.stages.get_or_create(&label("stage", stage));
            stage.observe(seconds(tenth_ms));
        }
    }
}

/// All metrics as text.
pub fn encode(status: Status, latencies: &LatencyHistograms, format: MetricsFormat) -> String {
    let mut registry = Registry::with_prefix("spotter");
    registry.register_with_unit(
        "publish_stage",
        "Stages of a detection from reception to publication",
        Unit::Seconds,
        latencies.stages.clone(),
    );
    registry.register_with_unit(
        "publish_latency",
        "Reception to publication of a detection",
        Unit::Seconds,
        latencies.total.clone(),
    );
    registry.register_collector(Box::new(StatusFigures(status)));
    let mut page = String::new();
    // Writing to a String cannot fail.
    _ = text::encode(&mut page, &registry);
    match format {
        MetricsFormat::OpenMetrics => page,
        MetricsFormat::PrometheusText => prometheus_text(&page),
    }
}

#[derive(Debug)]
struct StatusFigures(Status);

impl Collector for StatusFigures {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut text = MetricsText(encoder);
        let Self(status) = self;
        // Not of the type info, which only OpenMetrics knows.
        let version = label("version", env!("CARGO_PKG_VERSION"));
        text.gauges("build_info", "Version of the program", [(version, 1_u64)])?;
        text.figures(OF_NODE, &[(Vec::new(), status)])?;
        text.process(status)?;
        text.cameras(&status.cameras)?;
        text.engines(status)?;
        text.messages(status)?;
        text.webhooks(status)?;
        status
            .fleet
            .iter()
            .try_for_each(|fleet| text.fleet(fleet))?;
        status.api.iter().try_for_each(|api| text.api(api))
    }
}

fn label(name: &'static str, value: impl ToString) -> Labels {
    vec![(name, value.to_string())]
}

struct MetricsText<'a>(DescriptorEncoder<'a>);

impl MetricsText<'_> {
    fn process(&mut self, status: &Status) -> fmt::Result {
        let memory = MetricHead {
            unit: Some(Unit::Bytes),
            ..head(
                MetricType::Gauge,
                "process_resident_memory",
                "Resident memory of the daemon",
            )
        };
        let bytes = status.node.rss_mib.unwrap_or_default() * 1024.0 * 1024.0;
        self.family(&memory, [(Vec::new(), bytes as u64)])?;
        let time = status.node.cpu_time.unwrap_or_default();
        self.seconds(
            "process_cpu",
            "Processor time of the daemon, all threads",
            [(Vec::new(), time)],
        )?;
        let outcomes = status.node.snapshots.iter();
        self.counters(
            "app_snapshots",
            "Requested pictures of events and cameras, by outcome",
            outcomes.map(|(outcome, count)| (label("outcome", outcome), *count)),
        )
    }

    fn cameras(&mut self, cameras: &[CameraStatus]) -> fmt::Result {
        let labelled = cameras
            .iter()
            .map(|camera| (label("camera", &camera.id), camera));
        let labelled: Vec<_> = labelled.collect();
        self.figures(OF_CAMERA, &labelled)?;
        for counter in StreamCounters::ALL {
            let total = |camera: &CameraStatus| (counter.get)(&camera.stream.counters);
            let totals = labelled
                .iter()
                .map(|(label, camera)| (label.clone(), total(camera)));
            self.counters(counter.metric, counter.help, totals)?;
        }
        let fates = labelled.iter().flat_map(|(label, camera)| {
            let frames = &camera.frames;
            // Each of these only rises; frames waiting and in flight are gauges.
            let fates = [
                ("replaced", frames.replaced),
                ("skipped", frames.skipped),
                ("gated", frames.gated),
                ("late", frames.late),
                ("looked", frames.looked),
                ("failed", frames.failed),
            ];
            fates.map(|(fate, count)| {
                let fate = ("fate", fate.to_owned());
                (label.iter().cloned().chain(once(fate)).collect(), count)
            })
        });
        self.counters(
            "sampler_frames",
            "Decoded frames by fate; with those waiting and in flight they add up to all decoded frames",
            fates,
        )
    }

    fn engines(&mut self, status: &Status) -> fmt::Result {
        let device = |device: &String| label("device", device);
        let engines = || status.engines.iter();
        let up =
            engines().map(|engine| (device(&engine.device), u64::from(engine.turns.is_some())));
        self.gauges("engine_up", "1 while the engine on the device runs", up)?;
        self.counters(
            "engine_turns",
            "Iterations of the engine's loop: about one per step under load, about one per second when idle",
            engines().filter_map(|engine| Some((device(&engine.device), engine.turns?))),
        )?;
        let busy = engines().map(|engine| (device(&engine.device), engine.busy));
        self.seconds("engine_busy", "Time with a look in progress", busy)
    }

    fn messages(&mut self, status: &Status) -> fmt::Result {
        let dropped = status.broker.dropped.iter();
        self.counters(
            "publish_messages_dropped",
            "Messages not sent, by reason",
            dropped.map(|(reason, count)| (label("reason", reason), *count)),
        )?;
        let puback = MetricHead {
            unit: Some(Unit::Seconds),
            ..head(
                MetricType::Gauge,
                "publish_puback_p95",
                "Hand-over of a state to its acknowledgement, 95th percentile",
            )
        };
        let seconds = status.broker.puback_p95_ms.unwrap_or_default() / 1e3;
        self.family(&puback, [(Vec::new(), seconds)])
    }

    fn webhooks(&mut self, status: &Status) -> fmt::Result {
        let webhooks = || status.webhooks.iter();
        let events = webhooks().flat_map(|webhook| {
            let outcomes = webhook.by_outcome.iter();
            outcomes.map(|(outcome, count)| {
                let outcome = ("outcome", (*outcome).to_owned());
                (vec![("webhook", webhook.name.clone()), outcome], *count)
            })
        });
        self.counters(
            "webhook_events",
            "Events of a webhook by outcome: posted, refused by the receiver, dropped",
            events,
        )?;
        let labelled = webhooks().map(|webhook| (label("webhook", &webhook.name), webhook));
        self.figures(OF_WEBHOOK, &labelled.collect::<Vec<_>>())
    }

    fn fleet(&mut self, fleet: &FleetStatus) -> fmt::Result {
        let name = label("fleet", &fleet.name);
        self.figures(OF_FLEET, &[(name.clone(), fleet)])?;
        self.gauges(
            "fleet_missing_looks_per_second",
            "Looks of cost 1 a second that cameras of the fleet ask for and its boxes cannot do",
            [(name, fleet.missing_hz)],
        )
    }

    fn api(&mut self, api: &ApiLine) -> fmt::Result {
        let requests = api.totals.iter().map(|((endpoint, status), totals)| {
            let status = ("status", status.to_string());
            (
                vec![("endpoint", (*endpoint).to_owned()), status],
                totals.count,
            )
        });
        self.counters(
            "api_requests",
            "Requests to the HTTP API by endpoint and status; 499: the client disconnected before the answer",
            requests,
        )?;
        let mut times: BTreeMap<&str, Duration> = BTreeMap::new();
        for ((endpoint, _), totals) in &api.totals {
            *times.entry(endpoint).or_default() += totals.time;
        }
        self.seconds(
            "api_request_time",
            "Time of all requests to the HTTP API, from the head of a request to that of its answer",
            times.into_iter().map(|(endpoint, time)| (label("endpoint", endpoint), time)),
        )
    }

    fn figures<T>(&mut self, figures: &[StatusMetric<T>], of: &[(Labels, &T)]) -> fmt::Result {
        for figure in figures {
            let values = of
                .iter()
                .map(|(labels, of)| (labels.clone(), (figure.value)(of)));
            self.family(&figure.head, values)?;
        }
        Ok(())
    }

    fn gauges<V: EncodeCounterValue + EncodeGaugeValue>(
        &mut self,
        name: &'static str,
        help: &'static str,
        values: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        self.family(&head(MetricType::Gauge, name, help), values)
    }

    fn counters(
        &mut self,
        name: &'static str,
        help: &'static str,
        values: impl IntoIterator<Item = (Labels, u64)>,
    ) -> fmt::Result {
        self.family(&head(MetricType::Counter, name, help), values)
    }

    /// Counters of time.
    fn seconds(
        &mut self,
        name: &'static str,
        help: &'static str,
        times: impl IntoIterator<Item = (Labels, Duration)>,
    ) -> fmt::Result {
        let head = MetricHead {
            unit: Some(Unit::Seconds),
            ..head(MetricType::Counter, name, help)
        };
        let values = times
            .into_iter()
            .map(|(labels, time)| (labels, time.as_secs_f64()));
        self.family(&head, values)
    }

    /// Nothing without values.
    fn family<V: EncodeCounterValue + EncodeGaugeValue>(
        &mut self,
        head: &MetricHead,
        values: impl IntoIterator<Item = (Labels, V)>,
    ) -> fmt::Result {
        let mut values = values.into_iter().peekable();
        if values.peek().is_none() {
            return Ok(());
        }
        let (kind, help) = (head.kind, format!("{}.", head.help));
        let unit = head.unit.as_ref();
        let mut metric = self.0.encode_descriptor(head.name, &help, unit, kind)?;
        for (labels, value) in values {
            match labels.is_empty() {
                true => encode_value(&mut metric, kind, &value)?,
                false => encode_value(&mut metric.encode_family(&labels)?, kind, &value)?,
            }
        }
        Ok(())
    }
}

fn encode_value<V: EncodeCounterValue + EncodeGaugeValue>(
    line: &mut MetricEncoder<'_>,
    kind: MetricType,
    value: &V,
) -> fmt::Result {
    match kind {
        MetricType::Counter => line.encode_counter::<NoLabelSet, _, u64>(value, None),
        _ => line.encode_gauge(value),
    }
}

#[cfg(test)]
mod tests;
