//! MQTT 5 with its client library.

use rumqttc::{
    AsyncClient, ConnectReturnCode as Code, ConnectionError, DisconnectReasonCode, Event,
    EventLoop, LastWill, LastWillProperties, MqttOptions, NetworkOptions, Outgoing, Packet,
    PublishNoticeError, PublishOptions, PublishProperties, QoS, RetainForwardRule, StateError,
    SubscribeFilterInput, SubscribeNoticeError, Transport, mqttbytes,
};

use super::{
    client::{
        BrokerLimits, ClientSettings, ConnectionEvent, Events, FilterPurpose, JPEG,
        PACKET_MAX_BYTES, Pending, QUEUE, RequestAnswer, RequestOutcome, Sender, WillSettings,
        connector, content_type, qos,
    },
    ends,
    policy::{ANOTHER_CLIENT, AwayCause, ConnectionEnd},
};
use crate::{Inbound, ReplyTo, contract::node_topic::status_text, delivery::DeliveryOptions};
use spotter_core::plain_line;

/// The name of the user property.
const EPOCH: &str = "epoch";
/// As in docs/mqtt.md section 1, for short connection losses. The session ends with the connection, and by the MQTT 5
/// specification the will is due then; mosquitto waits for the delay nevertheless.
const WILL_DELAY_S: u32 = 5;

struct V5Sender(AsyncClient);

struct V5Events {
    events: EventLoop,
    /// That of the configuration.
    max_qos: u8,
}

pub(super) fn open(settings: &ClientSettings<'_>) -> (Box<dyn Sender>, Box<dyn Events>) {
    let builder = AsyncClient::builder(options(settings)).capacity(QUEUE);
    let (client, events) = builder.build();
    let max_qos = settings.broker.max_qos;
    (
        Box::new(V5Sender(client)),
        Box::new(V5Events { events, max_qos }),
    )
}

impl Sender for V5Sender {
    fn publish(
        &self,
        topic: &str,
        payload: Vec<u8>,
        qos: QoS,
        delivery: &DeliveryOptions,
    ) -> Option<RequestAnswer> {
        let properties = properties(delivery, &payload);
        let options = PublishOptions::new(qos).retain(delivery.retained);
        let options = options.properties(properties);
        let notice = self.0.try_publish_tracked(topic, payload, options);
        let notice = notice.ok()?;
        Some(Box::pin(async {
            match notice.wait_completion_async().await {
                Ok(()) => RequestOutcome::Acked,
                Err(PublishNoticeError::V5PubAck(reason)) => {
                    RequestOutcome::Refused(format!("{reason:?}"))
                }
                Err(PublishNoticeError::RetainNotSupported) => {
                    RequestOutcome::Refused("RetainNotSupported".to_owned())
                }
                Err(_) => RequestOutcome::Lost,
            }
        }))
    }

    fn subscribe(&self, filter: &str, purpose: FilterPurpose) -> Option<RequestAnswer> {
        let mut input = SubscribeFilterInput::new(filter, purpose.qos());
        if let FilterPurpose::OwnStatus | FilterPurpose::Commands = purpose {
            input = input
                .retain_forward_rule(RetainForwardRule::Never)
                .preserve_retain(is_of_commands(filter));
        }
        let notice = self.0.try_subscribe_many_tracked([input]).ok()?;
        Some(Box::pin(async {
            match notice.wait_completion_async().await {
                Ok(()) => RequestOutcome::Acked,
                Err(SubscribeNoticeError::V5SubAckFailure(codes)) => {
                    RequestOutcome::Refused(format!("{codes:?}"))
                }
                Err(_) => RequestOutcome::Lost,
            }
        }))
    }

    fn unsubscribe(&self, filter: &str) -> bool {
        self.0.try_unsubscribe(filter).is_ok()
    }

    fn disconnect(&self) -> bool {
        self.0.try_disconnect().is_ok()
    }
}

impl Events for V5Events {
    fn next(&mut self) -> Pending<'_, Result<ConnectionEvent, ConnectionEnd>> {
        Box::pin(async {
            let event = self.events.poll().await.map_err(end)?;
            happened(event, self.max_qos)
        })
    }
}

fn options(client: &ClientSettings<'_>) -> MqttOptions {
    let broker = client.broker;
    let mut options = MqttOptions::new(client.id, (broker.host.clone(), broker.port));
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    options
        .set_keep_alive(client.timing.keep_alive_s)
        .set_clean_start(true)
        .set_session_expiry_interval(Some(0))
        .set_max_packet_size(Some(PACKET_MAX_BYTES as u32))
        .set_connect_timeout(client.timing.connect_timeout)
        .set_network_options(network)
        .set_socket_connector(connector(client.timing));
    if let Some(will) = &client.will {
        options.set_last_will(last_will(will, qos(broker.max_qos > 0)));
    }
    if let Some(user) = &broker.user {
        match &broker.password {
            Some(password) => options.set_credentials(user.clone(), password.reveal().to_owned()),
            None => options.set_username(user.clone()),
        };
    }
    if let Some(trust) = client.trust {
        options.set_transport(Transport::Tls(trust.client()));
    }
    options
}

fn last_will(will: &WillSettings, qos: QoS) -> LastWill {
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
        &will.topic,
        status_text(false),
        qos,
        will.is_retained,
        Some(properties),
    )
}

fn properties(delivery: &DeliveryOptions, payload: &[u8]) -> PublishProperties {
    let content_type = content_type(payload);
    let correlation = delivery.correlation.as_ref();
    let epoch = delivery.epoch.iter();
    PublishProperties {
        payload_format_indicator: (content_type != Some(JPEG)).then_some(1),
        message_expiry_interval: delivery.expiry.map(|expiry| expiry.as_secs() as u32),
        content_type: content_type.map(str::to_owned),
        correlation_data: correlation.map(|data| data.to_vec().into()),
        user_properties: epoch
            .map(|epoch| (EPOCH.to_owned(), epoch.to_string()))
            .collect(),
        ..PublishProperties::default()
    }
}

/// A retained command would be executed again at every start, so a command carries its retain flag also when it arrives live.
/// The flag of other topics has no meaning here: a will is retained, and it is current.
fn is_of_commands(filter: &str) -> bool {
    filter.ends_with("/set") || filter.ends_with("/cmd")
}

fn happened(event: Event, max_qos: u8) -> Result<ConnectionEvent, ConnectionEnd> {
    Ok(match event {
        Event::Incoming(Packet::ConnAck(accepted)) => {
            // A reader has no will, which such a broker would refuse.
            let offered = accepted.properties.as_ref().and_then(|all| all.max_qos);
            if offered.is_some_and(|offered| offered < max_qos) {
                return Err(ends::no_qos_1());
            }
            let limits = accepted.properties.map(|properties| BrokerLimits {
                packet_max_bytes: properties
                    .max_packet_size
                    .map_or(usize::MAX, |bytes| bytes as usize),
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
        DisconnectReasonCode::SessionTakenOver => AwayCause::TakenOver.because(ANOTHER_CLIENT),
        DisconnectReasonCode::PacketTooLarge => too_large(),
        DisconnectReasonCode::QoSNotSupported => ends::no_qos_1(),
        reason => AwayCause::Lost.because(format!("the broker closed the connection: {reason:?}")),
    }
}

/// One of our messages exceeds the broker's limit.
fn too_large() -> ConnectionEnd {
    AwayCause::Lost.because("the broker closed the connection because a message exceeds its limit; raise its message_size_limit")
}

fn end(error: ConnectionError) -> ConnectionEnd {
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
        ConnectionError::Timeout(_) => ends::connect_timeout(),
        ConnectionError::Tls(error) => ends::tls(&error),
        ConnectionError::Io(error) => ends::io(&error),
        ConnectionError::MqttState(StateError::Io(error)) => ends::io(&error),
        ConnectionError::MqttState(StateError::AwaitPingResp) => ends::quiet(),
        ConnectionError::MqttState(StateError::ConnectionAborted) => ends::closed(),
        error => AwayCause::Lost.because(plain_line(&error.to_string())),
    }
}

fn refused(code: Code) -> ConnectionEnd {
    match code {
        Code::UnsupportedProtocolVersion | Code::RefusedProtocolVersion => ends::unsupported(),
        Code::BadUserNamePassword | Code::NotAuthorized | Code::Banned => {
            ends::login_refused(&code)
        }
        Code::RetainNotSupported => {
            AwayCause::KeepsNothing.because("the broker does not support retained messages")
        }
        Code::QoSNotSupported => ends::no_qos_1(),
        Code::ServiceUnavailable
        | Code::ServerUnavailable
        | Code::ServerBusy
        | Code::ConnectionRateExceeded => ends::busy(&code),
        code => AwayCause::Refused.because(format!("the broker rejected the connection: {code:?}")),
    }
}
