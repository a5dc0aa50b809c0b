//! How far two answers to one prompt about one picture agree. Pure.

use serde::Serialize;
use spotter_core::AnswerBody;

/// Boxes that overlap at least so much are the same (intersection over union).
const SAME_IOU: f64 = 0.9;
/// Points that are nearer than this are the same; parts of the picture's width and height.
const SAME_POINT: f64 = 0.02;

/// Of one picture, or of many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Agreement {
    pub pictures: usize,
    /// Pictures on which both answers are the same.
    pub equal: usize,
    /// Objects of the first answer, of the second one, and those that are in both.
    pub first: usize,
    pub second: usize,
    pub both: usize,
}

impl Agreement {
    pub fn of(first: &AnswerBody, second: &AnswerBody) -> Self {
        let (a, b) = (first, second);
        let both = match (a, b) {
            (AnswerBody::Boxes(a), AnswerBody::Boxes(b)) => {
                common(a, b, |a, b| a.place.iou(&b.place) >= SAME_IOU)
            }
            (AnswerBody::Points(a), AnswerBody::Points(b)) => common(a, b, |a, b| {
                let (x, y) = (a.place.x - b.place.x, a.place.y - b.place.y);
                x.hypot(y) <= SAME_POINT
            }),
            _ => 0,
        };
        let count = |answer: &AnswerBody| answer.count().unwrap_or_default();
        let is_equal = match (a, b) {
            (AnswerBody::Text { text: a, .. }, AnswerBody::Text { text: b, .. }) => {
                a.trim().eq_ignore_ascii_case(b.trim())
            }
            _ => both == count(a) && both == count(b),
        };
        Self {
            pictures: 1,
            equal: usize::from(is_equal),
            first: count(a),
            second: count(b),
            both,
        }
    }

    /// 1 when the answers are the same: the share of objects that are in both; of texts, and where nothing was found, the share of
    /// equal pictures.
    pub fn share(&self) -> f64 {
        match self.first + self.second {
            0 => self.equal as f64 / self.pictures.max(1) as f64,
            objects => 2.0 * self.both as f64 / objects as f64,
        }
    }
}

impl std::iter::Sum for Agreement {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            pictures: sum.pictures + one.pictures,
            equal: sum.equal + one.equal,
            first: sum.first + one.first,
            second: sum.second + one.second,
            both: sum.both + one.both,
        })
    }
}

/// How many have a partner in the other list; each is the partner of one.
fn common<T>(first: &[T], second: &[T], is_same: impl Fn(&T, &T) -> bool) -> usize {
    let mut left: Vec<&T> = second.iter().collect();
    let has_partner = |one: &&T| {
        let partner = left.iter().position(|other| is_same(one, other));
        partner.map(|at| left.swap_remove(at)).is_some()
    };
    first.iter().filter(has_partner).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{FoundObject, NormBox, NormPoint, ScoreSource};

    fn found<T>(places: impl IntoIterator<Item = T>) -> Vec<FoundObject<T>> {
        let places = places.into_iter();
        let objects = places.map(|place| FoundObject {
            place,
            score: 0.9,
            source: ScoreSource::TokenProb,
            sharpness: 0.9,
        });
        objects.collect()
    }

    /// Boxes a tenth wide and high, at these left edges.
    fn boxes(left: &[f64]) -> AnswerBody {
        let places = left.iter().map(|&x0| NormBox {
            x0,
            y0: 0.2,
            x1: x0 + 0.1,
            y1: 0.3,
        });
        AnswerBody::Boxes(found(places))
    }

    #[test]
    fn boxes_in_another_order_agree() {
        let agreement = Agreement::of(&boxes(&[0.1, 0.5]), &boxes(&[0.502, 0.102]));
        assert_eq!((agreement.equal, agreement.share()), (1, 1.0));
    }

    #[test]
    fn moved_missing_and_doubled_boxes_lower_the_share() {
        // Moved by a tenth of the width: overlap 0.82.
        let moved = Agreement::of(&boxes(&[0.1, 0.5]), &boxes(&[0.1, 0.51]));
        assert_eq!((moved.equal, moved.both, moved.share()), (0, 1, 0.5));
        let doubled = Agreement::of(&boxes(&[0.1]), &boxes(&[0.1, 0.1]));
        assert_eq!((doubled.equal, doubled.both), (0, 1));
        let missing = Agreement::of(&boxes(&[0.1]), &boxes(&[]));
        assert_eq!((missing.equal, missing.share()), (0, 0.0));
        let nothing = Agreement::of(&boxes(&[]), &boxes(&[]));
        assert_eq!((nothing.equal, nothing.share()), (1, 1.0));
        let all: Agreement = [moved, doubled, missing, nothing].into_iter().sum();
        assert_eq!(
            (all.pictures, all.equal, all.first, all.second, all.both),
            (4, 1, 4, 4, 2)
        );
    }

    #[test]
    fn points_and_texts_agree_when_near_and_equal() {
        let point = |x| AnswerBody::Points(found([NormPoint { x, y: 0.5 }]));
        assert_eq!(Agreement::of(&point(0.5), &point(0.515)).equal, 1);
        assert_eq!(Agreement::of(&point(0.5), &point(0.525)).equal, 0);
        let text = |text: &str| AnswerBody::Text {
            text: text.into(),
            score: 0.8,
            source: ScoreSource::TokenProb,
        };
        let (same, other) = (
            Agreement::of(&text("Yes"), &text("yes ")),
            Agreement::of(&text("yes"), &text("no")),
        );
        assert_eq!((same.share(), other.share()), (1.0, 0.0));
    }
}
