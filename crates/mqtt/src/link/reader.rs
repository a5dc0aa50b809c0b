//! A connection that only reads: it has no will and publishes nothing.

use std::time::Duration;

use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    client::{ClientSettings, ConnectionEvent, Events, FilterPurpose, RequestOutcome, Sender},
    open,
    policy::{ConnectionEnd, Protocol},
    timing::ConnectionTiming,
    tls::{TlsError, Trust},
};
use crate::Inbound;
use spotter_config::{BrokerAccess, MqttVersion};

/// Time for the broker to answer a subscription.
const SUBSCRIBED_WITHIN: Duration = Duration::from_secs(10);
/// Messages that wait; beyond this number the socket is not read. More than a fleet has retained: those of the first filters wait until
/// the last one is subscribed to.
const WAITING_MAX: usize = 65_536;

/// Why topics cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Never contains the login.
    #[error("{0}")]
    Broker(String),
    #[error(
        "the broker rejected the subscription to {filter} ({why}); check the broker's rules for this client"
    )]
    Subscription { filter: String, why: String },
}

impl From<ConnectionEnd> for ReadError {
    fn from(end: ConnectionEnd) -> Self {
        Self::Broker(end.reason)
    }
}

/// Receives the retained messages of its filters, then those that are published.
pub struct TopicReader {
    messages: mpsc::Receiver<Result<Inbound, ReadError>>,
    /// Ends with this value.
    _connection: JoinSet<()>,
    _sender: Box<dyn Sender>,
}

impl TopicReader {
    /// Connects with MQTT 5, else with MQTT 3.1.1. Blocks on the disk to read the TLS files.
    pub async fn open(broker: &BrokerAccess, filters: &[String]) -> Result<Self, ReadError> {
        let trust = broker.tls.as_ref().map(Trust::read).transpose()?;
        let client = ClientSettings {
            broker,
            id: &format!("spotter-reader-{:08x}", fastrand::u32(..)),
            timing: &ConnectionTiming::default(),
            trust: trust.as_ref(),
            will: None,
        };
        let first = Protocol::first(broker.version);
        let (sender, events) = match connect(&client, first).await {
            Err(end) if broker.version == MqttVersion::Auto && end.cause.may_be_the_protocol() => {
                connect(&client, Protocol::V311).await?
            }
            other => other?,
        };
        let (to, messages) = mpsc::channel(WAITING_MAX);
        let mut connection = JoinSet::new();
        connection.spawn(forward(events, to));
        for filter in filters {
            let rejected = |why| ReadError::Subscription {
                filter: filter.clone(),
                why,
            };
            let answer = sender.subscribe(filter, FilterPurpose::States);
            let answer = answer.ok_or_else(|| rejected("the filter is invalid".to_owned()))?;
            match timeout(SUBSCRIBED_WITHIN, answer).await {
                Ok(RequestOutcome::Acked) => {}
                // Why the connection ended is the last message.
                Ok(RequestOutcome::Lost) => break,
                Ok(RequestOutcome::Refused(code)) => return Err(rejected(code)),
                Err(_) => {
                    let silent = "the broker did not answer a subscription";
                    return Err(ReadError::Broker(silent.to_owned()));
                }
            }
        }
        Ok(Self {
            messages,
            _connection: connection,
            _sender: sender,
        })
    }

    /// The next message. An error ends the connection. May be cancelled.
    pub async fn next(&mut self) -> Result<Inbound, ReadError> {
        let ended = || ReadError::Broker("the connection to the broker ended".to_owned());
        self.messages.recv().await.unwrap_or_else(|| Err(ended()))
    }
}

async fn connect(
    client: &ClientSettings<'_>,
    protocol: Protocol,
) -> Result<(Box<dyn Sender>, Box<dyn Events>), ConnectionEnd> {
    let (sender, mut events) = open::open(client, protocol);
    loop {
        if let ConnectionEvent::Connected(_) = events.next().await? {
            return Ok((sender, events));
        }
    }
}

/// Drives the connection until it ends or the reader is dropped.
async fn forward(mut events: Box<dyn Events>, to: mpsc::Sender<Result<Inbound, ReadError>>) {
    loop {
        match events.next().await {
            Ok(ConnectionEvent::Message(inbound)) => _ = to.send(Ok(inbound)).await,
            Ok(_) => {}
            Err(end) => {
                _ = to.send(Err(end.into())).await;
                return;
            }
        }
    }
}
