//! A connection that only reads: it has no will and publishes nothing.

use std::{collections::VecDeque, time::Duration};

use tokio::{sync::mpsc, task::JoinSet, time::timeout};

use super::{
    client::{
        self, ClientSettings, ConnectionEvent, Events, RequestOutcome, Sender, SubscriptionPurpose,
    },
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
        let plain = match end {
            ConnectionEnd::Refused(reason)
            | ConnectionEnd::Untrusted(reason)
            | ConnectionEnd::Closed(reason)
            | ConnectionEnd::Unanswered(reason)
            | ConnectionEnd::Unreadable(reason)
            | ConnectionEnd::Lost(reason) => reason,
            ConnectionEnd::Unsupported => "the broker supports neither MQTT 5 nor 3.1.1".to_owned(),
            ConnectionEnd::KeepsNothing => {
                "the broker does not support retained messages".to_owned()
            }
            ConnectionEnd::TakenOver => "another client uses this client id".to_owned(),
        };
        Self::Broker(plain)
    }
}

/// Receives the retained messages of its filters, then those that are published.
pub struct TopicReader {
    /// Arrived while it subscribed.
    early: VecDeque<Inbound>,
    messages: mpsc::Receiver<Result<Inbound, ConnectionEnd>>,
    /// Ends with this value.
    _connection: JoinSet<()>,
    sender: Sender,
}

impl TopicReader {
    /// Connects with MQTT 5, else with MQTT 3.1.1, and subscribes to the filters one after the other. Blocks on the disk to read
    /// the TLS files.
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
            Err(
                ConnectionEnd::Unsupported
                | ConnectionEnd::Unreadable(_)
                | ConnectionEnd::Unanswered(_)
                | ConnectionEnd::Closed(_),
            ) if broker.version == MqttVersion::Auto => connect(&client, Protocol::V311).await?,
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
            let subscribed = timeout(SUBSCRIBED_WITHIN, reader.subscribe(filter)).await;
            let silent =
                || ReadError::Broker("the broker did not answer a subscription".to_owned());
            subscribed.map_err(|_| silent())??;
        }
        Ok(reader)
    }

    async fn subscribe(&mut self, filter: &str) -> Result<(), ReadError> {
        let rejected = |why: String| ReadError::Subscription {
            filter: filter.to_owned(),
            why,
        };
        let notice = self.sender.subscribe(filter, SubscriptionPurpose::States);
        let notice = notice.map_err(|()| rejected("the filter is invalid".to_owned()))?;
        let mut outcome = std::pin::pin!(notice.outcome());
        loop {
            tokio::select! {
                message = self.messages.recv() => self.early.push_back(received(message)?),
                outcome = &mut outcome => return match outcome {
                    RequestOutcome::Acked => Ok(()),
                    RequestOutcome::Refused(code) => Err(rejected(code)),
                    RequestOutcome::Lost => Err(ReadError::from(ConnectionEnd::Closed(
                        "the broker closed the connection".to_owned(),
                    ))),
                },
            }
        }
    }

    /// The next message. An error ends the connection. May be cancelled.
    pub async fn next(&mut self) -> Result<Inbound, ReadError> {
        match self.early.pop_front() {
            Some(early) => Ok(early),
            None => received(self.messages.recv().await),
        }
    }
}

fn received(message: Option<Result<Inbound, ConnectionEnd>>) -> Result<Inbound, ReadError> {
    let ended = || ConnectionEnd::Lost("the connection to the broker ended".to_owned());
    Ok(message.unwrap_or_else(|| Err(ended()))?)
}

async fn connect(
    client: &ClientSettings<'_>,
    protocol: Protocol,
) -> Result<(Sender, Events), ConnectionEnd> {
    let (sender, mut events) = client::open(client, protocol);
    loop {
        if let ConnectionEvent::Connected(_) = events.next().await? {
            return Ok((sender, events));
        }
    }
}

/// Drives the connection until it ends or the reader is dropped.
async fn forward(mut events: Events, to: mpsc::Sender<Result<Inbound, ConnectionEnd>>) {
    loop {
        let message = match events.next().await {
            Ok(ConnectionEvent::Message(inbound)) => Ok(inbound),
            Ok(_) => continue,
            Err(end) => Err(end),
        };
        let is_end = message.is_err();
        if to.send(message).await.is_err() || is_end {
            return;
        }
    }
}
