//! One interface to a connection with MQTT 5 or 3.1.1. A connection is dropped at its end and never reused: the outbox knows
//! what was not acknowledged, so the client library's queue holds nothing that must be kept.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::net::TcpStream;

use super::{
    limits::BrokerLimits,
    policy::{ConnectionEnd, Protocol},
    timing::ConnectionTiming,
    tls::Trust,
    v5, v311,
};
use crate::{Inbound, delivery::DeliveryOptions};
use spotter_config::BrokerAccess;

/// Messages in the client library's queue. Few, because their time of publication is set before they wait there.
pub(super) const QUEUE: usize = 4;
/// The largest payload of docs/mqtt.md section 1 with its topic and properties; commands are far smaller.
pub(super) const PACKET_MAX_BYTES: usize = 512 * 1024;
pub(super) const JSON: &str = "application/json";
pub(super) const JPEG: &str = "image/jpeg";
/// The name of the user property.
pub(super) const EPOCH: &str = "epoch";
/// As in docs/mqtt.md section 1, for short connection losses. The session ends with the connection, and by the MQTT 5
/// specification the will is due then; mosquitto waits for the delay nevertheless.
pub(super) const WILL_DELAY_S: u32 = 5;

/// The content type of a payload for MQTT 5, by its first bytes; none for plain text.
pub(super) fn content_type(payload: &[u8]) -> Option<&'static str> {
    match payload {
        [b'{', ..] => Some(JSON),
        [0xff, 0xd8, ..] => Some(JPEG),
        _ => None,
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

/// Hands requests to the client library. An error means that it did not accept one: its queue is full or closed, or the request
/// is invalid.
pub(super) struct Sender {
    client: LibraryClient,
    max_qos: u8,
}

enum LibraryClient {
    V5(rumqttc::AsyncClient),
    V311(rumqttc_v4::AsyncClient),
}

/// The client library's event loop, which drives the connection.
pub(super) struct Events {
    events: LibraryEvents,
    /// The TCP connection was made.
    is_reached: Arc<AtomicBool>,
    max_qos: u8,
}

enum LibraryEvents {
    V5(Box<rumqttc::EventLoop>),
    V311(Box<rumqttc_v4::EventLoop>),
}

/// Resolves when the broker has answered a request or cannot answer it any more.
pub(super) enum Notice {
    PublishV5(rumqttc::PublishNotice),
    SubscribeV5(rumqttc::SubscribeNotice),
    PublishV311(rumqttc_v4::PublishNotice),
    SubscribeV311(rumqttc_v4::SubscribeNotice),
}

impl Notice {
    pub(super) async fn outcome(self) -> RequestOutcome {
        match self {
            Self::PublishV5(notice) => v5::published(notice.wait_completion_async().await),
            Self::SubscribeV5(notice) => v5::subscribed(notice.wait_completion_async().await),
            // In MQTT 3.1.1 a broker cannot reject a message: it acknowledges or closes the connection.
            Self::PublishV311(notice) => match notice.wait_async().await {
                Ok(_) => RequestOutcome::Acked,
                Err(_) => RequestOutcome::Lost,
            },
            Self::SubscribeV311(notice) => v311::subscribed(notice.wait_completion_async().await),
        }
    }
}

/// Which client connects to which broker.
pub(crate) struct ClientSettings<'a> {
    pub(crate) broker: &'a BrokerAccess,
    pub(crate) id: &'a str,
    pub(crate) timing: &'a ConnectionTiming,
    /// `None` = plain TCP.
    pub(crate) trust: Option<&'a Trust>,
    /// `None` for a client that only reads.
    pub(crate) will: Option<WillSettings<'a>>,
}

/// The will: `offline` at this topic.
pub(crate) struct WillSettings<'a> {
    pub(crate) topic: &'a str,
    pub(crate) is_retained: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SubscriptionPurpose {
    /// QoS 1; in MQTT 5 without retained messages.
    Commands,
    /// QoS 1, with retained messages.
    Triggers,
    /// QoS 0, with retained messages: brokers limit the QoS 1 messages that wait for a client.
    States,
}

/// Prepares a connection. It is opened by the first [`Events::next`].
pub(super) fn open(client: &ClientSettings<'_>, protocol: Protocol) -> (Sender, Events) {
    let is_reached = Arc::new(AtomicBool::new(false));
    let reached = Arc::clone(&is_reached);
    let max_qos = client.broker.max_qos;
    let (client, events) = match protocol {
        Protocol::V5 => {
            let mut options = v5::options(client);
            options.set_socket_connector(move |host, network| {
                let connecting = rumqttc::default_socket_connect(host, network);
                noting(connecting, Arc::clone(&reached))
            });
            let client = rumqttc::AsyncClient::builder(options).capacity(QUEUE);
            let (client, events) = client.build();
            let events = LibraryEvents::V5(Box::new(events));
            (LibraryClient::V5(client), events)
        }
        Protocol::V311 => {
            let mut options = v311::options(client);
            options.set_socket_connector(move |host, network| {
                let connecting = rumqttc_v4::default_socket_connect(host, network);
                noting(connecting, Arc::clone(&reached))
            });
            let timeout = client.timing.connect_timeout;
            let client = rumqttc_v4::AsyncClient::builder(options).capacity(QUEUE);
            let (client, mut events) = client.build();
            events.set_network_options(v311::network(timeout));
            let events = LibraryEvents::V311(Box::new(events));
            (LibraryClient::V311(client), events)
        }
    };
    let events = Events {
        events,
        is_reached,
        max_qos,
    };
    (Sender { client, max_qos }, events)
}

/// Notes the end of TCP's part: the client library has one time limit for TCP, TLS and CONNECT.
async fn noting(
    connecting: impl Future<Output = io::Result<TcpStream>>,
    is_reached: Arc<AtomicBool>,
) -> io::Result<TcpStream> {
    let stream = connecting.await?;
    is_reached.store(true, Ordering::Relaxed);
    Ok(stream)
}

impl Sender {
    /// Hands a message over without waiting. Returns a notice if the message is acknowledged.
    pub(super) fn publish(
        &self,
        topic: &str,
        payload: Vec<u8>,
        delivery: &DeliveryOptions,
    ) -> Result<Option<Notice>, ()> {
        let is_acknowledged = delivery.ticket.is_some();
        match &self.client {
            LibraryClient::V5(client) => {
                let options = v5::publish_options(delivery, &payload, self.max_qos);
                if is_acknowledged {
                    let notice = client.try_publish_tracked(topic, payload, options);
                    return notice.map(Notice::PublishV5).map(Some).map_err(drop);
                }
                client.try_publish(topic, payload, options).map_err(drop)?;
            }
            LibraryClient::V311(client) => {
                let options = v311::publish_options(delivery, self.max_qos);
                if is_acknowledged {
                    let notice = client.try_publish_tracked(topic, payload, options);
                    return notice.map(Notice::PublishV311).map(Some).map_err(drop);
                }
                client.try_publish(topic, payload, options).map_err(drop)?;
            }
        }
        Ok(None)
    }

    pub(super) fn subscribe(
        &self,
        filter: &str,
        purpose: SubscriptionPurpose,
    ) -> Result<Notice, ()> {
        match &self.client {
            LibraryClient::V5(client) => client
                .try_subscribe_many_tracked([v5::subscription(filter, purpose)])
                .map(Notice::SubscribeV5)
                .map_err(drop),
            LibraryClient::V311(client) => client
                .try_subscribe_tracked(filter, v311::qos_of(purpose))
                .map(Notice::SubscribeV311)
                .map_err(drop),
        }
    }

    pub(super) fn unsubscribe(&self, filter: &str) -> Result<(), ()> {
        match &self.client {
            LibraryClient::V5(client) => client.try_unsubscribe(filter).map_err(drop),
            LibraryClient::V311(client) => client.try_unsubscribe(filter).map_err(drop),
        }
    }

    /// Sends DISCONNECT after everything that was handed over, so that the broker publishes no will.
    pub(super) fn disconnect(&self) -> Result<(), ()> {
        match &self.client {
            LibraryClient::V5(client) => client.try_disconnect().map_err(drop),
            LibraryClient::V311(client) => client.try_disconnect().map_err(drop),
        }
    }
}

impl Events {
    /// Waits for the next event. Must not be cancelled before the connection is open: that would start the attempt again.
    pub(super) async fn next(&mut self) -> Result<ConnectionEvent, ConnectionEnd> {
        let is_reached = || self.is_reached.load(Ordering::Relaxed);
        match &mut self.events {
            LibraryEvents::V5(events) => match events.poll().await {
                Ok(event) => v5::happened(event, self.max_qos),
                Err(error) => Err(v5::end(error, is_reached())),
            },
            LibraryEvents::V311(events) => match events.poll().await {
                Ok(event) => Ok(v311::happened(event)),
                Err(error) => Err(v311::end(error, is_reached())),
            },
        }
    }
}
