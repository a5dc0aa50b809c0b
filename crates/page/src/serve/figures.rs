//! What the daemon does now: status, its pictures, metrics, health.

use std::{
    convert::Infallible,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use axum::{
    Extension,
    body::Body,
    extract::{Path, Request, State},
    http::{StatusCode, Uri, header, request::Parts},
    response::IntoResponse,
    routing::get,
};
use futures_util::stream;
use tokio::{
    sync::OwnedSemaphorePermit,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{PageAnswer, PageRoute, PageShared, PageState, Shows, source};
use crate::{StatusRequest, Visitor, metrics};
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
    let text = state.status(visitor, &sender, &uri)?;
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
    let mut ticks = interval(EVENT_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
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
        Some((Ok::<_, Infallible>(watched.next().await?), watched))
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
    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        self.ticks.tick().await;
        let (access, head) = (&self.state.access, &self.head);
        if access.visitor(&self.sender, &head.headers) != Ok(self.visitor) {
            return None;
        }
        let status = self.state.status(self.visitor, &self.sender, &head.uri);
        let status = status.ok()?;
        Some(format!("data: {status}\n\n"))
    }
}

impl PageState {
    fn status(&self, visitor: Visitor, sender: &RequestSender, uri: &Uri) -> PageAnswer<String> {
        // Home Assistant's ingress adds the sign.
        let pictured = matches!(uri.query(), Some("pictured" | "pictured="));
        let is_hidden = pictured && visitor == Visitor::Stranger && !self.access.has_tokens();
        if is_hidden && !self.has_logged_hidden.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                client = %sender.network,
                "the status page shows no pictures and texts to clients on other machines or behind a proxy; to show them again, set http.tokens and log in (docs/page.md)"
            );
        }
        Ok(source(self)?.status_json(StatusRequest {
            pictured,
            visitor,
            has_login: self.access.has_tokens(),
        }))
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
