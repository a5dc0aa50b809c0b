//! An event as it is stored and sent: one JSON text, the payload of docs/mqtt.md section 2, which is made when the event happens. The broker and
//! webhooks get this text, and the next run ends tracks by it.

use std::{collections::BTreeMap, time::Duration};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use spotter_core::{
    CameraId, Epoch, Event, EventKind, EventStep, LineId, Location, PromptId, TrackId, WallTime,
    rounded,
};

/// Version of the payload; rises when a meaning changes, not when a key is added.
const SCHEMA: u32 = 1;

/// See the module's documentation. Deserialised, it is the payload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LoggedEvent {
    /// Orders the events of all runs.
    #[serde(skip)]
    pub number: u64,
    /// Id of its message.
    pub id: String,
    #[serde(rename = "event")]
    pub track: TrackId,
    #[serde(rename = "cam")]
    pub camera: CameraId,
    #[serde(deserialize_with = "prompt_id")]
    pub prompt: PromptId,
    #[serde(rename = "type", default)]
    pub kind: EventKind,
    /// Of a crossing.
    #[serde(default)]
    pub line: Option<LineId>,
    /// Of a fleet's camera.
    #[serde(default)]
    pub epoch: Option<Epoch>,
    /// A picture was begun for this step of the event. After a better score it may also be one that was begun before.
    #[serde(skip)]
    pub has_picture: bool,
    #[serde(rename = "end_ms", alias = "at_ms", default)]
    pub(crate) over_ms: Option<i64>,
    #[serde(default)]
    pub(crate) last_seen_ms: i64,
    /// The payload but for what depends on the moment of sending.
    #[serde(skip)]
    pub(crate) json: String,
}

impl LoggedEvent {
    /// The log numbers it.
    pub fn new(id: String, event: &Event, epoch: Option<Epoch>) -> Self {
        let crossing = event.crossing.as_ref();
        let over = crossing.map_or(event.ended, |crossing| Some(crossing.at));
        Self {
            number: 0,
            json: payload(&id, event, epoch).to_string(),
            id,
            track: event.track.clone(),
            camera: event.camera.clone(),
            prompt: event.prompt.clone(),
            kind: event.step.kind(),
            line: crossing.map(|crossing| crossing.line.clone()),
            epoch,
            has_picture: event.snapshot && event.step.begins_picture(),
            over_ms: over.map(WallTime::unix_millis),
            last_seen_ms: event.last_seen.unix_millis(),
        }
    }

    /// With the address at which people see the event, below that of the page. A crossing has none: it is a part of an event.
    pub fn linked(mut self, page: Option<&str>) -> Self {
        if let Some(page) = page.filter(|_| self.kind != EventKind::Crossing)
            && let Some(open) = self.json.strip_suffix('}')
        {
            let url = json!(format!("{page}#events/{}", self.track));
            self.json = format!("{open},\"url\":{url}}}");
        }
        self
    }

    /// `None`: it is not the payload of an event.
    pub(crate) fn read(json: &str) -> Option<Self> {
        let event: Self = serde_json::from_str(json).ok()?;
        let json = json.trim_end().to_owned();
        Some(Self { json, ..event })
    }

    /// The end of the track whose last event this is, because the program ended.
    pub fn ended_by_restart(&self, id: String, epoch: Option<Epoch>, at: WallTime) -> Option<Self> {
        let mut payload: Value = serde_json::from_str(&self.json).ok()?;
        let keys = payload.as_object_mut()?;
        keys.remove("description");
        keys.remove("epoch");
        add(&mut payload, "epoch", epoch);
        for (key, value) in [
            ("id", json!(id)),
            ("type", json!("end")),
            ("reason", json!("restart")),
            ("end_ms", json!(at.unix_millis())),
        ] {
            payload[key] = value;
        }
        Self::read(&payload.to_string())
    }

    pub fn bytes(&self) -> u64 {
        self.json.len() as u64
    }

    /// The payload. `is_delayed`: the event is not sent when it happened. `jpeg`: a picture that is a part of it, for webhooks.
    pub fn payload(&self, is_delayed: bool, jpeg: Option<&[u8]>) -> Vec<u8> {
        let open = self.json.strip_suffix('}').unwrap_or_default();
        let mut payload = format!("{open},\"delayed\":{is_delayed}");
        if let Some(jpeg) = jpeg {
            payload += ",\"snapshot_jpeg\":\"";
            BASE64_STANDARD.encode_string(jpeg, &mut payload);
            payload += "\"";
        }
        payload += "}";
        payload.into_bytes()
    }

    /// The time until it is `max_age` old.
    pub fn time_left(&self, max_age: Duration, wall: WallTime) -> Duration {
        let at_ms = self.over_ms.unwrap_or(self.last_seen_ms);
        // The machine's clock may have been set back: then it is new.
        let age_ms = u64::try_from(wall.unix_millis().saturating_sub(at_ms)).unwrap_or(0);
        max_age.saturating_sub(Duration::from_millis(age_ms))
    }
}

fn prompt_id<'de, D: Deserializer<'de>>(prompt: D) -> Result<PromptId, D::Error> {
    #[derive(Deserialize)]
    struct PromptKey {
        id: PromptId,
    }
    PromptKey::deserialize(prompt).map(|prompt| prompt.id)
}

fn payload(id: &str, event: &Event, epoch: Option<Epoch>) -> Value {
    let mut payload = json!({
        "v": SCHEMA,
        "id": id,
        "event": event.track,
        "cam": event.camera,
        "prompt": {"id": event.prompt, "rev": event.revision},
        "score": rounded(event.score, 3),
    });
    match event.location {
        Location::Box(place) => payload["box"] = json!(place.rounded()),
        Location::Point(point) => payload["point"] = json!(point.rounded()),
    }
    add(&mut payload, "epoch", epoch);
    match &event.crossing {
        // It is an event of its track, and has a topic of its own: the messages of an event report the state of a track, one message for all that
        // changed at a look, and a crossing happened once.
        Some(crossing) => {
            payload["line"] = json!(crossing.line);
            payload["direction"] = json!(crossing.direction);
            payload["at_ms"] = json!(crossing.at.unix_millis());
            payload["speed"] = json!(crossing.speed.map(|speed| rounded(speed, 3)));
            payload["count"] = json!(crossing.count);
        }
        None => add_track(&mut payload, event),
    }
    payload
}

/// A track begins, changes or ends.
fn add_track(payload: &mut Value, event: &Event) {
    let kind: &str = event.step.into();
    let reason = match event.step {
        EventStep::New => "first_seen",
        EventStep::Update(reason) => reason.into(),
        EventStep::End(reason) => reason.into(),
    };
    let dwell = event.dwell.iter();
    let dwelling = dwell.clone().filter(|dwell| dwell.is_dwelling);
    let dwell_s = dwell.map(|dwell| (&dwell.zone, dwell.seconds()));
    let (width, height) = event.camera_size;
    for (key, value) in [
        ("type", json!(kind)),
        ("reason", json!(reason)),
        ("start_ms", json!(event.started.unix_millis())),
        ("end_ms", json!(event.ended.map(WallTime::unix_millis))),
        ("last_seen_ms", json!(event.last_seen.unix_millis())),
        ("score_src", json!(event.score_source.name())),
        ("top_score", json!(rounded(event.top_score, 3))),
        ("frames", json!(event.looks)),
        ("zones", json!(event.zones)),
        ("entered_zones", json!(event.entered_zones)),
        ("dwell_s", json!(dwell_s.collect::<BTreeMap<_, _>>())),
        (
            "dwelling",
            dwelling.map(|dwell| json!(dwell.zone)).collect(),
        ),
        ("stationary", json!(event.still)),
        ("snapshot", json!(event.snapshot)),
        ("frame", json!({"w": width, "h": height})),
    ] {
        payload[key] = value;
    }
    add(payload, "description", event.description.as_ref());
}

/// A key that is absent without a value.
fn add(payload: &mut Value, key: &str, value: Option<impl Serialize>) {
    if let Some(value) = value {
        payload[key] = json!(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{
        EndReason, NormPoint, ScoreSource,
        testing::{crossing, detailed_event},
    };

    fn payload(event: Event, is_delayed: bool, jpeg: Option<&[u8]>) -> Value {
        let logged = LoggedEvent::new("01K37Q".into(), &event, None);
        serde_json::from_slice(&logged.payload(is_delayed, jpeg)).unwrap()
    }

    #[test]
    fn payloads_equal_the_examples_of_the_contract() {
        let event = detailed_event("gate", 37, EventStep::New);
        let mut on_a_point = event.clone();
        on_a_point.location = Location::Point(NormPoint { x: 0.5, y: 0.25 });
        on_a_point.score_source = ScoreSource::Verify;
        on_a_point.description = Some("It waves.".into());
        let of_a_box = json!({
            "v": 1, "id": "01K37Q", "type": "new", "event": "b7c1-gate-37", "cam": "gate",
            "prompt": {"id": "person", "rev": 3},
            "start_ms": 1_787_393_729_900_i64, "end_ms": null, "last_seen_ms": 1_787_393_730_123_i64,
            "reason": "first_seen", "box": [0.412, 0.205, 0.488, 0.731], "score": 0.83, "score_src": "token_prob", "top_score": 0.83,
            "frames": 4, "zones": ["drive"], "entered_zones": ["drive"], "dwell_s": {"drive": 31.5}, "dwelling": ["drive"], "stationary": false,
            "snapshot": true, "delayed": false, "frame": {"w": 2560, "h": 1440},
        });
        let mut of_a_point = of_a_box.clone();
        of_a_point.as_object_mut().unwrap().remove("box");
        for (key, value) in [
            ("point", json!([0.5, 0.25])),
            ("score_src", json!("verify")),
            ("description", json!("It waves.")),
            ("delayed", json!(true)),
            ("snapshot_jpeg", json!("/9gH")),
        ] {
            of_a_point[key] = value;
        }
        let of_a_crossing = json!({
            "v": 1, "id": "01K37Q", "event": "b7c1-gate-37", "cam": "gate", "prompt": {"id": "person", "rev": 3},
            "line": "door", "direction": "in", "at_ms": 1_787_393_730_023_i64, "speed": 0.08, "count": 12,
            "box": [0.412, 0.205, 0.488, 0.731], "score": 0.83, "delayed": false,
        });
        assert_eq!(payload(event, false, None), of_a_box);
        let jpeg: &[u8] = &[0xff, 0xd8, 7];
        assert_eq!(payload(on_a_point, true, Some(jpeg)), of_a_point);
        assert_eq!(payload(crossing("gate", 37), false, None), of_a_crossing);
    }

    #[test]
    fn event_links_its_page_also_after_a_restart() {
        let new = detailed_event("gate", 37, EventStep::New);
        let page = Some("https://spotter.example/");
        let logged = LoggedEvent::new("01K37Q".into(), &new, None).linked(page);
        let end = logged.ended_by_restart("01K37R".into(), None, WallTime::from_unix_millis(1));
        for event in [logged, end.unwrap()] {
            let payload: Value = serde_json::from_slice(&event.payload(false, None)).unwrap();
            assert_eq!(
                payload["url"],
                "https://spotter.example/#events/b7c1-gate-37"
            );
        }
        let crossing = LoggedEvent::new("01K37Q".into(), &crossing("gate", 37), None);
        assert_eq!(crossing.clone().linked(page), crossing);
    }

    /// The next run sends the stored text, and ends a track whose last event it is.
    #[test]
    fn stored_event_is_read_as_it_is_sent() {
        let new = detailed_event("gate", 37, EventStep::New);
        for event in [
            new.clone(),
            detailed_event("gate", 37, EventStep::End(EndReason::CameraLost)),
            crossing("gate", 37),
        ] {
            let logged = LoggedEvent::new("01K37Q".into(), &event, Some(Epoch(17)));
            let mut read = LoggedEvent::read(&logged.json).unwrap();
            (read.has_picture, read.last_seen_ms) = (logged.has_picture, logged.last_seen_ms);
            assert_eq!(read, logged);
        }
        let at = WallTime::from_unix_millis(1_787_393_990_000);
        let mut last = LoggedEvent::new("01K37Q".into(), &new, Some(Epoch(17)));
        last.json = last
            .json
            .replace("\"frames\"", "\"description\":\"It waves.\",\"frames\"");
        let end = last.ended_by_restart("01K37R".into(), Some(Epoch(18)), at);
        let expected = Event {
            step: EventStep::End(EndReason::Restart),
            ended: Some(at),
            ..new
        };
        let expected = LoggedEvent::new("01K37R".into(), &expected, Some(Epoch(18)));
        let end = end.unwrap();
        assert_eq!(
            (end.kind, end.payload(false, None)),
            (EventKind::End, expected.payload(false, None))
        );
    }
}
