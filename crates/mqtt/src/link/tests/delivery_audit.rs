//! Compares the events that a node published with those that a consumer received: none is missing, none has two ids.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{
    super::rig::{Consumer, PATIENCE},
    mqtt, online, publish_states, quick,
};
use crate::{
    Publisher,
    link::ConnectionTiming,
    testing::{camera, event, happened},
};
use spotter_config::SpoolConfig;
use spotter_core::{Clock as _, Event, EventStep, SystemClock, TrackId};
use spotter_state::{OpenedEvents, StateStore};

const EVENTS: &str = "spotter/edge1/cam/+/event/+";

/// A node that publishes its states and events of one track after the other, and a consumer of the events whose session survives the broker.
pub(super) struct DeliveryAudit {
    pub(super) publisher: Publisher,
    clock: Arc<SystemClock>,
    /// The state directory with the event log.
    _state: tempfile::TempDir,
    consumer: Consumer,
    /// Number of the first track that the consumer can receive.
    first: u64,
    /// Number of the last track.
    published: u64,
    /// Tracks in the order of their first message.
    received: Vec<String>,
    /// Tracks by the ids of their messages.
    by_id: HashMap<String, String>,
}

impl DeliveryAudit {
    /// Returns when the node is online and the consumer, with MQTT `5` or `311`, receives its events.
    pub(super) async fn open(port: u16, protocol: &str) -> Self {
        let state = tempfile::tempdir().unwrap();
        let clock = Arc::new(SystemClock::new());
        let mut settings = mqtt(port);
        settings.spool = SpoolConfig {
            events: 1000,
            max_age: Duration::from_secs(3600),
            max_mb: 1,
        };
        let store = StateStore::open(state.path(), clock.clone()).unwrap();
        let events = OpenedEvents::of(&store);
        let (publisher, _) = Publisher::start_on(quick(&settings), &events, clock.clone());
        let mut audit = Self {
            publisher,
            clock,
            _state: state,
            consumer: Consumer::persistent(port, EVENTS, protocol),
            first: 1,
            published: 0,
            received: Vec::new(),
            by_id: HashMap::new(),
        };
        publish_states(&audit.publisher);
        online(&audit.publisher).await;
        // The subscription exists when an event arrives. The broker may be killed only when it has no other to deliver: it writes an event
        // to its disk shortly after it has acknowledged it.
        while audit.received.is_empty() {
            audit.publish_event();
            sleep(Duration::from_millis(200)).await;
            while let Some(message) = audit.consumer.received_already() {
                audit.record(&message.payload);
            }
        }
        let is_received = |number: &u64| audit.received.contains(&track(*number));
        audit.first = (1..=audit.published).find(is_received).unwrap();
        audit.receive_all().await;
        audit
    }

    pub(super) fn publish_event(&mut self) {
        self.published += 1;
        let now = self.clock.wall();
        let event = Event {
            started: now,
            last_seen: now,
            ..event("gate", self.published, EventStep::New)
        };
        self.publisher.publish(happened(event));
    }

    pub(super) fn publish_events(&mut self, number: usize) {
        (0..number).for_each(|_| self.publish_event());
    }

    /// True in one of the longest pauses. They vary by a fifth, and the pause before the first of them is half as long.
    pub(super) fn rests_longest(&self) -> bool {
        let longest = ConnectionTiming::quick().backoff_max;
        let retry_at = self.publisher.state().borrow().retry_at();
        retry_at.is_some_and(|at| at.since(self.clock.now()) > longest.mul_f64(0.7))
    }

    /// Waits for the connection, publishes one more event and receives all.
    pub(super) async fn reconnect(&mut self) {
        online(&self.publisher).await;
        self.publish_event();
        self.receive_all().await;
    }

    /// Waits for every event that was published.
    pub(super) async fn receive_all(&mut self) {
        while self.received.len() < self.expected().len() {
            let Ok(message) = timeout(PATIENCE / 2, self.consumer.next()).await else {
                let (waiting, counters) = (self.publisher.spool_msgs(), self.publisher.counters());
                let mut missing = self.expected();
                missing.retain(|track| !self.received.contains(track));
                panic!("{missing:?} are missing; {waiting} wait, {counters:?}");
            };
            self.record(&message.payload);
        }
    }

    /// The consumer received every event since its first, in the order of publishing.
    pub(super) fn check(&self) {
        assert_eq!(self.received, self.expected());
    }

    fn expected(&self) -> Vec<String> {
        (self.first..=self.published).map(track).collect()
    }

    /// A repeated message has the same id and the same track.
    fn record(&mut self, message: &str) {
        let json: serde_json::Value = serde_json::from_str(message).unwrap();
        let text = |key: &str| json[key].as_str().unwrap().to_owned();
        let (id, track) = (text("id"), text("event"));
        match self.by_id.insert(id, track.clone()) {
            None => self.received.push(track),
            Some(before) => assert_eq!(before, track, "{json}"),
        }
    }
}

fn track(number: u64) -> String {
    let track = TrackId::new("b7c1", &camera("gate"), number);
    track.as_str().to_owned()
}
