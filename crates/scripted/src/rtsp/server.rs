//! Sockets on loopback, timers, and the memory of a server.

use std::{
    io,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{TcpListener, TcpStream, UdpSocket},
    task::{JoinHandle, JoinSet},
    time::{Instant, sleep, sleep_until, timeout},
};

use super::{
    conversation::{Conversation, PacketWay, RequestEffect},
    message::{ClientMessage, RtspRequest, RtspResponse, interleaved, take},
    play::Player,
    script::{CameraFault, CameraScript, Damage},
};
use crate::tls::tls_config;
use spotter_core::{Clock, SystemClock};
use tokio_rustls::TlsAcceptor;

/// How long the server waits for the client to close.
const LINGER: Duration = Duration::from_secs(5);

/// What a server remembers of its clients.
#[derive(Clone, Debug, Default)]
pub struct ServerMemory {
    pub connections: usize,
    pub connected_at: Vec<Instant>,
    pub open: usize,
    /// Number of the connection, method and URL.
    pub requests: Vec<(usize, String, String)>,
    pub wrong_logins: usize,
    /// Sessions that were set up.
    pub sessions: usize,
    /// Sessions that the client ended with TEARDOWN.
    pub torn_down: usize,
    /// Start of the last stream without faults, while it runs.
    pub streams_since: Option<Instant>,
}

impl ServerMemory {
    /// Returns the number of the connection.
    fn note_connection(&mut self) -> usize {
        self.open += 1;
        self.connections += 1;
        self.connected_at.push(Instant::now());
        self.connections - 1
    }

    /// Requests with this method.
    pub fn count(&self, method: &str) -> usize {
        let same = |(_, known, _): &&(usize, String, String)| known == method;
        self.requests.iter().filter(same).count()
    }
}

/// A camera; dropping it closes all connections.
pub struct Server {
    address: SocketAddr,
    memory: Arc<Mutex<ServerMemory>>,
    task: JoinHandle<()>,
}

impl Server {
    /// Listens on loopback. `script` gives the script of each connection, numbered from 0.
    pub async fn start(script: impl Fn(usize) -> CameraScript + Send + 'static) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), script).await
    }

    /// As [`Self::start`], at an address.
    pub async fn start_at(
        address: SocketAddr,
        script: impl Fn(usize) -> CameraScript + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let memory = Arc::<Mutex<ServerMemory>>::default();
        let task = tokio::spawn(listen(listener, Arc::clone(&memory), script));
        Self {
            address,
            memory,
            task,
        }
    }

    /// URL for the configuration.
    pub fn url(&self) -> String {
        format!("rtsp://{}/x", self.address)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of the same camera behind TLS, with the server's certificate of [`crate::tls::certificates`].
    pub async fn encrypted(&self, directory: &Path) -> String {
        let acceptor = TlsAcceptor::from(tls_config(directory));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rtsps://{}/x", listener.local_addr().unwrap());
        let address = self.address;
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut client = acceptor.accept(client).await.ok()?;
                    let mut camera = TcpStream::connect(address).await.ok()?;
                    copy_bidirectional(&mut client, &mut camera).await.ok()
                });
            }
        });
        url
    }

    pub fn memory(&self) -> ServerMemory {
        self.memory.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn listen(
    listener: TcpListener,
    memory: Arc<Mutex<ServerMemory>>,
    script: impl Fn(usize) -> CameraScript,
) {
    let mut open = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        while open.try_join_next().is_some() {}
        let number = memory.lock().unwrap().note_connection();
        let (script, memory) = (script(number), Arc::clone(&memory));
        open.spawn(async move {
            let connection = Connection::new(socket, number, script, memory).await;
            connection.run().await;
        });
    }
}

struct Connection {
    socket: TcpStream,
    number: usize,
    conversation: Conversation,
    memory: Arc<Mutex<ServerMemory>>,
    received: Vec<u8>,
    way: PacketWay,
    /// Sockets of the datagrams: packets, and reports.
    datagrams: [UdpSocket; 2],
    player: Player,
    playing: bool,
    silent: bool,
    reports: i64,
    next_picture: Instant,
    next_report: Instant,
    /// Time of the last request; the session's timeout starts there.
    last_request: Instant,
    clock: SystemClock,
    script: CameraScript,
}

enum CameraEnd {
    Deed(CameraFault),
    ByClient,
}

impl From<io::Error> for CameraEnd {
    fn from(_: io::Error) -> Self {
        Self::ByClient
    }
}

impl Connection {
    async fn new(
        socket: TcpStream,
        number: usize,
        script: CameraScript,
        memory: Arc<Mutex<ServerMemory>>,
    ) -> Self {
        let datagrams = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0"));
        let [packets, reports] = datagrams;
        let datagrams = [packets.await.unwrap(), reports.await.unwrap()];
        let port = |socket: &UdpSocket| socket.local_addr().unwrap().port();
        let ports = (port(&datagrams[0]), port(&datagrams[1]));
        let now = Instant::now();
        Self {
            socket,
            number,
            conversation: Conversation::new(number, &script, ports),
            memory,
            received: Vec::new(),
            way: PacketWay::Channel(0),
            datagrams,
            player: Player::new(&script, script.stamps),
            playing: false,
            silent: false,
            reports: 0,
            next_picture: now,
            next_report: now,
            last_request: now,
            clock: SystemClock::new(),
            script,
        }
    }

    fn memory(&self) -> MutexGuard<'_, ServerMemory> {
        self.memory.lock().unwrap()
    }

    async fn run(mut self) {
        let end = loop {
            if let Err(end) = self.step().await {
                break end;
            }
        };
        self.memory().streams_since = None;
        match end {
            CameraEnd::Deed(CameraFault::Reset) => self.socket.set_zero_linger().unwrap(),
            CameraEnd::Deed(_) => self.close().await,
            CameraEnd::ByClient => {}
        }
        self.memory().open -= 1;
    }

    /// Closes, and waits for the client to close: bytes that still arrive would turn the end into a reset.
    async fn close(&mut self) {
        if self.socket.shutdown().await.is_ok() {
            let mut rest = [0; 4096];
            let client_closes =
                async { while matches!(self.socket.read(&mut rest).await, Ok(1..)) {} };
            let _ = timeout(LINGER, client_closes).await;
        }
    }

    async fn step(&mut self) -> Result<(), CameraEnd> {
        let streams = self.playing && !self.silent;
        let over = self.last_request + self.script.timeout;
        tokio::select! {
            read = self.socket.read_buf(&mut self.received) => {
                if read? == 0 {
                    return Err(CameraEnd::ByClient);
                }
                while let Some(incoming) = take(&mut self.received) {
                    if let ClientMessage::Request(request) = incoming {
                        self.last_request = Instant::now();
                        self.answer(&request).await?;
                    }
                }
            }
            () = sleep_until(self.next_picture), if streams => self.pictures().await?,
            () = sleep_until(self.next_report), if streams => self.report().await?,
            () = sleep_until(over), if streams => return Err(CameraEnd::Deed(CameraFault::Close)),
        }
        Ok(())
    }

    async fn answer(&mut self, request: &RtspRequest) -> Result<(), CameraEnd> {
        let (method, url) = (request.method.clone(), request.url.clone());
        self.memory().requests.push((self.number, method, url));
        let sequence = request.header("cseq").unwrap_or("0");
        if self.silent {
            return Ok(());
        }
        let deed = self.script.deed(&request.method);
        // The login is checked before the scripted fault.
        let (mut answer, outcome) = self.conversation.on(request);
        match deed {
            Some(CameraFault::Refuse(status) | CameraFault::RefuseAndClose(status))
                if answer.status != 401 =>
            {
                answer = RtspResponse::new(status);
            }
            Some(CameraFault::Refuse(_) | CameraFault::RefuseAndClose(_)) | None => {
                self.note(&outcome);
            }
            Some(deed) => return self.act(deed).await,
        }
        self.socket.write_all(&answer.bytes(sequence)).await?;
        if let Some(deed @ CameraFault::RefuseAndClose(_)) = deed
            && (answer.status != 401 || outcome == RequestEffect::WrongLogin)
        {
            return Err(CameraEnd::Deed(deed));
        }
        if deed.is_none() && outcome == RequestEffect::Play {
            self.playing = true;
            let is_whole = matches!(self.script.damage, Damage::None | Damage::Renamed);
            let since = is_whole.then(Instant::now);
            self.memory().streams_since = since;
            self.next_picture = Instant::now() + self.script.first_after;
            self.next_report = self.next_picture;
        }
        Ok(())
    }

    fn note(&mut self, outcome: &RequestEffect) {
        match outcome {
            RequestEffect::WrongLogin => self.memory().wrong_logins += 1,
            RequestEffect::SetUp(way) => {
                self.memory().sessions += 1;
                self.way = *way;
            }
            RequestEffect::TornDown => {
                self.memory().torn_down += 1;
                self.playing = false;
            }
            RequestEffect::None | RequestEffect::Play => {}
        }
    }

    async fn act(&mut self, deed: CameraFault) -> Result<(), CameraEnd> {
        match deed {
            CameraFault::Silence => {
                self.silent = true;
                self.memory().streams_since = None;
            }
            CameraFault::Ignore => {}
            CameraFault::Babble => {
                let babble = [&[0xa5; 3000][..], b"\r\n\r\n"].concat();
                self.socket.write_all(&babble).await?;
                self.silent = true;
            }
            CameraFault::Refuse(_)
            | CameraFault::RefuseAndClose(_)
            | CameraFault::Close
            | CameraFault::Reset => {
                return Err(CameraEnd::Deed(deed));
            }
        }
        Ok(())
    }

    /// Sends the next picture, and at once those that overtake one of its packets, so that its delay does not depend on the
    /// speed of this machine.
    async fn pictures(&mut self) -> Result<(), CameraEnd> {
        let played = self.player.pictures();
        if let Some((_, pause)) = self.script.hold.take_if(|(at, _)| played >= *at) {
            sleep(pause).await;
        }
        self.picture().await?;
        while self.player.holds_one() {
            self.picture().await?;
        }
        Ok(())
    }

    async fn picture(&mut self) -> Result<(), CameraEnd> {
        self.next_picture += self.script.every;
        let played = self.player.pictures();
        if let Some((_, stamps)) = self.script.restart.take_if(|(at, _)| played >= *at) {
            self.player = Player::new(&self.script, stamps);
        }
        let over = self.script.ending.filter(|end| played >= end.pictures);
        for packet in self.player.next_picture() {
            match over {
                Some(end) => {
                    if end.torn {
                        self.send_half(&packet).await?;
                    }
                    return self.act(end.deed).await;
                }
                None => self.send(&packet, false).await?,
            }
        }
        Ok(())
    }

    async fn send(&mut self, packet: &[u8], is_report: bool) -> io::Result<()> {
        match self.way {
            PacketWay::Channel(channel) => {
                let bytes = interleaved(channel + u8::from(is_report), packet);
                self.socket.write_all(&bytes).await
            }
            PacketWay::Ports(packets, reports) => {
                let (from, to) = match is_report {
                    false => (&self.datagrams[0], packets),
                    true => (&self.datagrams[1], reports),
                };
                // The client may have closed its port.
                let _ = from.send_to(packet, ("127.0.0.1", to)).await;
                Ok(())
            }
        }
    }

    async fn send_half(&mut self, packet: &[u8]) -> io::Result<()> {
        match self.way {
            PacketWay::Channel(channel) => {
                let bytes = interleaved(channel, packet);
                self.socket.write_all(&bytes[..bytes.len() / 2]).await
            }
            PacketWay::Ports(..) => self.send(&packet[..packet.len() / 2], false).await,
        }
    }

    async fn report(&mut self) -> Result<(), CameraEnd> {
        self.next_report += self.script.report_every;
        self.reports += 1;
        let now_ns = self.clock.wall().unix_nanos();
        let unix = Duration::from_nanos(u64::try_from(now_ns).unwrap());
        let (reports, number) = (self.script.reports, self.reports);
        if let Some(packet) = self.player.report(reports, number, unix) {
            self.send(&packet, true).await?;
        }
        Ok(())
    }
}
