//! One connection, MQTT 5 or 3.1.1, behind one face. Dropped at its end and never reused: what was not acknowledged is
//! known to the outbox, so nothing of the library's own queue is worth keeping.

use std::{error::Error, time::Duration};

use rumqttc::{TlsConfiguration, tokio_rustls::rustls};

use super::policy::{End, Protocol};
use crate::{config::Secret, publish::message::status_text};

/// The library may hold so many messages. Few, because they are dated when they are put in.
pub(super) const QUEUE: usize = 4;
/// The contract's largest payload with its topic and properties; we receive our own status only.
const PACKET_MAX_BYTES: usize = 512 * 1024;
const KEEP_ALIVE_S: u16 = 15;
const WILL_DELAY_S: u32 = 5;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// All that a connection needs.
#[derive(Clone)]
pub(in crate::publish) struct Settings {
    pub(in crate::publish) host: String,
    pub(in crate::publish) port: u16,
    pub(in crate::publish) tls: Option<TlsConfiguration>,
    pub(in crate::publish) user: Option<String>,
    pub(in crate::publish) password: Option<Secret>,
    pub(in crate::publish) client_id: String,
    pub(in crate::publish) status_topic: String,
}

/// How a payload travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Way {
    /// QoS 1, else QoS 0.
    pub(super) acknowledged: bool,
    /// The broker keeps it for who comes later.
    pub(super) retained: bool,
    /// `application/json`, else plain text.
    pub(super) json: bool,
    /// MQTT 5 brokers forget it then.
    pub(super) expiry: Option<Duration>,
    /// What the sender of a request knows it by (MQTT 5).
    pub(super) correlation: Option<Vec<u8>>,
}

/// What a connection reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    /// The broker accepted us.
    Connected,
    /// A message or subscription left the library's queue.
    Sent,
    /// Our status topic says `offline`, and it is news.
    Offline,
    /// We said good-bye.
    Disconnected,
    /// Nothing of interest.
    Other,
}

/// The library's queue is full or closed; the message is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotTaken;

/// Puts messages in.
pub(super) enum Sender {
    V5(rumqttc::AsyncClient),
    V311(rumqttc_v4::AsyncClient),
}

/// Drives the connection.
pub(super) enum Events {
    V5(Box<rumqttc::EventLoop>),
    V311(Box<rumqttc_v4::EventLoop>),
}

/// What became of a message that the broker answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The broker has it.
    Acked,
    /// It does not want it.
    Refused,
    /// The connection ended before an answer came.
    Lost,
}

/// Resolves when the broker has answered a message, or never will.
pub(super) enum Notice {
    V5(rumqttc::PublishNotice),
    V311(rumqttc_v4::PublishNotice),
}

impl Notice {
    pub(super) async fn outcome(self) -> Outcome {
        match self {
            Self::V5(notice) => match notice.wait_completion_async().await {
                Ok(_) => Outcome::Acked,
                Err(rumqttc::PublishNoticeError::V5PubAck(_)) => Outcome::Refused,
                Err(_) => Outcome::Lost,
            },
            // MQTT 3.1.1 cannot refuse a message: it acknowledges, or closes.
            Self::V311(notice) => match notice.wait_async().await {
                Ok(_) => Outcome::Acked,
                Err(_) => Outcome::Lost,
            },
        }
    }
}

/// Prepares a connection; it is opened by the first [`Events::next`].
pub(super) fn open(settings: &Settings, protocol: Protocol) -> (Sender, Events) {
    match protocol {
        Protocol::V5 => {
            let client = rumqttc::AsyncClient::builder(v5_options(settings)).capacity(QUEUE);
            let (sender, events) = client.build();
            (Sender::V5(sender), Events::V5(Box::new(events)))
        }
        Protocol::V311 => {
            let client = rumqttc_v4::AsyncClient::builder(v311_options(settings)).capacity(QUEUE);
            let (sender, mut events) = client.build();
            let mut network = rumqttc_v4::NetworkOptions::new();
            network.set_connection_timeout(CONNECT_TIMEOUT.as_secs());
            network.set_tcp_nodelay(true);
            events.set_network_options(network);
            (Sender::V311(sender), Events::V311(Box::new(events)))
        }
    }
}

fn v5_options(settings: &Settings) -> rumqttc::MqttOptions {
    use rumqttc::{LastWill, LastWillProperties, MqttOptions, NetworkOptions, QoS, Transport};
    let address = (settings.host.clone(), settings.port);
    let mut options = MqttOptions::new(settings.client_id.clone(), address);
    let will_properties = LastWillProperties {
        delay_interval: Some(WILL_DELAY_S),
        payload_format_indicator: None,
        message_expiry_interval: None,
        content_type: None,
        response_topic: None,
        correlation_data: None,
        user_properties: Vec::new(),
    };
    let mut network = NetworkOptions::new();
    network.set_tcp_nodelay(true);
    options
        .set_keep_alive(KEEP_ALIVE_S)
        .set_clean_start(true)
        .set_session_expiry_interval(Some(0))
        .set_max_packet_size(Some(PACKET_MAX_BYTES as u32))
        .set_connect_timeout(CONNECT_TIMEOUT)
        .set_network_options(network)
        .set_last_will(LastWill::new(
            settings.status_topic.clone(),
            status_text(false),
            QoS::AtLeastOnce,
            true,
            Some(will_properties),
        ));
    match (&settings.user, &settings.password) {
        (Some(user), Some(password)) => {
            options.set_credentials(user.clone(), password.reveal().to_owned());
        }
        (Some(user), None) => {
            options.set_username(user.clone());
        }
        (None, _) => {}
    }
    if let Some(tls) = &settings.tls {
        options.set_transport(Transport::Tls(tls.clone()));
    }
    options
}

fn v311_options(settings: &Settings) -> rumqttc_v4::MqttOptions {
    use rumqttc_v4::{LastWill, MqttOptions, QoS, Transport};
    let address = (settings.host.clone(), settings.port);
    let mut options = MqttOptions::new(settings.client_id.clone(), address);
    options
        .set_keep_alive(KEEP_ALIVE_S)
        .set_clean_session(true)
        .set_max_packet_size(PACKET_MAX_BYTES, PACKET_MAX_BYTES)
        .set_last_will(LastWill::new(
            settings.status_topic.clone(),
            status_text(false),
            QoS::AtLeastOnce,
            true,
        ));
    match (&settings.user, &settings.password) {
        (Some(user), Some(password)) => {
            options.set_credentials(user.clone(), password.reveal().to_owned());
        }
        (Some(user), None) => {
            options.set_username(user.clone());
        }
        (None, _) => {}
    }
    if let Some(tls) = &settings.tls {
        options.set_transport(Transport::Tls(tls.clone()));
    }
    options
}

impl Sender {
    /// Hands a message over. Never waits. A state comes with a notice.
    pub(super) fn publish(
        &self,
        topic: &str,
        payload: Vec<u8>,
        way: Way,
    ) -> Result<Option<Notice>, NotTaken> {
        match self {
            Self::V5(client) => {
                let acknowledged = way.acknowledged;
                let options = v5_publish_options(way);
                if acknowledged {
                    let notice = client.try_publish_tracked(topic, payload, options);
                    notice
                        .map(|notice| Some(Notice::V5(notice)))
                        .map_err(|_| NotTaken)
                } else {
                    let taken = client.try_publish(topic, payload, options);
                    taken.map(|()| None).map_err(|_| NotTaken)
                }
            }
            Self::V311(client) => {
                use rumqttc_v4::PublishOptions;
                let options = match way.acknowledged {
                    true => PublishOptions::at_least_once(),
                    false => PublishOptions::at_most_once(),
                };
                let options = match way.retained {
                    true => options.retained(),
                    false => options,
                };
                if way.acknowledged {
                    let notice = client.try_publish_tracked(topic, payload, options);
                    notice
                        .map(|notice| Some(Notice::V311(notice)))
                        .map_err(|_| NotTaken)
                } else {
                    let taken = client.try_publish(topic, payload, options);
                    taken.map(|()| None).map_err(|_| NotTaken)
                }
            }
        }
    }

    /// Asks for our own status, to notice a will that comes late.
    pub(super) fn subscribe(&self, topic: &str) -> Result<(), NotTaken> {
        match self {
            Self::V5(client) => client
                .try_subscribe(topic, rumqttc::QoS::AtLeastOnce)
                .map_err(|_| NotTaken),
            Self::V311(client) => client
                .try_subscribe(topic, rumqttc_v4::QoS::AtLeastOnce)
                .map_err(|_| NotTaken),
        }
    }

    /// Says good-bye after everything that was handed over, so that the broker sends no will.
    pub(super) fn disconnect(&self) -> Result<(), NotTaken> {
        match self {
            Self::V5(client) => client.try_disconnect().map_err(|_| NotTaken),
            Self::V311(client) => client.try_disconnect().map_err(|_| NotTaken),
        }
    }
}

fn v5_publish_options(way: Way) -> rumqttc::PublishOptions {
    use rumqttc::{PublishOptions, PublishProperties};
    let options = match way.acknowledged {
        true => PublishOptions::at_least_once(),
        false => PublishOptions::at_most_once(),
    };
    let options = match way.retained {
        true => options.retained(),
        false => options,
    };
    options.properties(PublishProperties {
        payload_format_indicator: Some(1),
        message_expiry_interval: way.expiry.map(|expiry| expiry.as_secs() as u32),
        content_type: way.json.then(|| "application/json".to_owned()),
        correlation_data: way.correlation.map(Into::into),
        ..PublishProperties::default()
    })
}

impl Events {
    /// Waits for the next thing that happens. Not to be cancelled before the connection is up: that would begin it anew.
    pub(super) async fn next(&mut self, status_topic: &str) -> Result<Happened, End> {
        match self {
            Self::V5(events) => match events.poll().await {
                Ok(event) => v5_happened(event, status_topic),
                Err(error) => Err(v5_end(error)),
            },
            Self::V311(events) => match events.poll().await {
                Ok(event) => Ok(v311_happened(&event, status_topic)),
                Err(error) => Err(v311_end(error)),
            },
        }
    }
}

/// A retained copy is old news: the broker sends it because we subscribed, and our `online` follows it.
fn is_news(topic_matches: bool, retained: bool, payload: &[u8]) -> bool {
    topic_matches && !retained && payload == status_text(false).as_bytes()
}

fn v5_happened(event: rumqttc::Event, status_topic: &str) -> Result<Happened, End> {
    use rumqttc::{DisconnectReasonCode, Event, Outgoing, Packet};
    Ok(match event {
        Event::Incoming(Packet::ConnAck(_)) => Happened::Connected,
        Event::Incoming(Packet::Publish(publish)) => {
            let ours = publish.topic == status_topic.as_bytes();
            if is_news(ours, publish.retain, &publish.payload) {
                Happened::Offline
            } else {
                Happened::Other
            }
        }
        Event::Incoming(Packet::Disconnect(disconnect)) => {
            return Err(match disconnect.reason_code {
                DisconnectReasonCode::SessionTakenOver => End::TakenOver,
                reason => End::Lost(format!("the broker closed the connection: {reason:?}")),
            });
        }
        Event::Outgoing(Outgoing::Publish(_) | Outgoing::Subscribe(_)) => Happened::Sent,
        Event::Outgoing(Outgoing::Disconnect) => Happened::Disconnected,
        _ => Happened::Other,
    })
}

fn v311_happened(event: &rumqttc_v4::Event, status_topic: &str) -> Happened {
    use rumqttc_v4::{Event, Outgoing, Packet};
    match event {
        Event::Incoming(Packet::ConnAck(_)) => Happened::Connected,
        Event::Incoming(Packet::Publish(publish)) => {
            let ours = publish.topic == status_topic.as_bytes();
            if is_news(ours, publish.retain, &publish.payload) {
                Happened::Offline
            } else {
                Happened::Other
            }
        }
        Event::Outgoing(Outgoing::Publish(_) | Outgoing::Subscribe(_)) => Happened::Sent,
        Event::Outgoing(Outgoing::Disconnect) => Happened::Disconnected,
        _ => Happened::Other,
    }
}

fn v5_end(error: rumqttc::ConnectionError) -> End {
    use rumqttc::{ConnectReturnCode as Code, ConnectionError, DisconnectReasonCode, StateError};
    match error {
        ConnectionError::ConnectionRefused(code)
        | ConnectionError::MqttState(StateError::ConnFail { reason: code }) => match code {
            Code::UnsupportedProtocolVersion | Code::RefusedProtocolVersion => End::Unsupported,
            Code::BadUserNamePassword | Code::NotAuthorized | Code::Banned => login_refused(&code),
            code => End::Refused(format!("the broker refused the connection: {code:?}")),
        },
        ConnectionError::MqttState(StateError::ServerDisconnect {
            reason_code: DisconnectReasonCode::SessionTakenOver,
            ..
        }) => End::TakenOver,
        ConnectionError::NotConnAck(_)
        | ConnectionError::Timeout(_)
        | ConnectionError::MqttState(StateError::Deserialization(_)) => {
            End::NoAnswer(format!("no readable answer to CONNECT: {error}"))
        }
        ConnectionError::Tls(error) => tls_end(&error),
        ConnectionError::Io(error) => io_end(&error),
        ConnectionError::MqttState(StateError::Io(error)) => io_end(&error),
        ConnectionError::MqttState(StateError::ConnectionAborted) => closed(),
        error => End::Lost(error.to_string()),
    }
}

fn v311_end(error: rumqttc_v4::ConnectionError) -> End {
    use rumqttc_v4::{ConnectReturnCode as Code, ConnectionError, StateError};
    match error {
        ConnectionError::ConnectionRefused(code) => match code {
            Code::RefusedProtocolVersion => End::Unsupported,
            Code::BadUserNamePassword | Code::NotAuthorized => login_refused(&code),
            code => End::Refused(format!("the broker refused the connection: {code:?}")),
        },
        ConnectionError::NotConnAck(_)
        | ConnectionError::NetworkTimeout
        | ConnectionError::MqttState(StateError::Deserialization(_)) => {
            End::NoAnswer(format!("no readable answer to CONNECT: {error}"))
        }
        ConnectionError::Tls(error) => tls_end(&error),
        ConnectionError::Io(error) => io_end(&error),
        ConnectionError::MqttState(StateError::Io(error)) => io_end(&error),
        ConnectionError::MqttState(StateError::ConnectionAborted) => closed(),
        error => End::Lost(error.to_string()),
    }
}

fn login_refused(code: &dyn std::fmt::Debug) -> End {
    End::Refused(format!(
        "the broker refused the login ({code:?}); check mqtt.user, the password and the broker's rules for this client"
    ))
}

fn closed() -> End {
    End::NoAnswer("the broker closed the connection".to_owned())
}

fn io_end(error: &std::io::Error) -> End {
    use std::io::ErrorKind;
    if let Some(tls) = in_chain::<rustls::Error>(error) {
        return rustls_end(tls);
    }
    match error.kind() {
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof => {
            closed()
        }
        _ => End::Lost(format!("cannot reach the broker: {error}")),
    }
}

fn tls_end(error: &rumqttc::TlsError) -> End {
    match in_chain::<rustls::Error>(error) {
        Some(error) => rustls_end(error),
        None => End::Lost(format!("TLS to the broker failed: {error}")),
    }
}

fn rustls_end(error: &rustls::Error) -> End {
    use rustls::CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    match error {
        // Not for ever: a box without a battery begins its life in 1970, and certificates are renewed.
        rustls::Error::InvalidCertificate(
            Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. },
        ) => End::Refused(format!(
            "the broker's certificate is not valid today ({error}); check this machine's clock and the certificate's dates"
        )),
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            End::Untrusted(format!(
                "the broker's certificate is not trusted ({error}); check mqtt.ca and the host in mqtt.url"
            ))
        }
        error => End::Lost(format!("TLS to the broker failed: {error}")),
    }
}

/// The first error of type `T` among `error` and its causes. An `io::Error` hides the error that it wraps from
/// `source`, so that one is looked at too.
fn in_chain<'a, T: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a T> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref::<T>() {
            return Some(found);
        }
        let wrapped = error
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        next = match wrapped {
            Some(wrapped) => Some(wrapped),
            None => error.source(),
        };
    }
    None
}
