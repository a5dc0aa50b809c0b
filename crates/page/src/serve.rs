//! The page's HTTP server and its routes.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use crate::{Readiness, board::StatusSource, guard, metrics};
use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, Uri, header},
    middleware,
    response::IntoResponse,
    routing::get,
};
use spotter_config::HttpConfig;
use spotter_core::Clock;
use spotter_http::{HostNames, ServedListener, bind};

/// The page while it is served. Dropping it frees its address.
pub struct ServedPage {
    listener: ServedListener,
    state: Arc<PageState>,
}

struct PageState {
    readiness: Readiness,
    /// Set once the daemon runs.
    source: OnceLock<Arc<dyn StatusSource>>,
}

impl ServedPage {
    /// Binds the address, so that a port in use is an error at the start, and answers `/readyz` and the page, which says why it is empty, until
    /// [`open`](Self::open).
    /// `None` without an address: there is no page. Needs a tokio runtime.
    pub async fn start(
        config: &HttpConfig,
        readiness: Readiness,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(address) = config.listen else {
            return Ok(None);
        };
        let bound = bind("http.listen", address).await?;
        let state = Arc::new(PageState {
            readiness,
            source: OnceLock::new(),
        });
        let names = HostNames::of_this_machine(&config.names);
        let listener = ServedListener::serve(bound, router(&state, names), clock)?;
        tracing::debug!(address = %listener.address(), "status page");
        Ok(Some(Self { listener, state }))
    }

    /// From now on all paths are answered.
    pub fn open(&self, source: Arc<dyn StatusSource>) {
        // Opened once.
        _ = self.state.source.set(source);
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

/// Path, type and text of the page's files.
const FILES: [(&str, &str, &str); 4] = [
    ("/", "text/html", include_str!("assets/page.html")),
    ("/page.css", "text/css", include_str!("assets/page.css")),
    (
        "/page.js",
        "text/javascript",
        include_str!("assets/page.js"),
    ),
    (
        "/icon.svg",
        "image/svg+xml",
        include_str!("assets/icon.svg"),
    ),
];

fn router(state: &Arc<PageState>, names: HostNames) -> Router {
    let mut router = Router::new();
    for (path, kind, text) in FILES {
        let kind = [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))];
        router = router.route(path, get(async move || (kind.clone(), text)));
    }
    router
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
fn source(state: &PageState) -> Result<&dyn StatusSource, (StatusCode, &'static str)> {
    let starting = (
        StatusCode::SERVICE_UNAVAILABLE,
        "Spotter is starting: the model is being opened\n",
    );
    let source = state.source.get().map(AsRef::as_ref);
    source.ok_or(starting)
}

type PageShared = State<Arc<PageState>>;
type PageAnswer<T> = Result<T, (StatusCode, &'static str)>;

/// The query `pictured` is the page's: looks that have a picture, which are made more often then.
async fn show_status(State(state): PageShared, uri: Uri) -> PageAnswer<impl IntoResponse> {
    let text = source(&state)?.status_json(uri.query() == Some("pictured"));
    Ok(([(header::CONTENT_TYPE, "application/json")], text))
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
