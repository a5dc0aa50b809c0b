//! The entry to publishing: a handle that takes updates and never waits.

use std::{
    fs,
    hash::{BuildHasher, RandomState},
    path::Path,
    sync::Arc,
    time::Duration,
};

use sha2::{Digest, Sha256};
use tokio::{
    sync::{broadcast, watch},
    task::JoinHandle,
};

use crate::{
    config::Mqtt,
    domain::{Clock, NodeId},
};

use super::{
    BrokerState, Detection, Limits, Tally, Topics, Update,
    broker::{Settings, Shared, Task, TlsError, tls_from_config},
    detection::Latency,
    message::Message,
    outbox::Outbox,
};

/// Listeners that are slower than this many detections lose the oldest.
const SENT_KEPT: usize = 64;

/// Who we are on the broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Level of the topics.
    pub node: NodeId,
    /// Names this run of the daemon: 4 hex digits.
    pub boot: Arc<str>,
    /// 8 hex digits of the machine.
    machine: String,
    seed: u64,
}

impl Identity {
    /// Reads `/etc/machine-id` (blocks for that); without one the node's name stands in, so the client id is the same
    /// after a restart.
    pub fn of_this_machine(node: NodeId) -> Self {
        Self::new(node, Path::new("/etc/machine-id"))
    }

    fn new(node: NodeId, machine_id: &Path) -> Self {
        let seed = RandomState::new().hash_one(());
        let text = fs::read_to_string(machine_id).unwrap_or_default();
        let machine = match text.trim().get(..8) {
            Some(id) if id.bytes().all(|byte| byte.is_ascii_hexdigit()) => id.to_owned(),
            _ => {
                let digest = Sha256::digest(node.as_str());
                digest
                    .iter()
                    .take(4)
                    .map(|byte| format!("{byte:02x}"))
                    .collect()
            }
        };
        Self {
            node,
            boot: format!("{:04x}", seed >> 48).into(),
            machine,
            seed,
        }
    }
}

/// A detection went to the client library.
#[derive(Clone, Debug)]
pub struct Sent {
    /// Where to.
    pub topic: Arc<str>,
    /// What.
    pub detection: Arc<Detection>,
    /// Its latency account, complete.
    pub latency: Latency,
}

/// Takes updates from any thread. Clones share one connection.
#[derive(Clone)]
pub struct Publisher {
    topics: Arc<Topics>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    state: watch::Receiver<BrokerState>,
    sent: broadcast::Sender<Sent>,
    stop: Arc<watch::Sender<bool>>,
}

impl Publisher {
    /// Starts the connection's task on the current tokio runtime; the broker need not be there. The task ends some
    /// seconds after [`stop`](Self::stop), or when the last handle is dropped. Fails only when the TLS files are no
    /// good; blocks to read them.
    pub fn start(
        mqtt: &Mqtt,
        identity: &Identity,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, JoinHandle<()>), TlsError> {
        let topics = Topics::new(&mqtt.base, &identity.node);
        let settings = Settings {
            host: mqtt.host.clone(),
            port: mqtt.port,
            tls: mqtt.tls.as_ref().map(tls_from_config).transpose()?,
            user: mqtt.user.clone(),
            password: mqtt.password.clone(),
            client_id: format!("{}-{}-{}", mqtt.base, identity.node, identity.machine),
            status_topic: topics.status(),
        };
        let mut outbox = Outbox::new(Limits::default(), Arc::clone(&identity.boot), identity.seed);
        outbox.push(Message::node_status(&topics, true), clock.now());
        let shared = Arc::new(Shared::new(outbox));
        let (state_sender, state) = watch::channel(BrokerState::Connecting);
        let (stop_sender, stop) = watch::channel(false);
        let (sent, _) = broadcast::channel(SENT_KEPT);
        let task = Task {
            settings,
            shared: Arc::clone(&shared),
            clock: Arc::clone(&clock),
            state: state_sender,
            sent: sent.clone(),
            stop,
            farewell: Message::node_status(&topics, false),
        };
        let publisher = Self {
            topics: Arc::new(topics),
            shared,
            clock,
            state,
            sent,
            stop: Arc::new(stop_sender),
        };
        Ok((publisher, tokio::spawn(task.run())))
    }

    /// Accepts an update. Never waits and never fails: a state is kept until the broker has it, a stream message may be
    /// dropped by the contract's rules and is counted then.
    pub fn publish(&self, update: Update) {
        let message = Message::from_update(&self.topics, update);
        self.shared.outbox().push(message, self.clock.now());
        self.shared.wake();
    }

    /// The topics of this node.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Where the connection stands; changes can be awaited.
    pub fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.clone()
    }

    /// Every detection from now on, when it is handed over.
    pub fn sent(&self) -> broadcast::Receiver<Sent> {
        self.sent.subscribe()
    }

    /// What became of messages so far.
    pub fn tally(&self) -> Tally {
        self.shared.outbox().tally()
    }

    /// 95th percentile of hand-over to acknowledgement over the last states.
    pub fn puback_p95(&self) -> Option<Duration> {
        self.shared.outbox().puback_p95()
    }

    /// Rises while the connection's task lives, connected or not; for the watchdog.
    pub fn progress(&self) -> u64 {
        self.shared.turns()
    }

    /// Begins a clean stop: `offline`, what is due, DISCONNECT. Await the task's handle for its end (at most 3 s).
    pub fn stop(&self) {
        // The task may have ended already.
        _ = self.stop.send(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_id_is_the_machines_or_else_the_nodes() -> Result<(), Box<dyn std::error::Error>> {
        let node = NodeId::new("edge1")?;
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("machine-id");
        fs::write(&file, "0123456789abcdef0123456789abcdef\n")?;
        assert_eq!(Identity::new(node.clone(), &file).machine, "01234567");
        let missing = directory.path().join("missing");
        let (a, b) = (
            Identity::new(node.clone(), &missing),
            Identity::new(node, &missing),
        );
        assert_eq!((a.machine.len(), &a.machine), (8, &b.machine));
        assert_ne!(a.seed, b.seed);
        Ok(())
    }
}
