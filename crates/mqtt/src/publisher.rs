//! The handle that accepts updates without waiting.

use std::{
    collections::BTreeSet,
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{broadcast, mpsc, oneshot, watch},
    task::JoinHandle,
};

use super::{
    BrokerState, Identity, Inbound, JsonLine, MessageCounters, SentDetection, Topics, Update,
    contract::message::{Message, Rank},
    delivery::{
        Outbox, PublishedEvent, Shared,
        event_feed::{EventFeed, FeedReader, take_reader},
        spool::{self, Folder, FoundEvents, Journal, SpoolWriter, time_left},
    },
    link::{BrokerTask, TlsError, Trust, WantedFilters, target::ConnectionTarget},
};
use spotter_config::{MqttConfig, SpoolConfig};
use spotter_core::{CameraId, Clock, EndReason, Event, EventStep};

/// A receiver of [`SentDetection`] that is slower loses the oldest beyond this number.
const SENT_KEPT: usize = 64;
/// A receiver of lines loses the oldest beyond this number, some seconds of a busy node.
const LINES_KEPT: usize = 1024;
/// Inbound messages that wait; beyond this number they are dropped and counted.
const INBOX_KEPT: usize = 64;

/// Takes updates from any thread. Clones share one connection.
#[derive(Clone)]
pub struct Publisher {
    target: Arc<ConnectionTarget>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    state: watch::Receiver<BrokerState>,
    sent: broadcast::Sender<SentDetection>,
    lines: broadcast::Sender<JsonLine>,
    again: watch::Sender<()>,
    stop: watch::Sender<bool>,
    filters: watch::Sender<WantedFilters>,
    inbox: Arc<Mutex<Option<mpsc::Receiver<Inbound>>>>,
    feed: FeedReader,
}

impl Publisher {
    /// Starts the tasks on the current tokio runtime, whether the broker is available or not. They end some seconds after
    /// [`stop`](Self::stop), or when the last handle is dropped; then all events are on disk.
    ///
    /// Events that an earlier run left in `state_dir` are sent first, and events that were open at its end get the end
    /// `restart`. Without a directory, or when the disk fails, events are kept in memory only.
    ///
    /// Fails only when the TLS files cannot be used. Blocks on the disk to read them and the spool.
    pub fn start(
        mqtt: &MqttConfig,
        state_dir: Option<&Path>,
        identity: &Identity,
        clock: Arc<dyn Clock>,
    ) -> Result<(Self, JoinHandle<()>), TlsError> {
        let target = ConnectionTarget::new(mqtt, identity)?;
        Ok(Self::start_on(target, state_dir, clock))
    }

    pub(super) fn start_on(
        target: ConnectionTarget,
        state_dir: Option<&Path>,
        clock: Arc<dyn Clock>,
    ) -> (Self, JoinHandle<()>) {
        let target = Arc::new(target);
        let (topics, spool) = (&target.topics, target.mqtt.spool);
        let boot = Arc::clone(&target.identity.boot);
        let mut outbox = Outbox::new(spool, boot, target.identity.seed);
        if let Some(fleet) = &target.identity.fleet {
            outbox = outbox.in_fleet(Arc::clone(&fleet.rights));
        }
        let (feed, reader) = EventFeed::new();
        outbox.events.feed = feed;
        outbox.push(Message::node_status(topics, true), clock.now());
        let mut journal = None;
        if let Some(path) = state_dir.map(|state| state.join("spool")) {
            match open_spool(&path, &spool) {
                Ok((mut opened, found)) => {
                    queue_found(&found, topics, &mut outbox, &*clock);
                    write(&mut opened, &mut outbox, &*clock);
                    journal = Some((opened, path));
                }
                Err(error) => {
                    let trouble = spool::trouble(&path, &error);
                    spool::log_trouble(&trouble);
                    outbox.events.spool_trouble = Some(trouble);
                }
            }
        }
        let shared = Arc::new(Shared::new(outbox));
        let (state_sender, state) = watch::channel(BrokerState::Connecting);
        let (again_sender, again) = watch::channel(());
        let (stop_sender, stop) = watch::channel(false);
        let (sent, _) = broadcast::channel(SENT_KEPT);
        let (lines, _) = broadcast::channel(LINES_KEPT);
        let (filters, wanted) = watch::channel(WantedFilters::default());
        let (inbox, inbound) = mpsc::channel(INBOX_KEPT);
        let task = BrokerTask {
            target: Arc::clone(&target),
            shared: Arc::clone(&shared),
            clock: Arc::clone(&clock),
            state: state_sender,
            sent: sent.clone(),
            lines: lines.clone(),
            filters: wanted,
            inbox,
            again,
            stop,
        };
        let writer = journal.map(|(journal, path)| SpoolWriter {
            journal,
            path,
            shared: Arc::clone(&shared),
            clock: Arc::clone(&clock),
        });
        let publisher = Self {
            target,
            shared,
            clock,
            state,
            sent,
            lines,
            again: again_sender,
            stop: stop_sender,
            filters,
            inbox: Arc::new(Mutex::new(Some(inbound))),
            feed: reader,
        };
        let all = async move {
            let (end, ended) = oneshot::channel();
            let keeping = writer.map(|writer| tokio::spawn(writer.run(ended)));
            task.run().await;
            drop(end);
            if let Some(keeping) = keeping {
                // A panic logs itself.
                _ = keeping.await;
            }
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
        let is_event = matches!(update, Update::Event(_));
        let (topics, now) = (&self.target.topics, self.clock.now());
        match topics.fleet() {
            None => {
                let message = Message::from_update(topics, update, None);
                self.shared.outbox().push(message, now);
            }
            // Built under the lock: its epoch must be the present one.
            Some(_) => self.shared.outbox().push_of_fleet(topics, update, now),
        }
        self.shared.wake();
        if is_event {
            self.shared.event_pushed.notify_one();
        }
    }

    /// A message of the camera waits or is not acknowledged; not one that the broker rejected.
    pub fn has_waiting(&self, camera: &CameraId) -> bool {
        self.shared.outbox().has_waiting(camera)
    }

    /// Ends the pause before the next attempt, which reads the TLS files again. An open connection is not affected.
    pub fn try_again(&self) {
        self.again.send_replace(());
    }

    pub fn topics(&self) -> Arc<Topics> {
        Arc::clone(&self.target.topics)
    }

    /// Changes can be awaited.
    pub fn state(&self) -> watch::Receiver<BrokerState> {
        self.state.clone()
    }

    /// Every detection from now on, at its hand-over to the client library.
    pub fn sent(&self) -> broadcast::Receiver<SentDetection> {
        self.sent.subscribe()
    }

    /// Every JSON message from now on, without discovery records, at its hand-over to the client library. A slow receiver loses
    /// the oldest and gets their number.
    pub fn lines(&self) -> broadcast::Receiver<JsonLine> {
        self.lines.subscribe()
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
        self.filters.send_if_modified(|wanted| {
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
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        inbox.take()
    }

    /// Every event that this node publishes, in order, whether the broker is available or not; those that ended with an earlier run too. Returned once; events beyond its capacity are dropped and counted.
    pub fn take_events(&self) -> Option<mpsc::Receiver<PublishedEvent>> {
        take_reader(&self.feed)
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

    /// Why events are in memory only; `None` = they are on disk, or there is no state directory.
    pub fn spool_trouble(&self) -> Option<String> {
        self.shared.outbox().events.spool_trouble.clone()
    }

    /// 95th percentile of hand-over to acknowledgement over the last acknowledged messages.
    pub fn puback_p95(&self) -> Option<Duration> {
        self.shared.outbox().puback_p95()
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

fn open_spool(path: &Path, spool: &SpoolConfig) -> io::Result<(Journal<Folder>, FoundEvents)> {
    let (journal, found) = Journal::open(Folder::open(path)?, spool.max_mb * 1_000_000)?;
    let (waiting, open) = (found.waiting.len(), found.open.len());
    if waiting + open > 0 {
        tracing::info!(waiting, open, "undelivered events of an earlier run loaded");
    }
    let (torn, unreadable) = (found.torn, found.unreadable);
    if torn + unreadable > 0 {
        tracing::warn!(path = %path.display(), torn, unreadable, "spool file is damaged; the records after the damage are lost");
    }
    Ok((journal, found))
}

/// Writes immediately: the next run would publish an end that was sent and not written again, with another id.
fn write(journal: &mut Journal<Folder>, outbox: &mut Outbox, clock: &dyn Clock) {
    let batch = outbox.events.unwritten(clock.now());
    if journal.write(&batch, clock.now(), clock.wall()).is_err() {
        // The writer tries again and reports the error.
        outbox.events.still_unwritten(batch);
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
    events.keep_on_disk(found.first_number);
    for (kept, expires_ms) in &found.waiting {
        let topic = topics.of_event(&kept.event);
        let left = time_left(*expires_ms, wall, events.bounds.max_age);
        events.restore(&topic, Arc::clone(kept), left, now);
    }
    for last in &found.open {
        let end = Event {
            step: EventStep::End(EndReason::Restart),
            ended: Some(wall),
            description: None,
            crossing: None,
            ..last.event.clone()
        };
        let topic = topics.of_event(&end);
        events.push(
            &topic,
            end,
            last.epoch.filter(|_| topics.fleet().is_some()),
            now,
        );
    }
}

#[cfg(test)]
#[path = "restart_tests.rs"]
mod restart_tests;
