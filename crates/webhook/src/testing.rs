//! Builders for the tests of this crate.

use std::time::Duration;

use crate::{client::PostOutcome, webhook_event::WebhookEvent};
use spotter_config::SpoolConfig;
use spotter_core::{
    CameraId, Event, EventStep, Location, Mono, NormPoint, PromptId, ScoreSource, TrackId, WallTime,
};

pub(crate) fn ms(ms: u64) -> Mono {
    Mono::default().after(Duration::from_millis(ms))
}

pub(crate) fn bounds(events: usize) -> SpoolConfig {
    SpoolConfig {
        events,
        max_age: Duration::from_secs(3600),
        max_mb: 10,
    }
}

pub(crate) fn track(number: u64) -> TrackId {
    TrackId::new("b7c1", &CameraId::new("gate").unwrap(), number)
}

pub(crate) fn failed(after: Option<Duration>) -> PostOutcome {
    PostOutcome::Failed {
        reason: "HTTP 500".into(),
        after,
    }
}

/// An event of `gate` and `person` with this number; it awaits no picture.
pub(crate) fn event(number: u64, step: EventStep) -> WebhookEvent {
    let at = WallTime::from_unix_millis(1_787_393_729_900);
    let event = Event {
        description: None,
        crossing: None,
        dwell: Vec::new(),
        track: track(number),
        camera: CameraId::new("gate").unwrap(),
        prompt: PromptId::new("person").unwrap(),
        revision: 1,
        step,
        started: at,
        last_seen: at,
        ended: None,
        location: Location::Point(NormPoint { x: 0.5, y: 0.25 }),
        score: 0.83,
        top_score: 0.83,
        score_source: ScoreSource::TokenProb,
        looks: 4,
        zones: Vec::new(),
        entered_zones: Vec::new(),
        still: false,
        snapshot: false,
        camera_size: (2560, 1440),
    };
    let id = format!("01K37Q{number:020}");
    let json = serde_json::json!({"v": 1, "id": id, "event": event.track, "score": 0.83, "delayed": false});
    WebhookEvent::new(&id, &event, json.to_string().as_bytes()).unwrap()
}
