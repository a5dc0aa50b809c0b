//! Messages of a fleet's cameras: which are sent, held and discarded when owners change.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::{
    tests::{drain, json, ms, outbox, status, text, ticket, topics_of},
    *,
};
use crate::fence::OwnerArrival;
use crate::{
    CameraHealth,
    discovery::{self, tests::SITE},
    event::tests::event,
    event_feed::{EventFeed, PublishedEvent, take_reader},
    publisher::queue_found,
    spool::{Journal, memory::MemoryDisk},
    testing::{camera, count, detected, fleet_topics, happened, health_of, identity},
};
use spotter_core::{EndReason, ManualClock};

const OWNER: &str = "spotter/hall/cam/gate/owner";
const COUNT: &str = "spotter/hall/cam/gate/count/person";
const EVENT: &str = "spotter/hall/cam/gate/event/person";

fn push(outbox: &mut Outbox, update: Update, now: Mono) {
    outbox.push_of_fleet(&fleet_topics(), update, now);
}

fn begins(outbox: &mut Outbox, track: u64, now: Mono) {
    push(outbox, happened(event("gate", track, EventStep::New)), now);
}

fn owner(epoch: u64, node: bool) -> (CameraStamp, Message) {
    let (camera, epoch) = (camera("gate"), Epoch(epoch));
    let stamp = CameraStamp { camera, epoch };
    let node = node.then(|| identity().node);
    (stamp.clone(), Message::owner(&fleet_topics(), stamp, node))
}

fn own(outbox: &mut Outbox, epoch: u64, now: Mono) -> bool {
    let (stamp, owner) = owner(epoch, true);
    outbox.own(&stamp, owner, now)
}

/// Owns `gate` with epoch 17, certain for a second, without a connection.
fn owning() -> Outbox {
    let mut outbox = outbox();
    outbox.fence.confirm(ms(1000), ms(0));
    assert!(own(&mut outbox, 17, ms(0)));
    outbox
}

/// Takes and acknowledges everything that is due.
fn deliver(outbox: &mut Outbox, now: Mono) -> Vec<Outgoing> {
    let mut all = Vec::new();
    while let Some(sent) = outbox.take(now) {
        if let Some(ticket) = sent.delivery.ticket {
            outbox.acked(ticket, now);
        }
        all.push(sent);
    }
    all
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
    let mut outbox = owning();
    push(&mut outbox, count(2), ms(1));
    push(&mut outbox, health_of(CameraHealth::default()), ms(1));
    begins(&mut outbox, 1, ms(1));
    outbox.push(status(true), ms(1));
    for _ in 0..2 {
        outbox.connected();
        push(&mut outbox, detected("gate"), ms(2));
        let sent = drain(&mut outbox, ms(2));
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
        assert_eq!(text(&sent[0]), r#"{"v":1,"node":"edge1","epoch":17}"#);
        assert!(json(&sent[2])["epoch"] == 17 && json(&sent[4])["epoch"] == 17);
        let Body::Detection(_, label) = &sent[5].body else {
            panic!("not a detection")
        };
        assert_eq!(label.epoch, of_camera);
        outbox.disconnected();
    }
}

#[test]
fn renewed_epoch_repeats_states_and_discards_no_event() {
    let mut outbox = owning();
    push(&mut outbox, count(2), ms(1));
    push(&mut outbox, health_of(CameraHealth::default()), ms(1));
    // Uncertain: an outage of the store and the broker.
    begins(&mut outbox, 1, ms(2000));
    let (stamp, owner) = owner(18, true);
    assert!(outbox.renew(&stamp, owner, ms(3000)));
    outbox.fence.confirm(ms(9000), ms(3000));
    begins(&mut outbox, 2, ms(3000));
    outbox.connected();
    let sent = deliver(&mut outbox, ms(3000));
    let epochs: Vec<_> = sent
        .iter()
        .map(|sent| sent.delivery.epoch.unwrap().0)
        .collect();
    // The next health has the newer epoch.
    assert_eq!(topics_of(&sent), [OWNER, COUNT, EVENT, EVENT]);
    assert_eq!(epochs, [18, 18, 18, 18]);
    assert_eq!(outbox.counters().events_of_older_epoch, 0);
}

#[test]
fn lost_camera_is_silent_and_its_topics_stay() {
    let mut outbox = owning();
    outbox.connected();
    outbox.push(status(true), ms(0));
    push(&mut outbox, count(2), ms(1));
    let config = discovery::tests::config("", SITE);
    for record in discovery::records(&config, &fleet_topics(), false) {
        let of_gate = record.camera == Some(camera("gate"));
        if of_gate {
            push(&mut outbox, Update::Discovery(record), ms(1));
        }
    }
    assert_eq!(deliver(&mut outbox, ms(2)).len(), 4);
    push(&mut outbox, count(3), ms(3));
    push(&mut outbox, detected("gate"), ms(3));
    let in_flight = outbox.take(ms(3)).unwrap();
    assert_eq!(in_flight.topic, COUNT);

    outbox.lose(&camera("gate"), Epoch(18), ms(4));
    push(&mut outbox, count(4), ms(5));
    begins(&mut outbox, 1, ms(5));
    assert!(outbox.take(ms(5)).is_none() && outbox.is_settled());
    outbox.acked(ticket(&in_flight), ms(6));
    outbox.disconnected();
    outbox.connected();
    let again = drain(&mut outbox, ms(7));
    assert_eq!(topics_of(&again), ["spotter/edge1/status"]);
    // The detection that waited, and two updates.
    let counters = outbox.counters();
    assert_eq!((counters.not_owned, counters.dropped()), (3, 0));
    assert!(!own(&mut outbox, 17, ms(8)), "decided before");
}

#[test]
fn uncertain_events_of_older_epoch_are_discarded_certain_ones_delivered() {
    let mut outbox = owning();
    begins(&mut outbox, 1, ms(1000));
    begins(&mut outbox, 2, ms(1001));
    outbox.lose(&camera("gate"), Epoch(18), ms(2000));
    outbox.connected();
    let sent = deliver(&mut outbox, ms(2000));
    assert_eq!(tracks(&sent), ["b7c1-gate-1 \"first_seen\""]);
    assert_eq!(sent[0].delivery.epoch, Some(Epoch(17)));
    let counters = outbox.counters();
    assert_eq!(counters.events_of_older_epoch, 1);
    assert_eq!((counters.dropped(), counters.events_acked), (1, 1));
}

#[test]
fn feed_has_certain_events_first_uncertain_ones_when_decided() {
    for decision in ["broker", "store", "newer owner"] {
        let mut outbox = owning();
        let (feed, reader) = EventFeed::new();
        outbox.events.feed = feed;
        let mut events = take_reader(&reader).unwrap();
        let mut fed = || {
            let events = std::iter::from_fn(|| events.try_recv().ok());
            let track = |event: PublishedEvent| event.event().track.to_string();
            events.map(track).collect::<Vec<_>>()
        };
        begins(&mut outbox, 1, ms(1000));
        assert_eq!(fed(), ["b7c1-gate-1"], "without a broker");
        begins(&mut outbox, 2, ms(1001));
        outbox.fence.confirm(ms(5000), ms(1500));
        begins(&mut outbox, 3, ms(1500));
        assert_eq!(fed(), [""; 0], "in the order of the topic");
        match decision {
            "broker" => {
                outbox.connected();
                deliver(&mut outbox, ms(1600));
                assert_eq!(fed(), ["b7c1-gate-2", "b7c1-gate-3"]);
            }
            "store" => {
                let (stamp, owner) = owner(18, true);
                assert!(outbox.renew(&stamp, owner, ms(1600)));
                assert_eq!(fed(), ["b7c1-gate-2", "b7c1-gate-3"]);
            }
            _ => {
                outbox.lose(&camera("gate"), Epoch(18), ms(1600));
                assert_eq!(fed(), ["b7c1-gate-3"]);
            }
        }
        outbox.connected();
        deliver(&mut outbox, ms(1700));
        assert_eq!(fed(), [""; 0], "each once");
    }
}

#[test]
fn uncertain_event_in_flight_is_not_resent_after_loss() {
    for answer in ["acknowledged", "failed", "declined", "disconnected"] {
        let mut outbox = owning();
        outbox.connected();
        let number = outbox.fence.ask(ms(2000)).unwrap();
        outbox.fence.answered(number, true, ms(2000));
        begins(&mut outbox, 1, ms(2500));
        let sent = drain(&mut outbox, ms(2500));
        assert_eq!(topics_of(&sent), [OWNER, EVENT]);
        outbox.lose(&camera("gate"), Epoch(18), ms(2600));
        let ticket = ticket(&sent[1]);
        match answer {
            "acknowledged" => outbox.acked(ticket, ms(2700)),
            "failed" => outbox.failed(ticket),
            "declined" => outbox.declined(ticket, ms(2700)),
            _ => outbox.disconnected(),
        }
        outbox.connected();
        assert!(deliver(&mut outbox, ms(99_000)).is_empty(), "{answer}");
        let lost = u64::from(answer != "acknowledged");
        assert_eq!(outbox.counters().events_of_older_epoch, lost, "{answer}");
        assert_eq!(outbox.events.len(), 0);
    }
}

#[test]
fn uncertain_camera_is_held_until_the_broker_was_asked() {
    for newer in [None, Some(16), Some(18)] {
        let mut outbox = owning();
        push(&mut outbox, count(2), ms(1));
        begins(&mut outbox, 1, ms(2000));
        outbox.push(status(true), ms(1));
        outbox.connected();
        let sent = deliver(&mut outbox, ms(2000));
        assert_eq!(topics_of(&sent), ["spotter/edge1/status"], "not of cameras");
        let number = outbox.fence.ask(ms(2000)).unwrap();
        outbox.fence.answered(number, true, ms(2100));
        if let Some(epoch) = newer {
            let is_lost = outbox.owner_arrived(&camera("gate"), Epoch(epoch), ms(2200));
            assert_eq!(is_lost == OwnerArrival::Lost, epoch == 18);
        } else {
            assert_eq!(outbox.next_at(ms(2200)), Some(ms(2600)));
        }
        let sent = deliver(&mut outbox, ms(2700));
        let expected: &[&str] = match newer {
            Some(18) => &[],
            _ => &[OWNER, COUNT, EVENT],
        };
        assert_eq!(topics_of(&sent), expected);
        // Certain again, then uncertain again.
        outbox.fence.confirm(ms(4000), ms(3000));
        push(&mut outbox, count(3), ms(4001));
        assert!(outbox.take(ms(4001)).is_none());
    }
}

#[test]
fn handed_over_camera_sends_what_waits_and_is_forgotten() {
    for released in [None, Some(18)] {
        let mut outbox = owning();
        outbox.connected();
        deliver(&mut outbox, ms(0));
        begins(&mut outbox, 1, ms(1));
        let end = EventStep::End(EndReason::Moved);
        push(&mut outbox, happened(event("gate", 1, end)), ms(2));
        let gate = camera("gate");
        outbox.fence.hand_over(&gate);
        push(&mut outbox, count(9), ms(3));
        assert!(outbox.has_waiting(&gate));
        let sent = drain(&mut outbox, ms(3));
        assert_eq!(tracks(&sent).len(), 2);
        assert!(outbox.has_waiting(&gate), "not acknowledged");
        sent.iter()
            .for_each(|sent| outbox.acked(ticket(sent), ms(4)));
        assert!(!outbox.has_waiting(&gate));

        let message = released.map(|epoch| owner(epoch, false).1);
        outbox.handed_over(&gate, message, ms(5));
        let texts: Vec<_> = deliver(&mut outbox, ms(5))
            .iter()
            .map(|sent| text(sent).to_owned())
            .collect();
        let expected = released.map(|_| r#"{"v":1,"node":null,"epoch":18}"#.to_owned());
        assert_eq!(texts, Vec::from_iter(expected));
        outbox.disconnected();
        outbox.connected();
        assert!(outbox.take(ms(6)).is_none(), "not sent again");
    }
}

#[test]
fn release_that_waits_is_dropped_by_a_newer_owner() {
    let mut outbox = owning();
    let gate = camera("gate");
    outbox.handed_over(&gate, Some(owner(18, false).1), ms(5));
    outbox.connected();
    assert!(outbox.take(ms(2000)).is_none(), "uncertain");
    let newer = outbox.owner_arrived(&gate, Epoch(19), ms(2000));
    assert_eq!(newer, OwnerArrival::Lost);
    assert!(deliver(&mut outbox, ms(9000)).is_empty());
}

#[test]
fn events_that_wait_at_a_hand_over_become_certain() {
    let mut outbox = owning();
    begins(&mut outbox, 1, ms(2000));
    outbox.handed_over(&camera("gate"), None, ms(2001));
    outbox.lose(&camera("gate"), Epoch(18), ms(2002));
    outbox.connected();
    assert_eq!(tracks(&deliver(&mut outbox, ms(2003))).len(), 1);
}

/// A run of the process with its disk.
struct Run {
    outbox: Outbox,
    journal: Journal<MemoryDisk>,
    clock: ManualClock,
}

impl Run {
    fn start(disk: &MemoryDisk) -> Self {
        let (journal, found) = Journal::open(disk.clone(), 20_000_000).unwrap();
        let (mut outbox, clock) = (outbox(), ManualClock::default());
        queue_found(&found, &fleet_topics(), &mut outbox, &clock);
        Self {
            outbox,
            journal,
            clock,
        }
    }

    /// Writes to the disk and ends without a clean stop.
    fn kill(mut self) {
        let batch = self.outbox.events.unwritten(ms(0));
        let wall = spotter_core::Clock::wall(&self.clock);
        self.journal.write(&batch, ms(0), wall).unwrap();
    }
}

/// The disk of a run that owned `gate` with epoch 17. Track 1 ended and track 2 began for certain; then track 3 ended and track 4 began.
fn disk() -> MemoryDisk {
    let disk = MemoryDisk::default();
    let mut run = Run::start(&disk);
    run.outbox.fence.confirm(ms(1000), ms(0));
    own(&mut run.outbox, 17, ms(0));
    for (track, step, at) in [
        (1, EventStep::End(EndReason::Left), 1),
        (2, EventStep::New, 1000),
        (3, EventStep::End(EndReason::Left), 1001),
        (4, EventStep::New, 1002),
    ] {
        push(
            &mut run.outbox,
            happened(event("gate", track, step)),
            ms(at),
        );
    }
    run.kill();
    disk
}

const CERTAIN: [&str; 2] = ["b7c1-gate-1 \"left\"", "b7c1-gate-2 \"first_seen\""];

#[test]
fn events_of_an_earlier_run_wait_for_their_owner() {
    let uncertain = [
        "b7c1-gate-3 \"left\"",
        "b7c1-gate-4 \"first_seen\"",
        "b7c1-gate-2 \"restart\"",
        "b7c1-gate-4 \"restart\"",
    ];
    for (now_known, is_ours) in [
        ("own 17", true),
        ("own 19", false),
        ("lose 18", false),
        ("seen 18", false),
    ] {
        let disk = disk();
        let mut run = Run::start(&disk);
        run.outbox.connected();
        assert_eq!(tracks(&deliver(&mut run.outbox, ms(1))), CERTAIN);
        assert!(deliver(&mut run.outbox, ms(60_000)).is_empty(), "held");
        run.outbox.fence.confirm(ms(90_000), ms(60_000));
        let gate = camera("gate");
        match now_known {
            "own 17" => drop(own(&mut run.outbox, 17, ms(60_000))),
            "own 19" => drop(own(&mut run.outbox, 19, ms(60_000))),
            "lose 18" => run.outbox.lose(&gate, Epoch(18), ms(60_000)),
            _ => drop(run.outbox.owner_arrived(&gate, Epoch(18), ms(60_000))),
        }
        let sent = deliver(&mut run.outbox, ms(60_000));
        let expected: &[&str] = if is_ours { &uncertain } else { &[] };
        assert_eq!(tracks(&sent), expected, "{now_known}");
        // Two events and two ends.
        let older = if is_ours { 0 } else { 4 };
        let counters = run.outbox.counters();
        assert_eq!(counters.events_of_older_epoch, older, "{now_known}");
        run.kill();
        // Nothing is left for the next run.
        let mut next = Run::start(&disk);
        next.outbox.connected();
        own(&mut next.outbox, 20, ms(0));
        next.outbox.fence.confirm(ms(90_000), ms(0));
        assert_eq!(topics_of(&deliver(&mut next.outbox, ms(1))), [OWNER]);
    }
}

#[test]
fn certain_event_does_not_overtake_a_held_one() {
    let disk = MemoryDisk::default();
    let mut run = Run::start(&disk);
    own(&mut run.outbox, 17, ms(0));
    begins(&mut run.outbox, 1, ms(0));
    run.outbox.fence.confirm(ms(1000), ms(1));
    let end = happened(event("gate", 1, EventStep::End(EndReason::Left)));
    push(&mut run.outbox, end, ms(2));
    run.kill();

    let mut run = Run::start(&disk);
    run.outbox.connected();
    assert!(deliver(&mut run.outbox, ms(0)).is_empty());
    run.outbox.lose(&camera("gate"), Epoch(18), ms(1));
    let sent = deliver(&mut run.outbox, ms(1));
    assert_eq!(tracks(&sent), ["b7c1-gate-1 \"left\""]);
}

#[test]
fn track_of_a_lost_camera_has_no_restart_end() {
    let disk = MemoryDisk::default();
    let mut run = Run::start(&disk);
    run.outbox.fence.confirm(ms(1000), ms(0));
    own(&mut run.outbox, 17, ms(0));
    begins(&mut run.outbox, 1, ms(1));
    run.outbox.connected();
    assert_eq!(deliver(&mut run.outbox, ms(1)).len(), 2);
    run.outbox.lose(&camera("gate"), Epoch(18), ms(2));
    let end = happened(event("gate", 1, EventStep::End(EndReason::Disabled)));
    push(&mut run.outbox, end, ms(3));
    run.kill();
    let (_, found) = Journal::open(disk, 20_000_000).unwrap();
    assert!(found.open.is_empty() && found.waiting.is_empty());
}

/// One step of the property test; the camera is `gate`.
#[derive(Clone, Copy, Debug)]
enum FleetAction {
    /// With an epoch that is newer by this number.
    Own(u64),
    Lose,
    /// Another node's `owner` arrives.
    Owner,
    HandOver,
    HandedOver {
        released: bool,
    },
    Confirm {
        ms: u64,
    },
    Count(u32),
    Event,
    Connect,
    Disconnect,
    Ask,
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
        1 => Just(A::Owner),
        1 => Just(A::HandOver),
        1 => any::<bool>().prop_map(|released| A::HandedOver { released }),
        2 => (0u64..3000).prop_map(|ms| A::Confirm { ms }),
        4 => (0u32..5).prop_map(A::Count),
        4 => Just(A::Event),
        1 => Just(A::Connect),
        1 => Just(A::Disconnect),
        3 => Just(A::Ask),
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
    /// Newest epoch of anyone that this node was shown.
    newest: u64,
    certain_until: Option<Mono>,
    /// The last question and its answer, if nothing made them void.
    asked: Option<u64>,
    answered_at: Option<Mono>,
    /// The epoch of each track, and which happened for certain.
    epochs: BTreeMap<String, Epoch>,
    certain_tracks: BTreeSet<String>,
    events: u64,
    unacked: VecDeque<Ticket>,
}

impl FleetModel {
    fn is_certain(&self) -> bool {
        self.certain_until.is_some_and(|until| self.now <= until)
    }

    fn void_answer(&mut self) {
        self.asked = None;
        self.answered_at = None;
    }

    fn act(&mut self, action: FleetAction, outbox: &mut Outbox) -> Result<(), TestCaseError> {
        let (gate, now) = (camera("gate"), self.now);
        match action {
            FleetAction::Own(by) => {
                self.newest += by;
                own(outbox, self.newest, now);
                if !self.is_certain() {
                    self.void_answer();
                }
            }
            FleetAction::Lose => {
                self.newest += 1;
                outbox.lose(&gate, Epoch(self.newest), now);
            }
            FleetAction::Owner => {
                // While the store confirms that this node is the owner, an `owner` that is newer is false.
                let is_false = self.is_certain() && outbox.fence.epoch_of(&gate).is_some();
                self.newest += u64::from(!is_false);
                let epoch = Epoch(self.newest + u64::from(is_false));
                let arrival = outbox.owner_arrived(&gate, epoch, now);
                prop_assert_eq!(arrival == OwnerArrival::Disputed, is_false);
            }
            FleetAction::HandOver => outbox.fence.hand_over(&gate),
            FleetAction::HandedOver { released } => {
                let own = outbox.fence.owned_epoch(&gate);
                // It proves that this node was the owner.
                let of_own = self.epochs.iter().filter(|(_, epoch)| Some(**epoch) == own);
                self.certain_tracks
                    .extend(of_own.map(|(track, _)| track.clone()));
                self.newest += u64::from(released && own.is_some());
                let message = released.then(|| owner(self.newest, false).1);
                outbox.handed_over(&gate, message, now);
            }
            FleetAction::Confirm { ms } => {
                let until = now.after(Duration::from_millis(ms));
                self.certain_until = self.certain_until.max(Some(until));
                outbox.fence.confirm(until, now);
                self.void_answer();
            }
            FleetAction::Count(number) => push(outbox, count(number), now),
            FleetAction::Event => {
                self.events += 1;
                begins(outbox, self.events, now);
                let track = format!("b7c1-gate-{}", self.events);
                if self.is_certain() {
                    self.certain_tracks.insert(track.clone());
                }
                self.epochs.insert(track, Epoch(self.newest));
            }
            FleetAction::Connect | FleetAction::Disconnect => {
                outbox.disconnected();
                self.unacked.clear();
                self.void_answer();
                if matches!(action, FleetAction::Connect) {
                    outbox.connected();
                }
            }
            FleetAction::Ask => self.asked = outbox.fence.ask(now).or(self.asked),
            FleetAction::Answer => {
                if let Some(number) = self.asked.take() {
                    outbox.fence.answered(number, true, now);
                    self.answered_at = Some(now);
                }
            }
            FleetAction::Wait { ms } => self.now = now.after(Duration::from_millis(ms)),
            FleetAction::Take => {
                let is_owned = outbox.fence.owned_epoch(&gate).is_some();
                if let Some(sent) = outbox.take(now) {
                    self.check(&sent, is_owned)?;
                    self.unacked.extend(sent.delivery.ticket);
                }
            }
            FleetAction::Acknowledge => {
                if let Some(ticket) = self.unacked.pop_front() {
                    outbox.acked(ticket, now);
                }
            }
            FleetAction::Fail => {
                if let Some(ticket) = self.unacked.pop_front() {
                    outbox.failed(ticket);
                }
            }
        }
        Ok(())
    }

    /// A message of an older epoch is an event that happened for certain; while ownership is uncertain, the broker was asked before.
    fn check(&self, sent: &Outgoing, is_owned: bool) -> Result<(), TestCaseError> {
        let quiet = Duration::from_millis(500);
        let is_checked = self
            .answered_at
            .is_some_and(|at| self.now.since(at) >= quiet);
        prop_assert!(
            !is_owned || self.is_certain() || is_checked,
            "{}",
            sent.topic
        );
        let epoch = sent.delivery.epoch.unwrap();
        if sent.topic == EVENT && epoch.0 < self.newest {
            let track = json(sent)["event"].as_str().unwrap().to_owned();
            prop_assert!(self.certain_tracks.contains(&track), "{track}");
        } else {
            prop_assert_eq!(epoch, Epoch(self.newest), "{}", sent.topic);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(256)))]

    #[test]
    fn nothing_of_an_older_epoch_is_sent_but_certain_events(
        actions in prop::collection::vec(action(), 1..200)
    ) {
        let mut outbox = outbox();
        let mut model = FleetModel { newest: 17, ..FleetModel::default() };
        for action in actions {
            model.act(action, &mut outbox)?;
        }
        // The next ownership is published whole.
        model.newest += 1;
        let now = model.now;
        outbox.disconnected();
        outbox.connected();
        outbox.fence.confirm(now.after(Duration::from_secs(600)), now);
        prop_assert!(own(&mut outbox, model.newest, now));
        push(&mut outbox, count(7), now);
        let mut states = BTreeMap::new();
        for second in 1..=60 {
            let now = now.after(Duration::from_secs(second));
            for sent in deliver(&mut outbox, now) {
                if sent.delivery.retained {
                    states.insert(sent.topic.clone(), text(&sent).to_owned());
                }
            }
        }
        let owner = format!(r#"{{"v":1,"node":"edge1","epoch":{}}}"#, model.newest);
        let expected = [(OWNER.to_owned(), owner), (COUNT.to_owned(), "7".to_owned())];
        prop_assert_eq!(states, BTreeMap::from(expected));
        prop_assert!(!outbox.has_waiting(&camera("gate")) && outbox.is_settled());
    }
}
