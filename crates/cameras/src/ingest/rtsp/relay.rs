//! The sockets of a conversation: rtspsrc's on loopback and the camera's, in a thread of their own with a GLib main context.

use std::{
    cell::{Cell, RefCell},
    convert::Infallible,
    fs::File,
    io::{self, Read},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use gio::{glib, prelude::*};
use tokio::sync::{Mutex as AsyncMutex, Notify, oneshot};
use url::{Host, Url};

use super::{
    budget::ConnectionBudget,
    connection::CameraConnection,
    dialogue::{DialogueStep, RtspDialogue},
    message::{NotRtsp, RtspInbox, RtspItem, RtspMessage},
};
use crate::{
    ingest::health::{Failure, INTERRUPTED},
    lock,
};
use spotter_config::RtspConfig;
use spotter_core::{Clock, StreamFault};

/// Packets of several pictures.
const READ_BYTES: usize = 64 * 1024;
/// After rtspsrc has ended, it has closed its connection, which ends the relay; it has this time to send its last bytes.
const LAST_BYTES: Duration = Duration::from_secs(1);
/// A client that has not asked for anything by then is not rtspsrc.
const FIRST_REQUEST: Duration = Duration::from_secs(1);
const CANCELLED: Duration = Duration::from_millis(20);
/// The next connection may not be made within the time for it.
const TOO_MANY_CONNECTIONS: &str = "the camera's connections ended too often, and Spotter makes at most ten a minute; check the camera \
     and the network";

pub struct RelaySettings {
    pub rtsp: RtspConfig,
    /// A camera that is not reached in this time is unreachable.
    pub connect_limit: Duration,
    pub connections: Arc<Mutex<ConnectionBudget>>,
    pub clock: Arc<dyn Clock>,
    /// Is called in the relay's thread, before rtspsrc notices.
    pub report: Box<dyn Fn(RelayReport) + Send>,
}

pub enum RelayReport {
    /// The camera answered a request; the status when it refused it, and there is no stream unless a later one is accepted.
    Answered { refusal: Option<u16> },
    /// There is no stream, or no more of it. Not when rtspsrc ends first.
    Ended(Failure),
}

/// Stops when it is dropped; rtspsrc must have ended before.
pub struct RtspRelay {
    url: String,
    /// Dropped to end the thread.
    _running: oneshot::Sender<()>,
}

impl RtspRelay {
    /// Listens for rtspsrc.
    pub fn start(settings: RelaySettings) -> io::Result<Self> {
        // rtspsrc has sockets for datagrams in the address family of its connection.
        let camera = Url::parse(&settings.rtsp.url).map_err(io::Error::other)?;
        let loopback: IpAddr = match camera.host() {
            Some(Host::Ipv6(_)) => Ipv6Addr::LOCALHOST.into(),
            _ => Ipv4Addr::LOCALHOST.into(),
        };
        let listener = TcpListener::bind(SocketAddr::from((loopback, 0)))?;
        // Other users of this machine can connect too, and cannot know this.
        let mut token = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut token)?;
        let token = u128::from_le_bytes(token);
        let url = format!("rtsp://{}/{token:032x}", listener.local_addr()?);
        let (running, stopped) = oneshot::channel();
        let dialogue = RtspDialogue::new(&url, &settings.rtsp, camera);
        let work = move || {
            let context = glib::MainContext::new();
            context.block_on(async {
                let stop = async {
                    let _ = stopped.await;
                    glib::timeout_future(LAST_BYTES).await;
                };
                tokio::select! {
                    () = converse(&settings, dialogue, listener) => {}
                    () = stop => {}
                }
                // Futures that were under way are cancelled, and free their memory when the context runs once more.
                glib::timeout_future_with_priority(glib::Priority::LOW, CANCELLED).await;
            });
        };
        let thread = std::thread::Builder::new().name("rtsp-relay".into());
        thread.spawn(work)?;
        Ok(Self {
            url,
            _running: running,
        })
    }

    /// The URL for rtspsrc.
    pub fn url(&self) -> &str {
        &self.url
    }
}

/// Serves the first client that knows the URL; its connection and the camera's are closed at the end.
async fn converse(settings: &RelaySettings, dialogue: RtspDialogue, listener: TcpListener) {
    let Some((client, side, first)) = accept(listener, &dialogue).await else {
        return;
    };
    let relay = RelayedSession {
        settings,
        dialogue: RefCell::new(dialogue),
        client: AsyncMutex::new(client.output_stream()),
        camera: AsyncMutex::new(None),
        peer: Cell::new(None),
        answered: Notify::new(),
    };
    let ended: RelayResult<Infallible> = async {
        let camera = relay.connect().await?;
        relay.on_client_message(first).await?;
        tokio::select! {
            ended = relay.serve_client(side) => ended,
            ended = relay.serve_camera(camera) => ended,
            ended = relay.keep_alive() => ended,
        }
    }
    .await;
    // Before rtspsrc notices the end of its connection, and reports that instead.
    match ended {
        Ok(never) => match never {},
        Err(None) => {}
        Err(Some(failure)) => (settings.report)(RelayReport::Ended(failure)),
    }
    drop(client);
}

/// The client, and its first request.
async fn accept(
    listener: TcpListener,
    dialogue: &RtspDialogue,
) -> Option<(gio::SocketConnection, ReceivingSide, RtspMessage)> {
    let socket = gio::Socket::from_fd(listener.into()).ok()?;
    let listener = gio::SocketListener::new();
    listener.add_socket(&socket, glib::Object::NONE).ok()?;
    loop {
        let (client, _) = listener.accept_future().await.ok()?;
        let mut side = ReceivingSide::of(client.clone().upcast());
        let first = tokio::select! {
            first = side.next() => first,
            () = glib::timeout_future(FIRST_REQUEST) => Ok(None),
        };
        if let Ok(Some(RtspItem::Message(first))) = first
            && dialogue.is_for_relay(&first)
        {
            return Some((client, side, first));
        }
    }
}

/// `Err(None)`: rtspsrc closed its connection.
type RelayResult<T> = Result<T, Option<Failure>>;

struct RelayedSession<'a> {
    settings: &'a RelaySettings,
    /// Never borrowed across an `await`.
    dialogue: RefCell<RtspDialogue>,
    client: AsyncMutex<gio::OutputStream>,
    camera: AsyncMutex<Option<gio::OutputStream>>,
    peer: Cell<Option<IpAddr>>,
    /// The camera answered, so that requests may be due.
    answered: Notify,
}

impl RelayedSession<'_> {
    /// Connects to the camera, as soon as it may be.
    async fn connect(&self) -> RelayResult<CameraConnection> {
        let settings = self.settings;
        let limit = settings.connect_limit;
        let latest = settings.clock.now().after(limit);
        loop {
            let now = settings.clock.now();
            let admitted = lock(&settings.connections).connect(now);
            match admitted {
                Ok(()) => break,
                Err(wait) if now.after(wait) > latest => {
                    return Err(
                        Failure::new(StreamFault::Disconnected, TOO_MANY_CONNECTIONS).into(),
                    );
                }
                Err(wait) => glib::timeout_future(wait).await,
            }
        }
        *self.camera.lock().await = None;
        let target = self.dialogue.borrow().target().clone();
        let camera = CameraConnection::open(&target, &settings.rtsp.tls, limit).await?;
        self.peer.set(camera.peer);
        *self.camera.lock().await = Some(camera.stream.output_stream());
        Ok(camera)
    }

    async fn serve_client(&self, mut client: ReceivingSide) -> RelayResult<Infallible> {
        loop {
            match client.next().await {
                Ok(Some(RtspItem::Packets(packets))) => self.to_camera(packets).await,
                Ok(Some(RtspItem::Message(message))) => self.on_client_message(message).await?,
                Ok(None) | Err(NotRtsp) => return Err(None),
            }
        }
    }

    async fn on_client_message(&self, message: RtspMessage) -> RelayResult<()> {
        // To a request of the camera.
        if message.is_answer() {
            self.to_camera(message.to_bytes()).await;
            return Ok(());
        }
        let now = self.settings.clock.now();
        let step = self.dialogue.borrow_mut().request(&message, now)?;
        self.carry_out(step).await?;
        Ok(())
    }

    async fn serve_camera(&self, connection: CameraConnection) -> RelayResult<Infallible> {
        let mut camera = ReceivingSide::of(connection.stream);
        loop {
            let received = camera.next().await;
            let step = match received {
                Ok(Some(RtspItem::Packets(packets))) => {
                    self.to_client(packets).await?;
                    continue;
                }
                Ok(Some(RtspItem::Message(answer))) if answer.is_answer() => {
                    self.on_camera_answer(answer)?
                }
                Ok(Some(RtspItem::Message(request))) => {
                    self.to_client(request.to_bytes()).await?;
                    continue;
                }
                // The camera closed a connection that its stream does not need.
                Ok(None) if self.dialogue.borrow().plays_over_udp() => {
                    camera = ReceivingSide::of(self.connect().await?.stream);
                    self.dialogue.borrow_mut().reconnected();
                    continue;
                }
                Ok(None) | Err(NotRtsp) => {
                    let end = self.end_of_camera(received.is_ok());
                    let now = self.settings.clock.now();
                    self.dialogue.borrow_mut().camera_ended(end, now)?
                }
            };
            if let Some(again) = self.carry_out(step).await? {
                camera = ReceivingSide::of(again.stream);
            }
        }
    }

    fn end_of_camera(&self, has_closed: bool) -> Failure {
        match (has_closed, self.dialogue.borrow().is_playing()) {
            (true, true) => Failure::ended(),
            (true, false) => Failure::of(StreamFault::Disconnected),
            (false, true) => Failure::new(StreamFault::Protocol, INTERRUPTED),
            (false, false) => Failure::of(StreamFault::Protocol),
        }
    }

    fn on_camera_answer(&self, answer: RtspMessage) -> RelayResult<DialogueStep> {
        let now = self.settings.clock.now();
        let mut dialogue = self.dialogue.borrow_mut();
        let step = dialogue.answer(answer, self.peer.get(), now);
        let refusal = dialogue.refusal();
        (self.settings.report)(RelayReport::Answered { refusal });
        self.answered.notify_one();
        Ok(step?)
    }

    /// With a new connection where the step demands one.
    async fn carry_out(&self, step: DialogueStep) -> RelayResult<Option<CameraConnection>> {
        match step {
            DialogueStep::Done => {}
            DialogueStep::ToClient(answer) => self.to_client(answer.to_bytes()).await?,
            DialogueStep::ToCamera(request) => self.to_camera(request.to_bytes()).await,
            DialogueStep::Reconnect(request) => {
                let camera = self.connect().await?;
                self.to_camera(request.to_bytes()).await;
                return Ok(Some(camera));
            }
        }
        Ok(None)
    }

    async fn keep_alive(&self) -> RelayResult<Infallible> {
        loop {
            let due = self.dialogue.borrow().keep_alive_due();
            let Some(due) = due else {
                self.answered.notified().await;
                continue;
            };
            glib::timeout_future(due.since(self.settings.clock.now())).await;
            let now = self.settings.clock.now();
            let request = self.dialogue.borrow_mut().keep_alive(now);
            if let Some(request) = request {
                self.to_camera(request.to_bytes()).await;
            }
        }
    }

    /// Without a connection, the bytes are dropped. Its end is noticed where it is read.
    async fn to_camera(&self, bytes: Vec<u8>) {
        if let Some(camera) = &*self.camera.lock().await {
            let _ = camera
                .write_all_future(bytes, glib::Priority::DEFAULT)
                .await;
        }
    }

    async fn to_client(&self, bytes: Vec<u8>) -> RelayResult<()> {
        let client = self.client.lock().await;
        let written = client.write_all_future(bytes, glib::Priority::DEFAULT);
        match written.await {
            Ok((_, _, None)) => Ok(()),
            _ => Err(None),
        }
    }
}

/// The bytes and messages of one side.
struct ReceivingSide {
    stream: gio::IOStream,
    buffer: Vec<u8>,
    inbox: RtspInbox,
}

impl ReceivingSide {
    fn of(stream: gio::IOStream) -> Self {
        Self {
            stream,
            buffer: vec![0; READ_BYTES],
            inbox: RtspInbox::default(),
        }
    }

    /// `None` when the side has closed its connection.
    async fn next(&mut self) -> Result<Option<RtspItem>, NotRtsp> {
        loop {
            if let Some(received) = self.inbox.next()? {
                return Ok(Some(received));
            }
            let buffer = std::mem::take(&mut self.buffer);
            let read = self.stream.input_stream();
            match read.read_future(buffer, glib::Priority::DEFAULT).await {
                Ok((_, 0)) | Err(_) => return Ok(None),
                Ok((buffer, length)) => {
                    self.inbox.push(&buffer[..length]);
                    self.buffer = buffer;
                }
            }
        }
    }
}
