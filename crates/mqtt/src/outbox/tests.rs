use std::collections::{HashMap, VecDeque};

use proptest::prelude::*;

use super::*;
use crate::{
    Topics, Update,
    detection::tests::{detection, empty},
};
use spotter_core::{NodeId, Presence, PromptId, SkippedSinceLast};

fn topics() -> Topics {
    Topics::new("spotter", &NodeId::new("edge1").unwrap())
}

fn camera(name: &str) -> CameraId {
    CameraId::new(name).unwrap()
}

fn outbox() -> Outbox {
    Outbox::new(OutboxLimits::default(), "b7c1".into(), 7)
}

fn ms(ms: u64) -> Mono {
    Mono::default().after(Duration::from_millis(ms))
}

fn push(outbox: &mut Outbox, update: Update, now: Mono) {
    outbox.push(Message::from_update(&topics(), update), now);
}

fn count(name: &str, count: u32) -> Update {
    Update::State {
        camera: camera(name),
        prompt: PromptId::new("person").unwrap(),
        state: spotter_core::PromptState::Count(Some(count)),
    }
}

fn drain(outbox: &mut Outbox, now: Mono) -> Vec<Outgoing> {
    std::iter::from_fn(|| outbox.take(now)).collect()
}

fn text(outgoing: &Outgoing) -> &str {
    match &outgoing.body {
        Body::Bytes(bytes) => std::str::from_utf8(bytes).unwrap(),
        Body::Detection(_) => panic!("not a text"),
    }
}

fn ticket(outgoing: &Outgoing) -> Ticket {
    outgoing.promise.ticket().expect("it is acknowledged")
}

/// As many detections as the rate lets go at once, and one that it holds back.
fn one_held_back(outbox: &mut Outbox) {
    outbox.connected();
    for _ in 0..=OutboxLimits::default().camera_per_s {
        assert!(outbox.take(ms(0)).is_none());
        push(
            outbox,
            Update::Detection(Box::new(detection("gate"))),
            ms(0),
        );
        if outbox.next_at(ms(0)) == Some(ms(0)) {
            assert_eq!(drain(outbox, ms(0)).len(), 1);
        }
    }
    assert_eq!(outbox.next_at(ms(0)), Some(ms(1000)));
}

#[test]
fn nobody_hears_of_us_after_the_farewell() {
    let mut outbox = outbox();
    one_held_back(&mut outbox);
    push(&mut outbox, count("gate", 3), ms(0));
    outbox.end_with(Message::node_status(&topics(), false), ms(3000));
    let first = drain(&mut outbox, ms(0));
    assert_eq!((first.len(), text(&first[0])), (1, "3"));
    outbox.acked(ticket(&first[0]), ms(1));
    assert!(!outbox.is_settled(), "the farewell is still to come");

    let last = drain(&mut outbox, ms(1000));
    assert_eq!(last.len(), 2);
    assert!(matches!(last[0].promise, Promise::Stream { .. }));
    assert_eq!(text(&last[1]), "offline");
    assert!(!outbox.is_settled());
    outbox.acked(ticket(&last[1]), ms(1001));
    assert!(outbox.is_settled());
}

#[test]
fn what_the_rates_hold_back_for_too_long_is_dropped_for_the_farewell() {
    let mut outbox = outbox();
    one_held_back(&mut outbox);
    outbox.end_with(Message::node_status(&topics(), false), ms(500));
    assert!(outbox.take(ms(499)).is_none());
    assert_eq!(outbox.next_at(ms(499)), Some(ms(500)));
    let last = drain(&mut outbox, ms(500));
    assert_eq!((last.len(), text(&last[0])), (1, "offline"));
    assert_eq!(outbox.counters().dropped(), 1);
}

#[test]
fn birth_comes_first_and_status_last_after_every_connect() {
    let mut outbox = outbox();
    outbox.push(Message::node_status(&topics(), true), ms(0));
    push(&mut outbox, count("gate", 2), ms(0));
    let info = Message {
        topic: topics().info(),
        content: MessageContent::State {
            rank: Rank::Birth,
            refresh: None,
            payload: b"{}".as_slice().into(),
        },
    };
    outbox.push(info, ms(0));
    assert!(
        outbox.take(ms(0)).is_none(),
        "nothing leaves while the broker is away"
    );
    for _ in 0..2 {
        outbox.connected();
        let sent = drain(&mut outbox, ms(1));
        let order: Vec<&str> = sent.iter().map(|sent| sent.topic.as_str()).collect();
        let expected = [
            "spotter/edge1/info",
            "spotter/edge1/cam/gate/count/person",
            "spotter/edge1/status",
        ];
        assert_eq!(order, expected);
        outbox.disconnected();
    }
}

#[test]
fn an_unchanged_state_is_not_sent_again_and_a_changed_one_follows_its_acknowledgement() {
    let mut outbox = outbox();
    outbox.connected();
    push(&mut outbox, count("gate", 1), ms(0));
    let first = outbox.take(ms(0)).unwrap();
    push(&mut outbox, count("gate", 2), ms(1));
    push(&mut outbox, count("gate", 3), ms(2));
    assert!(
        outbox.take(ms(3)).is_none(),
        "one at a time keeps the order"
    );
    outbox.acked(ticket(&first), ms(4));
    let second = outbox.take(ms(4)).unwrap();
    assert_eq!((text(&first), text(&second)), ("1", "3"));
    outbox.acked(ticket(&second), ms(9));
    push(&mut outbox, count("gate", 3), ms(10));
    assert!(outbox.take(ms(10)).is_none() && outbox.is_settled());
    assert_eq!(outbox.puback_p95(), Some(Duration::from_millis(5)));
}

#[test]
fn presence_and_camera_status_use_the_contracts_words() {
    let mut outbox = outbox();
    outbox.connected();
    for presence in [Presence::On, Presence::Off, Presence::Unknown] {
        let prompt = PromptId::new("person").unwrap();
        let camera = camera("gate");
        push(
            &mut outbox,
            Update::State {
                camera,
                prompt,
                state: spotter_core::PromptState::Presence(presence),
            },
            ms(0),
        );
        let sent = outbox.take(ms(0)).unwrap();
        assert_eq!(sent.topic, "spotter/edge1/cam/gate/present/person");
        outbox.acked(ticket(&sent), ms(0));
        let word = match presence {
            Presence::On => "ON",
            Presence::Off => "OFF",
            Presence::Unknown => "None",
        };
        assert_eq!(text(&sent), word);
    }
    push(
        &mut outbox,
        Update::CameraStatus {
            camera: camera("gate"),
            online: true,
        },
        ms(0),
    );
    assert_eq!(text(&outbox.take(ms(0)).unwrap()), "online");
}

#[test]
fn health_is_repeated_once_a_minute() {
    let mut outbox = outbox();
    outbox.connected();
    let health = || Update::Health {
        camera: camera("gate"),
        health: Box::default(),
    };
    let mut sent_at = Vec::new();
    for second in (0..=130).step_by(10) {
        push(&mut outbox, health(), ms(second * 1000));
        if let Some(sent) = outbox.take(ms(second * 1000)) {
            outbox.acked(ticket(&sent), ms(second * 1000));
            sent_at.push(second);
        }
    }
    assert_eq!(sent_at, [0, 60, 120]);
}

#[test]
fn an_empty_answer_follows_objects_and_then_comes_every_ten_seconds() {
    let mut outbox = outbox();
    outbox.connected();
    let mut sent_at = Vec::new();
    for second in 0..=25 {
        let now = ms(second * 1000);
        let found = if second == 3 {
            detection("gate")
        } else {
            empty("gate")
        };
        let since_last = SkippedSinceLast {
            gated: 1,
            ..SkippedSinceLast::default()
        };
        push(
            &mut outbox,
            Update::Detection(Box::new(spotter_core::Detection {
                since_last,
                ..found
            })),
            now,
        );
        if let Some(Outgoing {
            body: Body::Detection(sent),
            label: Some(label),
            ..
        }) = outbox.take(now)
        {
            sent_at.push((second, label.seq, sent.since_last.gated));
        }
    }
    // No gap in `seq`: what docs/mqtt.md section 2 leaves out is not lost; `since_last` still counts every frame.
    assert_eq!(
        sent_at,
        [(0, 1, 1), (3, 2, 3), (4, 3, 1), (14, 4, 10), (24, 5, 10)]
    );
    assert_eq!(outbox.counters().dropped(), 0);
}

#[test]
fn a_flood_is_held_to_the_cameras_rate_and_the_newest_wins() {
    let mut outbox = outbox();
    outbox.connected();
    let mut sent = Vec::new();
    for step in 0..1000 {
        push(
            &mut outbox,
            Update::Detection(Box::new(detection("gate"))),
            ms(step),
        );
        sent.extend(drain(&mut outbox, ms(step)));
    }
    assert_eq!(sent.len(), 20);
    assert_eq!(outbox.next_at(ms(999)), Some(ms(1000)));
    let last = outbox.take(ms(1000)).unwrap();
    assert_eq!(last.label.unwrap().seq, 1000);
    assert_eq!(outbox.counters().dropped_replaced, 979);
}

#[test]
fn answers_that_come_at_once_are_all_sent_in_their_order() {
    let mut outbox = outbox();
    outbox.connected();
    // The engine may end several looks of a camera in one step.
    for found in [
        empty("gate"),
        detection("gate"),
        detection("gate"),
        empty("gate"),
    ] {
        push(&mut outbox, Update::Detection(Box::new(found)), ms(0));
    }
    // Saying "nothing" twice in a row is not worth a message, however it comes.
    push(
        &mut outbox,
        Update::Detection(Box::new(empty("gate"))),
        ms(1),
    );
    let sent = drain(&mut outbox, ms(2));
    let sent = sent.into_iter().filter_map(|sent| sent.label);
    assert_eq!(
        sent.map(|label| label.seq).collect::<Vec<_>>(),
        [1, 2, 3, 4]
    );
    let counters = outbox.counters();
    assert_eq!((counters.empties_skipped, counters.dropped()), (1, 0));
}

#[test]
fn old_frames_are_never_sent_late() {
    let mut outbox = outbox();
    push(
        &mut outbox,
        Update::Detection(Box::new(detection("gate"))),
        ms(0),
    );
    outbox.connected();
    assert!(outbox.take(ms(1)).is_none());
    push(
        &mut outbox,
        Update::Detection(Box::new(detection("gate"))),
        ms(2),
    );
    assert!(outbox.take(ms(5003)).is_none());
    let counters = outbox.counters();
    assert_eq!((counters.dropped_offline, counters.dropped_expired), (1, 1));
}

#[test]
fn what_a_refused_message_counted_is_told_by_the_next_one() {
    let mut outbox = outbox();
    outbox.connected();
    let with = |gated| {
        let since_last = SkippedSinceLast {
            gated,
            ..SkippedSinceLast::default()
        };
        Update::Detection(Box::new(spotter_core::Detection {
            since_last,
            ..detection("gate")
        }))
    };
    push(&mut outbox, with(3), ms(0));
    let refused = outbox.take(ms(0)).unwrap();
    outbox.refused(&refused.topic, &refused.body);
    push(&mut outbox, with(4), ms(1));
    let Body::Detection(next) = outbox.take(ms(1)).unwrap().body else {
        panic!("not a detection")
    };
    assert_eq!(next.since_last.gated, 7);
    let counters = outbox.counters();
    assert_eq!((counters.streams_sent, counters.dropped_refused), (1, 1));
}

#[test]
fn a_state_that_is_repeated_while_on_its_way_is_sent_once_more() {
    let mut outbox = outbox();
    outbox.connected();
    push(&mut outbox, count("gate", 1), ms(0));
    let first = outbox.take(ms(0)).unwrap();
    outbox.repeat(&first.topic);
    outbox.acked(ticket(&first), ms(1));
    push(&mut outbox, count("gate", 2), ms(2));
    let sent = drain(&mut outbox, ms(3));
    assert_eq!(sent.iter().map(text).collect::<Vec<_>>(), ["2"]);
}

/// What the world does to an outbox.
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

fn deed() -> impl Strategy<Value = OutboxAction> {
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

/// What a broker that follows the rules would hold.
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
        push(outbox, Update::Detection(Box::new(found)), now);
    }

    fn take(&mut self, outbox: &mut Outbox, now: Mono) -> bool {
        let Some(sent) = outbox.take(now) else {
            return false;
        };
        if let Promise::State(ticket) = sent.promise {
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
    fn the_broker_ends_up_with_the_latest_states_and_every_frame_is_accounted_for(
        deeds in prop::collection::vec(deed(), 1..300)
    ) {
        let mut outbox = Outbox::new(OutboxLimits { waiting: 3, ..OutboxLimits::default() }, "b7c1".into(), 7);
        let (mut world, mut now) = (ModelBroker::default(), Mono::default());
        for deed in deeds {
            match deed {
                OutboxAction::State { camera, value } => {
                    push(&mut outbox, count(CAMERAS[camera], value as u32), now);
                    let topic = format!("spotter/edge1/cam/{}/count/person", CAMERAS[camera]);
                    world.wanted.insert(topic, value.to_string());
                }
                OutboxAction::FoundObject { camera } => world.offer(&mut outbox, detection(CAMERAS[camera]), now),
                OutboxAction::Empty { camera } => world.offer(&mut outbox, empty(CAMERAS[camera]), now),
                OutboxAction::Wait { ms } => now = now.after(Duration::from_millis(ms)),
                OutboxAction::Connect | OutboxAction::Disconnect => {
                    outbox.disconnected();
                    world.unacked.clear();
                    if matches!(deed, OutboxAction::Connect) {
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
        prop_assert!(outbox.is_settled());
        prop_assert_eq!(world.held, world.wanted);
    }
}
