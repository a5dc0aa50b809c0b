//! What the daemon does now: status, its pictures, metrics, health.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{Path, Request, State},
    http::{StatusCode, Uri, header, request::Parts},
    response::IntoResponse,
    routing::get,
};
use futures_util::stream;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Instant, Interval, MissedTickBehavior, interval_at},
};

use super::{PageAnswer, PageRoute, PageShared, PageState, Shows, source};
use crate::{StatusRequest, StatusSource, Visitor, events::EventAnswers, metrics};
use spotter_http::{RequestSender, json_answer};

/// Between two events of `/status.events`.
const EVENT_INTERVAL: Duration = Duration::from_secs(1);
/// Events of a stream, which the browser opens again then: another tab may have logged in.
const STREAM_EVENTS: u32 = 300;

pub const ROUTES: &[PageRoute] = &[
    ("/camera/{picture}", Shows::Pictures, || get(show_picture)),
    ("/status.json", Shows::Status, || get(show_status)),
    ("/status.events", Shows::Status, || get(stream_status)),
    ("/metrics", Shows::Figures, || get(show_metrics)),
    ("/healthz", Shows::Figures, || get(show_health)),
    ("/readyz", Shows::Figures, || get(show_ready)),
];

/// The query `pictured` is the page's: looks that have a picture, which are made more often then.
async fn show_status(
    State(state): PageShared,
    Extension(visitor): Extension<Visitor>,
    Extension(sender): Extension<RequestSender>,
    uri: Uri,
) -> PageAnswer<impl IntoResponse> {
    let asked = state.status_request(visitor, &sender, &uri);
    let text = source(&state)?.status_json(asked);
    Ok(json_answer(StatusCode::OK, text))
}

/// The same as server-sent events, until the session ends, also by a logout in another tab.
async fn stream_status(
    State(state): PageShared,
    Extension(visitor): Extension<Visitor>,
    Extension(sender): Extension<RequestSender>,
    request: Request,
) -> PageAnswer<impl IntoResponse> {
    source(&state)?;
    let place = Arc::clone(&state.streams).try_acquire_owned();
    let full = (
        StatusCode::SERVICE_UNAVAILABLE,
        "too many browsers follow the page\n",
    );
    let place = place.map_err(|_| full)?;
    let (head, _) = request.into_parts();
    let ticks = state.streamed.ticks();
    let watched = StatusStream {
        state,
        visitor,
        sender,
        head,
        ticks,
        left: STREAM_EVENTS,
        _place: place,
    };
    let events = stream::unfold(watched, |mut watched| async {
        let event = watched.next().await?;
        Some((Ok::<_, Infallible>(event), watched))
    });
    let head = [
        ("content-type", "text/event-stream"),
        // Proxies would keep or compress it.
        ("cache-control", "no-store, no-transform"),
        ("x-accel-buffering", "no"),
    ];
    Ok((head, Body::from_stream(events)))
}

/// A browser that follows the status.
struct StatusStream {
    state: Arc<PageState>,
    visitor: Visitor,
    sender: RequestSender,
    head: Parts,
    ticks: Interval,
    left: u32,
    _place: OwnedSemaphorePermit,
}

impl StatusStream {
    /// The next event, the first one at once; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let is_first = self.left == STREAM_EVENTS;
        self.left = self.left.checked_sub(1)?;
        if !is_first {
            self.ticks.tick().await;
        }
        let (access, head) = (&self.state.access, &self.head);
        if access.visitor(&self.sender, &head.headers) != Ok(self.visitor) {
            return None;
        }
        let asked = self
            .state
            .status_request(self.visitor, &self.sender, &head.uri);
        let source = source(&self.state).ok()?;
        Some(self.state.streamed.event(asked, source))
    }
}

/// The events of this second, which all streams send at the same time: each is made once for all visitors who see the same.
pub struct StreamedStatus {
    origin: Instant,
    made: Mutex<HashMap<StatusRequest, MadeEvent>>,
}

struct MadeEvent {
    second: u64,
    text: Bytes,
}

impl Default for StreamedStatus {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            made: Mutex::default(),
        }
    }
}

impl StreamedStatus {
    fn second(&self) -> u64 {
        self.origin.elapsed().as_secs()
    }

    /// From the next second on.
    pub fn ticks(&self) -> Interval {
        let next = self.origin + Duration::from_secs(self.second() + 1);
        let mut ticks = interval_at(next, EVENT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        ticks
    }

    pub fn event(&self, asked: StatusRequest, source: &dyn StatusSource) -> Bytes {
        let second = self.second();
        // Others who wait here need the same event, or one that takes as long.
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let known = made.get(&asked).filter(|event| event.second == second);
        if let Some(event) = known {
            return event.text.clone();
        }
        let text = Bytes::from(format!("data: {}\n\n", source.status_json(asked)));
        let event = MadeEvent {
            second,
            text: text.clone(),
        };
        made.insert(asked, event);
        text
    }
}

impl PageState {
    fn status_request(&self, visitor: Visitor, sender: &RequestSender, uri: &Uri) -> StatusRequest {
        // Home Assistant's ingress adds the sign.
        let pictured = matches!(uri.query(), Some("pictured" | "pictured="));
        let is_hidden = pictured && visitor == Visitor::Stranger && !self.access.has_tokens();
        if is_hidden && !self.has_logged_hidden.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                client = %sender.network,
                "the status page shows no pictures and texts to clients on other machines or behind a proxy; to show them again, set http.tokens and log in (docs/page.md)"
            );
        }
        StatusRequest {
            pictured,
            visitor,
            has_login: self.access.has_tokens(),
            has_history: self.events.get().is_some_and(EventAnswers::is_on),
        }
    }
}

async fn show_picture(
    State(state): PageShared,
    Path(picture): Path<String>,
    uri: Uri,
) -> PageAnswer<impl IntoResponse> {
    let source = source(&state)?;
    let look = uri.query().and_then(|query| query.strip_prefix("look="));
    let look = look.and_then(|look| look.parse().ok());
    let camera = picture.strip_suffix(".jpg");
    let thumbnail = camera.and_then(|camera| source.thumbnail(camera, look));
    let thumbnail = thumbnail.ok_or((StatusCode::NOT_FOUND, "no picture\n"))?;
    let kind = [(header::CONTENT_TYPE, "image/jpeg")];
    Ok((kind, thumbnail.jpeg.clone()))
}

async fn show_metrics(State(state): PageShared) -> PageAnswer<impl IntoResponse> {
    let kind = [(header::CONTENT_TYPE, metrics::CONTENT_TYPE)];
    Ok((kind, source(&state)?.metrics()))
}

async fn show_health(State(state): PageShared) -> PageAnswer<(StatusCode, String)> {
    Ok(match source(&state)?.troubles().join("\n") {
        healthy if healthy.is_empty() => (StatusCode::OK, "ok\n".to_owned()),
        troubles => (StatusCode::SERVICE_UNAVAILABLE, troubles + "\n"),
    })
}

async fn show_ready(State(state): PageShared) -> (StatusCode, String) {
    match state.readiness.check() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}
