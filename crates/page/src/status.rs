//! A daemon at one moment. `/status.json` is this value, serialised; `/metrics` and `/healthz` read the same figures, and those that
//! only they show are skipped in the JSON. No login and no address of a camera is in it.
//!
//! A key of the JSON keeps its name and meaning within a version.

use std::{collections::BTreeMap, time::Duration};

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::{
    access::Visitor,
    trouble::{Trouble, trouble_keys},
};
use spotter_config::{LineConfig, ZoneConfig};
use spotter_core::{
    Detection, DetectionBody, DirectionId, FrameCounters, LineId, Location, Mono, NormPoint,
    ObjectOutline, Phase, Prompt, PromptId, STAGES, StreamCounters, TrackId, TrackedObject,
    TriggerReport, ZoneId,
};

/// Columns of a latency plot.
pub const COLUMNS: usize = 30;

/// How good a state is.
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

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Version of these keys; new keys do not raise it.
    pub v: u32,
    /// Now, Unix milliseconds.
    pub time_ms: i64,
    /// Who asks.
    pub visitor: Visitor,
    /// The page has tokens, with which people log in.
    pub has_login: bool,
    /// Events are stored.
    pub history: bool,
    pub node: NodeStatus,
    /// Names of the stages, in the order of every account.
    pub stages: [&'static str; STAGES.len()],
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
    pub config: ConfigLine,
    /// `None`: a box with its own cameras.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStatus>,
    /// Frames of cameras that were removed, since the start.
    #[serde(skip)]
    pub removed: FrameCounters,
    /// What is wrong now; `/healthz` shows failures alone.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "trouble_keys")]
    pub troubles: Vec<Trouble>,
}

impl Status {
    /// Without what strangers do not see.
    pub fn hide(&mut self) {
        self.cameras
            .iter_mut()
            .for_each(|camera| camera.looks.hide());
        // They repeat values of the file.
        let hidden = "log in, or run `spotter check`, to see it";
        self.config.errors.fill(hidden.to_owned());
    }
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
    /// Processor time since the start.
    #[serde(skip)]
    pub cpu_time: Option<Duration>,
    /// Lines on standard output that were lost since the start.
    #[serde(skip)]
    pub lines_lost: u64,
    /// Requested snapshots since the start, by outcome.
    #[serde(skip)]
    pub snapshots: Vec<(&'static str, u64)>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CameraStatus {
    pub id: String,
    pub mood: Mood,
    /// As published on `health`.
    pub state: Phase,
    pub reason: Option<String>,
    /// When the state began, Unix milliseconds.
    pub since_ms: i64,
    /// Seconds until the next attempt.
    pub next_retry_s: Option<f64>,
    pub stream: StreamStatus,
    /// Width and height of the picture on which its shapes were drawn, if the stream has another aspect ratio now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn_size: Option<[u32; 2]>,
    /// In the order of the configuration; empty: it is looked at always.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub triggers: Vec<TriggerReport>,
    #[serde(serialize_with = "frame_keys")]
    pub frames: FrameCounters,
    /// Times it stopped streaming since the start.
    #[serde(skip)]
    pub losses: u64,
    #[serde(skip)]
    pub reconnects: u64,
    #[serde(skip)]
    pub stalls: u64,
    /// Pipelines that did not end, since the start.
    #[serde(skip)]
    pub abandoned: u32,
    #[serde(flatten)]
    pub looks: CameraLooks,
}

/// What the looks of a camera found.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CameraLooks {
    /// The last look; for the page, the last one with a thumbnail.
    pub look: Option<LookStatus>,
    /// In the order of the configuration.
    pub prompts: Vec<PromptStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "zone_keys")]
    pub zones: Vec<ZoneConfig>,
    /// Their counts are with the prompts.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "line_keys")]
    pub lines: Vec<LineConfig>,
    /// Over the last minute.
    pub latency: MinuteLatency,
}

impl CameraLooks {
    /// Without pictures, outlines and the texts of answers.
    pub fn hide(&mut self) {
        if let Some(look) = &mut self.look {
            look.pictured = false;
            look.found.iter_mut().for_each(|mark| mark.polygon = None);
        }
        for answer in self
            .prompts
            .iter_mut()
            .filter_map(|prompt| prompt.answer.as_mut())
        {
            answer.text = None;
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamStatus {
    pub codec: Option<String>,
    /// Pixels across and down.
    pub size: Option<(u32, u32)>,
    pub fps: Option<f64>,
    pub fps_declared: Option<f64>,
    pub note: Option<String>,
    pub transport: Option<String>,
    pub decoder: Option<String>,
    pub reconnects_1h: u32,
    pub stalls_1h: u32,
    pub clock: ClockStatus,
    #[serde(flatten)]
    pub counters: StreamCounters,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ClockStatus {
    pub trusted: bool,
    pub offset_ms: Option<f64>,
    pub drift_ppm: Option<f64>,
    /// Why it is not trusted.
    pub note: Option<String>,
}

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
    /// Objects of its answers, after the prompts' filters.
    pub found: Vec<PictureMark>,
    #[serde(skip)]
    pub received: Mono,
}

/// An object of an answer, as it is drawn over the picture.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PictureMark {
    /// Index of its prompt among the camera's.
    pub prompt: usize,
    /// Rounded to what a screen shows.
    pub place: MarkPlace,
    /// 0..1.
    pub score: f64,
    /// The rings of its outline, shares of the picture, when it is drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub polygon: Option<Vec<Vec<[f64; 2]>>>,
    #[serde(skip)]
    pub track: TrackId,
}

/// Shares of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum MarkPlace {
    /// Left, top, right, bottom.
    Box([f64; 4]),
    Point([f64; 2]),
}

impl PictureMark {
    /// Of an answer to the prompt with this index. An outline is of an earlier look, unless the picture has not changed since.
    pub fn all(prompt: usize, detection: &Detection) -> impl Iterator<Item = Self> {
        let outline = |object: &TrackedObject| {
            let outline = object.outline.as_ref();
            outline.filter(|_| detection.unchanged).map(|it| rings(it))
        };
        detection.body.objects().iter().map(move |object| Self {
            prompt,
            place: match object.location {
                Location::Box(b) => MarkPlace::Box([b.x0, b.y0, b.x1, b.y1].map(to_ten_thousandth)),
                Location::Point(p) => MarkPlace::Point([p.x, p.y].map(to_ten_thousandth)),
            },
            score: (object.score * 1e3).round() / 1e3,
            polygon: outline(object),
            track: object.track.clone(),
        })
    }
}

/// As marks have them.
pub fn rings(outline: &ObjectOutline) -> Vec<Vec<[f64; 2]>> {
    let ring = |ring: &Vec<NormPoint>| ring.iter().map(|point| point.rounded()).collect();
    outline.polygons.iter().map(ring).collect()
}

/// A prompt with its last answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PromptStatus {
    pub id: PromptId,
    pub kind: &'static str,
    /// The user's words: an object or a question.
    pub words: String,
    pub answer: Option<AnswerStatus>,
    /// By line and direction, the counts of its objects.
    pub lines: BTreeMap<LineId, BTreeMap<DirectionId, u64>>,
    /// `None` before the camera's first look.
    pub cost: Option<PromptCost>,
}

impl PromptStatus {
    /// Without an answer.
    pub fn new(prompt: &Prompt) -> Self {
        Self {
            id: prompt.id.clone(),
            kind: prompt.kind(),
            words: prompt.task.text().to_owned(),
            answer: None,
            lines: BTreeMap::new(),
            cost: None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct AnswerStatus {
    /// How long ago its frame was received.
    pub age_ms: u64,
    /// Objects; `None` for a text.
    pub count: Option<usize>,
    /// Of each zone with objects, the longest time of one of them there.
    pub dwell_s: BTreeMap<ZoneId, f64>,
    pub text: Option<String>,
    /// Of the text, or the highest of the objects; 0..1.
    pub score: Option<f64>,
    #[serde(skip)]
    pub received: Mono,
}

impl AnswerStatus {
    pub fn new(body: &DetectionBody, received: Mono) -> Self {
        let mut dwell_s = BTreeMap::new();
        for dwell in body.objects().iter().flat_map(|object| &object.dwell) {
            let longest: &mut f64 = dwell_s.entry(dwell.zone.clone()).or_default();
            *longest = longest.max(dwell.seconds());
        }
        let (text, score) = match body {
            DetectionBody::Text { text, score, .. } => (Some(text.clone()), Some(*score)),
            DetectionBody::Objects(objects) => {
                let scores = objects.iter().map(|object| object.score);
                (None, scores.reduce(f64::max))
            }
        };
        Self {
            age_ms: 0,
            count: body.count(),
            dwell_s,
            text,
            score,
            received,
        }
    }
}

/// What a prompt asks of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct PromptCost {
    /// What it sees of a frame, pixels across and down.
    pub pixels: (u32, u32),
    pub crops: usize,
    /// It looks where something moved; the figures are those of its smallest region.
    pub follows_motion: bool,
    /// Prompts that share the image, itself included.
    pub shared_by: usize,
    /// Of it, what is not shared with prompts that see the same with another adapter; `None`: no prompt before it does.
    #[serde(
        serialize_with = "four_decimals_if_any",
        skip_serializing_if = "Option::is_none"
    )]
    pub unshared_tflop: Option<f64>,
    /// A look with this prompt alone.
    #[serde(serialize_with = "four_decimals")]
    pub tflop: f64,
    /// At its rate, with its part of the images that it shares.
    #[serde(serialize_with = "four_decimals")]
    pub tflop_per_s: f64,
    /// The same as a share of what the devices were measured to do; `None` when they were not.
    #[serde(serialize_with = "four_decimals_if_any")]
    pub share: Option<f64>,
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
    pub mean_ms: [f64; STAGES.len()],
    /// Means of short pieces of the minute, oldest first; `None` where there was no message.
    pub columns_ms: Vec<Option<[f64; STAGES.len()]>>,
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
    /// Iterations of its loop; `None` when it failed.
    #[serde(skip)]
    pub turns: Option<u64>,
    /// Time with a look in progress since the start.
    #[serde(skip)]
    pub busy: Duration,
    /// Images that its vision encoder encoded since the start, and the steps that encoded them.
    #[serde(skip)]
    pub images: u64,
    #[serde(skip)]
    pub encoding_steps: u64,
    /// UUIDs of its GPUs; none while it does not run.
    #[serde(skip)]
    pub gpus: Vec<String>,
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
    /// Received messages that were dropped because the queue was full.
    #[serde(skip)]
    pub inbound_dropped: u64,
    /// Retained commands, which are never executed.
    #[serde(skip)]
    pub inbound_retained: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct WebhookLine {
    pub name: String,
    /// Host and port, without the rest of the URL.
    pub address: String,
    pub mood: Mood,
    pub state: &'static str,
    /// What is wrong.
    pub reason: Option<String>,
    /// Seconds until the next try.
    pub next_retry_s: Option<f64>,
    /// Events that the receiver has not accepted.
    pub waiting: u64,
    /// Accepted by the receiver since the start.
    pub posted: u64,
    /// Repeated requests since the start.
    pub retried: u64,
    /// Events that the receiver refused since the start.
    pub refused: u64,
    /// Events lost since the start: beyond the bounds, or unreadable.
    pub dropped: u64,
    /// The same events and those above, with the label values of the metric.
    #[serde(skip)]
    pub by_outcome: Vec<(&'static str, u64)>,
}

/// The local HTTP API.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ApiLine {
    pub address: String,
    /// Tokens of which a request needs one; 0: none is needed.
    pub tokens: usize,
    /// Requests in progress.
    pub open: u64,
    /// Answered since the start.
    pub answered: u64,
    /// Refused since the start: wrong, without a token, too many, or without room beside the cameras.
    pub refused: u64,
    /// Not answered since the start because of this box.
    pub failed: u64,
    /// By endpoint and status.
    #[serde(skip)]
    pub totals: BTreeMap<(&'static str, u16), RequestTotals>,
}

/// Requests with the same endpoint and status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    pub count: u64,
    /// From the head of the request to that of its answer.
    pub time: Duration,
}

/// Whether the last configuration that was read is the running one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConfigLine {
    /// `ok` or `rejected`.
    pub state: &'static str,
    /// First digits of the file's hash.
    pub hash: String,
    /// Time of the load, as RFC 3339.
    pub at: String,
    /// The problems, one line each.
    pub errors: Vec<String>,
}

/// The fleet of this node, as the node sees it.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetStatus {
    pub name: String,
    pub mood: Mood,
    /// What is wrong with the store and what to do; `None`: nothing.
    pub reason: Option<String>,
    pub nodes: Vec<FleetNodeStatus>,
    /// Looks of cost 1 a second that cameras ask for and no node can do.
    pub missing_hz: f64,
    /// Cameras of the list that no living node has.
    pub unowned: Vec<String>,
    /// Cameras of this node.
    #[serde(skip)]
    pub own_cameras: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetNodeStatus {
    pub name: String,
    pub mood: Mood,
    pub state: &'static str,
    pub version: String,
    pub labels: Vec<String>,
    /// Looks of cost 1 a second.
    pub capacity_hz: f64,
    /// What its cameras ask for by their configuration, in percent of what it can do.
    pub load_pct: f64,
    pub cameras: Vec<String>,
    /// Cameras of the list that it cannot watch.
    pub refused: usize,
    pub list_revision: Option<u64>,
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

fn zone_keys<S: Serializer>(zones: &[ZoneConfig], serializer: S) -> Result<S::Ok, S::Error> {
    let keys = |zone: &ZoneConfig| json!({"id": zone.id, "polygon": zone.polygon});
    serializer.collect_seq(zones.iter().map(keys))
}

fn line_keys<S: Serializer>(lines: &[LineConfig], serializer: S) -> Result<S::Ok, S::Error> {
    let keys = |line: &LineConfig| json!({"id": line.id, "points": line.points, "directions": line.directions});
    serializer.collect_seq(lines.iter().map(keys))
}

fn to_ten_thousandth(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

fn four_decimals<S: Serializer>(value: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(to_ten_thousandth(*value))
}

fn four_decimals_if_any<S: Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(to_ten_thousandth).serialize(serializer)
}
