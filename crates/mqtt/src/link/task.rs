//! What the task of the connection works with, and the state that it shows.

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
    policy::{AwayCause, BrokerState, UNSUPPORTED_V5},
    target::ConnectionTarget,
};
use crate::{
    Inbound, JsonLine,
    delivery::{SentDetection, Shared},
};
use spotter_core::{Clock, Mono};

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
    pub(super) fn is_stopped(&self) -> bool {
        *self.stop.borrow() || self.stop.has_changed().is_err()
    }

    /// Waits until `retry_at`; `None` = for ever.
    pub(super) async fn pause(&self, retry_at: Option<Mono>) {
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
