//! Binds an address, accepts connections within the bounds, serves a router on them, closes.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{JoinHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{
    connections::{OpenConnections, RefusedConnection},
    stream::PacedStream,
};
use spotter_core::{Clock, LogThrottle};

/// Time for the head of a request, from the beginning of the connection or the end of the last answer.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
/// A browser sends the cookies of all programs on the host.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// What a connection keeps of bytes that it has read.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Time for answers in progress when the listener is closed.
const CLOSE_LIMIT: Duration = Duration::from_millis(500);
/// Pause after a failure to accept: no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// Networks that are logged a minute because their connections are refused.
const LOGGED_NETWORKS: usize = 8;
/// Sent if the client can take it at once.
const REFUSAL: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 10\r\nConnection: close\r\n\
      Content-Type: text/plain\r\nContent-Length: 21\r\n\r\ntoo many connections\n";

/// Where a request comes from; an extension of each request.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// A listener that answers requests. Dropping it frees the address.
#[derive(Debug)]
pub struct ServedListener {
    address: SocketAddr,
    /// Dropping it stops the task.
    stop: watch::Sender<()>,
    task: JoinHandle<()>,
}

/// Binds the address that a key of the configuration names; clients wait until [`ServedListener::serve`].
pub async fn bind(key: &str, address: SocketAddr) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    bound.with_context(|| {
        let off = match key {
            "http.listen" => ", or \"off\"",
            _ => "",
        };
        format!("{key}: cannot listen on {address}; choose another address or port{off}")
    })
}

impl ServedListener {
    /// Answers requests. Needs a tokio runtime.
    pub fn serve(
        listener: TcpListener,
        router: Router,
        clock: &Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(());
        let acceptor = Acceptor {
            router,
            connections: OpenConnections::default(),
            refusals: LogThrottle::with_max_kinds(LOGGED_NETWORKS),
            failures: LogThrottle::default(),
            clock: Arc::clone(clock),
            stopped,
        };
        Ok(Self {
            address,
            stop,
            task: tokio::spawn(acceptor.run(listener)),
        })
    }

    /// The bound address; of use when port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Frees the address at once; answers in progress have a moment to end.
    pub async fn close(mut self) {
        drop(self.stop);
        if timeout(CLOSE_LIMIT, &mut self.task).await.is_err() {
            // With it go its connections.
            self.task.abort();
            _ = self.task.await;
        }
    }
}

struct Acceptor {
    router: Router,
    connections: OpenConnections,
    refusals: LogThrottle<RefusedConnection>,
    failures: LogThrottle<ErrorKind>,
    clock: Arc<dyn Clock>,
    stopped: watch::Receiver<()>,
}

impl Acceptor {
    async fn run(mut self, listener: TcpListener) {
        let mut serving = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = serving.join_next() => continue,
                // It has no value: the sender is dropped.
                _ = self.stopped.changed() => break,
            };
            match accepted {
                Ok((stream, address)) => self.begin(stream, address, &mut serving),
                Err(error) if is_of_client(&error) => {}
                Err(error) => {
                    if let Some(suppressed) = self.failures.admit(error.kind(), self.clock.now()) {
                        tracing::error!(%error, suppressed, "cannot accept HTTP connections; trying again each second. Raise LimitNOFILE if descriptors are missing");
                    }
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(listener);
        while serving.join_next().await.is_some() {}
    }

    fn begin(&mut self, stream: TcpStream, address: SocketAddr, serving: &mut JoinSet<()>) {
        match self.connections.admit(address.ip()) {
            Ok(place) => {
                // A part of an answer is sent when it is there. An error is one of the connection, which it will have again.
                _ = stream.set_nodelay(true);
                let served = serve_connection(
                    stream,
                    self.router.clone().layer(Extension(ClientAddress(address))),
                    self.stopped.clone(),
                );
                serving.spawn(async move {
                    served.await;
                    drop(place);
                });
            }
            Err(refusal) => {
                self.log(refusal);
                // The connection ends here, with or without these words.
                _ = stream.try_write(REFUSAL);
            }
        }
    }

    fn log(&mut self, refusal: RefusedConnection) {
        if let Some(suppressed) = self.refusals.admit(refusal, self.clock.now()) {
            let limit = match refusal {
                RefusedConnection::Full => "all clients together".to_owned(),
                RefusedConnection::NetworkFull(client) => client.to_string(),
            };
            tracing::warn!(
                limit,
                suppressed,
                "HTTP connections refused: the limit is reached"
            );
        }
    }
}

/// The client disconnected before its connection was accepted.
fn is_of_client(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset | ErrorKind::ConnectionRefused
    )
}

/// Answers the requests of a connection until the client is silent or too slow, or the listener stops.
async fn serve_connection<S>(stream: S, router: Router, mut stopped: watch::Receiver<()>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(
            TokioIo::new(PacedStream::new(stream)),
            TowerToHyperService::new(router),
        );
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = &mut connection => ended,
        _ = stopped.changed() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "HTTP connection ended");
    }
}

#[cfg(test)]
mod tests {
    use axum::{body::Body, routing::get};
    use spotter_core::ManualClock;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex},
        time::Instant,
    };

    use super::*;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n";

    fn router() -> Router {
        let large = || async { Body::from(vec![b'x'; 1_000_000]) };
        Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/large", get(large))
    }

    /// A client of a connection that is served in virtual time.
    fn connected() -> (DuplexStream, JoinHandle<()>) {
        let (client, server) = duplex(4096);
        let (stop, stopped) = watch::channel(());
        let served = tokio::spawn(async move {
            serve_connection(server, router(), stopped).await;
            drop(stop);
        });
        (client, served)
    }

    async fn hello(client: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> bool {
        let mut answer = Vec::new();
        if client.write_all(REQUEST).await.is_err() {
            return false;
        }
        while !answer.ends_with(b"hello") {
            match client.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => return false,
            }
        }
        answer.starts_with(b"HTTP/1.1 200")
    }

    // Faults: H1.
    #[tokio::test(start_paused = true)]
    async fn head_that_does_not_come_in_time_ends_the_connection() {
        for (sent, trickles) in [
            (b"".as_slice(), false),
            (b"GET / HT", false),
            (b"GET / HTTP/1.1\r\nHost: here\r\nX: ", false),
            (b"", true),
        ] {
            let (mut client, served) = connected();
            let began = Instant::now();
            client.write_all(sent).await.unwrap();
            let rest = async move {
                while trickles && client.write_all(b"x").await.is_ok() {
                    sleep(Duration::from_secs(1)).await;
                }
                client
            };
            let (ended, _client) = tokio::join!(served, rest);
            ended.unwrap();
            let took = began.elapsed();
            assert!((HEAD_LIMIT..HEAD_LIMIT + Duration::from_secs(2)).contains(&took));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn steady_client_keeps_its_connection() {
        let (mut client, served) = connected();
        for _ in 0..20 {
            assert!(hello(&mut client).await);
            sleep(HEAD_LIMIT - Duration::from_secs(1)).await;
        }
        drop(client);
        served.await.unwrap();
    }

    // Faults: H4.
    /// A client that reads nothing, one that trickles, and a steady one.
    #[tokio::test(start_paused = true)]
    async fn answer_that_is_read_too_slowly_ends_the_connection() {
        let request = b"GET /large HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n";
        for (bytes, is_kept) in [(0, false), (100, false), (40_000, true)] {
            let (mut client, served) = connected();
            client.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            for _ in 0..60 {
                sleep(Duration::from_secs(1)).await;
                _ = (&mut client).take(bytes).read_to_end(&mut answer).await;
            }
            assert!(served.is_finished(), "{bytes} bytes a second");
            assert_eq!(answer.len() > 990_000, is_kept, "{bytes} bytes a second");
        }
    }

    async fn served() -> ServedListener {
        let bound = bind("http.listen", "127.0.0.1:0".parse().unwrap()).await;
        let clock: Arc<dyn Clock> = Arc::new(ManualClock::default());
        ServedListener::serve(bound.unwrap(), router(), &clock).unwrap()
    }

    // Faults: H2.
    #[tokio::test]
    async fn connections_beyond_the_bound_are_refused() {
        let listener = served().await;
        let mut held = Vec::new();
        for _ in 0..120 {
            let mut client = TcpStream::connect(listener.address()).await.unwrap();
            if hello(&mut client).await {
                held.push(client);
            }
        }
        assert_eq!(held.len(), 96);
        drop(held);
        // Their places are free as soon as the server has seen it.
        loop {
            let mut client = TcpStream::connect(listener.address()).await.unwrap();
            if hello(&mut client).await {
                break;
            }
        }
    }

    // Faults: H8.
    #[tokio::test]
    async fn closed_listener_frees_its_address_though_clients_stay() {
        let listener = served().await;
        let address = listener.address();
        let mut client = TcpStream::connect(address).await.unwrap();
        assert!(hello(&mut client).await);
        listener.close().await;
        assert!(bind("http.listen", address).await.is_ok());
        assert!(!hello(&mut client).await);
    }
}
