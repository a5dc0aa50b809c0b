//! What a node told beside what a consumer got: nothing is missing, and nothing came under two ids.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::time::{sleep, timeout};

use super::{super::rig::Faithful, away, identity, ids, mqtt};
use crate::{
    BrokerState, Publisher, Update, broker::ConnectionTiming, event::tests::event,
    publisher::PublisherOptions,
};
use spotter_core::{
    Clock, Event, EventStep, Mono, SystemClock, TrackId, WallTime, config::SpoolConfig,
};

pub(super) const EVENTS: &str = "spotter/edge1/cam/+/event/+";
/// The longest rest between two tries, with its spread, and what a busy machine needs.
const BACK: Duration = Duration::from_secs(72 + 20);

/// The machine's clock, which can be put forward.
struct Hurried {
    machine: SystemClock,
    ahead: Mutex<Duration>,
}

impl Clock for Hurried {
    fn now(&self) -> Mono {
        self.machine.now().after(*self.ahead.lock().unwrap())
    }

    fn wall(&self) -> WallTime {
        self.machine.wall()
    }
}

/// A node that tells of one thing after the other, and a consumer that outlives its broker.
pub(super) struct Books {
    publisher: Publisher,
    clock: Arc<Hurried>,
    /// Where the node keeps what is waiting.
    _state: tempfile::TempDir,
    consumer: Faithful,
    /// The number of the last thing.
    told: u64,
    /// The things that came, in order, by the ids of their messages.
    came: Vec<String>,
    by_id: HashMap<String, String>,
}

impl Books {
    /// The node is online and the consumer hears it.
    pub(super) async fn open(port: u16, consumer: Faithful) -> Self {
        let state = tempfile::tempdir().unwrap();
        let clock = Arc::new(Hurried {
            machine: SystemClock::new(),
            ahead: Mutex::default(),
        });
        let mut settings = mqtt(port);
        settings.spool = SpoolConfig {
            events: 1000,
            max_age: Duration::from_secs(3600),
            max_mb: 1,
        };
        let options = PublisherOptions {
            mqtt: &settings,
            state_dir: Some(state.path()),
            identity: &identity(),
            clock: clock.clone(),
            timing: ConnectionTiming::quick(),
        };
        let (publisher, _) = Publisher::start_with(options).unwrap();
        let mut books = Self {
            publisher,
            clock,
            _state: state,
            consumer,
            told: 0,
            came: Vec::new(),
            by_id: HashMap::new(),
        };
        books.online().await;
        // Its session stands when something of it comes.
        while books.came.is_empty() {
            books.tell();
            sleep(Duration::from_millis(200)).await;
            while let Some(message) = books.consumer.heard_already() {
                books.enter(&message);
            }
        }
        books
    }

    pub(super) fn tell(&mut self) {
        self.told += 1;
        let now = self.clock.wall();
        let event = Event {
            started: now,
            last_seen: now,
            ..event("gate", self.told, EventStep::New)
        };
        self.publisher.publish(Update::Event(Box::new(event)));
    }

    /// Waits until the node knows that its broker is away, for this reason.
    pub(super) async fn away(&self, why: &str) {
        away(&self.publisher, why).await;
    }

    /// True in a pause that is longer than all before the longest: the longest is a fifth longer or shorter by chance.
    pub(super) fn rests_longest(&self) -> bool {
        let longest = ConnectionTiming::quick().retry.backoff_max;
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
        let mut state = self.publisher.state();
        let online = timeout(BACK, state.wait_for(BrokerState::is_online)).await;
        let is_online = online.is_ok();
        assert!(is_online, "{:?}", self.publisher.state().borrow());
    }

    /// Waits for the connection, and until all has come that was told, also since.
    pub(super) async fn comes_back(&mut self) {
        self.online().await;
        self.tell();
        self.all_came().await;
    }

    /// Waits for what was told last.
    pub(super) async fn all_came(&mut self) {
        let last = self.thing(self.told);
        while self.came.last() != Some(&last) {
            let message = self.consumer.next().await;
            self.enter(&message);
        }
    }

    /// Everything came since the consumer was there, in the order in which it was told, and under one id each.
    pub(super) fn balance(&self) {
        let of_first = |number: &u64| self.came.first() == Some(&self.thing(*number));
        let first = (1..=self.told).find(of_first).unwrap();
        let told: Vec<String> = (first..=self.told).map(|n| self.thing(n)).collect();
        assert_eq!(self.came, told);
    }

    fn thing(&self, number: u64) -> String {
        TrackId::new("b7c1", &ids().0, number).as_str().to_owned()
    }

    /// A message that comes once more has the id that it had, and is about the same.
    fn enter(&mut self, message: &str) {
        let json: serde_json::Value = serde_json::from_str(message).unwrap();
        let text = |key: &str| json[key].as_str().unwrap().to_owned();
        let (id, thing) = (text("id"), text("event"));
        match self.by_id.insert(id, thing.clone()) {
            None => self.came.push(thing),
            Some(before) => assert_eq!(before, thing, "{json}"),
        }
    }
}
