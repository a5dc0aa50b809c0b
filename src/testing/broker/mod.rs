//! A broker that does what a test tells it to: MQTT 5 and 3.1.1 on loopback, honest until a [`Script`] says otherwise.
//!
//! It remembers what it got and what it would retain. It routes nothing: what a client is to hear, the test says.

pub(crate) mod codec;
mod script;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::{TcpListener, TcpStream},
    sync::{Notify, broadcast},
    task::JoinHandle,
    time::{sleep, timeout},
};

use codec::{Connect, Packet, Publish};
pub(crate) use script::{Acknowledges, Instead, Script};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it got, in order. Connections are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    pub(crate) connection: usize,
    pub(crate) packet: Packet,
}

#[derive(Default)]
struct Memory {
    script: Script,
    connections: usize,
    open: usize,
    got: Vec<Got>,
    retained: BTreeMap<String, Vec<u8>>,
    /// Most messages that waited for an acknowledgement at one time.
    unanswered: usize,
    unanswered_max: usize,
}

#[derive(Clone, Debug)]
enum Order {
    /// Bytes for every client.
    Say(Vec<u8>, Vec<u8>),
    Close,
}

struct Inner {
    memory: Mutex<Memory>,
    changed: Notify,
    orders: broadcast::Sender<Order>,
}

impl Inner {
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().expect("no test panics with it")
    }

    fn script(&self) -> Script {
        self.memory().script.clone()
    }

    fn remember(&self, connection: usize, packet: Packet) {
        let mut memory = self.memory();
        if let Packet::Publish(message) = &packet
            && message.retain
        {
            let kept = memory.retained.entry(message.topic.clone());
            *kept.or_default() = message.payload.clone();
        }
        memory.got.push(Got { connection, packet });
        self.changed.notify_waiters();
    }
}

/// See the module's documentation. Ends when dropped.
pub(crate) struct Broker {
    pub(crate) port: u16,
    inner: Arc<Inner>,
    task: JoinHandle<()>,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.task.abort();
        _ = self.inner.orders.send(Order::Close);
    }
}

impl Broker {
    pub(crate) async fn start(script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let port = listener.local_addr().expect("an address").port();
        let (orders, _) = broadcast::channel(64);
        let inner = Arc::new(Inner {
            memory: Mutex::default(),
            changed: Notify::new(),
            orders,
        });
        inner.memory().script = script;
        let task = tokio::spawn(accept(listener, Arc::clone(&inner)));
        Self { port, inner, task }
    }

    /// Changes what it does from now on.
    pub(crate) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.inner.memory().script);
        self.inner.changed.notify_waiters();
    }

    /// Closes every connection, as a broker does that is killed.
    pub(crate) fn cut(&self) {
        _ = self.inner.orders.send(Order::Close);
    }

    /// Loses all that it retained.
    pub(crate) fn forget(&self) {
        self.inner.memory().retained.clear();
    }

    /// Sends a message to every client.
    pub(crate) fn say(&self, message: &Publish) {
        let [old, new] = [false, true].map(|v5| codec::message(v5, message));
        _ = self.inner.orders.send(Order::Say(old, new));
    }

    /// Sends bytes to every client.
    pub(crate) fn say_raw(&self, bytes: Vec<u8>) {
        _ = self.inner.orders.send(Order::Say(bytes.clone(), bytes));
    }

    /// All it got so far.
    pub(crate) fn got(&self) -> Vec<Got> {
        self.inner.memory().got.clone()
    }

    /// All messages it got so far.
    pub(crate) fn messages(&self) -> Vec<Publish> {
        let got = self.got().into_iter();
        got.filter_map(|got| match got.packet {
            Packet::Publish(message) => Some(message),
            _ => None,
        })
        .collect()
    }

    pub(crate) fn connects(&self) -> Vec<Connect> {
        let got = self.got().into_iter();
        got.filter_map(|got| match got.packet {
            Packet::Connect(connect) => Some(connect),
            _ => None,
        })
        .collect()
    }

    /// What it retains on a topic, as text.
    pub(crate) fn retained(&self, topic: &str) -> Option<String> {
        let memory = self.inner.memory();
        let kept = memory.retained.get(topic);
        kept.map(|payload| String::from_utf8_lossy(payload).into_owned())
    }

    /// Most QoS 1 messages that waited for their acknowledgement at one time.
    pub(crate) fn unanswered_max(&self) -> usize {
        self.inner.memory().unanswered_max
    }

    /// Waits until what it knows satisfies `wanted`; panics with `what` when that takes too long.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let reached = timeout(PATIENCE, async {
            loop {
                let changed = self.inner.changed.notified();
                tokio::pin!(changed);
                changed.as_mut().enable();
                if wanted(self) {
                    return;
                }
                changed.await;
            }
        });
        if reached.await.is_err() {
            panic!("{what}: the broker got {:#?}", self.got());
        }
    }

    /// Waits until it retains this text on a topic.
    pub(crate) async fn until_retained(&self, topic: &str, text: &str) {
        let what = format!("{topic} = {text}");
        self.until(&what, |broker| {
            broker.retained(topic).as_deref() == Some(text)
        })
        .await;
    }
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            return;
        };
        let connection = {
            let mut memory = inner.memory();
            memory.connections += 1;
            memory.open += 1;
            memory.unanswered = 0;
            memory.connections
        };
        let inner = Arc::clone(&inner);
        tokio::spawn(async move {
            let mut orders = inner.orders.subscribe();
            // A socket that ends in the middle of a packet is what many tests do.
            _ = serve(socket, connection, &inner, &mut orders).await;
            inner.memory().open -= 1;
            inner.changed.notify_waiters();
        });
    }
}

/// The client's bytes, as slowly and as many as the script says.
struct Reader<'a> {
    socket: ReadHalf<TcpStream>,
    inner: &'a Inner,
    bytes: usize,
}

impl Reader<'_> {
    /// All that is there, up to what may be read at once; an error when the script cuts.
    async fn read(&mut self, into: &mut Vec<u8>) -> std::io::Result<()> {
        let script = self.inner.script();
        let mut room = vec![0; script.reads_slowly.map_or(16 * 1024, |(bytes, _)| bytes)];
        if let Some((_, rest)) = script.reads_slowly {
            sleep(rest).await;
        }
        let count = self.socket.read(&mut room).await?;
        self.bytes += count;
        let is_cut = script.cut_after_read.is_some_and(|max| self.bytes >= max);
        if count == 0 || is_cut {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        into.extend(&room[..count]);
        Ok(())
    }
}

/// Waits until the script lets bytes through.
async fn awake(inner: &Inner) {
    loop {
        let changed = inner.changed.notified();
        tokio::pin!(changed);
        changed.as_mut().enable();
        if !inner.memory().script.is_half_open {
            return;
        }
        changed.await;
    }
}

struct Writer {
    socket: WriteHalf<TcpStream>,
    bytes: usize,
}

impl Writer {
    async fn write(&mut self, inner: &Inner, bytes: &[u8]) -> std::io::Result<()> {
        let room = inner.memory().script.cut_after_written;
        let room = room.map_or(usize::MAX, |max| max.saturating_sub(self.bytes));
        let sent = &bytes[..bytes.len().min(room)];
        self.socket.write_all(sent).await?;
        self.bytes += sent.len();
        if sent.len() < bytes.len() {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }
}

async fn serve(
    socket: TcpStream,
    connection: usize,
    inner: &Arc<Inner>,
    orders: &mut broadcast::Receiver<Order>,
) -> std::io::Result<()> {
    let (read, write) = tokio::io::split(socket);
    let mut reader = Reader {
        socket: read,
        inner,
        bytes: 0,
    };
    let mut writer = Writer {
        socket: write,
        bytes: 0,
    };
    let mut unread = Vec::new();
    let mut v5 = false;
    // Acknowledgements that are due later.
    let (late, mut due) = tokio::sync::mpsc::channel::<u16>(64);
    loop {
        while let Some((packet, bytes)) = first(&mut unread, v5).await {
            if let Packet::Connect(connect) = &packet {
                v5 = connect.level == 5;
            }
            let max = inner.script().packet_max_untold;
            if max.is_some_and(|max| bytes > max) {
                return Ok(());
            }
            inner.remember(connection, packet.clone());
            answer(&packet, v5, inner, &mut writer, &late).await?;
        }
        tokio::select! {
            biased;
            () = awake(inner) => {}
            order = orders.recv() => if matches!(order, Ok(Order::Close)) { return Ok(()) },
        }
        tokio::select! {
            read = reader.read(&mut unread) => {
                read?;
                awake(inner).await;
                let heard = match inner.script().instead {
                    None => continue,
                    Some(Instead::Echo) => std::mem::take(&mut unread),
                    Some(Instead::Say(bytes)) => bytes,
                };
                unread.clear();
                writer.write(inner, &heard).await?;
            }
            order = orders.recv() => match order {
                Ok(Order::Say(old, new)) => {
                    writer.write(inner, if v5 { &new } else { &old }).await?;
                }
                Ok(Order::Close) | Err(_) => return Ok(()),
            },
            Some(id) = due.recv() => acknowledge(id, 0, v5, inner, &mut writer).await?,
        }
    }
}

/// Takes the first whole packet off.
async fn first(unread: &mut Vec<u8>, v5: bool) -> Option<(Packet, usize)> {
    let mut slice: &[u8] = unread;
    let packet = codec::read(&mut slice, v5).await;
    let (packet, bytes) = packet.ok()?;
    unread.drain(..bytes);
    Some((packet, bytes))
}

async fn answer(
    packet: &Packet,
    v5: bool,
    inner: &Arc<Inner>,
    writer: &mut Writer,
    late: &tokio::sync::mpsc::Sender<u16>,
) -> std::io::Result<()> {
    let script = inner.script();
    let closed = || Err(std::io::ErrorKind::ConnectionAborted.into());
    match packet {
        Packet::Connect(connect) => {
            let code = match connect.level {
                5 if script.is_old => {
                    // Its own format: it knows no other.
                    writer.write(inner, &codec::connack(false, 1, &[])).await?;
                    return closed();
                }
                5 if script.refuses_retained_wills && connect.will_retained => 0x9a,
                _ => script.connack,
            };
            let bytes = codec::connack(v5, code, &script.terms);
            writer.write(inner, &bytes).await?;
            if code != 0 {
                return closed();
            }
            writer.write(inner, &script.greeting).await
        }
        Packet::Publish(message) if message.qos > 0 => {
            {
                let mut memory = inner.memory();
                memory.unanswered += 1;
                memory.unanswered_max = memory.unanswered_max.max(memory.unanswered);
            }
            match script.acknowledges {
                Acknowledges::Always => acknowledge(message.id, 0, v5, inner, writer).await,
                Acknowledges::With(code) => acknowledge(message.id, code, v5, inner, writer).await,
                Acknowledges::Never => Ok(()),
                Acknowledges::Late(after) => {
                    let (late, id) = (late.clone(), message.id);
                    tokio::spawn(async move {
                        sleep(after).await;
                        // The connection may have ended.
                        _ = late.send(id).await;
                    });
                    Ok(())
                }
            }
        }
        Packet::Subscribe { id, filters } => {
            let refusal = if v5 { 0x87 } else { 0x80 };
            let is_refused = |name| script.refused_filters.contains(name);
            let codes = filters.iter().map(|filter| match is_refused(&filter.name) {
                true => refusal,
                false => filter.qos,
            });
            let codes: Vec<u8> = codes.collect();
            writer
                .write(inner, &codec::suback(0x90, v5, *id, &codes))
                .await
        }
        Packet::Unsubscribe { id, filters } => {
            let codes = vec![0; filters.len()];
            writer
                .write(inner, &codec::suback(0xb0, v5, *id, &codes))
                .await
        }
        Packet::Ping => writer.write(inner, &[0xd0, 0]).await,
        Packet::Publish(_) | Packet::PubAck { .. } | Packet::Disconnect => Ok(()),
    }
}

async fn acknowledge(
    id: u16,
    code: u8,
    v5: bool,
    inner: &Inner,
    writer: &mut Writer,
) -> std::io::Result<()> {
    {
        let mut memory = inner.memory();
        memory.unanswered = memory.unanswered.saturating_sub(1);
    }
    writer.write(inner, &codec::puback(v5, id, code)).await
}
