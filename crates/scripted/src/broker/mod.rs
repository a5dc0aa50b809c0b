//! A scripted broker for tests: MQTT 5 and 3.1.1 on loopback, correct except where its [`BrokerScript`] differs.
//!
//! It remembers the packets it received and the retained messages. It routes nothing: the test sends messages to the client.

pub mod codec;
mod script;
mod serve;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use codec::{ClientPacket, Connect, Publish};
pub use script::{Acknowledges, BrokerScript, Instead, OldAnswer};
use serve::accept;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf},
    net::{TcpListener, TcpStream},
    sync::{Notify, broadcast},
    task::JoinHandle,
    time::{sleep, timeout},
};

/// How long a test waits.
const PATIENCE: Duration = Duration::from_secs(60);

/// A received packet. Connections are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerPacket {
    pub connection: usize,
    pub packet: ClientPacket,
}

#[derive(Default)]
struct BrokerMemory {
    script: BrokerScript,
    connections: usize,
    got: Vec<BrokerPacket>,
    /// Accepted messages for the consumer; `None` without one.
    routed: Option<Vec<Publish>>,
    retained: BTreeMap<String, Vec<u8>>,
    /// Most messages that waited for an acknowledgement at one time.
    unanswered: usize,
    unanswered_max: usize,
}

impl BrokerMemory {
    /// Returns the number of the connection.
    fn note_connection(&mut self) -> usize {
        self.connections += 1;
        self.unanswered = 0;
        self.connections
    }

    fn note_unanswered(&mut self) {
        self.unanswered += 1;
        self.unanswered_max = self.unanswered_max.max(self.unanswered);
    }

    fn note_answered(&mut self) {
        self.unanswered = self.unanswered.saturating_sub(1);
    }
}

#[derive(Clone, Debug)]
enum BrokerOrder {
    /// The same for every client, by its protocol version.
    Send {
        v3: Vec<u8>,
        v5: Vec<u8>,
    },
    Close,
}

struct Inner {
    memory: Mutex<BrokerMemory>,
    changed: Notify,
    orders: broadcast::Sender<BrokerOrder>,
}

impl Inner {
    fn memory(&self) -> MutexGuard<'_, BrokerMemory> {
        self.memory.lock().expect("no panic while it is locked")
    }

    fn script(&self) -> BrokerScript {
        self.memory().script.clone()
    }

    fn remember(&self, connection: usize, packet: ClientPacket, script: &BrokerScript) {
        let mut memory = self.memory();
        let refuses = matches!(script.acknowledges, Acknowledges::With(_));
        let (BrokerMemory { routed, got, .. }, mut is_kept) = (&mut *memory, true);
        match (routed, &packet) {
            (Some(routed), ClientPacket::Publish(message)) => {
                is_kept = message.qos == 0 || !refuses;
                routed.extend(is_kept.then(|| message.clone()));
            }
            (Some(_), _) => {}
            (None, _) => got.push(BrokerPacket {
                connection,
                packet: packet.clone(),
            }),
        }
        if let ClientPacket::Publish(message) = packet
            && message.retain
            && is_kept
        {
            memory.retained.insert(message.topic, message.payload);
        }
        self.changed.notify_waiters();
    }

    /// Waits until `is_so`, which is asked again after every change.
    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if is_so() {
                return;
            }
            changed.await;
        }
    }
}

/// See the module's documentation. Dropping it closes all connections.
pub struct ScriptedBroker {
    pub port: u16,
    inner: Arc<Inner>,
    /// Accepts connections; `None` while it does not listen.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for ScriptedBroker {
    fn drop(&mut self) {
        self.stop_listening();
        _ = self.inner.orders.send(BrokerOrder::Close);
    }
}

impl ScriptedBroker {
    pub async fn start(script: BrokerScript) -> Self {
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
        self.task.lock().expect("no panic while it is locked")
    }

    fn stop_listening(&self) {
        if let Some(task) = self.task().take() {
            task.abort();
        }
    }

    /// Closes every connection and stops listening.
    pub fn leave(&self) {
        self.stop_listening();
        self.cut();
    }

    /// Listens again after [`leave`](Self::leave).
    pub async fn come_back(&self) {
        let listener = loop {
            // The system may free the port a moment later.
            match TcpListener::bind(("127.0.0.1", self.port)).await {
                Ok(listener) => break listener,
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        };
        *self.task() = Some(tokio::spawn(accept(listener, Arc::clone(&self.inner))));
    }

    /// Whether it does not listen.
    pub fn is_gone(&self) -> bool {
        self.task().is_none()
    }

    /// Changes the script from now on.
    pub fn script(&self, change: impl FnOnce(&mut BrokerScript)) {
        change(&mut self.inner.memory().script);
        self.inner.changed.notify_waiters();
    }

    /// Closes every connection, as a killed broker does.
    pub fn cut(&self) {
        _ = self.inner.orders.send(BrokerOrder::Close);
    }

    /// Removes all retained messages.
    pub fn forget(&self) {
        self.inner.memory().retained.clear();
    }

    /// Sends a message to every client.
    pub fn say(&self, message: &Publish) {
        let [v3, v5] = [false, true].map(|v5| codec::message(v5, message));
        _ = self.inner.orders.send(BrokerOrder::Send { v3, v5 });
    }

    /// Sends bytes to every client.
    pub fn say_raw(&self, bytes: Vec<u8>) {
        let (v3, v5) = (bytes.clone(), bytes);
        _ = self.inner.orders.send(BrokerOrder::Send { v3, v5 });
    }

    /// Collects accepted messages for a consumer of all topics from now on. Apart from these, only retained messages are
    /// remembered, so the broker may run for hours.
    pub fn consume(&self) {
        self.inner.memory().routed = Some(Vec::new());
    }

    /// Messages for the consumer since the last call.
    pub fn consumed(&self) -> Vec<Publish> {
        let routed = &mut self.inner.memory().routed;
        routed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Retained messages, without those cleared by an empty message.
    pub fn all_retained(&self) -> BTreeMap<String, String> {
        let memory = self.inner.memory();
        let kept = memory.retained.iter();
        kept.filter(|(_, payload)| !payload.is_empty())
            .map(|(topic, payload)| (topic.clone(), text(payload)))
            .collect()
    }

    pub fn connections(&self) -> usize {
        self.inner.memory().connections
    }

    /// All packets so far.
    pub fn got(&self) -> Vec<BrokerPacket> {
        self.inner.memory().got.clone()
    }

    /// All messages so far.
    pub fn messages(&self) -> Vec<Publish> {
        let got = self.got().into_iter();
        got.filter_map(|got| match got.packet {
            ClientPacket::Publish(message) => Some(message),
            _ => None,
        })
        .collect()
    }

    pub fn connects(&self) -> Vec<Connect> {
        let got = self.got().into_iter();
        got.filter_map(|got| match got.packet {
            ClientPacket::Connect(connect) => Some(connect),
            _ => None,
        })
        .collect()
    }

    /// The retained message of a topic, as text.
    pub fn retained(&self, topic: &str) -> Option<String> {
        let memory = self.inner.memory();
        memory.retained.get(topic).map(|payload| text(payload))
    }

    /// Most QoS 1 messages that waited for their acknowledgement at one time.
    pub fn unanswered_max(&self) -> usize {
        self.inner.memory().unanswered_max
    }

    /// Waits until `wanted` holds for the broker; panics with `what` when that takes too long.
    pub async fn until(&self, what: &str, wanted: impl Fn(&Self) -> bool) {
        let reached = timeout(PATIENCE, self.inner.until(|| wanted(self)));
        if reached.await.is_err() {
            panic!("{what}: the broker got {:#?}", self.got());
        }
    }

    /// Waits until this text is retained on a topic.
    pub async fn until_retained(&self, topic: &str, text: &str) {
        let what = format!("{topic} = {text}");
        self.until(&what, |broker| {
            broker.retained(topic).as_deref() == Some(text)
        })
        .await;
    }
}

fn text(payload: &[u8]) -> String {
    String::from_utf8_lossy(payload).into_owned()
}
