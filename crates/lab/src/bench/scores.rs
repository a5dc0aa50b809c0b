//! Scores of many answers, in total and by class, size, light and scene.

use std::collections::BTreeMap;

use spotter_street::score::{
    Calibration, HitShare, MatchTally, Matches, TruthObject, match_boxes, match_points, same_answer,
};

use spotter_core::{AnswerBody, FoundObject, NormBox, NormPoint};
use spotter_street::{
    questions::{ExpectedAnswer, Question, QuestionKind},
    scene::Daylight,
};

/// Sides of the squares, in pixels of a 640x360 picture, whose areas divide small from medium and medium from large:
/// the bounds of COCO's evaluation.
const SIZE_BOUNDS_PX: [f64; 2] = [32.0, 96.0];
const PICTURE_PX: f64 = 640.0 * 360.0;

/// Where and when the scene of a picture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EvalSetting {
    /// From the moving [`spotter_street::Street`], not a [`spotter_street::random`] scene without motion.
    pub is_street: bool,
    pub light: Daylight,
}

/// Counts of right and wrong answers. Empty by default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scores {
    /// Boxes of all detect prompts for known classes; a box for an absent thing is wrong.
    pub detect: MatchTally,
    /// By what they are divided ("class", "size", "light" of the day, "scene"), and the part.
    pub detect_by: BTreeMap<(&'static str, &'static str), MatchTally>,
    /// Points of all point prompts; a point on something absent is wrong.
    pub point: MatchTally,
    /// Detect prompts for a class that is absent; a hit is one with a box.
    pub absent_class: HitShare,
    /// Detect prompts for a class that is present in other colours only; a hit is one with a box.
    pub absent_colour: HitShare,
    /// Detect prompts in words that no training contained; a hit is one with a box.
    pub unknown: HitShare,
    /// Yes/no questions; a hit is right.
    pub yes_no: HitShare,
    /// Questions for a number; a hit is exactly right.
    pub count: HitShare,
    /// Questions for a colour; a hit is right.
    pub colour: HitShare,
    pub sure_of_boxes: Calibration,
    /// Scores of answers in words.
    pub sure_of_words: Calibration,
}

impl Scores {
    /// Adds the answer to one question. An answer of another kind than the question counts as no answer.
    pub fn add(&mut self, setting: EvalSetting, question: &Question, answer: &AnswerBody) {
        match (&question.expected, answer) {
            (ExpectedAnswer::Boxes(truth), answer) => {
                let found = boxes(answer);
                let places: Vec<_> = found.iter().map(|one| one.place).collect();
                let matches = self.add_boxes(setting, question, truth, &places);
                for (index, one) in found.iter().enumerate() {
                    let is_right = matches.found.iter().any(|m| m.answer == index);
                    self.sure_of_boxes.add(one.score, share(is_right));
                }
            }
            (ExpectedAnswer::PointsIn(truth), answer) => {
                let matches = match_points(&points(answer), &required(truth));
                self.point.add(matches.tally());
            }
            (ExpectedAnswer::Text(expected), answer) => {
                let right =
                    matches!(answer, AnswerBody::Text { text, .. } if same_answer(expected, text));
                if let AnswerBody::Text { score, .. } = answer {
                    self.sure_of_words.add(*score, share(right));
                }
                match question.kind {
                    QuestionKind::YesNo => self.yes_no.count(right),
                    QuestionKind::Count => self.count.count(right),
                    QuestionKind::Colour => self.colour.count(right),
                    QuestionKind::Detect | QuestionKind::Point => {}
                }
            }
        }
    }

    /// Adds the answer to a detect prompt in unknown words.
    pub fn add_unknown(&mut self, answer: &AnswerBody) {
        self.unknown.count(!boxes(answer).is_empty());
    }

    /// Prompts for something absent, class or colour.
    pub fn absent(&self) -> HitShare {
        HitShare {
            hits: self.absent_class.hits + self.absent_colour.hits,
            asked: self.absent_class.asked + self.absent_colour.asked,
        }
    }

    fn add_boxes(
        &mut self,
        setting: EvalSetting,
        question: &Question,
        truth: &[NormBox],
        answered: &[NormBox],
    ) -> Matches {
        let matches = match_boxes(answered, &required(truth));
        let tally = matches.tally();
        self.detect.add(tally);
        let light = match setting.light {
            Daylight::Day => "day",
            Daylight::Dusk => "dusk",
            Daylight::Night => "night",
        };
        let scene = if setting.is_street {
            "street"
        } else {
            "random"
        };
        let class = question.class.name();
        for part in [("class", class), ("light", light), ("scene", scene)] {
            self.detect_by.entry(part).or_default().add(tally);
        }
        self.add_by_size(&matches, truth, answered);
        if truth.is_empty() {
            let share = if names_class_alone(question) {
                &mut self.absent_class
            } else {
                &mut self.absent_colour
            };
            share.count(!answered.is_empty());
        }
        matches
    }

    fn add_by_size(&mut self, matches: &Matches, truth: &[NormBox], answered: &[NormBox]) {
        let mut add = |bounds: &NormBox, tally: MatchTally| {
            let part = ("size", size_name(bounds));
            self.detect_by.entry(part).or_default().add(tally);
        };
        for found in &matches.found {
            let tally = MatchTally {
                found: 1,
                quality_sum: found.quality,
                ..MatchTally::default()
            };
            add(&truth[found.thing], tally);
        }
        let (mut missed, mut wrong) = (MatchTally::default(), MatchTally::default());
        (missed.missed, wrong.wrong) = (1, 1);
        for &thing in &matches.missed {
            add(&truth[thing], missed);
        }
        for &answer in &matches.wrong {
            add(&answered[answer], wrong);
        }
    }
}

/// How right an answer is.
fn share(is_right: bool) -> f64 {
    f64::from(u8::from(is_right))
}

/// There are no questions about a class with an ignored thing, so everything in an expected answer is required.
fn required(truth: &[NormBox]) -> Vec<TruthObject> {
    let thing = |&bounds| TruthObject {
        bounds,
        ignored: false,
    };
    truth.iter().map(thing).collect()
}

fn boxes(answer: &AnswerBody) -> &[FoundObject<NormBox>] {
    match answer {
        AnswerBody::Boxes(found) => found,
        _ => &[],
    }
}

fn points(answer: &AnswerBody) -> Vec<NormPoint> {
    match answer {
        AnswerBody::Points(found) => found.iter().map(|one| one.place).collect(),
        _ => Vec::new(),
    }
}

fn names_class_alone(question: &Question) -> bool {
    [question.class.name(), question.class.plural()].contains(&question.task.text())
}

fn size_name(bounds: &NormBox) -> &'static str {
    let area_px = bounds.area() * PICTURE_PX;
    let [small, medium] = SIZE_BOUNDS_PX.map(|side| side * side);
    if area_px < small {
        "small"
    } else if area_px < medium {
        "medium"
    } else {
        "large"
    }
}

#[cfg(test)]
mod tests;
