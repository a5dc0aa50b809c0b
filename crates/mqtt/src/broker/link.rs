//! One connection, MQTT 5 or 3.1.1, behind one face. Dropped at its end and never reused: what was not acknowledged is
//! known to the outbox, so nothing of the library's own queue is worth keeping.

use std::time::Duration;

use super::{
    policy::{ConnectionEnd, Protocol},
    terms::Terms,
    timing::ConnectionTiming,
    tls::Trust,
    v5, v311,
};
use crate::Inbound;
use spotter_core::config::Secret;

/// The library may hold so many messages. Few, because they are dated when they are put in.
pub(super) const QUEUE: usize = 4;
/// The largest payload of docs/mqtt.md section 1 with its topic and properties; commands are far smaller.
pub(super) const PACKET_MAX_BYTES: usize = 512 * 1024;
/// As in docs/mqtt.md section 1, for short connection losses. The session ends with the connection, and by the MQTT 5
/// specification the will is due then; mosquitto waits for the delay all the same.
pub(super) const WILL_DELAY_S: u32 = 5;

/// All that a connection needs, but for TLS.
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
    /// The broker is asked to keep our will. Some keep nothing and refuse who asks.
    pub(super) retains: bool,
}

/// How a payload travels.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeliveryOptions {
    /// QoS 1, else QoS 0.
    pub(super) acknowledged: bool,
    /// The broker keeps it for who comes later.
    pub(super) retained: bool,
    pub(super) content: PayloadFormat,
    /// MQTT 5 brokers forget it then.
    pub(super) expiry: Option<Duration>,
    /// What the sender of a request knows it by (MQTT 5).
    pub(super) correlation: Option<Vec<u8>>,
}

/// What a payload is (MQTT 5 tells it).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum PayloadFormat {
    #[default]
    Text,
    Json,
    Jpeg,
}

impl PayloadFormat {
    /// By its first bytes.
    pub(super) fn of(payload: &[u8]) -> Self {
        match payload {
            [b'{', ..] => Self::Json,
            [0xff, 0xd8, ..] => Self::Jpeg,
            _ => Self::Text,
        }
    }

    /// As MQTT 5 says it; plain text needs no saying.
    pub(super) fn mime(self) -> Option<&'static str> {
        match self {
            Self::Text => None,
            Self::Json => Some("application/json"),
            Self::Jpeg => Some("image/jpeg"),
        }
    }
}

/// What a connection reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEvent {
    /// The broker accepted us, on its terms.
    Connected(Terms),
    /// A request left the library's queue.
    Sent,
    /// Somebody's message, or our own status.
    Message(Inbound),
    /// The broker said something that only shows that it lives.
    Heard,
    /// We said good-bye.
    Disconnected,
    /// Nothing of interest.
    Other,
}

/// What became of a request that the broker answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RequestOutcome {
    /// The broker has it.
    Acked,
    /// It does not want it, and says why with this code.
    Refused(String),
    /// The connection ended before an answer came.
    Lost,
}

/// The request cannot be handed over: the library's queue is full or closed, or it does not take such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HandOverError;

/// Puts requests in.
pub(super) enum Sender {
    V5(rumqttc::AsyncClient),
    V311(rumqttc_v4::AsyncClient),
}

/// Drives the connection.
pub(super) enum Events {
    V5(Box<rumqttc::EventLoop>),
    V311(Box<rumqttc_v4::EventLoop>),
}

/// Resolves when the broker has answered a request, or never will.
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
            // MQTT 3.1.1 cannot refuse a message: it acknowledges, or closes.
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
    /// Hands a message over. Never waits. One that is acknowledged comes with a notice.
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

    /// Asks for the messages of a filter, QoS 1; MQTT 5 is told not to send what was retained.
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

    /// Asks for them no more.
    pub(super) fn unsubscribe(&self, filter: &str) -> Result<(), HandOverError> {
        match self {
            Self::V5(client) => client.try_unsubscribe(filter).map_err(|_| HandOverError),
            Self::V311(client) => client.try_unsubscribe(filter).map_err(|_| HandOverError),
        }
    }

    /// Says good-bye after everything that was handed over, so that the broker sends no will.
    pub(super) fn disconnect(&self) -> Result<(), HandOverError> {
        match self {
            Self::V5(client) => client.try_disconnect().map_err(|_| HandOverError),
            Self::V311(client) => client.try_disconnect().map_err(|_| HandOverError),
        }
    }
}

impl Events {
    /// Waits for the next thing that happens. Not to be cancelled before the connection is up: that would begin it anew.
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
