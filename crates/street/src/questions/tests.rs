use super::*;
use crate::{
    scene::{Daylight, ObjectIdentity, SceneLayout, Weather},
    truth::Visibility,
};

fn seen(class: Class, colour: Option<Colour>, visibility: Visibility) -> SeenObject {
    SeenObject {
        identity: ObjectIdentity::Anonymous,
        class,
        colour,
        box_in_frame: NormBox::from_corners(0.1, 0.1, 0.3, 0.2),
        visible: 0.8,
        visibility,
    }
}

fn ask(seen: Vec<SeenObject>, text: &str) -> Option<ExpectedAnswer> {
    let truth = Truth {
        layout: SceneLayout::Park,
        light: Daylight::Day,
        weather: Weather::Clear,
        seen,
    };
    // Absent things are drawn at random: check many draws.
    (0..64)
        .flat_map(|seed| questions(&truth, seed))
        .find(|q| q.task.text() == text)
        .map(|q| q.expected)
}

fn text(answer: &str) -> Option<ExpectedAnswer> {
    Some(ExpectedAnswer::Text(answer.into()))
}

#[test]
fn answers_follow_from_the_truth() {
    let bus = |colour| seen(Class::Bus, Some(colour), Visibility::Present);
    let two = || vec![bus(Colour::Red), bus(Colour::Blue)];
    assert_eq!(ask(two(), "How many buses are there?"), text("2"));
    assert_eq!(ask(two(), "Is there a bus?"), text("Yes"));
    assert_eq!(ask(two(), "Is there a cat?"), text("No"));
    assert_eq!(ask(two(), "How many cats are there?"), text("0"));
    assert_eq!(
        ask(two(), "What colour is the bus?"),
        None,
        "which of the two?"
    );
    assert_eq!(
        ask(vec![bus(Colour::Red)], "What colour is the bus?"),
        text("red")
    );
    assert_eq!(
        ask(two(), "red bus"),
        Some(ExpectedAnswer::Boxes(vec![two()[0].box_in_frame]))
    );
    assert_eq!(
        ask(two(), "green bus"),
        Some(ExpectedAnswer::Boxes(Vec::new()))
    );
    assert!(matches!(ask(two(), "buses"), Some(ExpectedAnswer::Boxes(boxes)) if boxes.len() == 2));
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
