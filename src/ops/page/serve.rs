//! The page's HTTP server and its routes.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use axum::{
    Router,
    extract::{FromRequestParts, Path, State},
    http::{HeaderMap, StatusCode, Uri, header, request::Parts},
    middleware,
    response::{Html, IntoResponse},
    routing::get,
};
use tokio::sync::watch;

use super::{StatusSource, guard, html};
use crate::ops::{
    metrics::{Metrics, MetricsFormat},
    readiness::Readiness,
};
use spotter_core::{Clock, config::HttpConfig};
use spotter_http::{BoundListener, HostNames, ServedListener};

/// What `/healthz` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonHealth {
    /// Current problems, one line each, without any login; empty = healthy.
    pub troubles: Vec<String>,
}

/// What the routes answer from, once the daemon runs.
#[derive(Clone)]
pub struct PageInputs {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// For `/healthz`.
    pub health: watch::Receiver<DaemonHealth>,
    /// For `/`, `/status.json` and pictures.
    pub source: Arc<dyn StatusSource>,
}

/// The page while it is served. Dropping it frees its address.
pub struct ServedPage {
    listener: ServedListener,
    state: Arc<PageState>,
}

struct PageState {
    readiness: Readiness,
    inputs: OnceLock<PageInputs>,
}

impl ServedPage {
    /// Binds the address, so that a port in use is an error at the start, and answers `/readyz` alone until [`open`](Self::open).
    /// `None` without an address: there is no page. Needs a tokio runtime.
    pub async fn start(
        config: &HttpConfig,
        readiness: Readiness,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = config.listen else {
            return Ok(None);
        };
        let bound = bind(address).await?;
        tracing::debug!(address = %bound.address(), "status page");
        let state = Arc::new(PageState {
            readiness,
            inputs: OnceLock::new(),
        });
        let names = HostNames::of_this_machine(&config.names);
        let listener = bound.serve(router(&state, names), clock);
        Ok(Some(Self { listener, state }))
    }

    /// Fails when [`start`](Self::start) would for want of the address.
    pub async fn check(config: &HttpConfig) -> anyhow::Result<()> {
        if let Some(address) = config.listen {
            drop(bind(address).await?);
        }
        Ok(())
    }

    /// From now on all paths are answered.
    pub fn open(&self, inputs: PageInputs) {
        // Opened once.
        _ = self.state.inputs.set(inputs);
    }

    /// The bound address; of use when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Frees the address at once; open connections end with their answer.
    pub async fn close(self) {
        self.listener.close().await;
    }
}

async fn bind(address: SocketAddr) -> anyhow::Result<BoundListener> {
    let bound = BoundListener::bind(address).await;
    bound.with_context(|| {
        format!("http.listen: cannot listen on {address}; choose another address or \"off\"")
    })
}

fn router(state: &Arc<PageState>, names: HostNames) -> Router {
    Router::new()
        .route("/", get(show_page))
        .route(
            "/page.css",
            get(|| asset("text/css", include_str!("assets/page.css"))),
        )
        .route(
            "/page.js",
            get(|| asset("text/javascript", include_str!("assets/page.js"))),
        )
        .route(
            "/icon.svg",
            get(|| asset("image/svg+xml", include_str!("assets/icon.svg"))),
        )
        .route("/camera/{picture}", get(show_picture))
        .route("/status.json", get(show_status))
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(show_health))
        .route("/readyz", get(show_ready))
        .with_state(Arc::clone(state))
        .layer(middleware::from_fn_with_state(
            Arc::new(names),
            guard::guard,
        ))
}

/// Before the daemon runs, the paths that need its figures say why there are none.
impl FromRequestParts<Arc<PageState>> for PageInputs {
    type Rejection = (StatusCode, &'static str);

    async fn from_request_parts(
        _parts: &mut Parts,
        state: &Arc<PageState>,
    ) -> Result<Self, Self::Rejection> {
        let starting = (
            StatusCode::SERVICE_UNAVAILABLE,
            "Spotter is starting: the model is being opened\n",
        );
        state.inputs.get().cloned().ok_or(starting)
    }
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))],
        text,
    )
}

async fn show_page(inputs: PageInputs) -> Html<String> {
    Html(html::page(&inputs.source.status(true)).into_string())
}

async fn show_status(inputs: PageInputs) -> impl IntoResponse {
    // A struct of numbers, texts and lists always serialises.
    let text = serde_json::to_string(&inputs.source.status(false)).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

async fn show_picture(
    inputs: PageInputs,
    Path(picture): Path<String>,
    uri: Uri,
) -> Result<impl IntoResponse, StatusCode> {
    let camera = picture.strip_suffix(".jpg").ok_or(StatusCode::NOT_FOUND)?;
    let look = uri.query().and_then(|query| query.strip_prefix("look="));
    let look = look.and_then(|look| look.parse().ok());
    let thumbnail = inputs
        .source
        .thumbnail(camera, look)
        .ok_or(StatusCode::NOT_FOUND)?;
    let kind = [(header::CONTENT_TYPE, "image/jpeg")];
    Ok((kind, thumbnail.jpeg.clone()))
}

async fn show_metrics(inputs: PageInputs, headers: HeaderMap) -> impl IntoResponse {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|value| value.to_str().ok());
    let format = MetricsFormat::accepted(accepted.unwrap_or_default());
    let kind = [(header::CONTENT_TYPE, format.content_type())];
    (kind, inputs.metrics.encode(format))
}

async fn show_health(inputs: PageInputs) -> (StatusCode, String) {
    let troubles = inputs.health.borrow().troubles.join("\n");
    if troubles.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, troubles + "\n")
    }
}

async fn show_ready(State(state): State<Arc<PageState>>) -> (StatusCode, String) {
    match state.readiness.check() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(reason) => (StatusCode::SERVICE_UNAVAILABLE, format!("{reason}\n")),
    }
}
