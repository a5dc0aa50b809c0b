//! Events, replies and pictures one at a time.

use super::{
    tests::{drain, json, ms, online, outbox, picture, push, status, ticket},
    *,
};
use crate::{
    ReplyTo, Update,
    testing::{event, happened},
};
use spotter_core::{EndReason, EventStep, UpdateReason};

/// Pushes the first event of a track.
fn comes(outbox: &mut Outbox, camera: &str, number: u64, now: Mono) {
    push(outbox, happened(event(camera, number, EventStep::New)), now);
}

/// Takes the messages that are due within some seconds and acknowledges each one at once.
fn deliver(outbox: &mut Outbox, from: Mono, seconds: u64) -> Vec<(Mono, Outgoing)> {
    let mut all = Vec::new();
    for step in 0..seconds * 100 {
        let now = from.after(Duration::from_millis(10 * step));
        while let Some(sent) = outbox.take(now) {
            outbox.acked(ticket(&sent), now);
            all.push((now, sent));
        }
    }
    all
}

#[test]
fn event_is_sent_until_acknowledged_and_keeps_its_id() {
    let mut outbox = online();
    comes(&mut outbox, "gate", 1, ms(0));
    let first = outbox.take(ms(0)).unwrap();
    assert_eq!(first.topic, "spotter/edge1/cam/gate/event/person");
    let day = Duration::from_secs(24 * 60 * 60);
    let ticket_of_first = ticket(&first);
    assert_eq!(first.delivery.expiry, Some(day));
    assert!(!first.delivery.retained);
    assert!(outbox.take(ms(1)).is_none() && !outbox.is_settled(ms(0)));

    outbox.disconnected();
    outbox.acked(ticket_of_first, ms(2)); // Ignored: the ticket is from a connection that has ended.
    outbox.connected();
    let again = outbox.take(ms(3_600_000)).unwrap();
    assert_eq!(json(&again)["id"], json(&first)["id"]);
    assert_eq!(json(&first)["delayed"], false);
    assert_eq!(json(&again)["delayed"], true);
    assert_eq!(again.delivery.expiry, Some(day - Duration::from_secs(3600)));
    outbox.acked(ticket(&again), ms(3_600_001));
    assert!(outbox.is_settled(ms(0)) && outbox.events.len() == 0);
    let counters = outbox.counters();
    assert_eq!((counters.events_acked, counters.dropped()), (1, 0));
}

#[test]
fn declined_messages_are_sent_again_and_counted_once() {
    let mut outbox = outbox();
    outbox.push(status(true), ms(0));
    comes(&mut outbox, "gate", 1, ms(0));
    comes(&mut outbox, "gate", 2, ms(0));
    for round in 1..=3 {
        outbox.connected();
        let now = ms(1000 * round);
        let sent = drain(&mut outbox, now);
        let expected = if round == 1 { 3 } else { 2 };
        assert_eq!(sent.len(), expected);
        outbox.declined(ticket(&sent[0]), now);
        outbox.declined(ticket(&sent[1]), now);
        for other in &sent[2..] {
            outbox.acked(ticket(other), now);
        }
        assert!(drain(&mut outbox, now).is_empty(), "not due at once");
        assert!(
            outbox.is_settled(ms(0)),
            "a stop waits for a declined message"
        );
        outbox.disconnected();
    }
    let counters = outbox.counters();
    assert_eq!((counters.states_declined, counters.events_declined), (3, 1));
    let waiting = (outbox.events.len(), counters.dropped());
    assert_eq!(waiting, (1, 0), "the declined event waits");

    // On a lasting connection both are sent again one minute after the first was declined, until the broker accepts them.
    outbox.connected();
    let mut now = ms(10_000);
    for _ in 0..2 {
        let sent = drain(&mut outbox, now);
        assert_eq!(sent.len(), 2);
        let tickets = sent.iter().map(ticket);
        tickets.for_each(|ticket| outbox.declined(ticket, now));
        let next = outbox.next_at(now).expect("a time");
        assert!(next > now && outbox.take(next.before(Duration::from_millis(1))).is_none());
        now = next;
    }
    let sent = drain(&mut outbox, now);
    sent.iter().for_each(|sent| outbox.acked(ticket(sent), now));
    assert_eq!((sent.len(), outbox.events.len()), (2, 0));
    assert!(drain(&mut outbox, now.after(Duration::from_secs(600))).is_empty());
}

#[test]
fn final_status_does_not_wait_for_declined_messages() {
    let mut outbox = outbox();
    outbox.push(status(true), ms(0));
    outbox.connected();
    for sent in drain(&mut outbox, ms(0)) {
        outbox.declined(ticket(&sent), ms(0));
    }
    outbox.end_with(status(false), ms(90_000));
    let last = drain(&mut outbox, ms(60_000));
    assert_eq!(last.len(), 1);
    outbox.acked(ticket(&last[0]), ms(60_000));
    assert!(outbox.is_settled(ms(0)) && drain(&mut outbox, ms(200_000)).is_empty());
}

#[test]
fn event_ids_sort_in_order_after_clock_set_back() {
    let mut outbox = online();
    for (number, back_s) in [(1, 0), (2, 3600), (3, 1800)] {
        let mut event = event("gate", number, EventStep::Update(UpdateReason::Minute));
        event.last_seen = event.last_seen.before(Duration::from_secs(back_s));
        push(&mut outbox, happened(event), ms(0));
    }
    let sent = drain(&mut outbox, ms(0));
    let id = |sent: &Outgoing| json(sent)["id"].to_string();
    let ids: Vec<String> = sent.iter().map(id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
}

#[test]
fn final_status_follows_the_ends_and_leaves_the_backlog() {
    let mut outbox = outbox();
    for number in 0..200 {
        comes(&mut outbox, "gate", number, ms(0));
    }
    outbox.connected();
    let end = event("yard", 7, EventStep::End(EndReason::Shutdown));
    push(&mut outbox, happened(end), ms(0));
    outbox.end_with(status(false), ms(1000));
    let sent = deliver(&mut outbox, ms(0), 3);
    assert_eq!(sent[0].1.topic, "spotter/edge1/cam/yard/event/person");
    let (at, last) = sent.last().unwrap();
    assert_eq!(last.topic, "spotter/edge1/status");
    assert_eq!(*at, ms(1000), "the status is sent at the limit");
    assert!(outbox.is_settled(ms(0)));
    // The rest waits for the next start.
    assert_eq!(outbox.events.len(), 201 - (sent.len() - 1));
    assert_eq!(outbox.counters().dropped(), 0);
}

fn reply(to: Option<ReplyTo>, payload: &str) -> Update {
    let payload = payload.as_bytes().to_vec();
    Update::Reply { to, payload }
}

#[test]
fn reply_goes_to_the_wanted_topic_while_its_connection_lasts() {
    let mut outbox = outbox();
    push(&mut outbox, reply(None, "{\"id\":0}"), ms(0));
    assert_eq!(outbox.counters().replies_dropped, 1, "no connection");
    outbox.connected();
    let wanted = |topic: &str| {
        Some(ReplyTo {
            topic: topic.into(),
            correlation: Some(vec![1, 2]),
        })
    };
    for (to, topic, correlation) in [
        (None, "spotter/edge1/reply", None),
        (wanted("desk/answers"), "desk/answers", Some(&[1, 2][..])),
    ] {
        push(&mut outbox, reply(to, "{\"id\":1}"), ms(0));
        let sent = outbox.take(ms(0)).unwrap();
        assert_eq!(sent.topic, topic);
        assert_eq!(sent.delivery.correlation.as_deref(), correlation);
        assert!(!sent.delivery.retained && sent.delivery.expiry.is_none());
        outbox.acked(ticket(&sent), ms(1));
    }
    push(&mut outbox, reply(None, "{\"id\":2}"), ms(2));
    outbox.disconnected();
    outbox.connected();
    assert!(outbox.take(ms(3)).is_none(), "not after a reconnect");
    let counters = outbox.counters();
    assert_eq!((counters.replies_acked, counters.replies_dropped), (2, 2));
}

#[test]
fn only_unretained_pictures_expire() {
    let mut outbox = online();
    let expiry = Some(Duration::from_secs(5));
    for (retain, expiry) in [(false, expiry), (true, None)] {
        let now = ms(if retain { 1000 } else { 0 });
        push(&mut outbox, picture("person", retain), now);
        let sent = outbox.take(now).unwrap();
        assert_eq!(sent.topic, "spotter/edge1/cam/gate/snapshot/person");
        let expected = DeliveryOptions {
            retained: retain,
            expiry,
            ..DeliveryOptions::default()
        };
        assert_eq!(sent.delivery, expected);
    }
}
