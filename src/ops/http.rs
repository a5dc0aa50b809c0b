//! The local status page: `/metrics` for Prometheus, `/healthz` and `/readyz` for people and supervisors. Plain text.

use std::{net::SocketAddr, sync::Arc};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use tokio::{net::TcpListener, sync::watch};

use super::metrics::Metrics;

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

#[derive(Clone)]
struct Page {
    metrics: Arc<Metrics>,
    health: watch::Receiver<Health>,
}

/// A bound page; nothing is answered before [`serve`](Self::serve).
pub struct StatusPage {
    listener: TcpListener,
    router: Router,
}

impl StatusPage {
    /// Takes the address, so that a port in use is known at the start.
    pub async fn bind(
        address: SocketAddr,
        metrics: Arc<Metrics>,
        health: watch::Receiver<Health>,
    ) -> Result<Self, ListenError> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| ListenError { address, error })?;
        let router = Router::new()
            .route("/metrics", get(show_metrics))
            .route("/healthz", get(show_health))
            .route("/readyz", get(show_ready))
            .with_state(Page { metrics, health });
        Ok(Self { listener, router })
    }

    /// The address in use, for port 0.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Answers until `stop` resolves; then the address is free at once, and open connections end with their answer.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send + 'static) {
        let served = axum::serve(self.listener, self.router).with_graceful_shutdown(stop);
        if let Err(error) = served.await {
            tracing::error!(%error, "status page ended");
        }
    }
}

async fn show_metrics(State(page): State<Page>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], page.metrics.encode())
}

async fn show_health(State(page): State<Page>) -> (StatusCode, String) {
    let troubles = page.health.borrow().troubles.join("\n");
    if troubles.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, troubles + "\n")
    }
}

async fn show_ready(State(page): State<Page>) -> (StatusCode, &'static str) {
    if page.health.borrow().ready {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "starting\n")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn fetch(address: SocketAddr, path: &str) -> String {
        let mut socket = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn the_page_follows_the_health() {
        let (health, receiver) = watch::channel(Health::default());
        let metrics = Arc::new(Metrics::new());
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let page = StatusPage::bind(loopback, metrics, receiver).await.unwrap();
        let address = page.address().unwrap();
        tokio::spawn(page.serve(std::future::pending()));
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 503"));
        assert!(fetch(address, "/healthz").await.ends_with("ok\n"));
        health.send_replace(Health {
            ready: true,
            troubles: vec!["broker: login refused".into()],
        });
        assert!(fetch(address, "/readyz").await.starts_with("HTTP/1.1 200"));
        let sick = fetch(address, "/healthz").await;
        assert!(sick.starts_with("HTTP/1.1 503") && sick.ends_with("login refused\n"));
        assert!(fetch(address, "/metrics").await.ends_with("# EOF\n"));
    }
}
