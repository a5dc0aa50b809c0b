//! The detection message (contract section 3): facts in, JSON out, with a latency account that adds up.
//!
//! A [`Detection`] is plain facts. It becomes bytes in [`Detection::to_json`], called when the client library takes
//! the message and not before: `publish_ms` and the stage `out` are read there.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use spotter_core::{
    Answer, AnswerBody, CameraId, CaptureSource, FoundObject, Frame, FrameTimes, Mono, NormBox,
    NormPoint, ScoreSource, SkippedSinceLast, TrackId, WallTime, ZoneId, yes_or_no,
};

/// Version of the schema; rises when a meaning changes, not when a key is added.
pub(super) const SCHEMA: u32 = 1;

/// What one frame showed for one prompt. Holds no pixels: a message that waits must not hold a decoder's memory.
#[derive(Clone, Debug)]
pub struct Detection {
    camera: CameraId,
    frame_number: u64,
    camera_size: (u32, u32),
    key: bool,
    times: FrameTimes,
    model_size: (u32, u32),
    model: Arc<str>,
    answer: Answer,
    zones: Vec<Vec<ZoneId>>,
    tracks: Vec<(TrackId, Duration)>,
    finished: Mono,
    pub(super) since_last: SkippedSinceLast,
}

impl Detection {
    /// `answer` has passed the filters of the prompt. `model` is the name with the first characters of the weights'
    /// hash. `finished` is when parsing and tracking were done and the message was handed over.
    pub fn new(
        frame: &Frame,
        model: Arc<str>,
        model_size: (u32, u32),
        answer: Answer,
        finished: Mono,
    ) -> Self {
        Self {
            camera: frame.camera.clone(),
            frame_number: frame.number,
            camera_size: frame.camera_size,
            key: frame.key,
            times: frame.times,
            model_size,
            model,
            answer,
            zones: Vec::new(),
            tracks: Vec::new(),
            finished,
            since_last: SkippedSinceLast::default(),
        }
    }

    /// Names the zones of each object, in the answer's order.
    #[must_use]
    pub fn in_zones(mut self, zones: Vec<Vec<ZoneId>>) -> Self {
        self.zones = zones;
        self
    }

    /// Names the track of each object and how long ago it was seen first, in the answer's order.
    #[must_use]
    pub fn followed(mut self, tracks: Vec<(TrackId, Duration)>) -> Self {
        self.tracks = tracks;
        self
    }

    /// Says which frames were passed over since the previous detection of this camera and prompt.
    #[must_use]
    pub fn after(mut self, since_last: SkippedSinceLast) -> Self {
        self.since_last = since_last;
        self
    }

    /// Whose frame.
    pub fn camera(&self) -> &CameraId {
        &self.camera
    }

    /// The answer.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// True when objects were asked for and none was found.
    pub fn is_empty(&self) -> bool {
        self.answer.body.count() == Some(0)
    }

    /// UTC at `now`, Unix milliseconds, by the monotonic clock from the frame's reception on: a step of UTC between the
    /// two must not show as latency.
    pub(super) fn unix_ms(&self, now: Mono) -> u64 {
        let received_ns = self.times.received_wall.unix_nanos();
        let since_received_ns = now.since(self.times.received).as_nanos() as i64;
        let wall = WallTime::from_unix_nanos(received_ns + since_received_ns);
        u64::try_from(wall.unix_millis()).unwrap_or(0)
    }

    /// The latency account as it stands when the message leaves at `now`.
    pub fn latency(&self, now: Mono) -> Latency {
        let times = &self.times;
        let marks = &self.answer.marks;
        let stages = [
            times.decoded,
            marks.taken,
            marks.prepared,
            marks.encoded,
            marks.prefilled,
            marks.generated,
            self.finished,
            now,
        ];
        let camera = times.capture.and_then(|capture| match capture.source {
            CaptureSource::Rtcp | CaptureSource::File => {
                Some(times.received_wall.seconds_since(capture.wall))
            }
            CaptureSource::Arrival => None,
        });
        Latency::new(times.received, stages, camera)
    }

    /// The payload. `now` is this moment, directly before the bytes go to the client library.
    pub fn to_json(&self, label: &Label, now: Mono) -> Vec<u8> {
        let prompt = &self.answer.prompt;
        let latency = self.latency(now);
        let mut message = json!({
            "v": SCHEMA,
            "id": label.id,
            "boot": label.boot,
            "cam": self.camera.as_str(),
            "prompt": {
                "id": prompt.id.as_str(), "rev": prompt.revision,
                "kind": prompt.task.kind(), "text": prompt.task.text(),
            },
            "model": &*self.model,
            "seq": label.seq,
            "frame": {
                "n": self.frame_number, "w": self.camera_size.0, "h": self.camera_size.1,
                "model_w": self.model_size.0, "model_h": self.model_size.1, "key": self.key,
            },
            "time": self.time(now),
            "lat_ms": latency.to_json(),
            "since_last": {
                "gated": self.since_last.gated,
                "late": self.since_last.late,
                "busy": self.since_last.busy,
                "error": self.since_last.error,
            },
            "count": self.answer.body.count(),
            "truncated": self.answer.truncated,
            "objects": self.objects(),
        });
        if let AnswerBody::Text { text, score } = &self.answer.body {
            message["answer"] = json!(text);
            message["score"] = json!(rounded(*score, 3));
            message["score_src"] = json!(source(ScoreSource::TokenProb));
            if let Some(value) = yes_or_no(text) {
                message["value"] = json!(value);
            }
        }
        message.to_string().into_bytes()
    }

    fn time(&self, now: Mono) -> Value {
        let times = &self.times;
        let source = match times.capture.map(|capture| capture.source) {
            Some(CaptureSource::Rtcp) => "rtcp",
            Some(CaptureSource::Arrival) => "arrival",
            Some(CaptureSource::File) => "file",
            None => "none",
        };
        json!({
            "capture": times.capture.and_then(|capture| rfc3339(capture.wall)),
            "capture_ms": times.capture.map(|capture| capture.wall.unix_millis()),
            "capture_src": source,
            "capture_err_ms": times.capture.and_then(|capture| capture.error_ms).map(|ms| rounded(ms, 1)),
            "recv_ms": times.received_wall.unix_millis(),
            "publish_ms": self.unix_ms(now),
            "rtp": times.rtp,
        })
    }

    fn objects(&self) -> Vec<Value> {
        match &self.answer.body {
            AnswerBody::Boxes(boxes) => boxes
                .iter()
                .enumerate()
                .map(|(index, found)| {
                    let mut object = self.object(index, found);
                    object["box"] = json!(corners(&found.place));
                    object["point"] = json!(pair(found.place.centre()));
                    object["area"] = json!(rounded(found.place.area(), 4));
                    object
                })
                .collect(),
            AnswerBody::Points(points) => points
                .iter()
                .enumerate()
                .map(|(index, found)| {
                    let mut object = self.object(index, found);
                    object["point"] = json!(pair(found.place));
                    object
                })
                .collect(),
            AnswerBody::Text { .. } => Vec::new(),
        }
    }

    /// What points and boxes have in common. `track` and `age_s` of what nobody follows are unknown.
    fn object<T>(&self, index: usize, found: &FoundObject<T>) -> Value {
        let zones: Vec<&str> = self
            .zones
            .get(index)
            .map(|zones| zones.iter().map(ZoneId::as_str).collect())
            .unwrap_or_default();
        let track = self.tracks.get(index);
        json!({
            "score": rounded(found.score, 3),
            "score_src": source(found.source),
            "sharpness": rounded(found.sharpness, 3),
            "track": track.map(|(track, _)| track.as_str()),
            "age_s": track.map(|(_, age)| rounded(age.as_secs_f64(), 1)),
            "zones": zones,
        })
    }
}

/// What the outbox gives a detection when it accepts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// ULID: unique, sorts by time.
    pub id: String,
    /// Names this run of the daemon.
    pub boot: Arc<str>,
    /// Rises by one per topic within a boot.
    pub seq: u64,
}

/// Stage times in tenths of a millisecond. The moments are rounded and then subtracted, so the stages add up to the
/// total exactly, whatever was rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// decode, wait, prep, vision, prompt, generate, post, out.
    pub stages_tenth_ms: [u64; 8],
    /// Reception to publication.
    pub total_tenth_ms: u64,
    /// Capture to reception, when the capture time can be trusted.
    pub camera_tenth_ms: Option<i64>,
}

/// Names of the stages, in order.
pub const STAGES: [&str; 8] = [
    "decode", "wait", "prep", "vision", "prompt", "generate", "post", "out",
];

impl Latency {
    fn new(received: Mono, ends: [Mono; 8], camera_s: Option<f64>) -> Self {
        let mut stages_tenth_ms = [0; 8];
        let mut previous = 0;
        for (stage, end) in stages_tenth_ms.iter_mut().zip(ends) {
            // A moment before its predecessor is a stage that took no time; the account stays whole.
            let tenth_ms = tenths(end.since(received)).max(previous);
            *stage = tenth_ms - previous;
            previous = tenth_ms;
        }
        Self {
            stages_tenth_ms,
            total_tenth_ms: previous,
            camera_tenth_ms: camera_s.map(|seconds| (seconds * 10_000.0).round() as i64),
        }
    }

    fn to_json(self) -> Value {
        let ms = |tenth_ms: i64| tenth_ms as f64 / 10.0;
        let total = self.total_tenth_ms as i64;
        let mut fields = serde_json::Map::new();
        fields.insert("camera".into(), json!(self.camera_tenth_ms.map(ms)));
        for (name, tenth_ms) in STAGES.iter().zip(self.stages_tenth_ms) {
            fields.insert((*name).into(), json!(ms(tenth_ms as i64)));
        }
        fields.insert("total".into(), json!(ms(total)));
        let end_to_end = self.camera_tenth_ms.map(|camera| ms(camera + total));
        fields.insert("end_to_end".into(), json!(end_to_end));
        Value::Object(fields)
    }
}

/// `score_src`.
pub(super) fn source(source: ScoreSource) -> &'static str {
    match source {
        ScoreSource::TokenProb => "token_prob",
        ScoreSource::Verify => "verify",
    }
}

fn tenths(time: Duration) -> u64 {
    ((time.as_nanos() + 50_000) / 100_000) as u64
}

/// `2026-08-22T10:15:30.123Z`; `None` outside of the calendar.
pub(super) fn rfc3339(wall: WallTime) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(wall.unix_millis()).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

pub(super) fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

pub(super) fn corners(place: &NormBox) -> [f64; 4] {
    [place.x0, place.y0, place.x1, place.y1].map(|share| rounded(share, 4))
}

pub(super) fn pair(point: NormPoint) -> [f64; 2] {
    [point.x, point.y].map(|share| rounded(share, 4))
}

#[cfg(test)]
#[path = "detection_tests.rs"]
pub(super) mod tests;
