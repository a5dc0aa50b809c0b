//! Messages of a fleet's cameras: which are sent, wait and are dropped when owners change.
//!
//! Faults: F16.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::{
    tests::{drain, json, ms, outbox_on, status, text, ticket, topics_of},
    *,
};
use crate::{
    CameraHealth,
    publisher::queue_found,
    testing::{
        TestRights, camera, count, detected, event, fleet_topics, happened, health_of, identity,
    },
};
use spotter_core::{EndReason, Epoch, ManualClock, WebhookId};
use spotter_state::{EventReceiver, LoggedEvent, OfferEvent, OpenedEvents, testing::MemoryLog};

const OWNER: &str = "spotter/hall/cam/gate/owner";
const COUNT: &str = "spotter/hall/cam/gate/count/person";
const EVENT: &str = "spotter/hall/cam/gate/event/person";

/// An outbox of the fleet and what it may send.
struct FleetOutbox {
    outbox: Outbox,
    rights: Arc<TestRights>,
}

impl FleetOutbox {
    fn new() -> Self {
        Self::on(EventLog::default())
    }

    fn on(log: EventLog) -> Self {
        let rights = Arc::new(TestRights::default());
        let outbox = outbox_on(log, 7).in_fleet(Arc::clone(&rights) as Arc<dyn CameraRights>);
        Self { outbox, rights }
    }

    /// Owns `gate` with epoch 17, without a connection.
    fn owning() -> Self {
        let mut this = Self::new();
        this.own(17, ms(0));
        this
    }

    fn own(&mut self, epoch: u64, now: Mono) {
        self.rights.grant(&camera("gate"), epoch);
        self.publish_owner(true, now);
    }

    fn publish_owner(&mut self, is_own: bool, now: Mono) {
        let node = is_own.then(|| identity().node);
        let camera = camera("gate");
        self.push(Update::Owner { camera, node }, now);
    }

    fn push(&mut self, update: Update, now: Mono) {
        self.outbox.publish(&fleet_topics(), update, now);
    }

    fn begins(&mut self, track: u64, now: Mono) {
        self.push(happened(event("gate", track, EventStep::New)), now);
    }

    /// On a connection that has read the owners for longer than needed.
    fn connected(&mut self) {
        self.outbox.connected();
        self.outbox.gate.owners_answered(Mono::default());
    }

    /// Takes and acknowledges everything that is due.
    fn deliver(&mut self, now: Mono) -> Vec<Outgoing> {
        let mut all = Vec::new();
        while let Some(sent) = self.outbox.take(now) {
            if let Some(ticket) = sent.delivery.ticket {
                self.outbox.acked(ticket, now);
            }
            all.push(sent);
        }
        all
    }
}

fn tracks(sent: &[Outgoing]) -> Vec<String> {
    let events = sent.iter().filter(|sent| sent.topic == EVENT);
    let name = |sent| {
        let json = json(sent);
        format!("{} {}", json["event"].as_str().unwrap(), json["reason"])
    };
    events.map(name).collect()
}

#[test]
fn owner_comes_first_and_every_message_has_its_epoch() {
    let mut fleet = FleetOutbox::owning();
    fleet.push(count(2), ms(1));
    fleet.push(health_of(CameraHealth::default()), ms(1));
    fleet.begins(1, ms(1));
    fleet.outbox.push(status(true), ms(1));
    for _ in 0..2 {
        fleet.connected();
        fleet.push(detected("gate"), ms(600));
        let sent = drain(&mut fleet.outbox, ms(600));
        let names: Vec<_> = topics_of(&sent)
            .into_iter()
            .map(|topic| topic.rsplit("gate/").next().unwrap())
            .collect();
        let expected = [
            "owner",
            "count/person",
            "health",
            "spotter/edge1/status",
            "event/person",
            "det/person",
        ];
        assert_eq!(names, expected);
        let epochs: Vec<_> = sent.iter().map(|sent| sent.delivery.epoch).collect();
        let of_camera = Some(Epoch(17));
        assert_eq!(epochs[..3], [of_camera; 3]);
        assert_eq!(epochs[3..], [None, of_camera, of_camera]);
        assert_eq!(text(&sent[0]), r#"{"epoch":17,"node":"edge1","v":1}"#);
        assert!(json(&sent[2])["epoch"] == 17 && json(&sent[4])["epoch"] == 17);
        let Body::Detection(_, label) = &sent[5].body else {
            panic!("not a detection")
        };
        assert_eq!(label.epoch, of_camera);
        fleet.outbox.disconnected();
    }
}

#[test]
fn lost_camera_is_silent_and_its_topics_stay() {
    let mut fleet = FleetOutbox::owning();
    fleet.connected();
    fleet.outbox.push(status(true), ms(0));
    fleet.push(count(2), ms(1));
    assert_eq!(fleet.deliver(ms(502)).len(), 3);
    fleet.push(count(3), ms(503));
    fleet.push(detected("gate"), ms(503));
    let in_flight = fleet.outbox.take(ms(503)).unwrap();
    assert_eq!(in_flight.topic, COUNT);

    fleet.rights.silence(&camera("gate"), 18);
    fleet.push(count(4), ms(505));
    fleet.begins(1, ms(505));
    assert!(fleet.outbox.take(ms(505)).is_none() && !fleet.outbox.is_settled(ms(505)));
    fleet.outbox.acked(ticket(&in_flight), ms(506));
    assert!(fleet.outbox.is_settled(ms(506)));
    fleet.outbox.disconnected();
    fleet.connected();
    let again = drain(&mut fleet.outbox, ms(507));
    assert_eq!(topics_of(&again), ["spotter/edge1/status"]);
    assert!(!fleet.outbox.has_waiting(&camera("gate")));
    // The detection that waited, and two updates.
    let counters = fleet.outbox.counters();
    assert_eq!((counters.not_owned, counters.dropped()), (3, 0));
}

#[test]
fn silent_camera_waits_and_delays_no_other() {
    let mut fleet = FleetOutbox::owning();
    fleet.rights.grant(&camera("yard"), 5);
    fleet.push(count(2), ms(1));
    fleet.begins(1, ms(1));
    fleet.push(happened(event("yard", 2, EventStep::New)), ms(2));
    fleet.rights.silence(&camera("gate"), 17);
    fleet.connected();
    let sent = fleet.deliver(ms(2000));
    assert_eq!(topics_of(&sent), ["spotter/hall/cam/yard/event/person"]);
    assert!(fleet.outbox.has_waiting(&camera("gate")));
    fleet.rights.grant(&camera("gate"), 17);
    let sent = fleet.deliver(ms(3000));
    assert_eq!(topics_of(&sent), [OWNER, COUNT, EVENT]);
}

#[test]
fn event_in_flight_is_not_sent_again_after_a_loss() {
    for answer in ["acknowledged", "failed", "declined", "disconnected"] {
        let mut fleet = FleetOutbox::owning();
        fleet.connected();
        fleet.begins(1, ms(500));
        let sent = drain(&mut fleet.outbox, ms(500));
        assert_eq!(topics_of(&sent), [OWNER, EVENT]);
        fleet.rights.silence(&camera("gate"), 18);
        let ticket = ticket(&sent[1]);
        match answer {
            "acknowledged" => fleet.outbox.acked(ticket, ms(700)),
            "failed" => fleet.outbox.failed(ticket),
            "declined" => fleet.outbox.declined(ticket, ms(700)),
            _ => fleet.outbox.disconnected(),
        }
        fleet.connected();
        assert!(fleet.deliver(ms(99_000)).is_empty(), "{answer}");
        let lost = u64::from(answer != "acknowledged");
        let counters = fleet.outbox.counters();
        assert_eq!(counters.events_of_older_epoch, lost, "{answer}");
        assert_eq!(fleet.outbox.events.len(), 0);
    }
}

// Faults: F6.
#[test]
fn connection_begins_with_the_owners_of_the_broker() {
    for newer in [None, Some(16), Some(18)] {
        let mut fleet = FleetOutbox::owning();
        fleet.push(count(2), ms(1));
        fleet.begins(1, ms(1));
        fleet.outbox.push(status(true), ms(1));
        fleet.outbox.connected();
        let sent = fleet.deliver(ms(2000));
        assert_eq!(topics_of(&sent), ["spotter/edge1/status"], "not of cameras");
        assert!(!fleet.outbox.is_settled(ms(2000)));
        let gate = &mut fleet.outbox.gate;
        gate.owners_answered(ms(2100));
        if let Some(epoch) = newer {
            gate.owner_arrived(&camera("gate"), Epoch(epoch), ms(2200));
        } else {
            assert_eq!(fleet.outbox.next_at(ms(2200)), Some(ms(2600)));
        }
        assert!(fleet.deliver(ms(2599)).is_empty());
        let sent = fleet.deliver(ms(2700));
        let expected: &[&str] = match newer {
            Some(18) => &[],
            _ => &[OWNER, COUNT, EVENT],
        };
        assert_eq!(topics_of(&sent), expected);
    }
}

#[test]
fn released_camera_has_one_last_message() {
    let mut fleet = FleetOutbox::owning();
    fleet.connected();
    fleet.push(count(1), ms(1));
    assert_eq!(fleet.deliver(ms(500)).len(), 2);
    // This node has written that no node is the owner, with epoch 18.
    fleet.rights.grant(&camera("gate"), 18);
    fleet.publish_owner(false, ms(501));
    let sent = fleet.deliver(ms(501));
    let texts: Vec<_> = sent.iter().map(text).collect();
    assert_eq!(texts, [r#"{"epoch":18,"node":null,"v":1}"#]);
    fleet.outbox.disconnected();
    fleet.connected();
    assert!(fleet.deliver(ms(600)).is_empty(), "not sent again");
}

// Faults: W7.
#[test]
fn webhook_gets_owned_events_without_a_broker_and_in_order() {
    let log = EventLog::default();
    let mut fleet = FleetOutbox::on(log.clone());
    let (sender, events) = std::sync::mpsc::channel();
    let offer: OfferEvent =
        Arc::new(move |logged: &Arc<LoggedEvent>| sender.send(Arc::clone(logged)).is_ok());
    let door = EventReceiver::webhook(&WebhookId::new("door").unwrap());
    log.set_webhooks(BTreeMap::from([(door, offer)]));
    fleet.own(17, ms(0));
    fleet.begins(1, ms(1));
    fleet.begins(2, ms(2));
    fleet.rights.silence(&camera("gate"), 18);
    fleet.begins(3, ms(3));
    fleet.connected();
    fleet.deliver(ms(700));
    let got = events.try_iter().map(|logged| logged.track.to_string());
    assert_eq!(
        got.collect::<Vec<_>>(),
        ["b7c1-gate-1", "b7c1-gate-2"],
        "each once"
    );
}

/// A run of the process with its disk.
struct Run<'a> {
    fleet: FleetOutbox,
    log: EventLog,
    disk: &'a mut MemoryLog,
}

impl<'a> Run<'a> {
    fn start(disk: &'a mut MemoryLog) -> Self {
        let OpenedEvents { log, found } = disk.open();
        let mut fleet = FleetOutbox::on(log.clone());
        let clock = ManualClock::default();
        queue_found(&found, &fleet_topics(), &mut fleet.outbox, &clock);
        Self { fleet, log, disk }
    }

    /// Writes to the disk and ends without a clean stop.
    fn kill(self) {
        self.disk.write(&self.log);
    }
}

#[test]
fn events_of_an_earlier_run_wait_for_their_owner() {
    let own = [
        "b7c1-gate-1 \"left\"",
        "b7c1-gate-2 \"first_seen\"",
        "b7c1-gate-2 \"restart\"",
    ];
    for (now_known, is_ours) in [("own 17", true), ("own 19", false), ("lost to 18", false)] {
        let mut disk = MemoryLog::default();
        let mut run = Run::start(&mut disk);
        run.fleet.own(17, ms(0));
        let end = EventStep::End(EndReason::Left);
        run.fleet.push(happened(event("gate", 1, end)), ms(1));
        run.fleet.begins(2, ms(1));
        run.kill();

        let mut run = Run::start(&mut disk);
        run.fleet.connected();
        assert!(run.fleet.deliver(ms(60_000)).is_empty(), "not known yet");
        match now_known {
            "own 17" => run.fleet.own(17, ms(60_000)),
            "own 19" => run.fleet.own(19, ms(60_000)),
            _ => run.fleet.rights.silence(&camera("gate"), 18),
        }
        let sent = run.fleet.deliver(ms(60_000));
        let expected: &[&str] = if is_ours { &own } else { &[] };
        assert_eq!(tracks(&sent), expected, "{now_known}");
        let older = if is_ours { 0 } else { 3 };
        let counters = run.fleet.outbox.counters();
        assert_eq!(counters.events_of_older_epoch, older, "{now_known}");
        run.kill();
        // Nothing is left for the next run.
        let mut next = Run::start(&mut disk);
        next.fleet.connected();
        next.fleet.own(20, ms(600));
        assert_eq!(topics_of(&next.fleet.deliver(ms(600))), [OWNER]);
    }
}

#[test]
fn track_of_a_lost_camera_has_no_restart_end() {
    let mut disk = MemoryLog::default();
    let mut run = Run::start(&mut disk);
    run.fleet.own(17, ms(0));
    run.fleet.begins(1, ms(1));
    run.fleet.connected();
    assert_eq!(run.fleet.deliver(ms(600)).len(), 2);
    run.fleet.rights.silence(&camera("gate"), 18);
    let end = happened(event("gate", 1, EventStep::End(EndReason::Disabled)));
    run.fleet.push(end, ms(700));
    run.kill();
    assert!(disk.open().found.events.is_empty());
}

/// One step of the property test; the camera is `gate`.
#[derive(Clone, Copy, Debug)]
enum FleetAction {
    /// With an epoch that is newer by this number.
    Own(u64),
    /// Another node is the owner.
    Lose,
    /// Silent without a newer owner: handing over, or not known yet.
    Pause,
    Count(u32),
    Event,
    Connect,
    Disconnect,
    Answer,
    Wait {
        ms: u64,
    },
    Take,
    Acknowledge,
    Fail,
}

fn action() -> impl Strategy<Value = FleetAction> {
    use FleetAction as A;
    prop_oneof![
        2 => (0u64..2).prop_map(A::Own),
        1 => Just(A::Lose),
        1 => Just(A::Pause),
        4 => (0u32..5).prop_map(A::Count),
        4 => Just(A::Event),
        1 => Just(A::Connect),
        1 => Just(A::Disconnect),
        3 => Just(A::Answer),
        4 => (0u64..1500).prop_map(|ms| A::Wait { ms }),
        9 => Just(A::Take),
        5 => Just(A::Acknowledge),
        1 => Just(A::Fail),
    ]
}

/// What a message may say, from the order of the actions alone.
#[derive(Default)]
struct FleetModel {
    now: Mono,
    /// Newest epoch of anyone.
    newest: u64,
    is_owner: bool,
    answered_at: Option<Mono>,
    events: u64,
    unacked: VecDeque<Ticket>,
}

impl FleetModel {
    fn act(&mut self, action: FleetAction, fleet: &mut FleetOutbox) -> Result<(), TestCaseError> {
        let (gate, now) = (camera("gate"), self.now);
        match action {
            FleetAction::Own(by) => {
                self.newest += by;
                self.is_owner = true;
                fleet.own(self.newest, now);
            }
            FleetAction::Lose | FleetAction::Pause => {
                self.newest += u64::from(matches!(action, FleetAction::Lose));
                self.is_owner = false;
                fleet.rights.silence(&gate, self.newest);
            }
            FleetAction::Count(number) => fleet.push(count(number), now),
            FleetAction::Event => {
                self.events += 1;
                fleet.begins(self.events, now);
            }
            FleetAction::Connect | FleetAction::Disconnect => {
                fleet.outbox.disconnected();
                self.unacked.clear();
                self.answered_at = None;
                if matches!(action, FleetAction::Connect) {
                    fleet.outbox.connected();
                }
            }
            FleetAction::Answer => {
                fleet.outbox.gate.owners_answered(now);
                self.answered_at.get_or_insert(now);
            }
            FleetAction::Wait { ms } => self.now = now.after(Duration::from_millis(ms)),
            FleetAction::Take => {
                if let Some(sent) = fleet.outbox.take(now) {
                    self.check(&sent)?;
                    self.unacked.extend(sent.delivery.ticket);
                }
            }
            FleetAction::Acknowledge => {
                if let Some(ticket) = self.unacked.pop_front() {
                    fleet.outbox.acked(ticket, now);
                }
            }
            FleetAction::Fail => {
                if let Some(ticket) = self.unacked.pop_front() {
                    fleet.outbox.failed(ticket);
                }
            }
        }
        Ok(())
    }

    /// The owner alone sends, with its epoch, after the owners of the broker were read.
    fn check(&self, sent: &Outgoing) -> Result<(), TestCaseError> {
        let quiet = Duration::from_millis(500);
        let is_read = self
            .answered_at
            .is_some_and(|at| self.now.since(at) >= quiet);
        prop_assert!(self.is_owner && is_read, "{}", sent.topic);
        prop_assert_eq!(sent.delivery.epoch, Some(Epoch(self.newest)));
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(256)))]

    // Faults: F6.
    #[test]
    fn nothing_of_an_older_epoch_is_sent(actions in prop::collection::vec(action(), 1..200)) {
        let mut fleet = FleetOutbox::new();
        let mut model = FleetModel { newest: 17, ..FleetModel::default() };
        for action in actions {
            model.act(action, &mut fleet)?;
        }
        // The next ownership is published whole.
        model.newest += 1;
        let now = model.now;
        fleet.outbox.disconnected();
        fleet.outbox.connected();
        fleet.outbox.gate.owners_answered(now);
        fleet.own(model.newest, now);
        fleet.push(count(7), now);
        let mut states = BTreeMap::new();
        for second in 1..=60 {
            let now = now.after(Duration::from_secs(second));
            for sent in fleet.deliver(now) {
                if sent.delivery.retained {
                    states.insert(sent.topic.clone(), text(&sent).to_owned());
                }
            }
        }
        let owner = format!(r#"{{"epoch":{},"node":"edge1","v":1}}"#, model.newest);
        let expected = [(OWNER.to_owned(), owner), (COUNT.to_owned(), "7".to_owned())];
        prop_assert_eq!(states, BTreeMap::from(expected));
        let later = now.after(Duration::from_secs(60));
        prop_assert!(!fleet.outbox.has_waiting(&camera("gate")) && fleet.outbox.is_settled(later));
    }
}
