//! Score of a whole run: published boxes against the street's truth at the moment each frame was captured.

use std::collections::BTreeMap;

use serde::Serialize;

use super::score::{MatchTally, Thing, match_boxes};
use crate::{
    Truth,
    scene::{Class, Colour},
    truth::Visibility,
};
use spotter_core::NormBox;

/// Boxes of a run, added up frame by frame.
///
/// The truth is `truth(&street.at(captured))`, with the capture time that was published beside the boxes. Ignored objects are neither required nor false.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct LiveScore {
    /// Messages that were scored.
    pub messages: u64,
    pub total: MatchTally,
    pub by_class: BTreeMap<&'static str, MatchTally>,
}

impl LiveScore {
    /// Adds the boxes published for one prompt on one frame: everything of `class`, or with a colour only what has that
    /// colour.
    pub fn add(&mut self, class: Class, colour: Option<Colour>, boxes: &[NormBox], truth: &Truth) {
        let tally = match_boxes(boxes, &things(truth, class, colour)).tally();
        self.messages += 1;
        self.total.add(tally);
        self.by_class.entry(class.name()).or_default().add(tally);
    }

    /// Over the run, at IoU 0.5; `None` when there was nothing to find and nothing was found.
    pub fn f1(&self) -> Option<f64> {
        self.total.f1()
    }
}

/// What the words of a detect prompt name: "car", "cars", "red car", "red cars"; `None` for other words.
pub fn named(words: &str) -> Option<(Class, Option<Colour>)> {
    let class = |words: &str| {
        let mut all = Class::ALL.into_iter();
        all.find(|class| [class.name(), class.plural()].contains(&words))
    };
    let coloured = |colour: Colour| {
        let rest = words.strip_prefix(colour.name())?.strip_prefix(' ')?;
        Some((class(rest)?, Some(colour)))
    };
    class(words)
        .map(|class| (class, None))
        .or_else(|| Colour::ALL.into_iter().find_map(coloured))
}

/// What a prompt for `class` should find.
fn things(truth: &Truth, class: Class, colour: Option<Colour>) -> Vec<Thing> {
    let wanted = truth
        .seen
        .iter()
        .filter(|seen| seen.class == class && (colour.is_none() || seen.colour == colour));
    wanted
        .map(|seen| Thing {
            bounds: seen.box_in_frame,
            ignored: seen.visibility == Visibility::Ignored,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        scene::{Daylight, ObjectIdentity, SceneLayout, Weather},
        truth::SeenObject,
    };

    const LEFT: NormBox = NormBox {
        x0: 0.1,
        y0: 0.4,
        x1: 0.3,
        y1: 0.6,
    };
    const RIGHT: NormBox = NormBox {
        x0: 0.6,
        y0: 0.4,
        x1: 0.8,
        y1: 0.6,
    };

    fn car(colour: Colour, box_in_frame: NormBox, visibility: Visibility) -> SeenObject {
        SeenObject {
            identity: ObjectIdentity::Anonymous,
            class: Class::Car,
            colour: Some(colour),
            box_in_frame,
            visible: 0.5,
            visibility,
        }
    }

    fn street(seen: Vec<SeenObject>) -> Truth {
        Truth {
            layout: SceneLayout::Street,
            light: Daylight::Day,
            weather: Weather::Clear,
            seen,
        }
    }

    #[test]
    fn a_run_adds_up() {
        let truth = street(vec![
            car(Colour::Red, LEFT, Visibility::Present),
            car(Colour::Blue, RIGHT, Visibility::Present),
        ]);
        let mut score = LiveScore::default();
        score.add(Class::Car, None, &[LEFT, RIGHT], &truth);
        score.add(Class::Car, None, &[LEFT], &truth);
        score.add(Class::Dog, None, &[RIGHT], &truth);
        score.add(Class::Car, Some(Colour::Red), &[LEFT], &truth);
        // Found 2 + 1 + 0 + 1, missed one car, one dog that is a car.
        assert_eq!(score.messages, 4);
        assert_eq!(score.f1(), Some(8.0 / 10.0));
        assert_eq!(score.by_class["dog"].wrong, 1);
        assert_eq!(score.by_class["car"].missed, 1);
    }

    #[test]
    fn what_is_ignored_neither_helps_nor_harms() {
        let truth = street(vec![
            car(Colour::Red, LEFT, Visibility::Present),
            car(Colour::Blue, RIGHT, Visibility::Ignored),
        ]);
        let mut score = LiveScore::default();
        score.add(Class::Car, None, &[LEFT, RIGHT], &truth);
        score.add(Class::Car, None, &[LEFT], &truth);
        assert_eq!(score.f1(), Some(1.0));
        assert_eq!(score.total.found, 2);
    }

    #[test]
    fn words_name_a_class_and_perhaps_a_colour() {
        assert_eq!(named("traffic lights"), Some((Class::TrafficLight, None)));
        assert_eq!(
            named("red people"),
            Some((Class::Person, Some(Colour::Red)))
        );
        for words in ["", "red", "redcar", "scar", "red penguin"] {
            assert_eq!(named(words), None, "{words}");
        }
    }

    #[test]
    fn an_empty_street_has_no_score() {
        let mut score = LiveScore::default();
        score.add(Class::Car, None, &[], &street(Vec::new()));
        assert_eq!((score.messages, score.f1()), (1, None));
    }
}
