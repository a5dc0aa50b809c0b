//! A message that is due, and how it must be delivered.

use std::{sync::Arc, time::Duration};

use crate::contract::message::Body;
use spotter_core::{Detection, Epoch, Latency};

/// Identifies a message in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// How a message is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeliveryOptions {
    /// QoS 1; returned with [`Outbox::acked`](super::Outbox::acked), [`Outbox::failed`](super::Outbox::failed) or
    /// [`Outbox::declined`](super::Outbox::declined). `None` = QoS 0.
    pub(crate) ticket: Option<Ticket>,
    /// The broker keeps it for later subscribers.
    pub(crate) retained: bool,
    /// The broker discards it after this time (MQTT 5).
    pub(crate) expiry: Option<Duration>,
    /// Correlation data of the request (MQTT 5).
    pub(crate) correlation: Option<Arc<[u8]>>,
    /// Of a fleet's camera; the user property `epoch` (MQTT 5).
    pub(crate) epoch: Option<Epoch>,
}

/// A message that is due.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) topic: String,
    pub(crate) delivery: DeliveryOptions,
    pub(crate) body: Body,
}

/// A detection that was handed to the client library.
#[derive(Clone, Debug)]
pub struct SentDetection {
    pub topic: Arc<str>,
    pub detection: Arc<Detection>,
    pub latency: Latency,
}
