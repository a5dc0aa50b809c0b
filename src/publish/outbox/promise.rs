//! What is handed over, and how it must be delivered.

use std::{sync::Arc, time::Duration};

use crate::publish::{detection::Label, message::Body};

/// Names a hand-over that is acknowledged, until it is or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::publish) struct Ticket(pub(super) u64);

/// How a message that is due must be sent. A ticket comes back with [`Outbox::acked`], [`Outbox::failed`] or
/// [`Outbox::declined`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::publish) enum Promise {
    /// QoS 1, retained.
    State(Ticket),
    /// QoS 1; the broker forgets it after `expiry`.
    Event { ticket: Ticket, expiry: Duration },
    /// QoS 1, with what its receiver knows the request by.
    Reply {
        ticket: Ticket,
        correlation: Option<Arc<[u8]>>,
    },
    /// QoS 0; one that says what a frame showed expires.
    Stream {
        expiry: Option<Duration>,
        retain: bool,
    },
}

impl Promise {
    /// Of what is acknowledged: QoS 1, else QoS 0.
    pub(in crate::publish) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::State(ticket) | Self::Event { ticket, .. } | Self::Reply { ticket, .. } => {
                Some(*ticket)
            }
            Self::Stream { .. } => None,
        }
    }

    /// The broker keeps it for who comes later.
    pub(in crate::publish) fn is_retained(&self) -> bool {
        match self {
            Self::State(_) => true,
            Self::Stream { retain, .. } => *retain,
            Self::Event { .. } | Self::Reply { .. } => false,
        }
    }

    /// When the broker forgets it (MQTT 5).
    pub(in crate::publish) fn expiry(&self) -> Option<Duration> {
        match self {
            Self::Event { expiry, .. } => Some(*expiry),
            Self::Stream { expiry, .. } => *expiry,
            Self::State(_) | Self::Reply { .. } => None,
        }
    }

    /// What its receiver knows the request by (MQTT 5).
    pub(in crate::publish) fn correlation(&self) -> Option<Vec<u8>> {
        match self {
            Self::Reply { correlation, .. } => correlation.as_deref().map(<[u8]>::to_vec),
            Self::State(_) | Self::Event { .. } | Self::Stream { .. } => None,
        }
    }
}

/// A message that is due.
#[derive(Clone, Debug)]
pub(in crate::publish) struct Outgoing {
    pub(in crate::publish) topic: String,
    pub(in crate::publish) promise: Promise,
    pub(in crate::publish) body: Body,
    /// Of detections.
    pub(in crate::publish) label: Option<Label>,
}
