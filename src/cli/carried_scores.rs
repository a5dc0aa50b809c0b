//! How right the answers of one precision are, from the calibrated scores of another. Pure.

use spotter_core::{AnswerBody, FoundObject, NormBox, NormPoint, ScoredAnswer};
use spotter_street::score::{Matches, TruthObject, match_boxes, match_points, same_answer};

/// Half the sides of a square in which two points are the same; parts of the picture's width and height.
const SAME_POINT: f64 = 0.02;

/// Each answer of `given` with the share that `known` gives to the same answer.
pub fn scored_answers(
    known: &AnswerBody,
    given: &AnswerBody,
    share: impl Fn(f64) -> f64,
) -> Vec<ScoredAnswer> {
    match (known, given) {
        (AnswerBody::Boxes(known), AnswerBody::Boxes(given)) => {
            let places: Vec<_> = given.iter().map(|one| one.place).collect();
            let truth = known.iter().map(|one| required(one.place));
            let matches = match_boxes(&places, &truth.collect::<Vec<_>>());
            with_shares(known, given, &matches, share)
        }
        (AnswerBody::Points(known), AnswerBody::Points(given)) => {
            let places: Vec<_> = given.iter().map(|one| one.place).collect();
            let around = |at: NormPoint| {
                NormBox::from_corners(
                    at.x - SAME_POINT,
                    at.y - SAME_POINT,
                    at.x + SAME_POINT,
                    at.y + SAME_POINT,
                )
            };
            let truth = known.iter().map(|one| required(around(one.place)));
            let matches = match_points(&places, &truth.collect::<Vec<_>>());
            with_shares(known, given, &matches, share)
        }
        (
            AnswerBody::Text {
                text: known, score, ..
            },
            AnswerBody::Text {
                text,
                score: probability,
                ..
            },
        ) => {
            let right = match same_answer(known, text) {
                true => share(*score),
                false => 0.0,
            };
            vec![ScoredAnswer {
                probability: *probability,
                right,
            }]
        }
        _ => Vec::new(),
    }
}

fn required(bounds: NormBox) -> TruthObject {
    TruthObject {
        bounds,
        ignored: false,
    }
}

fn with_shares<T>(
    known: &[FoundObject<T>],
    given: &[FoundObject<T>],
    matches: &Matches,
    share: impl Fn(f64) -> f64,
) -> Vec<ScoredAnswer> {
    let right = |index: usize| {
        let found = matches.found.iter().find(|found| found.answer == index);
        found.map_or(0.0, |found| share(known[found.thing].score))
    };
    let scored = given.iter().enumerate().map(|(index, one)| ScoredAnswer {
        probability: one.score,
        right: right(index),
    });
    scored.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::ScoreSource;

    fn found<T>(place: T, score: f64) -> FoundObject<T> {
        FoundObject {
            place,
            score,
            source: ScoreSource::TokenProb,
            sharpness: 1.0,
        }
    }

    fn text(text: &str, score: f64) -> AnswerBody {
        AnswerBody::Text {
            text: text.into(),
            score,
            source: ScoreSource::TokenProb,
        }
    }

    /// Half as often right as the model believes.
    fn shares(known: &AnswerBody, given: &AnswerBody) -> Vec<(f64, f64)> {
        let answers = scored_answers(known, given, |probability| probability / 2.0);
        let answers = answers.into_iter();
        answers.map(|one| (one.probability, one.right)).collect()
    }

    #[test]
    fn answers_are_as_right_as_the_same_answers_known() {
        let at = |x: f64| NormBox::from_corners(x, 0.1, x + 0.2, 0.3);
        let known = AnswerBody::Boxes(vec![found(at(0.1), 0.8), found(at(0.5), 0.4)]);
        let given = AnswerBody::Boxes(vec![
            found(at(0.51), 0.3),
            found(at(0.75), 0.9),
            found(at(0.1), 0.7),
        ]);
        assert_eq!(shares(&known, &given), [(0.3, 0.2), (0.9, 0.0), (0.7, 0.4)]);
        let known = AnswerBody::Points(vec![found(NormPoint::new(0.5, 0.5), 1.0)]);
        let near = NormPoint::new(0.51, 0.49);
        let given =
            AnswerBody::Points(vec![found(near, 0.6), found(NormPoint::new(0.1, 0.5), 0.2)]);
        assert_eq!(shares(&known, &given), [(0.6, 0.5), (0.2, 0.0)]);
        assert_eq!(shares(&text("Yes", 0.9), &text("yes.", 0.8)), [(0.8, 0.45)]);
        assert_eq!(shares(&text("Yes", 0.9), &text("No", 0.8)), [(0.8, 0.0)]);
    }
}
