//! The message of a crossing (docs/mqtt.md section 2): a track has crossed a line, as JSON.
//!
//! It is kept on the disk as an event of its track, and has a topic of its own: the messages of an event report the state of a
//! track, one message for all that changed at a look, and a crossing happened once.

use serde::Serialize;

use super::{
    detection::{SCHEMA, rounded},
    event::{EventPromptPart, corners_or_point},
};
use spotter_core::{Epoch, LineCrossing};
use spotter_state::LoggedEvent;

#[derive(Serialize)]
struct CrossingPayload<'a> {
    v: u32,
    id: &'a str,
    event: &'a str,
    cam: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    prompt: EventPromptPart<'a>,
    line: &'a str,
    direction: &'a str,
    at_ms: i64,
    speed: Option<f64>,
    count: u64,
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    corners: Option<[f64; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    point: Option<[f64; 2]>,
    score: f64,
    delayed: bool,
}

/// `delayed`: it is not sent when it happened.
pub(super) fn to_json(logged: &LoggedEvent, crossing: &LineCrossing, delayed: bool) -> Vec<u8> {
    let event = &logged.event;
    let (corners, point) = corners_or_point(event.location);
    let payload = CrossingPayload {
        v: SCHEMA,
        id: &logged.id,
        event: event.track.as_str(),
        cam: event.camera.as_str(),
        epoch: logged.epoch,
        prompt: EventPromptPart::of(event),
        line: crossing.line.as_str(),
        direction: crossing.direction.as_str(),
        at_ms: crossing.at.unix_millis(),
        speed: crossing.speed.map(|speed| rounded(speed, 3)),
        count: crossing.count,
        corners,
        point,
        score: rounded(event.score, 3),
        delayed,
    };
    // Numbers, texts and lists under text keys always serialise.
    serde_json::to_vec(&payload).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::contract::event::{
        self,
        tests::{event, logged},
    };
    use spotter_core::{DirectionId, Event, EventStep, LineId, UpdateReason, WallTime};

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
        let payload = event::to_json(&logged(crossing("gate", 37), "01K37Q", None), false, None);
        let expected = json!({
            "v": 1, "id": "01K37Q", "event": "b7c1-gate-37", "cam": "gate", "prompt": {"id": "person", "rev": 3},
            "line": "door", "direction": "in", "at_ms": 1_787_393_730_023_i64, "speed": 0.08, "count": 12,
            "box": [0.412, 0.205, 0.488, 0.731], "score": 0.83, "delayed": false,
        });
        assert_eq!(serde_json::from_slice::<Value>(&payload).unwrap(), expected);
    }
}
