//! What the page shows, at one moment. The daemon fills it, `/status.json` is its serialised form. No login and no address
//! of a camera is in it.
//!
//! Health, frame counters, answers and the configuration's report are the types that are published over MQTT. Here they get
//! the keys of `/status.json`, which group some of their fields; a key keeps its name and meaning within a version.

use std::{collections::BTreeMap, time::Duration};

use serde::{Serialize, Serializer, ser::SerializeSeq as _};
use serde_json::{Value, json};

use super::{api::ApiLine, fleet::FleetStatus, webhooks::WebhookLine};
use spotter_core::{
    DetectionBody, DirectionId, FrameCounters, LineId, Location, Prompt, StreamCounters, ZoneId,
    config::{LineConfig, ZoneConfig},
};
use spotter_mqtt::{CameraHealth, ConfigReport};

/// Stages of a latency account; `decode` to `out`.
pub const STAGES: usize = 8;
/// Columns of a latency plot.
pub const COLUMNS: usize = 30;

/// How good a state is. The page gives each a shape and a word besides its colour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mood {
    Good,
    /// Connecting, opening: expected to become good without an operator.
    #[default]
    Busy,
    /// An operator should look.
    Bad,
    /// Off on purpose.
    Off,
}

/// Everything on the page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DaemonStatus {
    /// Version of these keys; new keys do not raise it.
    pub v: u32,
    /// Now, Unix milliseconds.
    pub time_ms: i64,
    pub node: NodeStatus,
    /// Names of the stages, in the order of every account.
    pub stages: Vec<&'static str>,
    /// In the order of the configuration.
    pub cameras: Vec<CameraStatus>,
    /// One for each device.
    pub engines: Vec<EngineStatus>,
    pub broker: BrokerStatus,
    /// By name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<WebhookLine>,
    /// `None`: off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiLine>,
    /// The last load; with errors, the configuration before it keeps running.
    pub config: ConfigReport,
    /// `None`: a box with its own cameras.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct NodeStatus {
    /// As in the topics.
    pub name: String,
    pub version: &'static str,
    pub model: String,
    /// The active mode.
    pub mode: Option<String>,
    pub uptime_s: u64,
    /// Mean of the last ten seconds; unknown at the start.
    pub looks_per_s: Option<f64>,
    /// Reception to publication over the last minute, 95th percentile.
    pub total_p95_ms: Option<f64>,
    pub rss_mib: Option<f64>,
    /// 100 = one core.
    pub cpu_pct: Option<f64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CameraStatus {
    pub id: String,
    pub mood: Mood,
    /// In the order of the configuration; empty: it is looked at always.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerStatus>,
    /// As published on `health`.
    #[serde(flatten, serialize_with = "health_keys")]
    pub health: CameraHealth,
    /// The look whose thumbnail is shown, else the last one.
    pub look: Option<LookStatus>,
    /// In the order of the configuration.
    pub prompts: Vec<PromptStatus>,
    /// Drawn over the picture, as are the lines.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "zone_keys")]
    pub zones: Vec<ZoneConfig>,
    /// Their counts are with the prompts.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "line_keys")]
    pub lines: Vec<LineConfig>,
    /// Over the last minute.
    pub latency: MinuteLatency,
    #[serde(serialize_with = "frame_keys")]
    pub frames: FrameCounters,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TriggerStatus {
    pub id: String,
    pub active: bool,
    /// Times that it became active since the start.
    pub activations: u64,
}

impl CameraStatus {
    /// It streams and is not looked at, because none of its triggers is active.
    pub fn waits_for_trigger(&self) -> bool {
        let is_active = self.triggers.iter().any(|trigger| trigger.active);
        self.mood == Mood::Good && !self.triggers.is_empty() && !is_active
    }
}

/// The look that a card shows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LookStatus {
    /// Number of its frame.
    pub frame: u64,
    /// When the frame was received, Unix milliseconds.
    pub time_ms: i64,
    /// How long ago that was.
    pub age_ms: u64,
    /// Pixels across and down.
    pub size: (u32, u32),
    /// `/camera/<id>.jpg` is the picture of this look.
    pub pictured: bool,
    /// Answers with boxes or points, after the prompts' filters.
    #[serde(rename = "found", serialize_with = "found_keys")]
    pub answers: Vec<LookAnswer>,
}

/// An answer of a look.
#[derive(Clone, Debug, PartialEq)]
pub struct LookAnswer {
    /// Index of its prompt among the camera's.
    pub prompt: usize,
    pub body: DetectionBody,
}

/// A prompt with its last answer.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptStatus {
    pub prompt: std::sync::Arc<Prompt>,
    pub answer: Option<LastAnswer>,
    /// `None` before the camera's first look.
    pub cost: Option<PromptCost>,
    /// The lines at which its objects are counted.
    pub lines: Vec<LineStatus>,
}

/// The counts at a line.
#[derive(Clone, Debug, PartialEq)]
pub struct LineStatus {
    pub line: LineId,
    pub counts: Vec<(DirectionId, u64)>,
}

impl LineStatus {
    /// `door: 12 in, 9 out`
    pub fn words(&self) -> String {
        let counts = self
            .counts
            .iter()
            .map(|(way, count)| format!("{count} {way}"));
        let counts: Vec<_> = counts.collect();
        format!("{}: {}", self.line, counts.join(", "))
    }
}

/// What a prompt asks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PromptCost {
    /// What it sees of a frame, pixels across and down.
    pub pixels: (u32, u32),
    pub crops: usize,
    /// It looks where something moved; the figures are those of its smallest region.
    pub follows_motion: bool,
    /// Prompts that share the image, itself included.
    pub shared_by: usize,
    /// A look with this prompt alone.
    pub tflop: f64,
    /// At its rate, with its part of the images that it shares.
    pub tflop_per_s: f64,
    /// The same as a share of what the devices were measured to do; `None` when they were not.
    pub share: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LastAnswer {
    /// How long ago its frame was received.
    pub age_ms: u64,
    pub body: DetectionBody,
}

/// The latency of a camera's messages over the last minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MinuteLatency {
    pub messages: u64,
    /// Reception to publication, median.
    pub p50_ms: Option<f64>,
    /// Reception to publication, 95th percentile.
    pub p95_ms: Option<f64>,
    /// Mean of each stage.
    pub mean_ms: [f64; STAGES],
    /// Means of short pieces of the minute, oldest first; `None` where there was no message.
    pub columns_ms: Vec<Option<[f64; STAGES]>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineState {
    #[default]
    Runs,
    /// Another model is being opened.
    Opens,
    Ended,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EngineStatus {
    /// `cpu`, or `cuda 1`.
    pub device: String,
    pub state: EngineState,
    /// Share of the span with a look in progress, percent.
    pub busy_pct: f64,
    /// Frames with it now.
    pub under_way: u64,
    /// Length of time that the bars cover.
    pub span_ms: u64,
    /// Looks that ended in the span, oldest first.
    pub bars: Vec<LookBar>,
}

/// A look's stages in an engine. Times are milliseconds from the beginning of the span; a look that began before has
/// negative ones.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LookBar {
    pub camera: String,
    /// Taken, prepared, encoded, first prompt prefilled, last prompt answered.
    pub marks_ms: [f64; 5],
}

/// The connection to the broker.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct BrokerStatus {
    pub mood: Mood,
    /// One word or two.
    pub state: String,
    /// What is wrong and what to do.
    pub reason: Option<String>,
    /// Seconds until the next try.
    pub next_retry_s: Option<f64>,
    /// Host and port, without login.
    pub address: String,
    /// First levels of all topics.
    pub topics: String,
    /// Messages handed over since the start, without states.
    pub sent: u64,
    /// Messages dropped since the start, by reason.
    pub dropped: Vec<(&'static str, u64)>,
    /// Events waiting for the broker.
    pub spooled: u64,
    /// Hand-over to acknowledgement, 95th percentile.
    pub puback_p95_ms: Option<f64>,
}

impl PromptStatus {
    /// The user's words: an object or a question.
    pub fn words(&self) -> &str {
        self.prompt.task.text()
    }
}

impl LastAnswer {
    /// The words of a text.
    pub fn text(&self) -> Option<&str> {
        match &self.body {
            DetectionBody::Text { text, .. } => Some(text),
            DetectionBody::Objects(_) => None,
        }
    }

    /// Of each zone with objects, the longest time of one of them there.
    pub fn dwell(&self) -> BTreeMap<&ZoneId, Duration> {
        let mut longest = BTreeMap::new();
        for dwell in self.body.objects().iter().flat_map(|object| &object.dwell) {
            let time = longest.entry(&dwell.zone).or_default();
            *time = dwell.time.max(*time);
        }
        longest
    }

    /// Of the text, or the highest of the objects; 0..1.
    fn score(&self) -> Option<f64> {
        match &self.body {
            DetectionBody::Objects(objects) => {
                objects.iter().map(|object| object.score).reduce(f64::max)
            }
            DetectionBody::Text { score, .. } => Some(*score),
        }
    }
}

/// Where an object of an answer is, shares of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkPlace {
    /// Left, top, right, bottom.
    Box([f64; 4]),
    Point([f64; 2]),
}

/// An object of an answer, as it is drawn over the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PictureMark {
    /// Index of its prompt among the camera's.
    pub prompt: usize,
    /// Rounded to what a screen shows.
    pub place: MarkPlace,
    /// 0..1.
    pub score: f64,
}

impl LookStatus {
    /// Every object of every answer.
    pub fn marks(&self) -> Vec<PictureMark> {
        self.answers.iter().flat_map(LookAnswer::marks).collect()
    }
}

impl LookAnswer {
    fn marks(&self) -> Vec<PictureMark> {
        let exact = |share: f64| (share * 1e4).round() / 1e4;
        let objects = self.body.objects().iter();
        let mark = objects.map(|object| PictureMark {
            prompt: self.prompt,
            place: match object.location {
                Location::Box(b) => MarkPlace::Box([b.x0, b.y0, b.x1, b.y1].map(exact)),
                Location::Point(p) => MarkPlace::Point([p.x, p.y].map(exact)),
            },
            score: (object.score * 1e3).round() / 1e3,
        });
        mark.collect()
    }
}

/// `stream` groups what is known of the stream and its counters.
fn health_keys<S: Serializer>(health: &CameraHealth, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct StreamKeys<'a> {
        #[serde(flatten)]
        facts: Value,
        #[serde(flatten)]
        counters: &'a StreamCounters,
    }
    let facts = json!({
        "codec": health.codec,
        "size": health.w.zip(health.h),
        "fps": health.fps_measured,
        "fps_declared": health.fps_declared,
        "note": health.note,
        "transport": health.transport,
        "decoder": health.decoder,
        "reconnects_1h": health.reconnects_1h,
        "stalls_1h": health.stalls_1h,
        "clock": {
            "trusted": health.clock.trusted,
            "offset_ms": health.clock.offset_ms,
            "drift_ppm": health.clock.drift_ppm,
            "note": health.clock.note,
        },
    });
    let counters = &health.counters;
    json!({
        "state": health.state,
        "reason": health.reason,
        "since_ms": health.since_ms,
        "next_retry_s": health.next_retry_s,
        "stream": StreamKeys { facts, counters },
    })
    .serialize(serializer)
}

/// `arrived` is the sum of all others; `open` frames wait or are in progress.
fn frame_keys<S: Serializer>(frames: &FrameCounters, serializer: S) -> Result<S::Ok, S::Error> {
    json!({
        "arrived": frames.arrived,
        "looked": frames.looked,
        "skipped": frames.skipped,
        "gated": frames.gated,
        "replaced": frames.replaced,
        "late": frames.late,
        "failed": frames.failed,
        "open": frames.waiting + frames.in_flight,
    })
    .serialize(serializer)
}

fn found_keys<S: Serializer>(answers: &[LookAnswer], serializer: S) -> Result<S::Ok, S::Error> {
    let mut marks = serializer.serialize_seq(None)?;
    for mark in answers.iter().flat_map(LookAnswer::marks) {
        marks.serialize_element(&mark)?;
    }
    marks.end()
}

fn zone_keys<S: Serializer>(zones: &[ZoneConfig], serializer: S) -> Result<S::Ok, S::Error> {
    let keys = |zone: &ZoneConfig| json!({"id": zone.id.as_str(), "polygon": zone.polygon});
    serializer.collect_seq(zones.iter().map(keys))
}

fn line_keys<S: Serializer>(lines: &[LineConfig], serializer: S) -> Result<S::Ok, S::Error> {
    let keys = |line: &LineConfig| {
        json!({
            "id": line.id.as_str(),
            "points": line.points,
            "directions": line.directions.each_ref().map(DirectionId::as_str),
        })
    };
    serializer.collect_seq(lines.iter().map(keys))
}

impl Serialize for PromptStatus {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let answer = self.answer.as_ref().map(|answer| {
            let tenths = |time: Duration| (time.as_secs_f64() * 10.0).round() / 10.0;
            let dwell = answer.dwell().into_iter();
            let dwell: BTreeMap<_, _> = dwell.map(|(zone, time)| (zone, tenths(time))).collect();
            json!({
                "age_ms": answer.age_ms,
                "count": answer.body.count(),
                "dwell_s": dwell,
                "text": answer.text(),
                "score": answer.score(),
            })
        });
        let of_line = |line: &LineStatus| {
            let counts = line.counts.iter();
            let counts = counts.map(|(way, count)| (way.to_string(), json!(count)));
            (line.line.to_string(), Value::Object(counts.collect()))
        };
        let lines = Value::Object(self.lines.iter().map(of_line).collect());
        let exact = |value: f64| (value * 1e4).round() / 1e4;
        let cost = self.cost.map(|cost| {
            json!({
                "pixels": cost.pixels,
                "crops": cost.crops,
                "follows_motion": cost.follows_motion,
                "shared_by": cost.shared_by,
                "tflop": exact(cost.tflop),
                "tflop_per_s": exact(cost.tflop_per_s),
                "share": cost.share.map(exact),
            })
        });
        json!({
            "id": self.prompt.id.as_str(),
            "kind": self.prompt.task.kind(),
            "words": self.words(),
            "answer": answer,
            "lines": lines,
            "cost": cost,
        })
        .serialize(serializer)
    }
}
