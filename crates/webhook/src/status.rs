//! What people see of a webhook.

use spotter_core::{Mono, WebhookId};

/// A webhook at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookStatus {
    pub id: WebhookId,
    /// Host and port.
    pub address: String,
    pub state: WebhookState,
    pub counters: WebhookCounters,
    /// Events that the receiver has not accepted.
    pub waiting: u64,
}

/// The result of the last request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum WebhookState {
    /// No request yet.
    #[default]
    Unused,
    Accepting,
    /// The receiver refused the last event, which is dropped.
    Refusing {
        reason: String,
    },
    /// The first waiting event is posted again.
    Failing {
        reason: String,
        retry_at: Mono,
    },
}

/// Events since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WebhookCounters {
    /// Accepted by the receiver.
    pub posted: u64,
    /// Requests that repeated a failed one.
    pub retried: u64,
    /// Dropped: the receiver refused them.
    pub refused: u64,
    /// Dropped: more, or more bytes, were waiting than the configuration keeps.
    pub over_bound: u64,
    /// Dropped: older than the configuration keeps them.
    pub too_old: u64,
    /// Lost: the log of an earlier run could not be read.
    pub unreadable: u64,
}

impl WebhookCounters {
    /// With the label values of the metric.
    pub fn by_outcome(&self) -> [(&'static str, u64); 5] {
        [
            ("posted", self.posted),
            ("refused", self.refused),
            ("spool_full", self.over_bound),
            ("spool_old", self.too_old),
            ("unreadable", self.unreadable),
        ]
    }

    pub fn dropped(&self) -> u64 {
        self.over_bound + self.too_old + self.unreadable
    }
}

impl WebhookStatus {
    /// What is wrong, and what the program does; never contains the URL or a secret.
    pub fn trouble(&self) -> Option<String> {
        let id = &self.id;
        match &self.state {
            WebhookState::Unused | WebhookState::Accepting => None,
            WebhookState::Refusing { reason } => {
                Some(format!("webhook {id}: {reason}; the event is dropped"))
            }
            WebhookState::Failing { reason, .. } => {
                let waiting = self.waiting;
                Some(format!("webhook {id}: {reason}; waiting events: {waiting}"))
            }
        }
    }
}
