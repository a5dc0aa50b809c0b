//! What is handed over, and how it must be delivered.

use std::{sync::Arc, time::Duration};

use crate::{detection::Label, message::Body};

/// Names a hand-over that is acknowledged, until it is or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

/// How a message that is due must be sent. A ticket comes back with [`Outbox::acked`], [`Outbox::failed`] or
/// [`Outbox::declined`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
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
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::State(ticket) | Self::Event { ticket, .. } | Self::Reply { ticket, .. } => {
                Some(*ticket)
            }
            Self::Stream { .. } => None,
        }
    }

    /// The broker keeps it for who comes later.
    pub(crate) fn is_retained(&self) -> bool {
        match self {
            Self::State(_) => true,
            Self::Stream { retain, .. } => *retain,
            Self::Event { .. } | Self::Reply { .. } => false,
        }
    }

    /// When the broker forgets it (MQTT 5).
    pub(crate) fn expiry(&self) -> Option<Duration> {
        match self {
            Self::Event { expiry, .. } => Some(*expiry),
            Self::Stream { expiry, .. } => *expiry,
            Self::State(_) | Self::Reply { .. } => None,
        }
    }

    /// What its receiver knows the request by (MQTT 5).
    pub(crate) fn correlation(&self) -> Option<Vec<u8>> {
        match self {
            Self::Reply { correlation, .. } => correlation.as_deref().map(<[u8]>::to_vec),
            Self::State(_) | Self::Event { .. } | Self::Stream { .. } => None,
        }
    }
}

/// A message that is due.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) promise: Promise,
    pub(crate) body: Body,
    /// Of detections.
    pub(crate) label: Option<Label>,
}
