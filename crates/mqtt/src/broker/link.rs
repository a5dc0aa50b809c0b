//! One interface to a connection with MQTT 5 or 3.1.1. A connection is dropped at its end and never reused: the outbox knows
//! what was not acknowledged, so the client library's queue holds nothing that must be kept.

use std::time::Duration;

use super::{
    limits::BrokerLimits,
    policy::{ConnectionEnd, Protocol},
    timing::ConnectionTiming,
    tls::Trust,
    v5, v311,
};
use crate::Inbound;
use spotter_core::config::Secret;

/// Messages in the client library's queue. Few, because their time of publication is set before they wait there.
pub(super) const QUEUE: usize = 4;
/// The largest payload of docs/mqtt.md section 1 with its topic and properties; commands are far smaller.
pub(super) const PACKET_MAX_BYTES: usize = 512 * 1024;
/// As in docs/mqtt.md section 1, for short connection losses. The session ends with the connection, and by the MQTT 5
/// specification the will is due then; mosquitto waits for the delay nevertheless.
pub(super) const WILL_DELAY_S: u32 = 5;

/// What a connection needs, without TLS.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Secret>,
    pub(crate) client_id: String,
    pub(crate) status_topic: String,
    pub(crate) timing: ConnectionTiming,
}

/// How a connection is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectMode {
    pub(super) protocol: Protocol,
    /// The will is retained. Brokers without retained messages reject such a connection.
    pub(super) retains: bool,
}

/// How a message is published.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeliveryOptions {
    /// QoS 1, else QoS 0.
    pub(super) acknowledged: bool,
    /// The broker keeps it for later subscribers.
    pub(super) retained: bool,
    pub(super) content: PayloadFormat,
    /// An MQTT 5 broker discards it then.
    pub(super) expiry: Option<Duration>,
    /// Correlation data of the request (MQTT 5).
    pub(super) correlation: Option<Vec<u8>>,
}

/// The content type of a payload, for MQTT 5.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PayloadFormat {
    #[default]
    Text,
    Json,
    Jpeg,
}

impl PayloadFormat {
    /// Decides by the first bytes.
    pub(super) fn of(payload: &[u8]) -> Self {
        match payload {
            [b'{', ..] => Self::Json,
            [0xff, 0xd8, ..] => Self::Jpeg,
            _ => Self::Text,
        }
    }

    /// The content type of MQTT 5; none for plain text.
    pub(super) fn mime(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Json => Some("application/json"),
            Self::Jpeg => Some("image/jpeg"),
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

/// The client library did not accept the request: its queue is full or closed, or the request is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandOverError;

/// Hands requests to the client library.
pub(super) enum Sender {
    V5(rumqttc::AsyncClient),
    V311(rumqttc_v4::AsyncClient),
}

/// The client library's event loop, which drives the connection.
pub(super) enum Events {
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

/// Prepares a connection, with TLS when there is a `trust`; it is opened by the first [`Events::next`].
pub(super) fn open(
    settings: &Settings,
    trust: Option<&Trust>,
    mode: ConnectMode,
) -> (Sender, Events) {
    match mode.protocol {
        Protocol::V5 => {
            let options = v5::options(settings, trust, mode.retains);
            let client = rumqttc::AsyncClient::builder(options).capacity(QUEUE);
            let (sender, events) = client.build();
            (Sender::V5(sender), Events::V5(Box::new(events)))
        }
        Protocol::V311 => {
            let options = v311::options(settings, trust, mode.retains);
            let client = rumqttc_v4::AsyncClient::builder(options).capacity(QUEUE);
            let (sender, mut events) = client.build();
            events.set_network_options(v311::network(settings.timing.connect_timeout));
            (Sender::V311(sender), Events::V311(Box::new(events)))
        }
    }
}

impl Sender {
    /// Hands a message over without waiting. Returns a notice if the message is acknowledged.
    pub(super) fn publish(
        &self,
        topic: &str,
        payload: Vec<u8>,
        delivery: &DeliveryOptions,
    ) -> Result<Option<Notice>, HandOverError> {
        match self {
            Self::V5(client) if delivery.acknowledged => client
                .try_publish_tracked(topic, payload, v5::publish_options(delivery))
                .map(|notice| Some(Notice::PublishV5(notice)))
                .map_err(|_| HandOverError),
            Self::V5(client) => client
                .try_publish(topic, payload, v5::publish_options(delivery))
                .map(|()| None)
                .map_err(|_| HandOverError),
            Self::V311(client) if delivery.acknowledged => client
                .try_publish_tracked(topic, payload, v311::publish_options(delivery))
                .map(|notice| Some(Notice::PublishV311(notice)))
                .map_err(|_| HandOverError),
            Self::V311(client) => client
                .try_publish(topic, payload, v311::publish_options(delivery))
                .map(|()| None)
                .map_err(|_| HandOverError),
        }
    }

    /// Subscribes with QoS 1; in MQTT 5 without retained messages.
    pub(super) fn subscribe(&self, filter: &str) -> Result<Notice, HandOverError> {
        match self {
            Self::V5(client) => client
                .try_subscribe_many_tracked([v5::subscription(filter)])
                .map(Notice::SubscribeV5)
                .map_err(|_| HandOverError),
            Self::V311(client) => client
                .try_subscribe_tracked(filter, rumqttc_v4::QoS::AtLeastOnce)
                .map(Notice::SubscribeV311)
                .map_err(|_| HandOverError),
        }
    }

    pub(super) fn unsubscribe(&self, filter: &str) -> Result<(), HandOverError> {
        match self {
            Self::V5(client) => client.try_unsubscribe(filter).map_err(|_| HandOverError),
            Self::V311(client) => client.try_unsubscribe(filter).map_err(|_| HandOverError),
        }
    }

    /// Sends DISCONNECT after everything that was handed over, so that the broker publishes no will.
    pub(super) fn disconnect(&self) -> Result<(), HandOverError> {
        match self {
            Self::V5(client) => client.try_disconnect().map_err(|_| HandOverError),
            Self::V311(client) => client.try_disconnect().map_err(|_| HandOverError),
        }
    }
}

impl Events {
    /// Waits for the next event. Must not be cancelled before the connection is open: that would start the attempt again.
    pub(super) async fn next(&mut self) -> Result<ConnectionEvent, ConnectionEnd> {
        match self {
            Self::V5(events) => match events.poll().await {
                Ok(event) => v5::happened(event),
                Err(error) => Err(v5::end(error)),
            },
            Self::V311(events) => match events.poll().await {
                Ok(event) => Ok(v311::happened(event)),
                Err(error) => Err(v311::end(error)),
            },
        }
    }
}
