//! The rate limits of docs/mqtt.md section 1 under more messages than they allow.
//!
//! Faults: B27.

use std::collections::HashMap;

use super::{
    tests::{ms, online, push},
    *,
};
use crate::testing::{detected, event, happened, part_of};
use spotter_core::EventStep;

/// The largest number of these moments within one second.
fn most_in_a_second(times: &[Mono]) -> usize {
    let second = Duration::from_secs(1);
    let within = |first: &Mono| {
        let after = times.iter().filter(|at| *at >= first);
        after.filter(|at| at.since(*first) < second).count()
    };
    times.iter().map(within).max().unwrap_or(0)
}

#[test]
fn flood_of_all_messages_keeps_rates_and_loses_no_event() {
    let mut outbox = online();
    let (mut streams, mut events) = (HashMap::<String, Vec<Mono>>::new(), Vec::new());
    let (mut parts, mut offered) = (0, (0u64, 0u64));
    // For ten seconds, 16 cameras have 50 answers and 50 parts of a text per second each, and there are 300 events per second.
    for step in 0..15_000 {
        let now = ms(step);
        let camera = format!("cam{}", step % 16);
        if step < 10_000 && step % 20 < 16 {
            push(&mut outbox, detected(&camera), now);
            offered.0 += 1;
            push(&mut outbox, part_of(&camera, 1, "word ", false), now);
        }
        if step < 10_000 && step % 10 == 0 {
            for _ in 0..3 {
                let event = event(&camera, offered.1, EventStep::New);
                push(&mut outbox, happened(event), now);
                offered.1 += 1;
            }
        }
        while let Some(sent) = outbox.take(now) {
            match sent.delivery.ticket {
                Some(ticket) => {
                    events.push(now);
                    outbox.acked(ticket, now);
                }
                None => {
                    parts += u64::from(sent.topic.ends_with("/part"));
                    streams.entry(sent.topic).or_default().push(now);
                }
            }
        }
    }
    // The outbox sends 100 of the 300 events per second; the others wait, and none is lost.
    assert_eq!(most_in_a_second(&events), 100);
    let drops = outbox.counters();
    let waiting = outbox.events.len() as u64;
    assert_eq!(drops.events_acked + waiting, offered.1);
    assert_eq!(drops.events_over_bound, 0);

    let mut all = events;
    let mut sent = 0;
    for times in streams.values() {
        assert!(most_in_a_second(times) <= 20);
        sent += times.len() as u64;
        all.extend(times);
    }
    assert_eq!(streams.len(), 32, "every camera has a share of the rate");
    assert_eq!(sent, drops.streams_sent);
    // Parts that wait are joined, so none is lost.
    let counted = sent - parts + drops.dropped();
    assert_eq!(counted, offered.0, "every detection is sent or counted");
    // Events do not wait for detections, so they may exceed the limit of one second; the next second has fewer detections.
    assert!(most_in_a_second(&all) <= 200 + 100);
    let in_ten_seconds = all.iter().filter(|at| **at < ms(10_000)).count();
    assert!(in_ten_seconds <= 2000 + 100, "{in_ten_seconds}");
}
