//! A broker that does what a test tells it to: MQTT 5 and 3.1.1 on loopback, honest until a [`Script`] says otherwise.
//!
//! It remembers what it got and what it would retain. It routes nothing: what a client is to hear, the test says.

pub mod codec;
mod script;
mod serve;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use codec::{Connect, Packet, Publish};
pub use script::{Acknowledges, Instead, Script};
use serve::accept;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::{TcpListener, TcpStream},
    sync::{Notify, broadcast},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What it got, in order. Connections are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub connection: usize,
    pub packet: Packet,
}

#[derive(Default)]
struct Memory {
    script: Script,
    connections: usize,
    open: usize,
    got: Vec<Got>,
    /// What a consumer has got of what was accepted; `None` without one.
    routed: Option<Vec<Publish>>,
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

    fn remember(&self, connection: usize, packet: Packet, script: &Script) {
        let mut memory = self.memory();
        let refuses = matches!(script.acknowledges, Acknowledges::With(_));
        let (Memory { routed, got, .. }, mut is_kept) = (&mut *memory, true);
        match (routed, &packet) {
            (Some(routed), Packet::Publish(message)) => {
                is_kept = message.qos == 0 || !refuses;
                routed.extend(is_kept.then(|| message.clone()));
            }
            (Some(_), _) => {}
            (None, _) => got.push(Got {
                connection,
                packet: packet.clone(),
            }),
        }
        if let Packet::Publish(message) = packet
            && message.retain
            && is_kept
        {
            memory.retained.insert(message.topic, message.payload);
        }
        self.changed.notify_waiters();
    }
}

/// See the module's documentation. Ends when dropped.
pub struct Broker {
    pub port: u16,
    inner: Arc<Inner>,
    /// Takes connections; `None` while nobody listens.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.stop_listening();
        _ = self.inner.orders.send(Order::Close);
    }
}

impl Broker {
    pub async fn start(script: Script) -> Self {
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
        let task = Mutex::new(Some(task));
        Self { port, inner, task }
    }

    fn task(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.task.lock().expect("no test panics with it")
    }

    fn stop_listening(&self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }

    /// Closes every connection, and nobody listens any more.
    pub fn leave(&self) {
        self.stop_listening();
        self.cut();
    }

    /// Listens again after [`leave`](Self::leave).
    pub async fn come_back(&self) {
        let listener = loop {
            // The system may take a moment to give the port free.
            match TcpListener::bind(("127.0.0.1", self.port)).await {
                Ok(listener) => break listener,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
        *self.task() = Some(tokio::spawn(accept(listener, Arc::clone(&self.inner))));
    }

    /// Whether it left and is not back.
    pub fn is_gone(&self) -> bool {
        self.task().is_none()
    }

    /// Changes what it does from now on.
    pub fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.inner.memory().script);
        self.inner.changed.notify_waiters();
    }

    /// Closes every connection, as a broker does that is killed.
    pub fn cut(&self) {
        _ = self.inner.orders.send(Order::Close);
    }

    /// Loses all that it retained.
    pub fn forget(&self) {
        self.inner.memory().retained.clear();
    }

    /// Sends a message to every client.
    pub fn say(&self, message: &Publish) {
        let [old, new] = [false, true].map(|v5| codec::message(v5, message));
        _ = self.inner.orders.send(Order::Say(old, new));
    }

    /// Sends bytes to every client.
    pub fn say_raw(&self, bytes: Vec<u8>) {
        _ = self.inner.orders.send(Order::Say(bytes.clone(), bytes));
    }

    /// From now on a consumer of all topics gets what is accepted: not what a script refuses. Nothing else is remembered
    /// from now on but what is retained, so it may run for hours.
    pub fn consume(&self) {
        self.inner.memory().routed = Some(Vec::new());
    }

    /// What came for the consumer since the last time.
    pub fn consumed(&self) -> Vec<Publish> {
        let mut memory = self.inner.memory();
        memory
            .routed
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// All it retains; empty messages clear.
    pub fn all_retained(&self) -> BTreeMap<String, String> {
        let memory = self.inner.memory();
        let kept = memory
            .retained
            .iter()
            .filter(|(_, payload)| !payload.is_empty());
        kept.map(|(topic, payload)| (topic.clone(), String::from_utf8_lossy(payload).into_owned()))
            .collect()
    }

    pub fn connections(&self) -> usize {
        self.inner.memory().connections
    }

    /// All it got so far.
    pub fn got(&self) -> Vec<Got> {
        self.inner.memory().got.clone()
    }

    /// All messages it got so far.
    pub fn messages(&self) -> Vec<Publish> {
        let got = self.got().into_iter();
        got.filter_map(|got| match got.packet {
            Packet::Publish(message) => Some(message),
            _ => None,
        })
        .collect()
    }

    pub fn connects(&self) -> Vec<Connect> {
        let got = self.got().into_iter();
        got.filter_map(|got| match got.packet {
            Packet::Connect(connect) => Some(connect),
            _ => None,
        })
        .collect()
    }

    /// What it retains on a topic, as text.
    pub fn retained(&self, topic: &str) -> Option<String> {
        let memory = self.inner.memory();
        let kept = memory.retained.get(topic);
        kept.map(|payload| String::from_utf8_lossy(payload).into_owned())
    }

    /// Most QoS 1 messages that waited for their acknowledgement at one time.
    pub fn unanswered_max(&self) -> usize {
        self.inner.memory().unanswered_max
    }

    /// Waits until what it knows satisfies `wanted`; panics with `what` when that takes too long.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
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
    pub async fn until_retained(&self, topic: &str, text: &str) {
        let what = format!("{topic} = {text}");
        self.until(&what, |broker| {
            broker.retained(topic).as_deref() == Some(text)
        })
        .await;
    }
}
