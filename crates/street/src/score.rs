//! One answer against the truth.
//!
//! Boxes are matched greedily, the best overlap first, one to one, from an intersection over union of 0.5 on, which is
//! the usual rule of detection benchmarks (PASCAL VOC, COCO at IoU 0.5). Things that are too small or too hidden
//! are *ignored*: finding them is not false, missing them is no miss.

mod calibration;

pub use calibration::{Calibration, CalibrationBin};
use derive_more::AddAssign;
use spotter_core::{NormBox, NormPoint};

/// Overlap from which a box is right.
pub const MATCH_IOU: f64 = 0.5;
/// An ignored thing excuses a box when this share of the box is on it. The share is that of the box, because the model may
/// show only the visible part of a hidden thing.
const EXCUSED_SHARE: f64 = 0.5;

/// A thing of the truth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TruthObject {
    pub bounds: NormBox,
    /// Neither required nor false.
    pub ignored: bool,
}

/// Counts of right and wrong, to be added up over many answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, AddAssign)]
pub struct MatchTally {
    /// Required things that were found.
    pub found: u64,
    /// Required things that were not.
    pub missed: u64,
    /// Boxes or points on nothing, or on a thing that another one has already found.
    pub wrong: u64,
    /// Sum of the found things' qualities: for boxes the overlaps.
    pub quality_sum: f64,
}

impl MatchTally {
    pub fn add(&mut self, other: Self) {
        *self += other;
    }

    /// Share of the answers that are right; `None` when there were none.
    pub fn precision(&self) -> Option<f64> {
        ratio(self.found as f64, (self.found + self.wrong) as f64)
    }

    /// Share of the required things that were found; `None` when nothing was required.
    pub fn recall(&self) -> Option<f64> {
        ratio(self.found as f64, (self.found + self.missed) as f64)
    }

    /// Harmonic mean of precision and recall, `2 found / (2 found + missed + wrong)`; `None` when nothing was required
    /// and nothing answered.
    pub fn f1(&self) -> Option<f64> {
        let twice = 2.0 * self.found as f64;
        ratio(twice, twice + (self.missed + self.wrong) as f64)
    }

    /// Mean overlap of the found boxes; `None` when none was found. Meaningless for points.
    pub fn mean_iou(&self) -> Option<f64> {
        ratio(self.quality_sum, self.found as f64)
    }
}

/// A share as two counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HitShare {
    pub hits: u64,
    pub asked: u64,
}

impl HitShare {
    pub fn count(&mut self, hit: bool) {
        self.hits += u64::from(hit);
        self.asked += 1;
    }

    /// 0..1; `None` without questions.
    pub fn value(&self) -> Option<f64> {
        ratio(self.hits as f64, self.asked as f64)
    }
}

/// Which answer found which thing. Indices are places in the compared lists; ignored things and what they excuse do not
/// appear.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Matches {
    /// Found things with their quality (for boxes the overlap), the best first.
    pub found: Vec<Match>,
    /// Required things that nothing found.
    pub missed: Vec<usize>,
    /// Answers on nothing, or on a thing that another one has found.
    pub wrong: Vec<usize>,
}

impl Matches {
    /// How many of each.
    pub fn tally(&self) -> MatchTally {
        MatchTally {
            found: self.found.len() as u64,
            missed: self.missed.len() as u64,
            wrong: self.wrong.len() as u64,
            quality_sum: self.found.iter().map(|m| m.quality).sum(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Match {
    pub answer: usize,
    pub thing: usize,
    /// Overlap of two boxes, or nearness of a point.
    pub quality: f64,
}

/// Compares the boxes of one answer with the truth.
pub fn match_boxes(boxes: &[NormBox], truth: &[TruthObject]) -> Matches {
    let overlap =
        |b: &NormBox, t: &TruthObject| Some(b.iou(&t.bounds)).filter(|&iou| iou >= MATCH_IOU);
    let excused = |b: &NormBox, t: &TruthObject| share_on(b, &t.bounds) >= EXCUSED_SHARE;
    match_best_first(boxes, truth, overlap, excused)
}

/// Compares the points of one answer with the truth: a point is right inside of a thing that no other point has,
/// and the one nearest to a thing's centre (in units of its size) has it.
pub fn match_points(points: &[NormPoint], truth: &[TruthObject]) -> Matches {
    let nearness = |p: &NormPoint, t: &TruthObject| {
        let centre = t.bounds.centre();
        let (width, height) = (t.bounds.x1 - t.bounds.x0, t.bounds.y1 - t.bounds.y0);
        let distance = ((p.x - centre.x) / width).hypot((p.y - centre.y) / height);
        t.bounds.contains(*p).then_some(1.0 - distance)
    };
    let excused = |p: &NormPoint, t: &TruthObject| t.bounds.contains(*p);
    match_best_first(points, truth, nearness, excused)
}

/// Whether the answer to a question is the expected one. Case, outer blanks and a final full stop do not matter; nothing is
/// searched for inside of the answer.
pub fn same_answer(expected: &str, given: &str) -> bool {
    let bare = |text: &str| text.trim().trim_end_matches('.').to_lowercase();
    bare(expected) == bare(given)
}

/// Greedy one-to-one matching of required things, the highest quality first (`None` = no match). What is left over is
/// wrong, unless an ignored thing excuses it.
fn match_best_first<T>(
    answers: &[T],
    truth: &[TruthObject],
    quality: impl Fn(&T, &TruthObject) -> Option<f64>,
    excused: impl Fn(&T, &TruthObject) -> bool,
) -> Matches {
    let required = |&(_, thing): &(usize, &TruthObject)| !thing.ignored;
    let mut candidates: Vec<Match> = Vec::new();
    for (answer, place) in answers.iter().enumerate() {
        let things = truth.iter().enumerate().filter(required);
        candidates.extend(things.filter_map(|(thing, there)| {
            let quality = quality(place, there)?;
            Some(Match {
                answer,
                thing,
                quality,
            })
        }));
    }
    // The sort is stable, so of equal pairs the first answer has the first thing.
    candidates.sort_by(|a, b| b.quality.total_cmp(&a.quality));

    let mut found: Vec<Match> = Vec::new();
    for candidate in candidates {
        let taken = |m: &Match| m.answer == candidate.answer || m.thing == candidate.thing;
        if !found.iter().any(taken) {
            found.push(candidate);
        }
    }
    let is_missed = |(index, _): &(usize, &TruthObject)| found.iter().all(|m| m.thing != *index);
    let things = truth.iter().enumerate().filter(required);
    let missed = things.filter(is_missed).map(|(index, _)| index).collect();
    let is_excused = |answer: &T| truth.iter().any(|t| t.ignored && excused(answer, t));
    let is_wrong = |(index, answer): &(usize, &T)| {
        found.iter().all(|m| m.answer != *index) && !is_excused(answer)
    };
    let places = answers.iter().enumerate();
    let wrong = places.filter(is_wrong).map(|(index, _)| index).collect();
    Matches {
        found,
        missed,
        wrong,
    }
}

/// Share of `inner`'s area that is on `outer`, 0..1.
fn share_on(inner: &NormBox, outer: &NormBox) -> f64 {
    ratio(inner.intersection(outer), inner.area()).unwrap_or(0.0)
}

fn ratio(part: f64, whole: f64) -> Option<f64> {
    (whole > 0.0).then(|| part / whole)
}

#[cfg(test)]
mod tests;
