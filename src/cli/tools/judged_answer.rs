//! Objects of an answer against labels that may be of some objects only.

use std::fmt;

use serde::Serialize;
use spotter_core::{NormBox, NormPoint};
use spotter_street::score::{MATCH_IOU, MatchTally, Matches, match_boxes, match_points};

use super::labels::ObjectLabels;

/// What is right, missed and wrong, as far as labels say it.
#[derive(Debug, Default)]
pub struct JudgedAnswer {
    /// Without what no one judged.
    pub matches: Matches,
    /// How many of the boxes that were judged wrong are answered again.
    wrong_again: u64,
}

impl JudgedAnswer {
    pub fn of_boxes(boxes: &[NormBox], labels: &ObjectLabels) -> Self {
        let is_at = |found: &NormBox, wrong: &NormBox| found.iou(wrong) >= MATCH_IOU;
        Self::new(match_boxes(boxes, &labels.things), boxes, labels, is_at)
    }

    pub fn of_points(points: &[NormPoint], labels: &ObjectLabels) -> Self {
        let is_at = |found: &NormPoint, wrong: &NormBox| wrong.contains(*found);
        Self::new(match_points(points, &labels.things), points, labels, is_at)
    }

    fn new<T>(
        mut matches: Matches,
        found: &[T],
        labels: &ObjectLabels,
        is_at: impl Fn(&T, &NormBox) -> bool,
    ) -> Self {
        let is_wrong_again =
            |wrong: &&NormBox| matches.wrong.iter().any(|&one| is_at(&found[one], wrong));
        let wrong_again = labels.wrong.iter().filter(is_wrong_again).count() as u64;
        if !labels.is_complete {
            matches.missed.clear();
            let is_judged =
                |one: &usize| labels.wrong.iter().any(|wrong| is_at(&found[*one], wrong));
            matches.wrong.retain(is_judged);
        }
        Self {
            matches,
            wrong_again,
        }
    }
}

/// Answers to one prompt about all pictures on which it was judged.
#[derive(Clone, Copy, Debug, Default)]
pub struct PromptTally {
    pub all: MatchTally,
    /// Of pictures whose objects are all labelled.
    pub complete: MatchTally,
    pub sample: LabelledSample,
}

/// How much of the pictures is labelled, and how much of that the answers have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LabelledSample {
    pub pictures: u64,
    /// Pictures whose objects are all labelled.
    pub complete: u64,
    right: u64,
    right_found: u64,
    wrong: u64,
    wrong_found: u64,
}

impl PromptTally {
    pub fn add(&mut self, labels: &ObjectLabels, judged: &JudgedAnswer) {
        let tally = judged.matches.tally();
        self.all += tally;
        if labels.is_complete {
            self.complete += tally;
        }
        let required = labels.things.iter().filter(|thing| !thing.ignored);
        let sample = &mut self.sample;
        sample.pictures += 1;
        sample.complete += u64::from(labels.is_complete);
        sample.right += required.count() as u64;
        sample.right_found += tally.found;
        sample.wrong += labels.wrong.len() as u64;
        sample.wrong_found += judged.wrong_again;
    }
}

impl fmt::Display for LabelledSample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pictures,
            complete,
            right,
            right_found,
            wrong,
            wrong_found,
        } = self;
        write!(
            f,
            "{right_found} of {right} right ones found, {wrong_found} of {wrong} wrong ones found again"
        )?;
        match complete {
            0 => write!(
                f,
                "; of none of {pictures} pictures all objects are labelled, so it is not known what is missed"
            ),
            _ => write!(
                f,
                "; missed and found % are of the {complete} of {pictures} pictures whose objects are all labelled"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_street::score::TruthObject;

    fn at(x0: f64) -> NormBox {
        NormBox::from_corners(x0, 0.25, x0 + 0.1, 0.75)
    }

    /// Right at 0.1 and 0.3, wrong at 0.5, not judged at 0.7.
    fn labels(is_complete: bool) -> ObjectLabels {
        let thing = |x0: f64, ignored| TruthObject {
            bounds: at(x0),
            ignored,
        };
        ObjectLabels {
            things: vec![thing(0.1, false), thing(0.3, false), thing(0.7, true)],
            wrong: vec![at(0.5)],
            is_complete,
        }
    }

    /// Found, missed and wrong of all pictures and of complete ones, and the words.
    fn tallies(found: &[f64], is_complete: bool) -> ([u64; 4], String) {
        let boxes = Vec::from_iter(found.iter().copied().map(at));
        let points = Vec::from_iter(boxes.iter().map(NormBox::centre));
        let labels = labels(is_complete);
        let both = [
            JudgedAnswer::of_boxes(&boxes, &labels),
            JudgedAnswer::of_points(&points, &labels),
        ];
        let both = both.map(|judged| {
            let mut tally = PromptTally::default();
            tally.add(&labels, &judged);
            let PromptTally {
                all,
                complete,
                sample,
            } = tally;
            let counts = [all.found, all.missed, all.wrong, complete.found];
            (counts, sample.to_string())
        });
        assert_eq!(both[0], both[1]);
        both[0].clone()
    }

    #[test]
    fn what_was_not_judged_is_neither_right_nor_wrong() {
        let found = [0.11, 0.51, 0.7, 0.89];
        let (counts, words) = tallies(&found, false);
        assert_eq!(counts, [1, 0, 1, 0]);
        assert!(
            words.starts_with(
                "1 of 2 right ones found, 1 of 1 wrong ones found again; of none of 1"
            ),
            "{words}"
        );
        let (counts, words) = tallies(&found, true);
        assert_eq!(counts, [1, 1, 2, 1]);
        assert!(words.ends_with("are of the 1 of 1 pictures whose objects are all labelled"));
        assert_eq!(tallies(&[], false).0, [0; 4]);
    }
}
