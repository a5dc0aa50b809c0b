//! A connection that only reads: it has no will and publishes nothing.

use std::{collections::VecDeque, pin::pin, time::Duration};

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
/// Messages that wait; beyond this number the socket is not read.
const WAITING_MAX: usize = 64;

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
    /// Arrived while it subscribed.
    early: VecDeque<Inbound>,
    messages: Messages,
    /// Ends with this value.
    _connection: JoinSet<()>,
    sender: Box<dyn Sender>,
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
        let mut reader = Self {
            early: VecDeque::new(),
            messages,
            _connection: connection,
            sender,
        };
        for filter in filters {
            reader.subscribe(filter).await?;
        }
        Ok(reader)
    }

    async fn subscribe(&mut self, filter: &str) -> Result<(), ReadError> {
        let rejected = |why| ReadError::Subscription {
            filter: filter.to_owned(),
            why,
        };
        let answer = self.sender.subscribe(filter, FilterPurpose::States);
        let answer = answer.ok_or_else(|| rejected("the filter is invalid".to_owned()))?;
        let mut answer = pin!(timeout(SUBSCRIBED_WITHIN, answer));
        let silent = "the broker did not answer a subscription";
        loop {
            tokio::select! {
                message = received(&mut self.messages) => self.early.push_back(message?),
                answer = &mut answer => return match answer {
                    // Why the connection ended is the last message.
                    Ok(RequestOutcome::Acked | RequestOutcome::Lost) => Ok(()),
                    Ok(RequestOutcome::Refused(code)) => Err(rejected(code)),
                    Err(_) => Err(ReadError::Broker(silent.to_owned())),
                },
            }
        }
    }

    /// The next message. An error ends the connection. May be cancelled.
    pub async fn next(&mut self) -> Result<Inbound, ReadError> {
        match self.early.pop_front() {
            Some(early) => Ok(early),
            None => received(&mut self.messages).await,
        }
    }
}

type Messages = mpsc::Receiver<Result<Inbound, ReadError>>;

async fn received(messages: &mut Messages) -> Result<Inbound, ReadError> {
    let ended = || ReadError::Broker("the connection to the broker ended".to_owned());
    messages.recv().await.unwrap_or_else(|| Err(ended()))
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
