//! MQTT 3.1.1 with its client library.

use rumqttc_v4::{
    AsyncClient, ConnectReturnCode as Code, ConnectionError, Event, EventLoop, LastWill,
    MqttOptions, NetworkOptions, Outgoing, Packet, PublishOptions, QoS, StateError,
    SubscribeNoticeError, Transport, mqttbytes,
};

use super::{
    client::{
        BrokerLimits, ClientSettings, ConnectionEvent, Events, FilterPurpose, PACKET_MAX_BYTES,
        Pending, QUEUE, RequestAnswer, RequestOutcome, Sender, connector, qos,
    },
    ends,
    policy::{AwayCause, ConnectionEnd},
};
use crate::{Inbound, contract::node_topic::status_text, delivery::DeliveryOptions};
use spotter_core::plain_line;

struct V311Sender(AsyncClient);

struct V311Events(EventLoop);

pub(super) fn open(client: &ClientSettings<'_>) -> (Box<dyn Sender>, Box<dyn Events>) {
    let mut network = NetworkOptions::new();
    network.set_connection_timeout(client.timing.connect_timeout.as_secs());
    network.set_tcp_nodelay(true);
    let builder = AsyncClient::builder(options(client)).capacity(QUEUE);
    let (client, mut events) = builder.build();
    events.set_network_options(network);
    (Box::new(V311Sender(client)), Box::new(V311Events(events)))
}

impl Sender for V311Sender {
    fn publish(
        &self,
        topic: &str,
        payload: Vec<u8>,
        qos: QoS,
        delivery: &DeliveryOptions,
    ) -> Option<RequestAnswer> {
        let options = PublishOptions::new(qos).retain(delivery.retained);
        let notice = self.0.try_publish_tracked(topic, payload, options);
        let notice = notice.ok()?;
        // In MQTT 3.1.1 a broker cannot reject a message: it acknowledges or closes the connection.
        Some(Box::pin(async {
            let answer = notice.wait_async().await;
            answer.map_or(RequestOutcome::Lost, |_| RequestOutcome::Acked)
        }))
    }

    /// In MQTT 3.1.1 a subscription always receives the retained messages.
    fn subscribe(&self, filter: &str, purpose: FilterPurpose) -> Option<RequestAnswer> {
        let notice = self.0.try_subscribe_tracked(filter, purpose.qos()).ok()?;
        Some(Box::pin(async {
            match notice.wait_completion_async().await {
                Ok(()) => RequestOutcome::Acked,
                Err(SubscribeNoticeError::V4SubAckFailure(_)) => {
                    RequestOutcome::Refused("refused".to_owned())
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

impl Events for V311Events {
    fn next(&mut self) -> Pending<'_, Result<ConnectionEvent, ConnectionEnd>> {
        Box::pin(async { self.0.poll().await.map(happened).map_err(end) })
    }
}

fn options(client: &ClientSettings<'_>) -> MqttOptions {
    let broker = client.broker;
    let mut options = MqttOptions::new(client.id, (broker.host.clone(), broker.port));
    options
        .set_keep_alive(client.timing.keep_alive_s)
        .set_clean_session(true)
        .set_max_packet_size(PACKET_MAX_BYTES, PACKET_MAX_BYTES)
        .set_socket_connector(connector(client.timing));
    if let Some(will) = &client.will {
        let (text, qos) = (status_text(false), qos(broker.max_qos > 0));
        options.set_last_will(LastWill::new(&will.topic, text, qos, will.is_retained));
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

fn happened(event: Event) -> ConnectionEvent {
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

fn end(error: ConnectionError) -> ConnectionEnd {
    match error {
        ConnectionError::ConnectionRefused(code) => match code {
            Code::RefusedProtocolVersion => ends::unsupported(),
            Code::BadUserNamePassword | Code::NotAuthorized => ends::login_refused(&code),
            Code::ServiceUnavailable => ends::busy(&code),
            code => {
                AwayCause::Refused.because(format!("the broker rejected the connection: {code:?}"))
            }
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
        ConnectionError::NetworkTimeout => ends::connect_timeout(),
        ConnectionError::Tls(error) => ends::tls(&error),
        ConnectionError::Io(error) => ends::io(&error),
        ConnectionError::MqttState(StateError::Io(error)) => ends::io(&error),
        ConnectionError::MqttState(StateError::AwaitPingResp) => ends::quiet(),
        ConnectionError::MqttState(StateError::ConnectionAborted) => ends::closed(),
        error => AwayCause::Lost.because(plain_line(&error.to_string())),
    }
}
