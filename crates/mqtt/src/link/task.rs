//! The task that keeps a connection to the broker: one after the other, with a pause in between.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem::discriminant,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::{broadcast, mpsc, watch},
    time::sleep,
};

use super::{
    connection::{BrokerConnection, ReconnectState},
    policy::{AwayCause, BrokerState, ReconnectPolicy, UNSUPPORTED_V5},
    target::ConnectionTarget,
};
use crate::{
    Inbound, JsonLine,
    delivery::{SentDetection, Shared},
};
use spotter_core::{Clock, LogThrottle, Mono};

/// The longest time between two turns of the task: the watchdog reads its progress.
pub(super) const TURN: Duration = Duration::from_secs(2);

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

pub(crate) struct BrokerTask {
    pub(crate) target: Arc<ConnectionTarget>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) state: watch::Sender<BrokerState>,
    pub(crate) sent: broadcast::Sender<SentDetection>,
    pub(crate) lines: broadcast::Sender<JsonLine>,
    pub(crate) filters: watch::Receiver<WantedFilters>,
    pub(crate) inbox: mpsc::Sender<Inbound>,
    /// Ends the pause before the next attempt.
    pub(crate) again: watch::Receiver<()>,
    /// `true` or a dropped sender stops the task.
    pub(crate) stop: watch::Receiver<bool>,
}

impl BrokerTask {
    /// Runs until stopped: one connection after the other, with a pause in between.
    pub(crate) async fn run(self) {
        self.show(BrokerState::Connecting);
        if !self.is_stopped() {
            self.connect_until_stopped().await;
        }
        self.shared.outbox().disconnected();
        self.show(BrokerState::Stopped);
    }

    fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    async fn connect_until_stopped(&self) {
        let version = self.target.mqtt.broker.version;
        let mut policy = ReconnectPolicy::new(self.target.timing.clone(), version);
        // The log repeats once a minute that attempts fail.
        let mut failures = LogThrottle::default();
        let mut memory = ReconnectState::new(&self.target);
        let mut again = self.again.clone();
        loop {
            // A request from here on leads to one more attempt: this one may have read the TLS files already.
            again.mark_unchanged();
            memory.renew_trust(self.clock.now()).await;
            let (connection, events) = BrokerConnection::new(self, &policy, &mut memory);
            let Some(end) = connection.run(events, &mut policy).await else {
                return;
            };
            self.shared.outbox().disconnected();
            if self.state.borrow().is_online() {
                // A request during the connection has no effect.
                again.mark_unchanged();
                failures = LogThrottle::default();
            }
            let now = self.clock.now();
            let state = policy.ended(end, now, fastrand::f64());
            let retry_at = state.retry_at();
            let reason = state.trouble().map(str::to_owned);
            let is_logged = self.show(state);
            let repeated = failures.admit((), now).filter(|_| !is_logged);
            if let Some(suppressed) = repeated {
                let attempts = suppressed + 1;
                tracing::warn!(attempts, reason, "broker still unavailable");
            }
            let mut stop = self.stop.clone();
            tokio::select! {
                () = self.pause(retry_at) => {}
                Ok(()) = again.changed() => {}
                () = asked_to_stop(&mut stop) => return,
            }
        }
    }

    /// Waits until `retry_at`; `None` = for ever.
    async fn pause(&self, retry_at: Option<Mono>) {
        loop {
            self.shared.turn();
            let left = retry_at.map_or(TURN, |at| at.since(self.clock.now()).min(TURN));
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

/// Resolves when a stop was requested or its sender was dropped.
pub(super) async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}
