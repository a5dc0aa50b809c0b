//! The detection message (docs/mqtt.md section 2): a [`Detection`] as JSON, with a latency account that adds up.
//!
//! [`to_json`] is called immediately before the hand-over to the client library: it sets `publish_ms` and the stage `out`.

use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value, json};

use spotter_core::{
    Detection, DetectionBody, Epoch, Latency, Location, Mono, NormBox, NormPoint, ObjectOutline,
    Reasoning, STAGES, ScoreSource, TrackedObject, WallTime, rounded, yes_or_no,
};

/// Version of the schema; rises when a meaning changes, not when a key is added.
pub(crate) const SCHEMA: u32 = 1;

/// Bytes of all outlines of a detection: with these and the most objects it is smaller than a detection may be.
const OUTLINES_MAX_BYTES: usize = 32 * 1024;

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

/// The payload. `now` is this moment, directly before the bytes go to the client library.
pub(crate) fn to_json(detection: &Detection, label: &Label, now: Mono) -> Vec<u8> {
    let (prompt, frame) = (&detection.prompt, &detection.frame);
    let mut payload = json!({
        "v": SCHEMA,
        "id": label.id,
        "boot": &*label.boot,
        "seq": label.seq,
        "cam": frame.camera,
        "prompt": {
            "id": prompt.id,
            "kind": prompt.kind(),
            "rev": prompt.revision,
            "text": prompt.task.text(),
        },
        "model": &*detection.model,
        "frame": {
            "n": frame.number,
            "w": frame.camera_size.0,
            "h": frame.camera_size.1,
            "model_w": detection.model_size.0,
            "model_h": detection.model_size.1,
            "key": frame.key,
        },
        "time": time(detection, now),
        "lat_ms": latency_ms(Latency::of(detection, now)),
        "count": detection.body.count(),
        "objects": objects(detection),
        "since_last": detection.since_last,
        "truncated": detection.truncated,
    });
    add(&mut payload, "epoch", label.epoch);
    add(
        &mut payload,
        "region",
        detection.region.as_ref().map(NormBox::rounded),
    );
    let strip = prompt.view.strip;
    let strip = strip.map(|strip| {
        let over_s = rounded(strip.over.as_secs_f64(), 3);
        json!({"frames": strip.frames, "over_s": over_s})
    });
    add(&mut payload, "strip", strip);
    add(
        &mut payload,
        "unchanged",
        detection.unchanged.then_some(true),
    );
    if let DetectionBody::Text {
        text,
        score,
        source,
    } = &detection.body
    {
        payload["answer"] = json!(text);
        payload["score"] = json!(rounded(*score, 3));
        payload["score_src"] = json!(ScoreSource::name(*source));
        add(&mut payload, "value", yes_or_no(text));
    }
    let reasoning = detection.reasoning.as_ref().map(reasoning_json);
    add(&mut payload, "reasoning", reasoning);
    payload.to_string().into_bytes()
}

/// A key that is absent without a value.
pub(super) fn add(payload: &mut Value, key: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        payload[key] = json!(value);
    }
}

fn latency_ms(latency: Latency) -> Value {
    let ms = |tenth_ms: i64| tenth_ms as f64 / 10.0;
    let total = latency.total_tenth_ms as i64;
    let stages = STAGES.iter().zip(latency.stages_tenth_ms);
    let stages = stages.map(|(name, tenth_ms)| ((*name).to_owned(), json!(ms(tenth_ms as i64))));
    let mut account: Value = stages.collect::<Map<_, _>>().into();
    account["camera"] = json!(latency.camera_tenth_ms.map(ms));
    account["total"] = json!(ms(total));
    account["end_to_end"] = json!(latency.camera_tenth_ms.map(|camera| ms(camera + total)));
    account
}

fn time(detection: &Detection, now: Mono) -> Value {
    let times = &detection.frame.times;
    let capture = times.capture;
    let error_ms = capture.and_then(|capture| capture.error_ms);
    json!({
        "capture": capture.and_then(|capture| rfc3339(capture.wall)),
        "capture_err_ms": error_ms.map(|ms| rounded(ms, 1)),
        "capture_ms": capture.map(|capture| capture.wall.unix_millis()),
        "capture_src": capture.map_or("none", |capture| capture.source.into()),
        "publish_ms": detection.unix_ms(now),
        "recv_ms": times.received_wall.unix_millis(),
        "rtp": times.rtp,
    })
}

/// Those of a segment prompt have an outline, or null: without one, or when it would make the message too large.
fn objects(detection: &Detection) -> Vec<Value> {
    let has_outlines = detection.prompt.outlines_max > 0;
    let mut space = OUTLINES_MAX_BYTES;
    let with_outline = |of: &TrackedObject| {
        let mut part = object(of);
        if has_outlines {
            let outline = of.outline.as_ref().map(|outline| outline_json(outline));
            let fits = outline.filter(|outline| {
                let left = space.checked_sub(outline.to_string().len());
                space = left.unwrap_or(space);
                left.is_some()
            });
            part["outline"] = json!(fits);
        }
        part
    };
    let objects = detection.body.objects().iter();
    objects.map(with_outline).collect()
}

pub(super) fn outline_json(outline: &ObjectOutline) -> Value {
    let rings = outline.polygons.iter().map(|ring| points(ring));
    json!({
        "frame": outline.frame,
        "box": outline.bounds.rounded(),
        "path": outline.path,
        "polygon": rings.collect::<Vec<_>>(),
        "area": rounded(outline.area, 4),
        "score": rounded(outline.score, 3),
    })
}

fn points(points: &[NormPoint]) -> Vec<[f64; 2]> {
    points.iter().map(|point| point.rounded()).collect()
}

pub(super) fn reasoning_json(reasoning: &Reasoning) -> Value {
    let spans = reasoning.grounding.iter();
    let spans = spans
        .map(|span| json!({"start": span.start, "end": span.end, "points": points(&span.points)}));
    json!({"text": reasoning.text, "grounding": spans.collect::<Vec<_>>()})
}

fn object(object: &TrackedObject) -> Value {
    let mut part = json!({
        "age_s": rounded(object.age.as_secs_f64(), 1),
        "score": rounded(object.score, 3),
        "score_src": object.score_source.name(),
        "sharpness": rounded(object.sharpness, 3),
        "track": object.track,
        "zones": object.zones,
    });
    let point = match object.location {
        Location::Box(bounds) => {
            part["area"] = json!(rounded(bounds.area(), 4));
            part["box"] = json!(bounds.rounded());
            bounds.centre()
        }
        Location::Point(point) => point,
    };
    part["point"] = json!(point.rounded());
    for dwell in &object.dwell {
        part["dwell_s"][dwell.zone.as_str()] = json!(dwell.seconds());
    }
    part
}

/// `2026-08-22T10:15:30.123Z`; `None` outside of the calendar.
pub(crate) fn rfc3339(wall: WallTime) -> Option<String> {
    let time = jiff::Timestamp::from_millisecond(wall.unix_millis()).ok()?;
    Some(time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string())
}

#[cfg(test)]
#[path = "detection_tests.rs"]
pub(crate) mod tests;
