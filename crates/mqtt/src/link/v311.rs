//! MQTT 3.1.1 with its client library.

use std::time::Duration;

use rumqttc_v4::{
    ConnectReturnCode as Code, ConnectionError, Event, LastWill, MqttOptions, NetworkOptions,
    Outgoing, Packet, PublishOptions, QoS, StateError, SubscribeNoticeError, Transport, mqttbytes,
};

use super::{
    client::{
        ClientSettings, ConnectionEvent, PACKET_MAX_BYTES, RequestOutcome, SubscriptionPurpose,
    },
    ends,
    limits::BrokerLimits,
    policy::ConnectionEnd,
};
use crate::{Inbound, contract::message::status_text, delivery::DeliveryOptions};
use spotter_core::plain_line;

pub(super) fn options(client: &ClientSettings<'_>) -> MqttOptions {
    let broker = client.broker;
    let address = (broker.host.clone(), broker.port);
    let mut options = MqttOptions::new(client.id, address);
    options
        .set_keep_alive(client.timing.keep_alive_s)
        .set_clean_session(true)
        .set_max_packet_size(PACKET_MAX_BYTES, PACKET_MAX_BYTES);
    if let Some(will) = &client.will {
        options.set_last_will(LastWill::new(
            will.topic,
            status_text(false),
            qos(broker.max_qos),
            will.is_retained,
        ));
    }
    match (&broker.user, &broker.password) {
        (Some(user), Some(password)) => {
            options.set_credentials(user.clone(), password.reveal().to_owned());
        }
        (Some(user), None) => {
            options.set_username(user.clone());
        }
        (None, _) => {}
    }
    if let Some(trust) = client.trust {
        options.set_transport(Transport::Tls(trust.client()));
    }
    options
}

pub(super) fn network(connect_timeout: Duration) -> NetworkOptions {
    let mut network = NetworkOptions::new();
    network.set_connection_timeout(connect_timeout.as_secs());
    network.set_tcp_nodelay(true);
    network
}

/// The highest that is permitted.
fn qos(max_qos: u8) -> QoS {
    match max_qos {
        0 => QoS::AtMostOnce,
        _ => QoS::AtLeastOnce,
    }
}

pub(super) fn publish_options(delivery: &DeliveryOptions, max_qos: u8) -> PublishOptions {
    let qos = match delivery.ticket {
        Some(_) => qos(max_qos),
        None => QoS::AtMostOnce,
    };
    PublishOptions::new(qos).retain(delivery.retained)
}

/// In MQTT 3.1.1 a subscription always receives the retained messages.
pub(super) fn qos_of(purpose: SubscriptionPurpose) -> QoS {
    match purpose {
        SubscriptionPurpose::Commands | SubscriptionPurpose::Triggers => QoS::AtLeastOnce,
        SubscriptionPurpose::States => QoS::AtMostOnce,
    }
}

pub(super) fn subscribed(result: Result<(), SubscribeNoticeError>) -> RequestOutcome {
    match result {
        Ok(()) => RequestOutcome::Acked,
        Err(SubscribeNoticeError::V4SubAckFailure(_)) => {
            RequestOutcome::Refused("refused".to_owned())
        }
        Err(_) => RequestOutcome::Lost,
    }
}

pub(super) fn happened(event: Event) -> ConnectionEvent {
    match event {
        Event::Incoming(Packet::ConnAck(_)) => ConnectionEvent::Connected(BrokerLimits::default()),
        Event::Incoming(Packet::Publish(publish)) => ConnectionEvent::Message(Inbound {
            topic: String::from_utf8_lossy(&publish.topic).into_owned(),
            payload: publish.payload.to_vec(),
            retained: publish.retain,
            reply_to: None,
        }),
        Event::Incoming(_) => ConnectionEvent::Heard,
        Event::Outgoing(
            Outgoing::Publish(_) | Outgoing::Subscribe(_) | Outgoing::Unsubscribe(_),
        ) => ConnectionEvent::Sent,
        Event::Outgoing(Outgoing::Disconnect) => ConnectionEvent::Disconnected,
        _ => ConnectionEvent::Other,
    }
}

/// `is_reached`: the TCP connection was made.
pub(super) fn end(error: ConnectionError, is_reached: bool) -> ConnectionEnd {
    match error {
        ConnectionError::ConnectionRefused(code) => match code {
            Code::RefusedProtocolVersion => ConnectionEnd::Unsupported,
            Code::BadUserNamePassword | Code::NotAuthorized => ends::login_refused(&code),
            Code::ServiceUnavailable => ends::busy(&code),
            code => ConnectionEnd::Refused(format!("the broker rejected the connection: {code:?}")),
        },
        ConnectionError::MqttState(StateError::Deserialization(error)) => match error {
            mqttbytes::Error::Io(error) => ends::io(&error),
            mqttbytes::Error::PayloadSizeLimitExceeded(_) => ends::oversized(),
            error => ends::unreadable(&error),
        },
        ConnectionError::MqttState(StateError::ProtocolViolation(error)) => {
            ends::unreadable(&error)
        }
        // Without the packet: a server that echoes would make us print the login.
        ConnectionError::NotConnAck(_) => ends::unreadable(&"not an answer to CONNECT"),
        ConnectionError::NetworkTimeout => ends::connect_timeout(is_reached),
        ConnectionError::Tls(error) => ends::tls(&error),
        ConnectionError::Io(error) => ends::io(&error),
        ConnectionError::MqttState(StateError::Io(error)) => ends::io(&error),
        ConnectionError::MqttState(StateError::AwaitPingResp) => ends::quiet(),
        ConnectionError::MqttState(StateError::ConnectionAborted) => ends::closed(),
        error => ConnectionEnd::Lost(plain_line(&error.to_string())),
    }
}
