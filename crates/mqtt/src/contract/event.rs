//! The event message (docs/mqtt.md section 2), as JSON: the start, a change or the end of a track, or that it crossed a line.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::detection::{SCHEMA, add, corners, dwell_s, pair, rounded};
use spotter_core::{Event, EventStep, LineCrossing, Location};
use spotter_state::LoggedEvent;

/// The payload. `delayed`: the event is not sent when it happened. `jpeg`: a picture that is a part of it, for webhooks.
pub fn to_json(logged: &LoggedEvent, delayed: bool, jpeg: Option<&[u8]>) -> Vec<u8> {
    let event = &logged.event;
    let mut payload = json!({
        "v": SCHEMA,
        "id": logged.id,
        "event": event.track,
        "cam": event.camera,
        "prompt": {"id": event.prompt, "rev": event.revision},
        "score": rounded(event.score, 3),
        "delayed": delayed,
    });
    let (key, place) = match event.location {
        Location::Box(place) => ("box", json!(corners(&place))),
        Location::Point(point) => ("point", json!(pair(point))),
    };
    payload[key] = place;
    add(&mut payload, "epoch", logged.epoch);
    match &event.crossing {
        Some(crossing) => add_crossing(&mut payload, crossing),
        None => {
            add_event(&mut payload, event);
            let jpeg = jpeg.map(|jpeg| BASE64_STANDARD.encode(jpeg));
            add(&mut payload, "snapshot_jpeg", jpeg);
        }
    }
    payload.to_string().into_bytes()
}

/// A track begins, changes or ends.
fn add_event(payload: &mut Value, event: &Event) {
    let kind: &str = event.step.into();
    let reason = match event.step {
        EventStep::New => "first_seen",
        EventStep::Update(reason) => reason.into(),
        EventStep::End(reason) => reason.into(),
    };
    let dwelling = event.dwell.iter().filter(|dwell| dwell.is_dwelling);
    let dwelling = dwelling.map(|dwell| &dwell.zone);
    let (width, height) = event.camera_size;
    for (key, value) in [
        ("type", json!(kind)),
        ("reason", json!(reason)),
        ("start_ms", json!(event.started.unix_millis())),
        ("end_ms", json!(event.ended.map(|at| at.unix_millis()))),
        ("last_seen_ms", json!(event.last_seen.unix_millis())),
        ("score_src", json!(event.score_source.name())),
        ("top_score", json!(rounded(event.top_score, 3))),
        ("frames", json!(event.looks)),
        ("zones", json!(event.zones)),
        ("entered_zones", json!(event.entered_zones)),
        ("dwell_s", json!(dwell_s(&event.dwell))),
        ("dwelling", json!(dwelling.collect::<Vec<_>>())),
        ("stationary", json!(event.still)),
        ("snapshot", json!(event.snapshot)),
        ("frame", json!({"w": width, "h": height})),
    ] {
        payload[key] = value;
    }
    add(payload, "description", event.description.as_ref());
}

/// A track crossed a line. It is kept on the disk as an event of its track, and has a topic of its own: the messages of an event report the state
/// of a track, one message for all that changed at a look, and a crossing happened once.
fn add_crossing(payload: &mut Value, crossing: &LineCrossing) {
    payload["line"] = json!(crossing.line);
    payload["direction"] = json!(crossing.direction);
    payload["at_ms"] = json!(crossing.at.unix_millis());
    payload["speed"] = json!(crossing.speed.map(|speed| rounded(speed, 3)));
    payload["count"] = json!(crossing.count);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use super::*;
    use spotter_core::{
        DirectionId, Epoch, LineId, NormPoint, ScoreSource, UpdateReason, WallTime, ZoneDwell,
        ZoneId,
    };

    /// An event of the track with this number.
    pub(crate) fn event(camera: &str, number: u64, step: EventStep) -> Event {
        let at = |ms: i64| WallTime::from_unix_millis(1_787_393_729_900 + ms);
        Event {
            revision: 3,
            last_seen: at(223),
            ended: matches!(step, EventStep::End(_)).then(|| at(3000)),
            top_score: 0.830_4,
            zones: vec![ZoneId::new("drive").unwrap()],
            entered_zones: vec![ZoneId::new("drive").unwrap()],
            dwell: vec![ZoneDwell {
                zone: ZoneId::new("drive").unwrap(),
                time: Duration::from_millis(31_540),
                is_dwelling: true,
            }],
            snapshot: true,
            ..spotter_core::testing::event(camera, number, step)
        }
    }

    pub(crate) fn logged(event: Event, id: &str, epoch: Option<Epoch>) -> LoggedEvent {
        LoggedEvent {
            number: 1,
            bytes: 0,
            id: id.into(),
            event,
            epoch,
        }
    }

    fn value(event: &Event, delayed: bool) -> Value {
        serde_json::from_slice(&to_json(
            &logged(event.clone(), "01K37Q", None),
            delayed,
            None,
        ))
        .unwrap()
    }

    #[test]
    fn event_payload_equals_the_example_of_the_contract() {
        let expected = json!({
            "v": 1, "id": "01K37Q", "type": "new", "event": "b7c1-gate-37", "cam": "gate",
            "prompt": {"id": "person", "rev": 3},
            "start_ms": 1_787_393_729_900_i64, "end_ms": null, "last_seen_ms": 1_787_393_730_123_i64,
            "reason": "first_seen", "box": [0.412, 0.205, 0.488, 0.731], "score": 0.83, "score_src": "token_prob", "top_score": 0.83,
            "frames": 4, "zones": ["drive"], "entered_zones": ["drive"], "dwell_s": {"drive": 31.5}, "dwelling": ["drive"], "stationary": false,
            "snapshot": true, "delayed": false, "frame": {"w": 2560, "h": 1440},
        });
        assert_eq!(value(&event("gate", 37, EventStep::New), false), expected);
    }

    #[test]
    fn object_of_a_point_prompt_has_point_and_no_box() {
        let mut event = event("gate", 1, EventStep::New);
        event.location = Location::Point(NormPoint { x: 0.5, y: 0.25 });
        event.score_source = ScoreSource::Verify;
        event.description = Some("It waves.".into());
        let value = value(&event, true);
        assert_eq!(value["point"], json!([0.5, 0.25]));
        assert!(value.get("box").is_none());
        assert!(value["delayed"] == true && value["score_src"] == "verify");
        assert_eq!(value["description"], "It waves.");
    }

    /// The crossing of the track with this number.
    pub(crate) fn crossing(camera: &str, number: u64) -> Event {
        let [direction, _] = DirectionId::in_and_out();
        Event {
            crossing: Some(LineCrossing {
                line: LineId::new("door").unwrap(),
                direction,
                at: WallTime::from_unix_millis(1_787_393_730_023),
                speed: Some(0.080_4),
                count: 12,
            }),
            ..event(camera, number, EventStep::Update(UpdateReason::Crossed))
        }
    }

    #[test]
    fn crossing_payload_equals_the_example_of_the_contract() {
        let payload = to_json(&logged(crossing("gate", 37), "01K37Q", None), false, None);
        let expected = json!({
            "v": 1, "id": "01K37Q", "event": "b7c1-gate-37", "cam": "gate", "prompt": {"id": "person", "rev": 3},
            "line": "door", "direction": "in", "at_ms": 1_787_393_730_023_i64, "speed": 0.08, "count": 12,
            "box": [0.412, 0.205, 0.488, 0.731], "score": 0.83, "delayed": false,
        });
        assert_eq!(serde_json::from_slice::<Value>(&payload).unwrap(), expected);
    }
}
