//! The connections of one box to one server, through this process: they can be cut.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use spotter_core::{Clock as _, Mono, SystemClock};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::watch,
};

const CHUNK: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkState {
    Open,
    /// Connections are closed, and new ones are closed at once: a server that ended, a firewall that resets.
    Refusing,
    /// Nothing passes and nothing is closed: an unplugged cable. What was sent meanwhile arrives when the link opens again.
    Silent,
}

pub struct BoxLink {
    port: u16,
    state: watch::Sender<LinkState>,
    connected_at: Arc<Mutex<Mono>>,
}

/// What each connection needs.
#[derive(Clone)]
struct LinkRoute {
    /// On this machine.
    target: u16,
    state: watch::Receiver<LinkState>,
    clock: Arc<SystemClock>,
    connected_at: Arc<Mutex<Mono>>,
}

impl BoxLink {
    pub fn start(runtime: &Handle, target: u16, clock: Arc<SystemClock>) -> io::Result<Self> {
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let port = listener.local_addr()?.port();
        let (sender, state) = watch::channel(LinkState::Open);
        let connected_at = Arc::new(Mutex::new(Mono::default()));
        let route = LinkRoute {
            target,
            state,
            clock,
            connected_at: Arc::clone(&connected_at),
        };
        runtime.spawn(accept(listener, route));
        Ok(Self {
            port,
            state: sender,
            connected_at,
        })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn set(&self, state: LinkState) {
        self.state.send_replace(state);
    }

    /// The last time that a connection was made.
    pub fn connected_at(&self) -> Mono {
        let at = self.connected_at.lock();
        *at.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Ends with the link.
async fn accept(listener: TcpListener, mut route: LinkRoute) {
    loop {
        let is_passing = |state| state != LinkState::Silent;
        if changed_to(&mut route.state, is_passing).await.is_err() {
            return;
        }
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        if *route.state.borrow() != LinkState::Refusing {
            tokio::spawn(carry(client, route.clone()));
        }
    }
}

/// One connection.
async fn carry(client: TcpStream, mut route: LinkRoute) {
    let Ok(server) = TcpStream::connect(("127.0.0.1", route.target)).await else {
        return;
    };
    for socket in [&client, &server] {
        // Only delays.
        _ = socket.set_nodelay(true);
    }
    {
        let mut at = route
            .connected_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *at = route.clock.now();
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let (up, down) = (route.state.clone(), route.state.clone());
    tokio::select! {
        // Also when the link is dropped.
        _ = changed_to(&mut route.state, |state| state == LinkState::Refusing) => {}
        _ = pump(from_client, to_server, up) => {}
        _ = pump(from_server, to_client, down) => {}
    }
}

/// One direction. Ends when a side closes.
async fn pump(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut state: watch::Receiver<LinkState>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        changed_to(&mut state, |state| state == LinkState::Open).await?;
        let count = tokio::select! {
            biased;
            changed = changed_to(&mut state, |state| state != LinkState::Open) => {
                changed?;
                continue;
            }
            count = from.read(&mut chunk) => count?,
        };
        if count == 0 {
            return Ok(());
        }
        to.write_all(&chunk[..count]).await?;
    }
}

/// Waits. Fails when the link is dropped.
async fn changed_to(
    state: &mut watch::Receiver<LinkState>,
    is_wanted: impl Fn(LinkState) -> bool,
) -> io::Result<()> {
    let changed = state.wait_for(|state| is_wanted(*state)).await;
    changed.map(drop).map_err(io::Error::other)
}
