//! Compares the events that a node published with those that a consumer received: none is missing, none has two ids.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::sleep;

use super::{super::rig::PersistentConsumer, away, mqtt, online, quick};
use crate::{
    Publisher,
    contract::event::tests::event,
    link::ConnectionTiming,
    testing::{camera, happened},
};
use spotter_config::SpoolConfig;
use spotter_core::{Clock, Event, EventStep, Mono, SystemClock, TrackId, WallTime};
use spotter_state::{OpenedEvents, StateStore};

const EVENTS: &str = "spotter/edge1/cam/+/event/+";

/// The machine's clock, which a test can set forward.
struct AdjustableClock {
    machine: SystemClock,
    ahead: Mutex<Duration>,
}

impl Clock for AdjustableClock {
    fn now(&self) -> Mono {
        self.machine.now().after(*self.ahead.lock().unwrap())
    }

    fn wall(&self) -> WallTime {
        self.machine.wall()
    }
}

/// A node that publishes events of one track after the other, and a consumer whose session survives the broker.
pub(super) struct DeliveryAudit {
    publisher: Publisher,
    clock: Arc<AdjustableClock>,
    /// The state directory with the event log.
    _state: tempfile::TempDir,
    consumer: PersistentConsumer,
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
        let clock = Arc::new(AdjustableClock {
            machine: SystemClock::new(),
            ahead: Mutex::default(),
        });
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
            consumer: PersistentConsumer::on(port, EVENTS, protocol),
            published: 0,
            received: Vec::new(),
            by_id: HashMap::new(),
        };
        audit.online().await;
        // The subscription exists when an event arrives.
        while audit.received.is_empty() {
            audit.publish_event();
            sleep(Duration::from_millis(200)).await;
            while let Some(message) = audit.consumer.received_already() {
                audit.record(&message.payload);
            }
        }
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

    /// Waits until the node reports that the broker is unavailable for this reason.
    pub(super) async fn away(&self, why: &str) {
        away(&self.publisher, why).await;
    }

    /// True in one of the longest pauses. They vary by a fifth, and the pause before the first of them is half as long.
    pub(super) fn rests_longest(&self) -> bool {
        let longest = ConnectionTiming::quick().backoff_max;
        self.pause_left() > longest.mul_f64(0.7)
    }

    fn pause_left(&self) -> Duration {
        let state = self.publisher.state();
        let retry_at = state.borrow().retry_at();
        retry_at.map_or(Duration::ZERO, |at| at.since(self.clock.now()))
    }

    /// Ends the pause before the next attempt.
    pub(super) fn end_pause(&self) {
        let left = self.pause_left();
        *self.clock.ahead.lock().unwrap() += left;
    }

    pub(super) async fn online(&self) {
        online(&self.publisher).await;
    }

    /// Waits for the connection, publishes one more event and receives all.
    pub(super) async fn reconnect(&mut self) {
        self.online().await;
        self.publish_event();
        self.receive_all().await;
    }

    /// Waits for the last event that was published.
    pub(super) async fn receive_all(&mut self) {
        let last = self.track(self.published);
        while self.received.last() != Some(&last) {
            let message = self.consumer.next().await;
            self.record(&message.payload);
        }
    }

    /// The consumer received every event since its first, in the order of publishing.
    pub(super) fn check(&self) {
        let of_first = |number: &u64| self.received.first() == Some(&self.track(*number));
        let first = (1..=self.published).find(of_first).unwrap();
        let published: Vec<String> = (first..=self.published).map(|n| self.track(n)).collect();
        assert_eq!(self.received, published);
    }

    fn track(&self, number: u64) -> String {
        TrackId::new("b7c1", &camera("gate"), number)
            .as_str()
            .to_owned()
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
