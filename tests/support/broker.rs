//! A broker for a test, and a consumer that is not made of our own code: mosquitto and its command-line clients.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use super::lines::Lines;
use spotter_street::broker::Mosquitto;

/// A consumer's subscription is complete when it receives the retained message of this topic.
const READY: &str = "test/ready";

/// Starts mosquitto at `address`; `more` is added to its configuration.
pub fn broker(address: SocketAddr, more: &str) -> Mosquitto {
    // Tests may run as root, and then mosquitto would become another user.
    let start = || Mosquitto::start(address, &format!("user root\n{more}"));
    // A process that another test is starting holds the socket with which this port was found to be free, for a moment.
    start().or_else(|_| start()).expect("mosquitto starts")
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heard {
    /// True when the broker kept it for us; false when it was published while we listened.
    pub retained: bool,
    /// As it came to us.
    pub qos: u8,
    pub topic: String,
    pub payload: String,
}

impl Heard {
    /// A line of `mosquitto_sub -F '%r %q %t %p'`.
    fn from_line(line: &str) -> Option<Self> {
        let mut parts = line.splitn(4, ' ');
        Some(Self {
            retained: parts.next()? == "1",
            qos: parts.next()?.parse().ok()?,
            topic: parts.next()?.to_owned(),
            payload: parts.next()?.to_owned(),
        })
    }

    /// The payload as JSON; the test ends when it is none.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.payload)
            .unwrap_or_else(|error| panic!("{}: {error}: {}", self.topic, self.payload))
    }
}

/// Receives everything below `spotter/`; reconnects when the broker returns.
pub struct Consumer {
    child: Child,
    lines: Lines,
}

impl Consumer {
    /// Returns when the subscription is complete.
    pub fn on(broker: SocketAddr) -> Self {
        Self::of(&[READY, "spotter/#"], broker)
    }

    /// The same with the topics of Home Assistant.
    pub fn on_all(broker: SocketAddr) -> Self {
        Self::of(&[READY, "homeassistant/#", "spotter/#"], broker)
    }

    /// Returns when [`READY`] has come: a broker sends what it kept in the order of the topics.
    fn of(topics: &[&str], broker: SocketAddr) -> Self {
        publish(broker, READY, "ready", &["-r"]);
        let mut child = client("mosquitto_sub", broker)
            .args(topics.iter().flat_map(|topic| ["-t", topic]))
            .args(["-q", "1", "-F", "%r %q %t %p"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("mosquitto_sub starts (package mosquitto-clients)");
        let lines = Lines::follow(child.stdout.take().expect("stdout is piped"));
        lines.wait_for(READY);
        Self { child, lines }
    }

    pub fn all(&self) -> Vec<Heard> {
        let lines = self.lines.all();
        let messages = lines.iter().filter_map(|line| Heard::from_line(line));
        messages.filter(|heard| heard.topic != READY).collect()
    }

    /// What came after [`now`](Self::now) gave `from`.
    pub fn after(&self, from: usize) -> Vec<Heard> {
        let lines = self.lines.all();
        let later = lines.iter().skip(from);
        later.filter_map(|line| Heard::from_line(line)).collect()
    }

    /// How far it has heard, to wait for what comes later.
    pub fn now(&self) -> usize {
        self.lines.count()
    }

    /// Waits for a message of a topic that ends in `topic` and whose payload is as `wanted`.
    #[track_caller]
    pub fn wait_for(&self, topic: &str, wanted: impl Fn(&str) -> bool) -> Heard {
        self.wait_after(0, topic, wanted)
    }

    /// The same, for messages that come after [`now`](Self::now) gave `from`.
    #[track_caller]
    pub fn wait_after(&self, from: usize, topic: &str, wanted: impl Fn(&str) -> bool) -> Heard {
        self.lines.wait_after(from, topic, |line| {
            Heard::from_line(line)
                .filter(|heard| heard.topic.ends_with(topic) && wanted(&heard.payload))
        })
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All retained messages: topic and payload.
pub fn retained(broker: SocketAddr) -> BTreeMap<String, String> {
    let consumer = Consumer::of(&["homeassistant/#", "spotter/#", READY], broker);
    let kept = consumer.all().into_iter().filter(|heard| heard.retained);
    kept.map(|heard| (heard.topic, heard.payload)).collect()
}

/// Publishes as a client of its own, with QoS 1; `more` are arguments of `mosquitto_pub`.
pub fn publish(broker: SocketAddr, topic: &str, payload: &str, more: &[&str]) {
    let published = client("mosquitto_pub", broker)
        .args(["-t", topic, "-m", payload, "-q", "1"])
        .args(more)
        .status();
    let published = published.expect("mosquitto_pub starts (package mosquitto-clients)");
    assert!(published.success(), "{topic} is not taken at {broker}");
}

fn client(program: &str, broker: SocketAddr) -> Command {
    let mut command = Command::new(program);
    command
        .args(["-h", &broker.ip().to_string()])
        .args(["-p", &broker.port().to_string()])
        .args(["-V", "5"])
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    command
}
