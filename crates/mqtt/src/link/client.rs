//! One interface to a connection with MQTT 5 or 3.1.1. A connection is dropped at its end and never reused: the outbox knows
//! what was not acknowledged, so the client library's queue holds nothing that must be kept.

use std::{io, pin::Pin, time::Duration};

use rumqttc::{NetworkOptions, QoS, default_socket_connect};
use tokio::{net::TcpStream, time::timeout};

use super::{policy::ConnectionEnd, timing::ConnectionTiming, tls::Trust};
use crate::{Inbound, delivery::DeliveryOptions};
use spotter_config::BrokerAccess;

/// Messages in the client library's queue. Few, because their time of publication is set before they wait there.
pub(super) const QUEUE: usize = 4;
/// The largest payload of docs/mqtt.md section 1 with its topic and properties; commands are far smaller.
pub(super) const PACKET_MAX_BYTES: usize = 512 * 1024;
pub(super) const JSON: &str = "application/json";
pub(super) const JPEG: &str = "image/jpeg";

/// The content type of a payload for MQTT 5, by its first bytes; none for plain text.
pub(super) fn content_type(payload: &[u8]) -> Option<&'static str> {
    match payload {
        [b'{', ..] => Some(JSON),
        [0xff, 0xd8, ..] => Some(JPEG),
        _ => None,
    }
}

/// The limits that the broker announces for one connection. MQTT 3.1.1 has none, which is the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BrokerLimits {
    /// The broker closes the connection on a larger packet.
    pub(super) packet_max_bytes: usize,
    /// Messages without an acknowledgement.
    pub(super) in_flight_max: usize,
    /// The broker supports retained messages.
    pub(super) retains: bool,
}

impl Default for BrokerLimits {
    fn default() -> Self {
        Self {
            packet_max_bytes: usize::MAX,
            in_flight_max: usize::MAX,
            retains: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    /// The broker accepted the connection, with these limits.
    Connected(BrokerLimits),
    /// A request left the client library's queue.
    Sent,
    /// A message on a subscribed topic.
    Message(Inbound),
    /// Another packet of the broker.
    Heard,
    /// The client library sent DISCONNECT.
    Disconnected,
    Other,
}

/// The broker's answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    Acked,
    /// Rejected, with this code.
    Refused(String),
    /// The connection ended before an answer arrived.
    Lost,
}

pub(super) type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Resolves when the broker has answered a request or cannot answer it any more.
pub(super) type RequestAnswer = Pending<'static, RequestOutcome>;

/// Hands requests to the client library, without waiting. What it does not accept has no answer: its queue is full or closed, or the request is
/// invalid.
pub(super) trait Sender: Send {
    /// The answer has a meaning for a message with a ticket.
    fn publish(
        &self,
        topic: &str,
        payload: Vec<u8>,
        qos: QoS,
        delivery: &DeliveryOptions,
    ) -> Option<RequestAnswer>;

    fn subscribe(&self, filter: &str, purpose: FilterPurpose) -> Option<RequestAnswer>;

    /// False when it was not accepted.
    fn unsubscribe(&self, filter: &str) -> bool;

    /// Sends DISCONNECT after everything that was handed over, so that the broker publishes no will. False when it was not accepted.
    fn disconnect(&self) -> bool;
}

/// The client library's event loop, which drives the connection. The first call of `next` opens it.
pub(super) trait Events: Send {
    /// Must not be cancelled before the connection is open: that would start the attempt again.
    fn next(&mut self) -> Pending<'_, Result<ConnectionEvent, ConnectionEnd>>;
}

/// Which client connects to which broker.
pub(crate) struct ClientSettings<'a> {
    pub(crate) broker: &'a BrokerAccess,
    pub(crate) id: &'a str,
    pub(crate) timing: &'a ConnectionTiming,
    /// `None` = plain TCP.
    pub(crate) trust: Option<&'a Trust>,
    /// `None` for a client that only reads.
    pub(crate) will: Option<WillSettings>,
}

/// The will: `offline` at this topic.
pub(crate) struct WillSettings {
    pub(crate) topic: String,
    pub(crate) is_retained: bool,
}

/// Why a filter is subscribed to. Filters are subscribed to in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FilterPurpose {
    /// The node's own status, which shows a late will.
    OwnStatus,
    /// QoS 0, with retained messages: brokers limit the QoS 1 messages that wait for a client.
    States,
    /// QoS 1; in MQTT 5 without retained messages, as the own status.
    Commands,
    /// QoS 1, with retained messages.
    Triggers,
}

impl FilterPurpose {
    pub(super) fn qos(self) -> QoS {
        qos(self != Self::States)
    }
}

pub(super) fn qos(is_acknowledged: bool) -> QoS {
    match is_acknowledged {
        true => QoS::AtLeastOnce,
        false => QoS::AtMostOnce,
    }
}

/// The client library has one time limit for TCP, TLS and CONNECT. Names and TCP have the larger part, so that a host that does not answer is
/// not taken for a broker that does not: a name server that is away takes 5 s.
pub(super) fn connector(
    timing: &ConnectionTiming,
) -> impl Fn(String, NetworkOptions) -> Pending<'static, io::Result<TcpStream>> + Send + Sync + 'static
{
    let within: Duration = timing.connect_timeout * 9 / 10;
    move |host, network| {
        Box::pin(async move {
            let connecting = timeout(within, default_socket_connect(host, network));
            connecting.await.unwrap_or_else(|_| {
                Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no answer to the connection; check host, port and network",
                ))
            })
        })
    }
}
