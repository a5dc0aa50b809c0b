//! From the probability of an answer to the share of such answers that is right.
//!
//! ```text
//!   answers whose truth is known ─▶ `ScoreMap::fit` ─▶ model.toml ─▶ `ScoreMaps` of an engine ─▶ scores of its answers
//! ```
//!
//! The map is an isotonic regression (Zadrozny and Elkan, "Transforming Classifier Scores into Accurate Multiclass Probability
//! Estimates", 2002) over groups of answers with similar probabilities, with straight lines between the groups, so that of two
//! answers the more probable one keeps the higher score.

use std::collections::BTreeMap;

use derive_more::Into;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::Task;

/// With fewer answers there is no map: a share of 100 answers is known to about 0.1.
pub const SCORED_ANSWERS_MIN: usize = 100;
/// Answers of a group, at least, and groups, at most.
const GROUP_MIN: usize = 25;
const GROUPS_MAX: usize = 60;

/// The kinds of answers that have maps.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ScoredKind {
    Detect,
    Point,
    Query,
}

impl ScoredKind {
    /// That of a task; captions have none, because no caption is the only right one.
    pub fn of(task: &Task) -> Option<Self> {
        match task {
            Task::Detect { .. } => Some(Self::Detect),
            Task::Point { .. } => Some(Self::Point),
            Task::Query { .. } => Some(Self::Query),
            Task::Segment { .. } | Task::Caption { .. } => None,
        }
    }

    /// As in prompts: `detect`, `point`, `query`.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// An answer of which is known how right it is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ScoredAnswer {
    /// The model's own, 0..1.
    pub probability: f64,
    /// 1 when it is right, 0 when it is wrong; between them when only that is known.
    pub right: f64,
}

/// Why there is no map.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreMapError {
    #[error("{0} answers are too few for a map of scores, {SCORED_ANSWERS_MIN} are needed")]
    TooFew(usize),
    #[error(
        "the points of a map of scores must rise from 0 to 1 in their first number and must not fall in their second, all of 0 to 1"
    )]
    NotRising,
}

/// A rising map from 0..1 to 0..1, with straight lines between its points.
#[derive(Clone, Debug, PartialEq, Into, Serialize, Deserialize)]
#[serde(try_from = "Vec<[f64; 2]>", into = "Vec<[f64; 2]>")]
pub struct ScoreMap {
    /// Probability and share; the first probability is 0, the last is 1.
    points: Vec<[f64; 2]>,
}

impl TryFrom<Vec<[f64; 2]>> for ScoreMap {
    type Error = ScoreMapError;

    fn try_from(points: Vec<[f64; 2]>) -> Result<Self, ScoreMapError> {
        let in_range = |value: &f64| (0.0..=1.0).contains(value);
        let rises = |pair: &[[f64; 2]]| pair[0][0] < pair[1][0] && pair[0][1] <= pair[1][1];
        let ends = points.first().zip(points.last());
        let from_0_to_1 = ends.is_some_and(|(first, last)| first[0] == 0.0 && last[0] == 1.0);
        let is_valid =
            from_0_to_1 && points.iter().flatten().all(in_range) && points.windows(2).all(rises);
        is_valid
            .then_some(Self { points })
            .ok_or(ScoreMapError::NotRising)
    }
}

/// Answers with similar probabilities.
#[derive(Clone, Copy)]
struct AnswerGroup {
    answers: f64,
    probability_sum: f64,
    right_sum: f64,
}

impl AnswerGroup {
    fn of(answers: &[ScoredAnswer]) -> Self {
        Self {
            answers: answers.len() as f64,
            probability_sum: answers.iter().map(|answer| answer.probability).sum(),
            right_sum: answers.iter().map(|answer| answer.right).sum(),
        }
    }

    fn probability(&self) -> f64 {
        self.probability_sum / self.answers
    }

    /// Half an answer is added, half right: of few answers none is known to be always right.
    fn share(&self) -> f64 {
        (self.right_sum + 0.25) / (self.answers + 0.5)
    }

    fn add(&mut self, other: Self) {
        self.answers += other.answers;
        self.probability_sum += other.probability_sum;
        self.right_sum += other.right_sum;
    }
}

impl ScoreMap {
    /// The map of these answers.
    pub fn fit(mut answers: Vec<ScoredAnswer>) -> Result<Self, ScoreMapError> {
        if answers.len() < SCORED_ANSWERS_MIN {
            return Err(ScoreMapError::TooFew(answers.len()));
        }
        answers.sort_by(|a, b| a.probability.total_cmp(&b.probability));
        let group_size = GROUP_MIN.max(answers.len().div_ceil(GROUPS_MAX));
        let mut groups: Vec<AnswerGroup> = Vec::new();
        for chunk in answers.chunks(group_size) {
            groups.push(AnswerGroup::of(chunk));
            // Pool adjacent violators: neighbours whose shares fall, or whose probabilities are the same, are one group.
            while let [.., before, last] = groups.as_mut_slice() {
                let rises = before.share() < last.share();
                if rises && before.probability() < last.probability() {
                    break;
                }
                before.add(*last);
                groups.pop();
            }
        }
        Ok(Self::through(&groups))
    }

    fn through(groups: &[AnswerGroup]) -> Self {
        let inner = groups
            .iter()
            .map(|group| [group.probability(), group.share()]);
        let inner: Vec<_> = inner.filter(|[at, _]| 0.0 < *at && *at < 1.0).collect();
        let at_end = |end: f64, default: f64| {
            let group = groups.iter().find(|group| group.probability() == end);
            [end, group.map_or(default, AnswerGroup::share)]
        };
        let highest = groups.last().map_or(1.0, AnswerGroup::share);
        let mut points = vec![at_end(0.0, 0.0)];
        points.extend(inner);
        points.push(at_end(1.0, highest));
        Self { points }
    }

    /// Share of the answers with this probability that is right. `probability` is in 0..1.
    pub fn share(&self, probability: f64) -> f64 {
        let next = self.points.partition_point(|[at, _]| *at <= probability);
        match (self.points.get(next.wrapping_sub(1)), self.points.get(next)) {
            (Some([from, low]), Some([to, high])) => {
                low + (high - low) * (probability - from) / (to - from)
            }
            (Some([_, last]), None) => *last,
            (None, _) => 0.0,
        }
    }
}

/// The maps of a model in one precision. Empty by default: scores are the model's own probabilities.
pub type ScoreMaps = BTreeMap<ScoredKind, ScoreMap>;

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` answers with probabilities spread over 0..1, of which `right` gives the share that is right.
    fn answers(count: usize, right: impl Fn(f64) -> f64) -> Vec<ScoredAnswer> {
        // Multiples of the golden ratio are spread evenly, and every share of them has a right share of right answers.
        let spread = |nth: usize, step: f64| (nth as f64 * step).fract();
        let answer = |nth| {
            let probability = spread(nth, 0.618_033_988_749_895);
            let is_right = spread(nth, 0.754_877_666_246_693) < right(probability);
            ScoredAnswer {
                probability,
                right: f64::from(u8::from(is_right)),
            }
        };
        (0..count).map(answer).collect()
    }

    #[test]
    fn fit_finds_how_often_answers_are_right() {
        for right in [|p: f64| p * p, |p: f64| 0.5 + p / 4.0, |p: f64| p.sqrt()] {
            let map = ScoreMap::fit(answers(20_000, right)).unwrap();
            for probability in [0.1, 0.3, 0.5, 0.7, 0.9] {
                let gap = map.share(probability) - right(probability);
                assert!(gap.abs() < 0.03, "{probability}: {gap}");
            }
        }
    }

    #[test]
    fn more_probable_answers_never_score_lower() {
        // Chance alone, so that shares of neighbouring groups fall as often as they rise.
        let map = ScoreMap::fit(answers(500, |_| 0.5)).unwrap();
        let scores: Vec<f64> = (0..=1000)
            .map(|n| map.share(f64::from(n) / 1000.0))
            .collect();
        assert!(scores.windows(2).all(|pair| pair[0] <= pair[1]));
        assert!(scores.iter().all(|score| (0.0..=1.0).contains(score)));
    }

    #[test]
    fn answers_of_one_probability_have_their_share() {
        for probability in [0.0, 0.5, 1.0] {
            let answer = |nth| ScoredAnswer {
                probability,
                right: f64::from(u8::from(nth % 4 != 0)),
            };
            let map = ScoreMap::fit((0..400).map(answer).collect()).unwrap();
            assert!((map.share(probability) - 0.75).abs() < 0.01, "{map:?}");
            let again = ScoreMap::try_from(Vec::from(map.clone()));
            assert_eq!(again, Ok(map));
        }
    }

    #[test]
    fn points_that_are_no_map_are_refused() {
        assert_eq!(
            ScoreMap::fit(answers(99, |p| p)),
            Err(ScoreMapError::TooFew(99))
        );
        let map = |points: &[[f64; 2]]| ScoreMap::try_from(points.to_vec());
        assert!(map(&[[0.0, 0.1], [0.5, 0.1], [1.0, 0.9]]).is_ok());
        for wrong in [
            &[] as &[[f64; 2]],
            &[[0.0, 0.0]],
            &[[0.1, 0.0], [1.0, 1.0]],
            &[[0.0, 0.5], [1.0, 0.4]],
            &[[0.0, 0.0], [0.5, 0.2], [0.5, 0.3], [1.0, 1.0]],
            &[[0.0, 0.0], [1.0, f64::NAN]],
        ] {
            assert_eq!(map(wrong), Err(ScoreMapError::NotRising), "{wrong:?}");
        }
    }
}
