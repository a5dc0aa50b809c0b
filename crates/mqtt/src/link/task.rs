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
    policy::{BrokerState, ReconnectPolicy, UNSUPPORTED_V5},
    target::ConnectionTarget,
};
use crate::{
    Inbound, JsonLine,
    delivery::{SentDetection, Shared},
};
use spotter_core::{Clock, Mono};

/// The longest time between two turns of the task: the watchdog reads its progress.
pub(super) const TURN: Duration = Duration::from_secs(2);

const FAILURES_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Filters to subscribe to besides the node's own status and the owners of its fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct WantedFilters {
    pub(crate) commands: Vec<String>,
    /// Topics of other programs, with the number of the change since which each is to be subscribed to: a higher one than that of the
    /// subscription asks for the retained message again.
    pub(crate) triggers: BTreeMap<String, u64>,
    /// Of the last change.
    changes: u64,
}

impl WantedFilters {
    /// Wants these topics and no others; of those in `again`, the retained message is wanted again.
    pub(crate) fn change_triggers(&mut self, topics: Vec<String>, again: &BTreeSet<String>) {
        let before = std::mem::take(&mut self.triggers);
        let this_change = self.changes + 1;
        let topics = topics.into_iter().map(|topic| {
            let known = before.get(&topic).filter(|_| !again.contains(&topic));
            let since = known.copied().unwrap_or(this_change);
            (topic, since)
        });
        self.triggers = topics.collect();
        if self.triggers.values().any(|since| *since == this_change) {
            self.changes = this_change;
        }
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
        let mut failures = FailureLog::default();
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
                failures = FailureLog::default();
            }
            let now = self.clock.now();
            let state = policy.ended(end, now, fastrand::f64());
            let retry_at = state.retry_at();
            let reason = state.trouble().map(str::to_owned);
            let is_logged = self.show(state);
            if let Some(attempts) = failures.failed(is_logged, now) {
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
            BrokerState::Backoff { reason, .. } if reason == UNSUPPORTED_V5 => {
                tracing::info!(host, port, "{UNSUPPORTED_V5}");
            }
            BrokerState::Backoff { reason, .. } => {
                let text = "broker unavailable; connecting again until it succeeds";
                tracing::warn!(host, port, reason, "{text}");
            }
            BrokerState::Refused { reason, .. } => {
                let text = "broker rejected the connection; next attempt in at most 5 min";
                tracing::error!(host, port, reason, "{text}");
            }
            BrokerState::TakenOver { .. } => {
                let id = self.target.client_id.as_str();
                let text = "another client uses this client id; next attempt in 1 min; give each box its own node.name";
                tracing::error!(host, port, id, "{text}");
            }
            BrokerState::Untrusted { reason, .. } => {
                let text = "broker certificate is not trusted; next attempt in 5 min";
                tracing::error!(host, port, reason, "{text}");
            }
        }
        true
    }
}

/// Attempts that fail again and again are logged once a minute. Pure.
#[derive(Debug, Default)]
struct FailureLog {
    /// Since the last connection.
    failures: u64,
    logged_at: Mono,
}

impl FailureLog {
    /// The number of failures if it is to be logged. `is_logged`: this failure was.
    fn failed(&mut self, is_logged: bool, now: Mono) -> Option<u64> {
        self.failures += 1;
        let is_due = !is_logged && now.since(self.logged_at) >= FAILURES_LOGGED_EVERY;
        if is_logged || is_due {
            self.logged_at = now;
        }
        is_due.then_some(self.failures)
    }
}

/// Resolves when a stop was requested or its sender was dropped.
pub(super) async fn asked_to_stop(stop: &mut watch::Receiver<bool>) {
    _ = stop.wait_for(|stop| *stop).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: B20.
    #[test]
    fn repeated_failures_are_logged_once_a_minute_with_their_number() {
        let mut failures = FailureLog::default();
        let mut logged = Vec::new();
        for second in (100..300).step_by(5) {
            let now = Mono::default().after(Duration::from_secs(second));
            // The first one is news.
            if let Some(attempts) = failures.failed(second == 100, now) {
                logged.push((second, attempts));
            }
        }
        assert_eq!(logged, [(160, 13), (220, 25), (280, 37)]);
    }
}
