//! Builders for the tests of this crate.

use std::time::Duration;

use crate::client::PostOutcome;
use spotter_config::{EventFilter, Secret, SpoolConfig, WebhookConfig};
use spotter_core::{CameraId, Event, EventStep, Location, Mono, NormPoint, TrackId, WebhookId};
use spotter_state::LoggedEvent;

pub(crate) fn ms(ms: u64) -> Mono {
    Mono::default().after(Duration::from_millis(ms))
}

pub(crate) fn bounds(events: usize) -> SpoolConfig {
    SpoolConfig {
        events,
        max_age: Duration::from_secs(3600 * 24 * 365 * 100),
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

/// An event of `gate` and `person` with this number.
pub(crate) fn event(number: u64, step: EventStep) -> Event {
    Event {
        ended: None,
        location: Location::Point(NormPoint { x: 0.5, y: 0.25 }),
        ..spotter_core::testing::event("gate", number, step)
    }
}

/// Its id in the log.
pub(crate) fn id(number: u64) -> String {
    format!("01K37Q{number:020}")
}

pub(crate) fn logged(number: u64, step: EventStep) -> LoggedEvent {
    let mut logged = LoggedEvent::new(id(number), &event(number, step), None);
    logged.number = number;
    logged
}

pub(crate) const SECRET: &str = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=";

pub(crate) fn config(id: &str, url: &str) -> WebhookConfig {
    WebhookConfig {
        id: WebhookId::new(id).unwrap(),
        url: Secret::new(url.to_owned()),
        is_url_secret: false,
        address: "receiver".into(),
        ca: None,
        secret: Some(Secret::new(SECRET.to_owned())),
        bearer: None,
        filter: EventFilter::default(),
        snapshot: true,
        timeout: Duration::from_secs(60),
        spool: bounds(100),
    }
}
