//! A message that is due, and how it must be delivered.

use std::{sync::Arc, time::Duration};

use crate::{detection::Label, message::Body};

/// Identifies a message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(super) u64);

/// How a message that is due must be sent. A ticket is returned with [`Outbox::acked`], [`Outbox::failed`] or
/// [`Outbox::declined`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Promise {
    /// Sent with QoS 1 and retained.
    State(Ticket),
    /// QoS 1; the broker discards it after `expiry`.
    Event { ticket: Ticket, expiry: Duration },
    /// QoS 1, with the correlation data of the request.
    Reply {
        ticket: Ticket,
        correlation: Option<Arc<[u8]>>,
    },
    /// QoS 0; detections and live pictures expire.
    Stream {
        expiry: Option<Duration>,
        retain: bool,
    },
}

impl Promise {
    /// `Some` = QoS 1, `None` = QoS 0.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::State(ticket) | Self::Event { ticket, .. } | Self::Reply { ticket, .. } => {
                Some(*ticket)
            }
            Self::Stream { .. } => None,
        }
    }

    /// The broker keeps it for later subscribers.
    pub(crate) fn is_retained(&self) -> bool {
        match self {
            Self::State(_) => true,
            Self::Stream { retain, .. } => *retain,
            Self::Event { .. } | Self::Reply { .. } => false,
        }
    }

    /// The broker discards it after this time (MQTT 5).
    pub(crate) fn expiry(&self) -> Option<Duration> {
        match self {
            Self::Event { expiry, .. } => Some(*expiry),
            Self::Stream { expiry, .. } => *expiry,
            Self::State(_) | Self::Reply { .. } => None,
        }
    }

    /// Correlation data of the request (MQTT 5).
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
    /// `None` unless the message is a detection.
    pub(crate) label: Option<Label>,
}
