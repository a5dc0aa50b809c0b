//! States that clear a topic, through the whole outbox.

use std::sync::Arc;

use super::*;
use crate::{Topics, Update};
use spotter_core::NodeId;

fn push(outbox: &mut Outbox, update: Update) {
    let topics = Topics::new("spotter", &NodeId::new("edge1").unwrap());
    outbox.push(Message::from_update(&topics, update), Mono::default());
}

fn count(count: u32) -> Update {
    Update::State {
        camera: CameraId::new("gate").unwrap(),
        prompt: spotter_core::PromptId::new("person").unwrap(),
        state: spotter_core::PromptState::Count(Some(count)),
    }
}

const TOPIC: &str = "spotter/edge1/cam/gate/count/person";

fn take(outbox: &mut Outbox) -> (String, Vec<u8>, Ticket) {
    let outgoing = outbox.take(Mono::default()).unwrap();
    match (outgoing.body, outgoing.promise) {
        (Body::Bytes(bytes), Promise::State(ticket)) => (outgoing.topic, bytes.to_vec(), ticket),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_topic_is_cleared_first_until_the_broker_has_done_it_and_then_forgotten() {
    let mut outbox = Outbox::new(OutboxLimits::default(), "b7c1".into(), 7);
    push(&mut outbox, count(3));
    push(&mut outbox, Update::Clear("a/camera/that/was".into()));
    for _ in 0..2 {
        outbox.connected();
        let (topic, payload, _) = take(&mut outbox);
        assert_eq!((topic.as_str(), payload.len()), ("a/camera/that/was", 0));
        outbox.disconnected(); // Before it was acknowledged.
    }
    outbox.connected();
    let (_, _, ticket) = take(&mut outbox);
    assert_eq!(outbox.clearing().count(), 1);
    assert!(!outbox.is_settled_to(Rank::Clear));
    outbox.acked(ticket, Mono::default());
    assert_eq!(outbox.clearing().count(), 0);
    assert!(outbox.is_settled_to(Rank::Clear));
    outbox.connected();
    assert_eq!(take(&mut outbox).0, TOPIC);
    assert!(outbox.take(Mono::default()).is_none());
}

#[test]
fn a_picture_that_waits_does_not_come_after_its_topic_is_cleared() {
    let mut outbox = Outbox::new(OutboxLimits::default(), "b7c1".into(), 7);
    outbox.connected();
    let picture = |prompt: &str| Update::Snapshot {
        camera: CameraId::new("gate").unwrap(),
        prompt: spotter_core::PromptId::new(prompt).unwrap(),
        jpeg: Arc::from([0xff, 0xd8]),
        retain: true,
    };
    push(&mut outbox, picture("person"));
    push(&mut outbox, picture("dog"));
    let of_person = "spotter/edge1/cam/gate/snapshot/person".to_owned();
    push(&mut outbox, Update::Clear(of_person.clone()));
    let (topic, payload, _) = take(&mut outbox);
    assert_eq!((topic, payload.len()), (of_person, 0));
    let left = outbox.take(Mono::default()).unwrap();
    assert_eq!(left.topic, "spotter/edge1/cam/gate/snapshot/dog");
    assert!(outbox.take(Mono::default()).is_none());
    assert_eq!(outbox.counters().dropped_replaced, 1);
}

#[test]
fn a_topic_that_is_cleared_and_used_again_holds_what_was_said_last() {
    let mut outbox = Outbox::new(OutboxLimits::default(), "b7c1".into(), 7);
    outbox.connected();
    push(&mut outbox, count(1));
    let (_, _, first) = take(&mut outbox);
    push(&mut outbox, Update::Clear(TOPIC.into()));
    let (_, cleared, second) = take(&mut outbox);
    assert!(cleared.is_empty());
    outbox.acked(first, Mono::default()); // Does not acknowledge the clearing.
    assert_eq!(outbox.clearing().count(), 1);
    push(&mut outbox, count(1));
    assert_eq!(take(&mut outbox).1, b"1");
    outbox.acked(second, Mono::default());
    assert_eq!(outbox.clearing().count(), 0);
    outbox.connected();
    assert_eq!(take(&mut outbox).1, b"1");
}

#[test]
fn a_topic_that_the_broker_does_not_clear_is_tried_again_after_the_next_connect() {
    let mut outbox = Outbox::new(OutboxLimits::default(), "b7c1".into(), 7);
    outbox.connected();
    push(&mut outbox, Update::Clear(TOPIC.into()));
    let (_, _, ticket) = take(&mut outbox);
    outbox.declined(ticket, Mono::default());
    assert_eq!(outbox.clearing().count(), 1);
    assert!(outbox.take(Mono::default()).is_none());
    outbox.connected();
    let (topic, payload, ticket) = take(&mut outbox);
    assert_eq!((topic.as_str(), payload.len()), (TOPIC, 0));
    outbox.acked(ticket, Mono::default());
    assert_eq!(outbox.clearing().count(), 0);
}
