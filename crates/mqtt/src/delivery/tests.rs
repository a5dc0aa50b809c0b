use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{
    CameraHealth, ClearedTopic, Update,
    contract::detection::tests::{detection, empty},
    testing::{
        camera, count, detected, event, happened, health_of, info, prompt, state_of, topics,
    },
};
use spotter_core::PromptState;

const COUNT: &str = "spotter/edge1/cam/gate/count/person";

/// The bounds of the daemon, for this number of events.
pub(super) fn spool(events: usize) -> SpoolConfig {
    SpoolConfig {
        events,
        max_age: Duration::from_secs(24 * 60 * 60),
        max_mb: 20,
    }
}

pub(super) fn outbox() -> Outbox {
    outbox_on(EventLog::default(), 7)
}

pub(super) fn outbox_on(log: EventLog, id_seed: u64) -> Outbox {
    Outbox::new(spool(5000), log, "b7c1".into(), id_seed)
}

pub(super) fn online() -> Outbox {
    let mut outbox = outbox();
    outbox.connected();
    outbox
}

pub(super) fn ms(ms: u64) -> Mono {
    Mono::default().after(Duration::from_millis(ms))
}

pub(super) fn push(outbox: &mut Outbox, update: Update, now: Mono) {
    outbox.push(Message::from_update(&topics(), update, None), now);
}

pub(super) fn status(online: bool) -> Message {
    Message::node_status(&topics(), online)
}

pub(super) fn drain(outbox: &mut Outbox, now: Mono) -> Vec<Outgoing> {
    std::iter::from_fn(|| outbox.take(now)).collect()
}

pub(super) fn topics_of(sent: &[Outgoing]) -> Vec<&str> {
    sent.iter().map(|sent| sent.topic.as_str()).collect()
}

pub(super) fn text(outgoing: &Outgoing) -> &str {
    match &outgoing.body {
        Body::Bytes(bytes) => std::str::from_utf8(bytes).unwrap(),
        Body::Detection(..) => panic!("not a text"),
    }
}

pub(super) fn json(outgoing: &Outgoing) -> serde_json::Value {
    serde_json::from_str(text(outgoing)).unwrap()
}

pub(super) fn ticket(outgoing: &Outgoing) -> Ticket {
    outgoing.delivery.ticket.expect("it is acknowledged")
}

fn clear(topic: &str) -> Update {
    Update::Clear(ClearedTopic {
        topic: topic.into(),
        camera: None,
    })
}

pub(super) fn picture(of: &str, retain: bool) -> Update {
    Update::Snapshot {
        camera: camera("gate"),
        prompt: prompt(of),
        jpeg: [0xff, 0xd8].into(),
        retain,
    }
}

/// Pushes as many detections as the rate allows at once, and one more, which waits.
fn one_held_back(outbox: &mut Outbox) {
    outbox.connected();
    for _ in 0..=20 {
        assert!(outbox.take(ms(0)).is_none());
        push(outbox, detected("gate"), ms(0));
        if outbox.next_at(ms(0)) == Some(ms(0)) {
            assert_eq!(drain(outbox, ms(0)).len(), 1);
        }
    }
    assert_eq!(outbox.next_at(ms(0)), Some(ms(1000)));
}

#[test]
fn no_message_follows_the_final_status() {
    let mut outbox = outbox();
    one_held_back(&mut outbox);
    push(&mut outbox, count(3), ms(0));
    outbox.end_with(status(false), ms(3000));
    let first = drain(&mut outbox, ms(0));
    assert_eq!((first.len(), text(&first[0])), (1, "3"));
    outbox.acked(ticket(&first[0]), ms(1));
    assert!(
        !outbox.is_settled(ms(0)),
        "the final status is not sent yet"
    );

    let last = drain(&mut outbox, ms(1000));
    assert_eq!(last.len(), 2);
    assert!(last[0].delivery.ticket.is_none());
    assert_eq!(text(&last[1]), "offline");
    assert!(!outbox.is_settled(ms(0)));
    outbox.acked(ticket(&last[1]), ms(1001));
    assert!(outbox.is_settled(ms(0)));

    // Stream messages that wait too long are dropped.
    let mut outbox = online();
    one_held_back(&mut outbox);
    outbox.end_with(status(false), ms(500));
    assert!(outbox.take(ms(499)).is_none());
    assert_eq!(outbox.next_at(ms(499)), Some(ms(500)));
    let last = drain(&mut outbox, ms(500));
    assert_eq!((last.len(), text(&last[0])), (1, "offline"));
    assert_eq!(outbox.counters().dropped(), 1);
}

#[test]
fn birth_states_status_and_events_follow_every_connect() {
    let mut outbox = outbox();
    push(
        &mut outbox,
        happened(event("gate", 1, EventStep::New)),
        ms(0),
    );
    outbox.push(status(true), ms(0));
    push(&mut outbox, count(2), ms(0));
    push(&mut outbox, Update::Info(info()), ms(0));
    assert!(outbox.take(ms(0)).is_none(), "there is no connection");
    for _ in 0..2 {
        outbox.connected();
        let sent = drain(&mut outbox, ms(1));
        let event = "spotter/edge1/cam/gate/event/person";
        let expected = ["spotter/edge1/info", COUNT, "spotter/edge1/status", event];
        assert_eq!(topics_of(&sent), expected);
        outbox.disconnected();
    }
}

#[test]
fn puback_p95_is_the_time_from_hand_over_to_acknowledgement() {
    let mut outbox = online();
    for (value, ack_ms) in [(1, 4), (2, 5)] {
        push(&mut outbox, count(value), ms(0));
        let sent = outbox.take(ms(0)).unwrap();
        outbox.acked(ticket(&sent), ms(ack_ms));
    }
    assert_eq!(outbox.puback_p95_ms(ms(5)), Some(5.0));
}

#[test]
fn unchanged_health_is_repeated_after_a_minute() {
    let mut outbox = online();
    for (second, is_sent) in [(0, true), (59, false), (60, true)] {
        let now = ms(second * 1000);
        push(&mut outbox, health_of(CameraHealth::default()), now);
        let sent = outbox.take(now);
        assert_eq!(sent.is_some(), is_sent, "{second}");
        sent.iter().for_each(|sent| outbox.acked(ticket(sent), now));
    }
}

#[test]
fn picture_that_waits_is_dropped_when_its_topic_is_cleared() {
    let mut outbox = online();
    push(&mut outbox, picture("person", true), ms(0));
    push(&mut outbox, picture("dog", true), ms(0));
    let of_person = "spotter/edge1/cam/gate/snapshot/person";
    push(&mut outbox, clear(of_person), ms(0));
    let sent = drain(&mut outbox, ms(0));
    assert_eq!((sent[0].topic.as_str(), text(&sent[0])), (of_person, ""));
    assert_eq!(sent[1].topic, "spotter/edge1/cam/gate/snapshot/dog");
    assert_eq!((sent.len(), outbox.counters().dropped_replaced), (2, 1));
}

#[test]
fn cleared_topic_used_again_retains_its_newest_value() {
    let mut outbox = online();
    push(&mut outbox, count(1), ms(0));
    let first = outbox.take(ms(0)).unwrap();
    push(&mut outbox, clear(COUNT), ms(0));
    let cleared = outbox.take(ms(0)).unwrap();
    assert_eq!(text(&cleared), "");
    outbox.acked(ticket(&first), ms(0)); // Does not acknowledge the clearing.
    assert_eq!(outbox.states.clearing().count(), 1);
    push(&mut outbox, count(1), ms(0));
    assert_eq!(text(&outbox.take(ms(0)).unwrap()), "1");
    outbox.acked(ticket(&cleared), ms(0));
    assert_eq!(outbox.states.clearing().count(), 0);
    outbox.connected();
    assert_eq!(text(&outbox.take(ms(0)).unwrap()), "1");
}

/// One step of the property test.
#[derive(Clone, Debug)]
enum OutboxAction {
    State { camera: usize, value: u64 },
    FoundObject { camera: usize },
    Empty { camera: usize },
    Wait { ms: u64 },
    Connect,
    Disconnect,
    Take,
    Acknowledge,
    Fail,
}

fn action() -> impl Strategy<Value = OutboxAction> {
    prop_oneof![
        3 => (0usize..4, 0u64..5).prop_map(|(camera, value)| OutboxAction::State { camera, value }),
        4 => (0usize..4).prop_map(|camera| OutboxAction::FoundObject { camera }),
        2 => (0usize..4).prop_map(|camera| OutboxAction::Empty { camera }),
        3 => (0u64..4000).prop_map(|ms| OutboxAction::Wait { ms }),
        1 => Just(OutboxAction::Connect),
        1 => Just(OutboxAction::Disconnect),
        8 => Just(OutboxAction::Take),
        4 => Just(OutboxAction::Acknowledge),
        1 => Just(OutboxAction::Fail),
    ]
}

/// The retained messages of a broker that follows the MQTT specification.
#[derive(Default)]
struct ModelBroker {
    wanted: HashMap<String, String>,
    held: HashMap<String, String>,
    unacked: VecDeque<(Ticket, String, String)>,
    offered: u64,
}

const CAMERAS: [&str; 4] = ["a", "b", "c", "d"];

impl ModelBroker {
    fn offer(&mut self, outbox: &mut Outbox, found: spotter_core::Detection, now: Mono) {
        self.offered += 1;
        push(outbox, Update::Detection(found.into()), now);
    }

    fn take(&mut self, outbox: &mut Outbox, now: Mono) -> bool {
        let Some(sent) = outbox.take(now) else {
            return false;
        };
        if let Some(ticket) = sent.delivery.ticket {
            self.unacked
                .push_back((ticket, sent.topic.clone(), text(&sent).to_owned()));
        }
        true
    }

    fn acknowledge(&mut self, outbox: &mut Outbox, now: Mono) {
        if let Some((ticket, topic, value)) = self.unacked.pop_front() {
            self.held.insert(topic, value);
            outbox.acked(ticket, now);
        }
    }
}

proptest! {
    #[test]
    fn broker_gets_latest_states_and_each_frame_is_counted(
        actions in prop::collection::vec(action(), 1..300)
    ) {
        let mut outbox = outbox();
        outbox.streams.waiting_max = 3;
        let (mut world, mut now) = (ModelBroker::default(), Mono::default());
        for action in actions {
            match action {
                OutboxAction::State { camera, value } => {
                    let count = PromptState::Count(Some(value as u32));
                    push(&mut outbox, state_of(CAMERAS[camera], "person", count), now);
                    let topic = format!("spotter/edge1/cam/{}/count/person", CAMERAS[camera]);
                    world.wanted.insert(topic, value.to_string());
                }
                OutboxAction::FoundObject { camera } => world.offer(&mut outbox, detection(CAMERAS[camera]), now),
                OutboxAction::Empty { camera } => world.offer(&mut outbox, empty(CAMERAS[camera]), now),
                OutboxAction::Wait { ms } => now = now.after(Duration::from_millis(ms)),
                OutboxAction::Connect | OutboxAction::Disconnect => {
                    outbox.disconnected();
                    world.unacked.clear();
                    if matches!(action, OutboxAction::Connect) {
                        outbox.connected();
                    }
                }
                OutboxAction::Take => { world.take(&mut outbox, now); }
                OutboxAction::Acknowledge => world.acknowledge(&mut outbox, now),
                OutboxAction::Fail => if let Some((ticket, ..)) = world.unacked.pop_front() {
                    outbox.failed(ticket);
                },
            }
            prop_assert!(outbox.streams.len() <= 3 && outbox.in_flight.len() <= IN_FLIGHT_MAX);
            let counters = outbox.counters();
            let known = counters.streams_sent + counters.empties_skipped + counters.dropped() + outbox.streams.len() as u64;
            prop_assert_eq!(world.offered, known);
        }
        outbox.disconnected();
        outbox.connected();
        world.unacked.clear();
        while world.take(&mut outbox, now) || !world.unacked.is_empty() {
            world.acknowledge(&mut outbox, now);
        }
        prop_assert!(outbox.is_settled(ms(0)));
        prop_assert_eq!(world.held, world.wanted);
    }
}
