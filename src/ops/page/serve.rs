//! The page's server: one route for each thing that can be asked.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    middleware,
    response::{Html, IntoResponse},
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use super::{Scene, guard, html, jpeg::Jpegs};
use crate::ops::metrics::Metrics;

/// What `/healthz` and `/readyz` say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The start is complete.
    pub ready: bool,
    /// What is wrong now, one line each, without any login; empty = healthy.
    pub troubles: Vec<String>,
}

/// Why the page cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("http.listen: cannot listen on {address}: {error}; choose another address or \"off\"")]
pub struct ListenError {
    address: SocketAddr,
    error: std::io::Error,
}

/// What the page tells of.
#[derive(Clone)]
pub struct Site {
    /// For `/metrics`.
    pub metrics: Arc<Metrics>,
    /// For `/healthz` and `/readyz`.
    pub health: watch::Receiver<Health>,
    /// For people.
    pub scene: Arc<dyn Scene>,
}

#[derive(Clone)]
struct Served {
    site: Site,
    jpegs: Arc<Jpegs>,
}

/// An address taken for the page; nothing is answered before [`serve`](Self::serve).
pub struct StatusPage {
    listener: TcpListener,
    address: SocketAddr,
}

impl StatusPage {
    /// Takes the address, so that a port in use is known at the start.
    pub async fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let fail = |error| ListenError { address, error };
        let listener = TcpListener::bind(address).await.map_err(fail)?;
        let address = listener.local_addr().map_err(fail)?;
        Ok(Self { listener, address })
    }

    /// The address in use, for port 0.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` resolves; then the address is free at once, and open connections end with their answer.
    pub async fn serve(self, site: Site, stop: impl Future<Output = ()> + Send + 'static) {
        let router = router(site, self.address);
        let served = axum::serve(self.listener, router).with_graceful_shutdown(stop);
        if let Err(error) = served.await {
            tracing::error!(%error, "status page ended");
        }
    }
}

fn router(site: Site, listening: SocketAddr) -> Router {
    let jpegs = Arc::default();
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
        .route("/status.json", get(show_view))
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(show_health))
        .route("/readyz", get(show_ready))
        .with_state(Served { site, jpegs })
        .layer(middleware::from_fn_with_state(listening, guard::guard))
}

async fn asset(kind: &'static str, text: &'static str) -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))],
        text,
    )
}

async fn show_page(State(served): State<Served>) -> Html<String> {
    Html(html::page(&served.site.scene.view(true)).into_string())
}

async fn show_view(State(served): State<Served>) -> impl IntoResponse {
    // A struct of numbers, texts and lists always serialises.
    let text = serde_json::to_string(&served.site.scene.view(false)).unwrap_or_default();
    ([(header::CONTENT_TYPE, "application/json")], text)
}

async fn show_picture(
    State(served): State<Served>,
    Path(picture): Path<String>,
) -> Result<impl IntoResponse, StatusCode> {
    let camera = picture.strip_suffix(".jpg").ok_or(StatusCode::NOT_FOUND)?;
    let still = served
        .site
        .scene
        .still(camera)
        .ok_or(StatusCode::NOT_FOUND)?;
    let jpeg = served.jpegs.of(camera, still).await;
    let jpeg = jpeg.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(header::CONTENT_TYPE, "image/jpeg")], jpeg))
}

async fn show_metrics(State(served): State<Served>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], served.site.metrics.encode())
}

async fn show_health(State(served): State<Served>) -> (StatusCode, String) {
    let troubles = served.site.health.borrow().troubles.join("\n");
    if troubles.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, troubles + "\n")
    }
}

async fn show_ready(State(served): State<Served>) -> (StatusCode, &'static str) {
    if served.site.health.borrow().ready {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}
