//! A thousand outages and kills between the outbox and a model broker: no event is lost, none has two ids, and the order of
//! every topic is kept.
//!
//! Faults: B7.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use rand::RngExt;
use rand_pcg::Pcg32;

use super::{
    tests::{json, outbox_on},
    *,
};
use crate::{
    publisher::queue_found,
    testing::{event, happened, topics},
};
use spotter_core::{Clock, EndReason, EventStep, ManualClock, UpdateReason, WallTime};
use spotter_state::{OpenedEvents, testing::MemoryLog};

const OUTAGES: usize = 1000;
const CAMERAS: [&str; 3] = ["dock", "gate", "yard"];

/// Track and look count of a published event.
type PublishedStep = (String, String);

/// One run of the process.
struct Process {
    outbox: Outbox,
    log: EventLog,
}

/// What the broker received, and what it must receive.
struct OutageModel {
    random: Pcg32,
    clock: ManualClock,
    disk: MemoryLog,
    process: Process,
    lives: u64,
    /// The broker considers the connection open.
    reached: bool,
    unacked: VecDeque<Ticket>,
    things: u64,
    open: Vec<(usize, u64)>,
    /// The steps that the disk or the broker has accepted, by topic and in order.
    owed: BTreeMap<String, Vec<PublishedStep>>,
    /// The steps that the broker received, by topic, in the order of their first arrival.
    heard: BTreeMap<String, Vec<PublishedStep>>,
    ids: BTreeMap<PublishedStep, BTreeSet<String>>,
    copies: usize,
}

fn start(disk: &mut MemoryLog, clock: &ManualClock, life: u64) -> Process {
    let OpenedEvents { log, found } = disk.open();
    let mut outbox = outbox_on(log.clone(), life);
    queue_found(&found, &topics(), &mut outbox, clock);
    Process { outbox, log }
}

impl OutageModel {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::at(WallTime::from_unix_millis(1_787_393_730_000));
        let mut disk = MemoryLog::default();
        let process = start(&mut disk, &clock, 0);
        Self {
            random: Pcg32::new(seed, 1),
            clock,
            disk,
            process,
            lives: 0,
            reached: false,
            unacked: VecDeque::new(),
            things: 0,
            open: Vec::new(),
            owed: BTreeMap::new(),
            heard: BTreeMap::new(),
            ids: BTreeMap::new(),
            copies: 0,
        }
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_range(0..100) < percent
    }

    /// A camera has an event. It must be delivered if it reaches the disk.
    fn happens(&mut self) {
        let (camera, number, step) = if !self.open.is_empty() && self.chance(60) {
            let index = self.random.random_range(0..self.open.len());
            let (camera, number) = self.open[index];
            if self.chance(50) {
                self.open.swap_remove(index);
                (camera, number, EventStep::End(EndReason::Left))
            } else {
                (camera, number, EventStep::Update(UpdateReason::Moved))
            }
        } else {
            let camera = self.random.random_range(0..CAMERAS.len());
            self.things += 1;
            self.open.push((camera, self.things));
            (camera, self.things, EventStep::New)
        };
        let mut event = event(CAMERAS[camera], number, step);
        event.looks = self.ids.len() as u64 + self.random.random_range(0..1 << 40);
        let message = Message::from_update(&topics(), happened(event.clone()), None);
        let topic = message.topic.clone();
        self.process.outbox.push(message, self.clock.now());
        if self.write(3) {
            let said = (event.track.to_string(), event.looks.to_string());
            self.owed.entry(topic).or_default().push(said);
        } else {
            self.die();
        }
    }

    /// The state thread writes. False: the process was killed before, which happens to this `percent` of the writes. One that is killed within a
    /// transaction has not written it: the tests of `spotter_state` kill processes at any point.
    fn write(&mut self, percent: u32) -> bool {
        let is_written = !self.chance(percent);
        if is_written {
            self.disk.write(&self.process.log);
        }
        is_written
    }

    /// Kills and restarts the process. Open events end, and the ends must be delivered once written.
    fn die(&mut self) {
        loop {
            self.lives += 1;
            self.reached = false;
            self.unacked.clear();
            self.open.clear();
            self.process = start(&mut self.disk, &self.clock, self.lives);
            if self.write(10) {
                return;
            }
        }
    }

    /// Sends what is due; the broker receives it unless the connection was lost unnoticed.
    fn send(&mut self) {
        let now = self.clock.now();
        while let Some(sent) = self.process.outbox.take(now) {
            let Some(ticket) = sent.delivery.ticket else {
                continue;
            };
            if self.chance(3) {
                self.reached = false;
            }
            if !self.reached {
                continue;
            }
            self.hear(&sent);
            if self.chance(95) {
                self.unacked.push_back(ticket);
            }
        }
    }

    fn acknowledge(&mut self) {
        for _ in 0..self.random.random_range(0..20) {
            let Some(ticket) = self.unacked.pop_front() else {
                return;
            };
            self.process.outbox.acked(ticket, self.clock.now());
        }
    }

    fn connect(&mut self) {
        self.process.outbox.connected();
        self.unacked.clear();
        self.reached = true;
    }

    /// One connection, its end, and the events until the next connection.
    fn outage(&mut self) {
        self.connect();
        for _ in 0..self.random.random_range(0..40) {
            if self.chance(30) {
                self.happens();
            }
            self.send();
            self.acknowledge();
            let ms = self.random.random_range(0..400);
            self.clock.advance(Duration::from_millis(ms));
            if self.chance(2) {
                self.die();
                self.connect();
            }
        }
        self.process.outbox.disconnected();
        self.reached = false;
        for _ in 0..self.random.random_range(0..5) {
            let ms = self.random.random_range(0..60_000);
            self.clock.advance(Duration::from_millis(ms));
            self.happens();
        }
    }

    /// Delivers the rest without faults.
    fn settle(&mut self) {
        for _ in 0..10_000 {
            if self.process.outbox.events.len() == 0 {
                return;
            }
            self.connect();
            for _ in 0..20 {
                let now = self.clock.now();
                while let Some(sent) = self.process.outbox.take(now) {
                    self.hear(&sent);
                    let ticket = sent.delivery.ticket.expect("an event");
                    self.process.outbox.acked(ticket, now);
                }
                self.clock.advance(Duration::from_millis(100));
            }
        }
        let left = self.process.outbox.events.len();
        panic!("{left} events are never delivered");
    }

    /// The broker receives an event.
    fn hear(&mut self, sent: &Outgoing) {
        let json = json(sent);
        let text = |key: &str| json[key].to_string().replace('"', "");
        let mut said = (text("event"), text("frames"));
        if text("reason") == "restart" {
            said.1 = "restart".into();
        }
        let ids = self.ids.entry(said.clone()).or_default();
        if ids.insert(text("id")) {
            self.heard.entry(sent.topic.clone()).or_default().push(said);
        } else {
            self.copies += 1;
        }
    }

    fn check(&self) {
        for (said, ids) in &self.ids {
            assert_eq!(ids.len(), 1, "{said:?} has several ids: {ids:?}");
        }
        for (topic, owed) in &self.owed {
            let owed_set: BTreeSet<&PublishedStep> = owed.iter().collect();
            let mut heard = self.heard.get(topic).cloned().unwrap_or_default();
            heard.retain(|said| owed_set.contains(said));
            assert_eq!(&heard, owed, "{topic}");
        }
    }
}

#[test]
fn outages_lose_no_event_and_keep_the_order() {
    let (mut outages, mut seed) = (0, 0);
    let (mut lives, mut owed, mut copies, mut restarts) = (0, 0, 0, 0);
    while outages < OUTAGES {
        seed += 1;
        let mut world = OutageModel::new(seed);
        for _ in 0..50 {
            world.outage();
        }
        outages += 50;
        world.settle();
        world.check();
        assert_eq!(world.process.outbox.counters().dropped(), 0);
        lives += world.lives;
        copies += world.copies;
        owed += world.owed.values().map(Vec::len).sum::<usize>();
        restarts += world.ids.keys().filter(|said| said.1 == "restart").count();
    }
    println!(
        "{outages} outages, {lives} deaths, {owed} events, {restarts} ended by a restart, {copies} copies of known ids"
    );
    // There were enough faults of each kind.
    assert!(lives > 100 && owed > 5000 && restarts > 100 && copies > 100);
}
