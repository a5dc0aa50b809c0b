//! The detection message (docs/mqtt.md section 2): a [`Detection`] as JSON, with a latency account that adds up.
//!
//! [`to_json`] is called immediately before the hand-over to the client library: it sets `publish_ms` and the stage `out`.

use std::{collections::BTreeMap, sync::Arc};

use serde::Serialize;

use spotter_core::{
    CaptureSource, Detection, DetectionBody, Epoch, Latency, Location, Mono, NormBox, NormPoint,
    ScoreSource, SkippedSinceLast, StripShape, TrackedObject, WallTime, ZoneDwell, ZoneId,
    yes_or_no,
};

/// Version of the schema; rises when a meaning changes, not when a key is added.
pub(crate) const SCHEMA: u32 = 1;

/// What the outbox assigns to a detection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// ULID: unique, sorts by time.
    pub id: String,
    /// Identifies this run of the daemon.
    pub boot: Arc<str>,
    /// Rises by one per topic within a boot.
    pub seq: u64,
    /// Of a fleet's camera.
    pub epoch: Option<Epoch>,
}

// The keys of all parts are in alphabetical order, as in every version.

#[derive(Serialize)]
struct DetectionPayload<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    answer: Option<&'a str>,
    boot: &'a str,
    cam: &'a str,
    count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    frame: FramePart,
    id: &'a str,
    lat_ms: LatencyPart,
    model: &'a str,
    objects: Vec<ObjectPart<'a>>,
    prompt: PromptPart<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    region: Option<[f64; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score_src: Option<&'static str>,
    seq: u64,
    since_last: SkippedSinceLast,
    #[serde(skip_serializing_if = "Option::is_none")]
    strip: Option<StripPart>,
    time: TimePart,
    truncated: bool,
    #[serde(skip_serializing_if = "is_false")]
    unchanged: bool,
    v: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<bool>,
}

#[derive(Serialize)]
struct FramePart {
    h: u32,
    key: bool,
    model_h: u32,
    model_w: u32,
    n: u64,
    w: u32,
}

#[derive(Serialize)]
struct PromptPart<'a> {
    id: &'a str,
    kind: &'static str,
    rev: u32,
    text: &'a str,
}

#[derive(Serialize)]
struct StripPart {
    frames: u8,
    over_s: f64,
}

#[derive(Serialize)]
struct LatencyPart {
    camera: Option<f64>,
    decode: f64,
    end_to_end: Option<f64>,
    generate: f64,
    out: f64,
    post: f64,
    prep: f64,
    prompt: f64,
    total: f64,
    vision: f64,
    wait: f64,
}

#[derive(Serialize)]
struct TimePart {
    capture: Option<String>,
    capture_err_ms: Option<f64>,
    capture_ms: Option<i64>,
    capture_src: &'static str,
    publish_ms: u64,
    recv_ms: i64,
    rtp: Option<u32>,
}

#[derive(Serialize)]
struct ObjectPart<'a> {
    age_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    area: Option<f64>,
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    corners: Option<[f64; 4]>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    dwell_s: BTreeMap<&'a str, f64>,
    point: [f64; 2],
    score: f64,
    score_src: &'static str,
    sharpness: f64,
    track: &'a str,
    zones: &'a [ZoneId],
}

/// The payload. `now` is this moment, directly before the bytes go to the client library.
pub(crate) fn to_json(detection: &Detection, label: &Label, now: Mono) -> Vec<u8> {
    let prompt = &detection.prompt;
    let (frame, model_size) = (&detection.frame, detection.model_size);
    let (answer, score, score_source) = match &detection.body {
        DetectionBody::Objects(_) => (None, None, None),
        DetectionBody::Text {
            text,
            score,
            source,
        } => (Some(text.as_str()), Some(rounded(*score, 3)), Some(*source)),
    };
    let payload = DetectionPayload {
        answer,
        boot: &label.boot,
        cam: frame.camera.as_str(),
        count: detection.body.count(),
        epoch: label.epoch,
        frame: FramePart {
            h: frame.camera_size.1,
            key: frame.key,
            model_h: model_size.1,
            model_w: model_size.0,
            n: frame.number,
            w: frame.camera_size.0,
        },
        id: &label.id,
        lat_ms: LatencyPart::from(Latency::of(detection, now)),
        model: &detection.model,
        objects: detection
            .body
            .objects()
            .iter()
            .map(ObjectPart::from)
            .collect(),
        prompt: PromptPart {
            id: prompt.id.as_str(),
            kind: prompt.task.kind(),
            rev: prompt.revision,
            text: prompt.task.text(),
        },
        region: detection.region.as_ref().map(corners),
        score,
        score_src: score_source.map(ScoreSource::name),
        seq: label.seq,
        since_last: detection.since_last,
        strip: prompt.view.strip.map(StripPart::from),
        time: TimePart::new(detection, now),
        truncated: detection.truncated,
        unchanged: detection.unchanged,
        v: SCHEMA,
        value: answer.and_then(yes_or_no),
    };
    // Numbers, texts and lists under text keys always serialise.
    serde_json::to_vec(&payload).unwrap_or_default()
}

impl From<StripShape> for StripPart {
    fn from(strip: StripShape) -> Self {
        Self {
            frames: strip.frames,
            over_s: rounded(strip.over.as_secs_f64(), 3),
        }
    }
}

impl From<Latency> for LatencyPart {
    fn from(latency: Latency) -> Self {
        let ms = |tenth_ms: i64| tenth_ms as f64 / 10.0;
        let total = latency.total_tenth_ms as i64;
        // In the order of `STAGES`.
        let [decode, wait, prep, vision, prompt, generate, post, out] =
            latency.stages_tenth_ms.map(|tenth_ms| ms(tenth_ms as i64));
        Self {
            camera: latency.camera_tenth_ms.map(ms),
            decode,
            end_to_end: latency.camera_tenth_ms.map(|camera| ms(camera + total)),
            generate,
            out,
            post,
            prep,
            prompt,
            total: ms(total),
            vision,
            wait,
        }
    }
}

impl TimePart {
    fn new(detection: &Detection, now: Mono) -> Self {
        let times = &detection.frame.times;
        let capture = times.capture;
        Self {
            capture: capture.and_then(|capture| rfc3339(capture.wall)),
            capture_err_ms: capture
                .and_then(|capture| capture.error_ms)
                .map(|ms| rounded(ms, 1)),
            capture_ms: capture.map(|capture| capture.wall.unix_millis()),
            capture_src: match capture.map(|capture| capture.source) {
                Some(CaptureSource::Rtcp) => "rtcp",
                Some(CaptureSource::Arrival) => "arrival",
                Some(CaptureSource::File) => "file",
                None => "none",
            },
            publish_ms: detection.unix_ms(now),
            recv_ms: times.received_wall.unix_millis(),
            rtp: times.rtp,
        }
    }
}

impl<'a> From<&'a TrackedObject> for ObjectPart<'a> {
    fn from(object: &'a TrackedObject) -> Self {
        let (area, corners, point) = match object.location {
            Location::Box(bounds) => (
                Some(rounded(bounds.area(), 4)),
                Some(corners(&bounds)),
                bounds.centre(),
            ),
            Location::Point(point) => (None, None, point),
        };
        Self {
            age_s: rounded(object.age.as_secs_f64(), 1),
            area,
            corners,
            dwell_s: dwell_s(&object.dwell),
            point: pair(point),
            score: rounded(object.score, 3),
            score_src: object.score_source.name(),
            sharpness: rounded(object.sharpness, 3),
            track: object.track.as_str(),
            zones: &object.zones,
        }
    }
}

/// The seconds in each zone.
pub(crate) fn dwell_s(times: &[ZoneDwell]) -> BTreeMap<&str, f64> {
    let seconds = |dwell: &ZoneDwell| rounded(dwell.time.as_secs_f64(), 1);
    let times = times.iter();
    times
        .map(|dwell| (dwell.zone.as_str(), seconds(dwell)))
        .collect()
}

fn is_false(value: &bool) -> bool {
    !value
}

/// `2026-08-22T10:15:30.123Z`; `None` outside of the calendar.
pub(crate) fn rfc3339(wall: WallTime) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(wall.unix_millis()).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

pub(crate) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

pub(crate) fn corners(bounds: &NormBox) -> [f64; 4] {
    [bounds.x0, bounds.y0, bounds.x1, bounds.y1].map(|share| rounded(share, 4))
}

pub(crate) fn pair(point: NormPoint) -> [f64; 2] {
    [point.x, point.y].map(|share| rounded(share, 4))
}

#[cfg(test)]
#[path = "detection_tests.rs"]
pub(crate) mod tests;
