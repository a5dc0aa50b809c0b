//! Parts of texts between the model and the broker.
//!
//! Faults: B27.

use std::{collections::BTreeMap, ops::RangeInclusive};

use proptest::prelude::*;
use serde_json::Value;

use super::{
    tests::{json, ms, online, outbox, push},
    *,
};
use crate::testing::{detected, part_of};

/// What a consumer has of a text.
#[derive(Debug, Default, PartialEq)]
struct ReadText {
    text: String,
    /// Missing numbers.
    gaps: u64,
    parts: u64,
    is_done: bool,
}

/// A consumer that appends what it receives.
#[derive(Debug, Default)]
struct Reader(BTreeMap<String, ReadText>);

impl Reader {
    fn read(&mut self, part: &Value) {
        let id = part["id"].as_str().unwrap().to_owned();
        let read = self.0.entry(id).or_default();
        assert!(!read.is_done, "nothing follows the last part: {part}");
        let number = part["n"].as_u64().unwrap();
        read.gaps += number - read.parts;
        read.parts = number + 1;
        read.text += part["text"].as_str().unwrap();
        read.is_done = part["done"] == true;
    }
}

fn is_part(sent: &Outgoing) -> bool {
    sent.topic.ends_with("/part")
}

/// Sends all that is due within these milliseconds; the parts, with the time of each.
fn run(outbox: &mut Outbox, within: RangeInclusive<u64>) -> Vec<(u64, Outgoing)> {
    let mut sent = Vec::new();
    for at in within {
        sent.extend(std::iter::from_fn(|| outbox.take(ms(at))).map(|sent| (at, sent)));
    }
    sent.retain(|(_, sent)| is_part(sent));
    sent
}

proptest! {
    /// Two cameras, each with two texts under way, written faster than the rates allow.
    #[test]
    fn every_text_is_complete_and_in_its_order(
        pieces in prop::collection::vec((0u64..4, 0u64..60), 1..150),
    ) {
        let mut outbox = online();
        let (mut now, mut written) = (0, [const { String::new() }; 4]);
        let camera = |text| ["cam0", "cam1"][text as usize % 2];
        let mut sent = Vec::new();
        for (index, (text, gap_ms)) in pieces.into_iter().enumerate() {
            let piece = format!("{index} ");
            push(&mut outbox, part_of(camera(text), text, &piece, false), ms(now));
            written[text as usize] += &piece;
            sent.extend(run(&mut outbox, now..=now + gap_ms));
            now += gap_ms;
        }
        for text in 0..4 {
            push(&mut outbox, part_of(camera(text), text, "", true), ms(now));
        }
        sent.extend(run(&mut outbox, now..=now + 1000));

        let mut reader = Reader::default();
        sent.iter().for_each(|(_, sent)| reader.read(&json(sent)));
        for (text, written) in written.iter().enumerate() {
            let read = &reader.0[&format!("b7c1-{text}")];
            prop_assert_eq!((&read.text, read.gaps, read.is_done), (written, 0, true));
        }
        prop_assert_eq!(outbox.counters().dropped(), 0);
        for camera in ["cam0", "cam1"] {
            let of_camera = sent.iter().filter(|(_, sent)| sent.topic.contains(camera));
            let times: Vec<u64> = of_camera.map(|(at, _)| *at).collect();
            prop_assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 100), "{times:?}");
        }
    }
}

#[test]
fn detection_does_not_wait_for_the_parts_of_its_camera() {
    let mut outbox = online();
    for at in 0..3000 {
        push(&mut outbox, part_of("cam0", 1, "a ", false), ms(at));
        // Ten a second, as many as parts.
        if at % 100 == 50 {
            push(&mut outbox, detected("cam0"), ms(at));
        }
        let sent: Vec<Outgoing> = std::iter::from_fn(|| outbox.take(ms(at))).collect();
        let detections = sent.iter().filter(|sent| !is_part(sent)).count();
        assert_eq!(detections, usize::from(at % 100 == 50), "at {at} ms");
    }
}

/// The parts of an outage are dropped like other streams, and the gap shows it.
#[test]
fn lost_parts_leave_a_gap_in_the_numbers() {
    let mut outbox = outbox();
    let mut reader = Reader::default();
    let mut say = |outbox: &mut Outbox, text: &str, is_last, at| {
        push(outbox, part_of("cam0", 1, text, is_last), ms(at));
        let sent = run(outbox, at..=at + 100);
        sent.iter().for_each(|(_, sent)| {
            assert!(!sent.delivery.retained && sent.delivery.ticket.is_none());
            reader.read(&json(sent));
        });
    };
    outbox.connected();
    say(&mut outbox, "It ", false, 0);
    outbox.disconnected();
    say(&mut outbox, "is ", false, 1000);
    outbox.connected();
    say(&mut outbox, "open.", false, 2000);
    say(&mut outbox, "", true, 3000);
    let expected = ReadText {
        text: "It open.".into(),
        gaps: 1,
        parts: 4,
        is_done: true,
    };
    assert_eq!(reader.0["b7c1-1"], expected);
    assert_eq!(outbox.counters().dropped_offline, 1);
    // After a last part the numbers begin again: a description is asked again when it had no answer.
    reader.0.clear();
    push(&mut outbox, part_of("cam0", 1, "No.", true), ms(4000));
    let again = run(&mut outbox, 4000..=4000);
    assert_eq!(json(&again[0].1)["n"], 0);
}
