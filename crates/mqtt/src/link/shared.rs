//! What the handles of the publisher share with the task of the connection, and the state that the task shows.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    sync::{Notify, broadcast, mpsc, watch},
    time::sleep,
};

use super::{
    policy::{AwayCause, BrokerState, UNSUPPORTED_V5},
    target::ConnectionTarget,
};
use crate::{
    Inbound, JsonLine,
    delivery::{Outbox, SentDetection},
};
use spotter_core::{Clock, Mono};

/// The longest time between two turns of the task: the watchdog reads its progress.
pub(super) const TURN: Duration = Duration::from_secs(2);
/// A receiver of [`SentDetection`] that is slower loses the oldest beyond this number.
const SENT_KEPT: usize = 64;
/// A receiver of lines loses the oldest beyond this number, some seconds of a busy node.
const LINES_KEPT: usize = 1024;
/// Inbound messages that wait; beyond this number they are dropped and counted.
const INBOX_KEPT: usize = 64;

/// Filters to subscribe to besides the node's own status and the owners of its fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedFilters {
    pub(crate) commands: Vec<String>,
    /// Topics of other programs. Another number than that of the subscription asks for the retained message again.
    pub(crate) triggers: BTreeMap<String, u64>,
}

impl WantedFilters {
    /// Wants these topics and no others; of those in `again`, the retained message is wanted again.
    pub(crate) fn change_triggers(&mut self, topics: Vec<String>, again: &BTreeSet<String>) {
        let before = std::mem::take(&mut self.triggers);
        let topics = topics.into_iter().map(|topic| {
            let known = before.get(&topic).filter(|_| !again.contains(&topic));
            let number = known.copied().unwrap_or_else(|| fastrand::u64(..));
            (topic, number)
        });
        self.triggers = topics.collect();
    }
}

/// See the module's documentation.
pub(crate) struct Shared {
    pub(crate) target: ConnectionTarget,
    pub(crate) clock: Arc<dyn Clock>,
    outbox: Mutex<Outbox>,
    changed: Notify,
    turns: AtomicU64,
    /// Filters that the broker rejected on this connection.
    rejected: Mutex<BTreeSet<String>>,
    pub(crate) state: watch::Sender<BrokerState>,
    pub(crate) sent: broadcast::Sender<SentDetection>,
    pub(crate) lines: broadcast::Sender<JsonLine>,
    pub(crate) filters: watch::Sender<WantedFilters>,
    pub(super) inbox: mpsc::Sender<Inbound>,
    inbound: Mutex<Option<mpsc::Receiver<Inbound>>>,
    /// Ends the pause before the next attempt.
    pub(crate) again: watch::Sender<()>,
}

impl Shared {
    pub(crate) fn new(target: ConnectionTarget, clock: Arc<dyn Clock>, outbox: Outbox) -> Self {
        let (inbox, inbound) = mpsc::channel(INBOX_KEPT);
        Self {
            target,
            clock,
            outbox: Mutex::new(outbox),
            changed: Notify::new(),
            turns: AtomicU64::new(0),
            rejected: Mutex::default(),
            state: watch::Sender::new(BrokerState::Connecting),
            sent: broadcast::Sender::new(SENT_KEPT),
            lines: broadcast::Sender::new(LINES_KEPT),
            filters: watch::Sender::default(),
            inbox,
            inbound: Mutex::new(Some(inbound)),
            again: watch::Sender::default(),
        }
    }

    /// The lock is held while a message is made and queued, never across an await. A channel instead of it would be a second queue with its own rule for
    /// losses.
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        locked(&self.outbox)
    }

    pub(crate) fn rejected_filters(&self) -> MutexGuard<'_, BTreeSet<String>> {
        locked(&self.rejected)
    }

    /// Returned once.
    pub(crate) fn take_inbound(&self) -> Option<mpsc::Receiver<Inbound>> {
        locked(&self.inbound).take()
    }

    pub(crate) fn now(&self) -> Mono {
        self.clock.now()
    }

    /// Something in the outbox is new.
    pub(crate) fn wake(&self) {
        self.changed.notify_one();
    }

    /// Waits for a call of [`wake`](Self::wake).
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Rises while the task runs.
    pub(crate) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(super) fn turn(&self) {
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until `retry_at`; `None` = for ever.
    pub(super) async fn pause(&self, retry_at: Option<Mono>) {
        loop {
            self.turn();
            let left = retry_at.map_or(TURN, |at| at.since(self.now()).min(TURN));
            if left.is_zero() {
                return;
            }
            sleep(left).await;
        }
    }

    /// Publishes the state to watchers, and logs it when it changed. True if it did.
    pub(super) fn show(&self, state: BrokerState) -> bool {
        let news = self.state.send_if_modified(|shown| {
            // The time of the next attempt alone is no news.
            let news =
                discriminant(shown) != discriminant(&state) || shown.trouble() != state.trouble();
            shown.clone_from(&state);
            news
        });
        if !news {
            return false;
        }
        let broker = &self.target.mqtt.broker;
        let (host, port) = (broker.host.as_str(), broker.port);
        match &state {
            BrokerState::Connecting | BrokerState::Stopped => {
                tracing::debug!(host, port, ?state, "broker")
            }
            BrokerState::Online { protocol } => {
                tracing::info!(host, port, protocol, "broker online")
            }
            // The next attempt follows at once, so this is no outage.
            BrokerState::Away { reason, .. } if reason == UNSUPPORTED_V5 => {
                tracing::info!(host, port, "{UNSUPPORTED_V5}");
            }
            BrokerState::Away { cause, reason, .. } => {
                let id = self.target.client_id.as_str();
                match cause {
                    AwayCause::Refused | AwayCause::TakenOver | AwayCause::Untrusted => {
                        tracing::error!(host, port, id, reason, "{}", cause.effect());
                    }
                    _ => tracing::warn!(host, port, reason, "{}", cause.effect()),
                }
            }
        }
        true
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Resolves when a stop was requested or its sender was dropped.
pub(super) async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}
