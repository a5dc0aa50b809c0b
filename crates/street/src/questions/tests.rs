use super::*;
use crate::{
    testing::{night_street, seen},
    truth::Visibility,
};

fn ask(seen: Vec<SeenObject>, text: &str) -> Option<ExpectedAnswer> {
    let truth = night_street(seen);
    // Absent things are drawn at random: check many draws.
    (0..64)
        .flat_map(|seed| questions(&truth, seed))
        .find(|q| q.task.text() == text)
        .map(|q| q.expected)
}

fn text(answer: &str) -> Option<ExpectedAnswer> {
    Some(Text(answer.into()))
}

#[test]
fn answers_follow_from_the_truth() {
    let bus = |colour| seen(Class::Bus, Some(colour), Visibility::Present);
    let one = vec![bus(Colour::Red)];
    let two = vec![bus(Colour::Red), bus(Colour::Blue)];
    let boxes = |count| Some(Boxes(vec![one[0].box_in_frame; count]));
    for (question, expected) in [
        ("How many buses are there?", text("2")),
        ("Is there a bus?", text("Yes")),
        ("Is there a cat?", text("No")),
        ("How many cats are there?", text("0")),
        // Of which of the two?
        ("What colour is the bus?", None),
        ("red bus", boxes(1)),
        ("green bus", boxes(0)),
        ("buses", boxes(2)),
    ] {
        assert_eq!(ask(two.clone(), question), expected, "{question}");
    }
    assert_eq!(ask(one, "What colour is the bus?"), text("red"));
}

#[test]
fn a_class_with_an_ignored_object_has_no_questions() {
    let bus = |visibility| seen(Class::Bus, Some(Colour::Red), visibility);
    let both = || vec![bus(Visibility::Present), bus(Visibility::Ignored)];
    for text in [
        "bus",
        "buses",
        "red bus",
        "Is there a bus?",
        "How many buses are there?",
    ] {
        assert_eq!(ask(both(), text), None, "{text}");
    }
}
