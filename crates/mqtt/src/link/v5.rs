//! MQTT 5 with its client library.

use rumqttc::{
    ConnectReturnCode as Code, ConnectionError, DisconnectReasonCode, Event, LastWill,
    LastWillProperties, MqttOptions, NetworkOptions, Outgoing, Packet, PublishNoticeError,
    PublishOptions, PublishProperties, QoS, RetainForwardRule, StateError, SubscribeFilterInput,
    SubscribeNoticeError, Transport, mqttbytes,
};

use super::{
    client::{
        ClientSettings, ConnectionEvent, EPOCH, JPEG, PACKET_MAX_BYTES, RequestOutcome,
        SubscriptionPurpose, WILL_DELAY_S, WillSettings, content_type,
    },
    ends,
    limits::BrokerLimits,
    policy::ConnectionEnd,
};
use crate::{Inbound, ReplyTo, contract::message::status_text, delivery::DeliveryOptions};
use spotter_core::plain_line;

pub(super) fn options(client: &ClientSettings<'_>) -> MqttOptions {
    let broker = client.broker;
    let address = (broker.host.clone(), broker.port);
    let mut options = MqttOptions::new(client.id, address);
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    options
        .set_keep_alive(client.timing.keep_alive_s)
        .set_clean_start(true)
        .set_session_expiry_interval(Some(0))
        .set_max_packet_size(Some(PACKET_MAX_BYTES as u32))
        .set_connect_timeout(client.timing.connect_timeout)
        .set_network_options(network);
    if let Some(will) = &client.will {
        options.set_last_will(last_will(will, qos(broker.max_qos)));
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

/// The highest that is permitted.
fn qos(max_qos: u8) -> QoS {
    match max_qos {
        0 => QoS::AtMostOnce,
        _ => QoS::AtLeastOnce,
    }
}

fn last_will(will: &WillSettings<'_>, qos: QoS) -> LastWill {
    let properties = LastWillProperties {
        delay_interval: Some(WILL_DELAY_S),
        payload_format_indicator: None,
        message_expiry_interval: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    };
    LastWill::new(
        will.topic,
        status_text(false),
        qos,
        will.is_retained,
        Some(properties),
    )
}

pub(super) fn publish_options(
    delivery: &DeliveryOptions,
    payload: &[u8],
    max_qos: u8,
) -> PublishOptions {
    let qos = match delivery.ticket {
        Some(_) => qos(max_qos),
        None => QoS::AtMostOnce,
    };
    let content_type = content_type(payload);
    PublishOptions::new(qos)
        .retain(delivery.retained)
        .properties(PublishProperties {
            payload_format_indicator: (content_type != Some(JPEG)).then_some(1),
            message_expiry_interval: delivery.expiry.map(|expiry| expiry.as_secs() as u32),
            content_type: content_type.map(str::to_owned),
            correlation_data: delivery
                .correlation
                .as_ref()
                .map(|data| data.to_vec().into()),
            user_properties: delivery
                .epoch
                .map(|epoch| (EPOCH.to_owned(), epoch.to_string()))
                .into_iter()
                .collect(),
            ..PublishProperties::default()
        })
}

pub(super) fn subscription(filter: &str, purpose: SubscriptionPurpose) -> SubscribeFilterInput {
    match purpose {
        SubscriptionPurpose::Commands => SubscribeFilterInput::new(filter, QoS::AtLeastOnce)
            .retain_forward_rule(RetainForwardRule::Never)
            .preserve_retain(is_of_commands(filter)),
        SubscriptionPurpose::Triggers => SubscribeFilterInput::new(filter, QoS::AtLeastOnce),
        SubscriptionPurpose::States => SubscribeFilterInput::new(filter, QoS::AtMostOnce),
    }
}

/// A retained command would be executed again at every start, so a command carries its retain flag also when it arrives live.
/// The flag of other topics has no meaning here: a will is retained, and it is current.
fn is_of_commands(filter: &str) -> bool {
    filter.ends_with("/set") || filter.ends_with("/cmd")
}

pub(super) fn published(result: Result<(), PublishNoticeError>) -> RequestOutcome {
    match result {
        Ok(()) => RequestOutcome::Acked,
        Err(PublishNoticeError::V5PubAck(reason)) => RequestOutcome::Refused(format!("{reason:?}")),
        Err(PublishNoticeError::RetainNotSupported) => {
            RequestOutcome::Refused("RetainNotSupported".to_owned())
        }
        Err(_) => RequestOutcome::Lost,
    }
}

pub(super) fn subscribed(result: Result<(), SubscribeNoticeError>) -> RequestOutcome {
    match result {
        Ok(()) => RequestOutcome::Acked,
        Err(SubscribeNoticeError::V5SubAckFailure(codes)) => {
            RequestOutcome::Refused(format!("{codes:?}"))
        }
        Err(_) => RequestOutcome::Lost,
    }
}

pub(super) fn happened(event: Event, max_qos: u8) -> Result<ConnectionEvent, ConnectionEnd> {
    Ok(match event {
        Event::Incoming(Packet::ConnAck(accepted)) => {
            let offered = accepted.properties.as_ref().and_then(|all| all.max_qos);
            if offered.is_some_and(|offered| offered < max_qos) {
                return Err(ends::no_qos_1());
            }
            let limits = accepted.properties.map(|properties| BrokerLimits {
                packet_max_bytes: properties.max_packet_size.map(|bytes| bytes as usize),
                in_flight_max: properties.receive_max.map_or(usize::MAX, usize::from),
                retains: properties.retain_available != Some(0),
            });
            ConnectionEvent::Connected(limits.unwrap_or_default())
        }
        Event::Incoming(Packet::Publish(publish)) => {
            let properties = publish.properties.unwrap_or_default();
            ConnectionEvent::Message(Inbound {
                topic: String::from_utf8_lossy(&publish.topic).into_owned(),
                payload: publish.payload.to_vec(),
                retained: publish.retain,
                reply_to: properties.response_topic.map(|topic| ReplyTo {
                    topic,
                    correlation: properties.correlation_data.map(|data| data.to_vec()),
                }),
            })
        }
        Event::Incoming(Packet::Disconnect(packet)) => {
            return Err(disconnected(packet.reason_code));
        }
        Event::Incoming(_) => ConnectionEvent::Heard,
        Event::Outgoing(
            Outgoing::Publish(_) | Outgoing::Subscribe(_) | Outgoing::Unsubscribe(_),
        ) => ConnectionEvent::Sent,
        Event::Outgoing(Outgoing::Disconnect) => ConnectionEvent::Disconnected,
        _ => ConnectionEvent::Other,
    })
}

/// The broker's reason. Its free text is never used: it may contain the login.
fn disconnected(reason: DisconnectReasonCode) -> ConnectionEnd {
    match reason {
        DisconnectReasonCode::SessionTakenOver => ConnectionEnd::TakenOver,
        DisconnectReasonCode::PacketTooLarge => too_large(),
        DisconnectReasonCode::QoSNotSupported => ends::no_qos_1(),
        reason => ConnectionEnd::Lost(format!("the broker closed the connection: {reason:?}")),
    }
}

/// One of our messages exceeds the broker's limit.
fn too_large() -> ConnectionEnd {
    ConnectionEnd::Lost("the broker closed the connection because a message exceeds its limit; raise its message_size_limit".to_owned())
}

/// `is_reached`: the TCP connection was made.
pub(super) fn end(error: ConnectionError, is_reached: bool) -> ConnectionEnd {
    match error {
        ConnectionError::ConnectionRefused(code)
        | ConnectionError::MqttState(StateError::ConnFail { reason: code }) => refused(code),
        ConnectionError::MqttState(StateError::ServerDisconnect { reason_code, .. }) => {
            disconnected(reason_code)
        }
        ConnectionError::MqttState(StateError::Deserialization(error)) => match error {
            mqttbytes::Error::Io(error) => ends::io(&error),
            mqttbytes::Error::PayloadSizeLimitExceeded { .. } => ends::oversized(),
            // mosquitto's `message_size_limit`: PUBACK with a code that PUBACK does not have, so the library ends here.
            mqttbytes::Error::InvalidConnectReturnCode(0x95) => too_large(),
            error => ends::unreadable(&error),
        },
        ConnectionError::MqttState(StateError::IncomingPacketTooLarge { .. }) => ends::oversized(),
        ConnectionError::MqttState(StateError::ProtocolViolation(error)) => {
            ends::unreadable(&error)
        }
        // Without the packet: a server that echoes would make us print the login.
        ConnectionError::NotConnAck(_) => ends::unreadable(&"not an answer to CONNECT"),
        ConnectionError::Timeout(_) => ends::connect_timeout(is_reached),
        ConnectionError::Tls(error) => ends::tls(&error),
        ConnectionError::Io(error) => ends::io(&error),
        ConnectionError::MqttState(StateError::Io(error)) => ends::io(&error),
        ConnectionError::MqttState(StateError::AwaitPingResp) => ends::quiet(),
        ConnectionError::MqttState(StateError::ConnectionAborted) => ends::closed(),
        error => ConnectionEnd::Lost(plain_line(&error.to_string())),
    }
}

fn refused(code: Code) -> ConnectionEnd {
    match code {
        Code::UnsupportedProtocolVersion | Code::RefusedProtocolVersion => {
            ConnectionEnd::Unsupported
        }
        Code::BadUserNamePassword | Code::NotAuthorized | Code::Banned => {
            ends::login_refused(&code)
        }
        Code::RetainNotSupported => ConnectionEnd::KeepsNothing,
        Code::QoSNotSupported => ends::no_qos_1(),
        Code::ServiceUnavailable
        | Code::ServerUnavailable
        | Code::ServerBusy
        | Code::ConnectionRateExceeded => ends::busy(&code),
        code => ConnectionEnd::Refused(format!("the broker rejected the connection: {code:?}")),
    }
}
