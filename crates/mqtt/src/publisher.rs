//! The handle that accepts updates without waiting.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::{
    sync::{broadcast, mpsc, watch},
    task::JoinHandle,
    time::timeout,
};

use super::{
    BrokerState, Identity, Inbound, JsonLine, MessageCounters, SentDetection, Topics, Update,
    contract::message::{Message, Rank},
    delivery::Outbox,
    link::{
        TlsError, Trust, keep_connected,
        shared::{Shared, WantedFilters},
        target::ConnectionTarget,
    },
};
use spotter_config::MqttConfig;
use spotter_core::{CameraId, Clock};
use spotter_state::{EventReceiver, FoundEvents, OpenedEvents};

/// The connection does not wait longer for the disk.
const WRITE_WITHIN: Duration = Duration::from_secs(2);

/// Takes updates from any thread. Clones share one connection.
#[derive(Clone)]
pub struct Publisher {
    shared: Arc<Shared>,
    /// `true` ends the task; so does the drop of the last handle.
    stop: watch::Sender<bool>,
}

impl Publisher {
    /// Starts the tasks on the current tokio runtime, whether the broker is available or not. They end some seconds after
    /// [`stop`](Self::stop), or when the last handle is dropped.
    ///
    /// Events that an earlier run left are sent first, and those that were open at its end get the end `restart`.
    ///
    /// Fails only when the TLS files cannot be used. Blocks on the disk to read them.
    pub fn start(
        mqtt: &MqttConfig,
        events: &OpenedEvents,
        identity: &Identity,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, JoinHandle<()>), TlsError> {
        let target = ConnectionTarget::new(mqtt, identity)?;
        Ok(Self::start_on(target, events, clock))
    }

    pub(super) fn start_on(
        target: ConnectionTarget,
        events: &OpenedEvents,
        clock: Arc<dyn Clock>,
    ) -> (Self, JoinHandle<()>) {
        let (topics, spool) = (&target.topics, target.mqtt.spool);
        let boot = Arc::clone(&target.identity.boot);
        let log = events.log.clone();
        let mut outbox = Outbox::new(spool, log.clone(), boot, target.identity.seed);
        if let Some(fleet) = &target.identity.fleet {
            outbox = outbox.in_fleet(Arc::clone(&fleet.rights));
        }
        outbox.push(Message::node_status(topics, true), clock.now());
        queue_found(&events.found, topics, &mut outbox, &*clock);
        let shared = Arc::new(Shared::new(target, clock, outbox));
        let (stop, stopped) = watch::channel(false);
        let publisher = Self {
            shared: Arc::clone(&shared),
            stop,
        };
        let all = async move {
            // The next run would send an end that was sent and not written again, with another id.
            _ = timeout(WRITE_WITHIN, log.written()).await;
            keep_connected(&shared, stopped).await;
        };
        (publisher, tokio::spawn(all))
    }

    /// Reads the TLS files as [`start`](Self::start) does, without a connection. Blocks on the disk.
    pub fn check(mqtt: &MqttConfig) -> Result<(), TlsError> {
        let tls = mqtt.broker.tls.as_ref();
        tls.map(Trust::read).transpose().map(drop)
    }

    /// Never waits and never fails: a state is kept until the broker has acknowledged it; a stream message may be dropped by
    /// the limits of docs/mqtt.md section 1, and is counted. In a fleet, so are updates of a camera that this node may not publish; a new owner
    /// publishes [`Update::Owner`] and then all states of the camera.
    pub fn publish(&self, update: Update) {
        let shared = &self.shared;
        let topics = &shared.target.topics;
        shared.outbox().publish(topics, update, shared.now());
        shared.wake();
    }

    /// A message of the camera waits or is not acknowledged; not one that the broker rejected.
    pub fn has_waiting(&self, camera: &CameraId) -> bool {
        self.shared.outbox().has_waiting(camera)
    }

    /// Ends the pause before the next attempt, which reads the TLS files again. An open connection is not affected.
    pub fn try_again(&self) {
        self.shared.again.send_replace(());
    }

    pub fn topics(&self) -> Arc<Topics> {
        Arc::clone(&self.shared.target.topics)
    }

    /// Changes can be awaited.
    pub fn state(&self) -> watch::Receiver<BrokerState> {
        self.shared.state.subscribe()
    }

    /// Every detection from now on, at its hand-over to the client library.
    pub fn sent(&self) -> broadcast::Receiver<SentDetection> {
        self.shared.sent.subscribe()
    }

    /// Every JSON message from now on, without discovery records, at its hand-over to the client library. A slow receiver loses
    /// the oldest and gets their number.
    pub fn lines(&self) -> broadcast::Receiver<JsonLine> {
        self.shared.lines.subscribe()
    }

    /// Publishes all discovery records again.
    pub(super) fn repeat_discovery(&self) {
        self.shared.outbox().states.repeat_rank(Rank::Discovery);
        self.shared.wake();
    }

    /// Topics whose clearing the broker has not acknowledged yet.
    pub(super) fn clearing(&self) -> BTreeSet<String> {
        self.shared.outbox().states.clearing().cloned().collect()
    }

    /// Subscribes to these filters and no others, on every connection. Use exact levels and `+`: with `#` a busy broker
    /// would send the messages of all clients. A filter that the broker rejects is logged.
    pub fn listen(&self, filters: Vec<String>) {
        self.change_filters(|wanted| wanted.commands = filters);
    }

    /// Subscribes also to these topics of other programs and no others, with their retained messages; of those in `again`, the broker sends
    /// the retained message once more. One that the broker rejects is logged and in [`rejected_filters`](Self::rejected_filters).
    pub fn listen_to_triggers(&self, topics: Vec<String>, again: &BTreeSet<String>) {
        self.change_filters(|wanted| wanted.change_triggers(topics, again));
    }

    fn change_filters(&self, change: impl FnOnce(&mut WantedFilters)) {
        self.shared.filters.send_if_modified(|wanted| {
            let before = wanted.clone();
            change(wanted);
            *wanted != before
        });
    }

    /// The filters that the broker rejected on the connection that is open, or on the last one.
    pub fn rejected_filters(&self) -> BTreeSet<String> {
        self.shared.rejected_filters().clone()
    }

    /// Messages on the topics of [`listen`](Self::listen). Returned once; messages beyond its capacity are dropped and counted.
    pub fn take_inbound(&self) -> Option<mpsc::Receiver<Inbound>> {
        self.shared.take_inbound()
    }

    /// Counts a retained command, which is not executed.
    pub fn ignore_retained(&self) {
        self.shared.outbox().counters.inbound_retained += 1;
    }

    pub fn counters(&self) -> MessageCounters {
        self.shared.outbox().counters()
    }

    /// `spool_msgs`: events that the broker has not acknowledged, on disk or in memory.
    pub fn spool_msgs(&self) -> u64 {
        self.shared.outbox().events.len() as u64
    }

    /// 95th percentile of hand-over to acknowledgement over the last acknowledged messages.
    pub fn puback_p95_ms(&self) -> Option<f64> {
        self.shared.outbox().puback_p95_ms(self.shared.now())
    }

    /// Rises while the connection's task runs, connected or not; for the watchdog.
    pub fn progress(&self) -> u64 {
        self.shared.turns()
    }

    /// Starts a clean stop: what is due, `offline`, DISCONNECT. The task ends within 3 s.
    pub fn stop(&self) {
        // The task may have ended already.
        _ = self.stop.send(true);
    }
}

/// Queues the undelivered events of an earlier run, then the end of each event that was open at the end of that run.
pub(super) fn queue_found(
    found: &FoundEvents,
    topics: &Topics,
    outbox: &mut Outbox,
    clock: &dyn Clock,
) {
    let (now, wall) = (clock.now(), clock.wall());
    let events = &mut outbox.events;
    for waiting in found.waiting_for(&EventReceiver::broker()) {
        let logged = Arc::clone(&waiting.logged);
        let topic = topics.of_event(&logged.camera, logged.line.as_ref(), &logged.prompt);
        let left = logged.time_left(events.bounds.max_age, wall);
        events.restore(&topic, logged, left, now);
    }
    let (waiting, open) = (events.len(), found.open.len());
    if waiting + open > 0 {
        tracing::info!(waiting, open, "undelivered events of an earlier run loaded");
    }
    for last in &found.open {
        let topic = topics.event(&last.camera, &last.prompt);
        let epoch = last.epoch.filter(|_| topics.fleet().is_some());
        if let Some(end) = last.ended_by_restart(events.next_id(wall), epoch, wall) {
            events.log(&topic, end, now);
        }
    }
}

#[cfg(test)]
#[path = "restart_tests.rs"]
mod restart_tests;
