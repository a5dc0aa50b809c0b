//! The page's HTTP server and its routes.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, Uri, header},
    middleware,
    response::{Html, IntoResponse},
    routing::get,
};
use tokio::{
    net::TcpListener,
    sync::{oneshot, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{StatusSource, guard, html};
use crate::ops::metrics::Metrics;

/// Time for answers in progress when the page is closed.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);

/// What `/healthz` and `/readyz` answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DaemonHealth {
    /// The start is complete.
    pub ready: bool,
    /// Current problems, one line each, without any login; empty = healthy.
    pub troubles: Vec<String>,
}

/// What the routes answer from.
#[derive(Clone)]
pub struct PageInputs {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// For `/healthz` and `/readyz`.
    pub health: watch::Receiver<DaemonHealth>,
    /// For `/`, `/status.json` and pictures.
    pub source: Arc<dyn StatusSource>,
}

/// The page with its address bound; requests wait until [`serve`](Self::serve). Dropping it frees the address.
pub struct BoundPage {
    listener: TcpListener,
    address: SocketAddr,
}

/// The page that is served.
pub struct ServedPage {
    /// Dropping it stops the page.
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl BoundPage {
    /// Binds the address, so that a port in use is an error at the start. `None` without an address: there is no page.
    pub async fn bind(address: Option<SocketAddr>) -> anyhow::Result<Option<Self>> {
        let Some(address) = address else {
            return Ok(None);
        };
        let listener = TcpListener::bind(address).await.with_context(|| {
            format!("http.listen: cannot listen on {address}; choose another address or \"off\"")
        })?;
        let address = listener.local_addr()?;
        Ok(Some(Self { listener, address }))
    }

    /// The bound address; of use when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers requests. Needs a tokio runtime.
    pub fn serve(self, inputs: PageInputs) -> ServedPage {
        tracing::debug!(address = %self.address, "status page");
        let (stop, stopped) = oneshot::channel();
        // An error means that the sender was dropped, which is the stop.
        let stopped = async move { drop(stopped.await) };
        let router = router(inputs, self.address);
        let served = axum::serve(self.listener, router).with_graceful_shutdown(stopped);
        let task = tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(%error, "status page stopped; restart the daemon to serve it again");
            }
        });
        ServedPage { stop, task }
    }
}

impl ServedPage {
    /// Frees the address at once; open connections end with their answer.
    pub async fn close(self) {
        drop(self.stop);
        let _ = timeout(CLOSE_LIMIT, self.task).await;
    }
}

fn router(inputs: PageInputs, listening: SocketAddr) -> Router {
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
        .with_state(inputs)
        .layer(middleware::from_fn_with_state(listening, guard::guard))
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))],
        text,
    )
}

async fn show_page(State(inputs): State<PageInputs>) -> Html<String> {
    Html(html::page(&inputs.source.status(true)).into_string())
}

async fn show_status(State(inputs): State<PageInputs>) -> impl IntoResponse {
    // A struct of numbers, texts and lists always serialises.
    let text = serde_json::to_string(&inputs.source.status(false)).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

async fn show_picture(
    State(inputs): State<PageInputs>,
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

async fn show_metrics(State(inputs): State<PageInputs>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], inputs.metrics.encode())
}

async fn show_health(State(inputs): State<PageInputs>) -> (StatusCode, String) {
    let troubles = inputs.health.borrow().troubles.join("\n");
    if troubles.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, troubles + "\n")
    }
}

async fn show_ready(State(inputs): State<PageInputs>) -> (StatusCode, &'static str) {
    if inputs.health.borrow().ready {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}
