//! The connection to the broker, as far as the daemon reads from it, and what it shows of it.

use std::time::Duration;

use tokio::{
    sync::{broadcast, mpsc},
    task::JoinHandle,
    time::timeout,
};

use super::{
    notice::StageNotice,
    stage::{Stage, StageContext, StageFuture},
    status,
    watchdogs::SystemdWatchdog,
};
use spotter_config::Config;
use spotter_core::Mono;
use spotter_mqtt::{self as publish, Inbound, Publisher, SentDetection, discovery::birth_topic};
use spotter_page::BrokerStatus;

/// Grace for the last messages.
const LAST_MESSAGES_LIMIT: Duration = Duration::from_secs(5);

pub struct BrokerLink {
    publisher: Publisher,
    task: JoinHandle<()>,
    sent: broadcast::Receiver<SentDetection>,
    inbound: mpsc::Receiver<Inbound>,
    systemd: Option<SystemdWatchdog>,
}

impl BrokerLink {
    /// Subscribes to the commands that `file` allows. `None` when another one already reads the broker's messages.
    pub fn new(publisher: Publisher, task: JoinHandle<()>, file: &Config) -> Option<Self> {
        let link = Self {
            task,
            sent: publisher.sent(),
            inbound: publisher.take_inbound()?,
            systemd: SystemdWatchdog::new(),
            publisher,
        };
        link.subscribe(file);
        Some(link)
    }

    /// To the commands that the configuration allows, and to the start of Home Assistant.
    fn subscribe(&self, file: &Config) {
        let mut filters = publish::filters(&self.publisher.topics(), file);
        filters.extend(birth_topic(&file.mqtt.ha));
        self.publisher.listen(filters);
    }

    fn status(&self, file: &Config, now: Mono) -> BrokerStatus {
        let (publisher, broker) = (&self.publisher, &file.mqtt.broker);
        let messages = publisher.counters();
        BrokerStatus {
            address: format!("{}:{}", broker.host, broker.port),
            topics: format!("{}/{}", file.mqtt.base, file.node.name),
            sent: messages.streams_sent,
            dropped: messages.drops().to_vec(),
            spooled: publisher.spool_msgs(),
            puback_p95_ms: publisher.puback_p95_ms(),
            inbound_dropped: messages.inbound_dropped,
            inbound_retained: messages.inbound_retained,
            ..status::broker(&publisher.state().borrow(), now)
        }
    }
}

impl Stage for BrokerLink {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            tokio::select! {
                Ok(sent) = self.sent.recv() => vec![StageNotice::Sent(Box::new(sent))],
                Some(message) = self.inbound.recv() => vec![StageNotice::Received(message)],
                else => std::future::pending().await,
            }
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        if let StageNotice::FileApplied = notice {
            // The first mode adds a topic.
            self.subscribe(context.config.file());
            self.publisher.try_again();
        }
    }

    fn tick(&mut self, context: &mut StageContext<'_>) {
        let trouble = status::broker_trouble(&self.publisher.state().borrow());
        context.status.troubles.extend(trouble);
        context.status.broker = self.status(context.config.file(), context.now);
        if let Some(systemd) = &mut self.systemd {
            systemd.tick(self.publisher.progress(), context.now);
        }
    }

    fn close(&mut self, _is_restart: bool) -> StageFuture<'_, Vec<StageNotice>> {
        self.publisher.stop();
        Box::pin(async {
            if timeout(LAST_MESSAGES_LIMIT, &mut self.task).await.is_err() {
                // With the same client id it would compete with the connection of the next run.
                self.task.abort();
            }
            let mut last = Vec::new();
            loop {
                match self.sent.try_recv() {
                    Ok(sent) => last.push(StageNotice::Sent(Box::new(sent))),
                    Err(broadcast::error::TryRecvError::Lagged(_)) => {}
                    Err(_) => return last,
                }
            }
        })
    }
}

impl Drop for BrokerLink {
    fn drop(&mut self) {
        self.task.abort();
    }
}
