//! The event message (docs/mqtt.md section 2): the start, a change or the end of a track, as JSON. The message of a
//! crossing is in `crossing`.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::Serialize;

use super::{
    crossing,
    detection::{SCHEMA, corners, dwell_s, pair, rounded},
};
use spotter_core::{EndReason, Epoch, Event, EventStep, Location, UpdateReason, ZoneId};
use spotter_state::LoggedEvent;

#[derive(Serialize)]
struct EventPayload<'a> {
    v: u32,
    id: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    event: &'a str,
    cam: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    epoch: Option<Epoch>,
    prompt: EventPromptPart<'a>,
    start_ms: i64,
    end_ms: Option<i64>,
    last_seen_ms: i64,
    reason: &'static str,
    #[serde(rename = "box", skip_serializing_if = "Option::is_none")]
    corners: Option<[f64; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    point: Option<[f64; 2]>,
    score: f64,
    score_src: &'static str,
    top_score: f64,
    frames: u64,
    zones: &'a [ZoneId],
    entered_zones: &'a [ZoneId],
    dwell_s: BTreeMap<&'a str, f64>,
    dwelling: Vec<&'a str>,
    stationary: bool,
    snapshot: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    delayed: bool,
    frame: EventFramePart,
    /// For webhooks.
    #[serde(skip_serializing_if = "Option::is_none")]
    snapshot_jpeg: Option<String>,
}

#[derive(Serialize)]
pub(super) struct EventPromptPart<'a> {
    id: &'a str,
    rev: u32,
}

impl<'a> EventPromptPart<'a> {
    pub(super) fn of(event: &'a Event) -> Self {
        Self {
            id: event.prompt.as_str(),
            rev: event.revision,
        }
    }
}

#[derive(Serialize)]
struct EventFramePart {
    w: u32,
    h: u32,
}

/// The payload. `delayed`: the event is not sent when it happened. `jpeg`: a picture that is a part of it.
pub fn to_json(logged: &LoggedEvent, delayed: bool, jpeg: Option<&[u8]>) -> Vec<u8> {
    let event = &logged.event;
    if let Some(crossing) = &event.crossing {
        return crossing::to_json(logged, crossing, delayed);
    }
    let (kind, reason) = words(event.step);
    let dwelling = event.dwell.iter().filter(|dwell| dwell.is_dwelling);
    let (corners, point) = corners_or_point(event.location);
    let payload = EventPayload {
        v: SCHEMA,
        id: &logged.id,
        kind,
        event: event.track.as_str(),
        cam: event.camera.as_str(),
        epoch: logged.epoch,
        prompt: EventPromptPart::of(event),
        start_ms: event.started.unix_millis(),
        end_ms: event.ended.map(|at| at.unix_millis()),
        last_seen_ms: event.last_seen.unix_millis(),
        reason,
        corners,
        point,
        score: rounded(event.score, 3),
        score_src: event.score_source.name(),
        top_score: rounded(event.top_score, 3),
        frames: event.looks,
        zones: &event.zones,
        entered_zones: &event.entered_zones,
        dwell_s: dwell_s(&event.dwell),
        dwelling: dwelling.map(|dwell| dwell.zone.as_str()).collect(),
        stationary: event.still,
        snapshot: event.snapshot,
        description: event.description.as_deref(),
        delayed,
        frame: EventFramePart {
            w: event.camera_size.0,
            h: event.camera_size.1,
        },
        snapshot_jpeg: jpeg.map(|jpeg| BASE64_STANDARD.encode(jpeg)),
    };
    // Numbers, texts and lists under text keys always serialise.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// The values of `box` and `point`.
pub(super) fn corners_or_point(location: Location) -> (Option<[f64; 4]>, Option<[f64; 2]>) {
    match location {
        Location::Box(place) => (Some(corners(&place)), None),
        Location::Point(point) => (None, Some(pair(point))),
    }
}

/// The values of `type` and `reason`.
fn words(step: EventStep) -> (&'static str, &'static str) {
    use EventStep::{End, New, Update};
    match step {
        New => ("new", "first_seen"),
        Update(UpdateReason::Zones) => ("update", "zones"),
        Update(UpdateReason::Moved) => ("update", "moved"),
        Update(UpdateReason::Still) => ("update", "still"),
        Update(UpdateReason::Better) => ("update", "better"),
        Update(UpdateReason::Minute) => ("update", "minute"),
        Update(UpdateReason::Described) => ("update", "described"),
        Update(UpdateReason::Dwell) => ("update", "dwell"),
        Update(UpdateReason::DwellEnd) => ("update", "dwell_end"),
        Update(UpdateReason::Crossed) => ("update", "crossed"),
        End(EndReason::Left) => ("end", "left"),
        End(EndReason::CameraLost) => ("end", "camera_lost"),
        End(EndReason::EngineLost) => ("end", "engine_lost"),
        End(EndReason::PromptChanged) => ("end", "prompt_changed"),
        End(EndReason::Disabled) => ("end", "disabled"),
        End(EndReason::Shutdown) => ("end", "shutdown"),
        End(EndReason::Moved) => ("end", "moved"),
        End(EndReason::Restart) => ("end", "restart"),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::time::Duration;

    use serde_json::{Value, json};

    use super::*;
    use spotter_core::{NormPoint, ScoreSource, WallTime, ZoneDwell};

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

    #[test]
    fn each_event_phase_has_its_text() {
        use EndReason as E;
        use UpdateReason as U;
        for (step, kind, reason) in [
            (EventStep::New, "new", "first_seen"),
            (EventStep::Update(U::Zones), "update", "zones"),
            (EventStep::Update(U::Moved), "update", "moved"),
            (EventStep::Update(U::Still), "update", "still"),
            (EventStep::Update(U::Better), "update", "better"),
            (EventStep::Update(U::Minute), "update", "minute"),
            (EventStep::Update(U::Described), "update", "described"),
            (EventStep::Update(U::Dwell), "update", "dwell"),
            (EventStep::Update(U::DwellEnd), "update", "dwell_end"),
            (EventStep::End(E::Left), "end", "left"),
            (EventStep::End(E::CameraLost), "end", "camera_lost"),
            (EventStep::End(E::EngineLost), "end", "engine_lost"),
            (EventStep::End(E::PromptChanged), "end", "prompt_changed"),
            (EventStep::End(E::Disabled), "end", "disabled"),
            (EventStep::End(E::Shutdown), "end", "shutdown"),
            (EventStep::End(E::Moved), "end", "moved"),
            (EventStep::End(E::Restart), "end", "restart"),
        ] {
            let value = value(&event("gate", 1, step), false);
            assert_eq!(value["type"], kind);
            assert_eq!(value["reason"], reason);
            assert_eq!(value["end_ms"].is_null(), kind != "end");
        }
    }
}
