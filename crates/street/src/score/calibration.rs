//! Share of right answers by score. Pure.
//!
//! A score is calibrated if eight in ten of the answers with a score of 0.8 are right. The mean gap between both is the expected
//! calibration error, as in Guo et al., "On Calibration of Modern Neural Networks" (2017).

use serde::Serialize;

/// Lower bounds of the bins: finer above, where nearly all scores are.
const FROM: [f64; 7] = [0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99];

/// Scores and whether their answers were right.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    bins: [Bin; FROM.len()],
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bin {
    answers: u64,
    right_sum: f64,
    score_sum: f64,
}

/// Answers whose scores are between two bounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CalibrationBin {
    /// The lower bound, which is inside.
    pub from: f64,
    pub answers: u64,
    /// Their mean score.
    pub score: f64,
    /// Share of them that is right.
    pub right: f64,
}

impl Calibration {
    /// Adds an answer: its score, and how right it is, both 0..1.
    pub fn add(&mut self, score: f64, right: f64) {
        let above = FROM.iter().filter(|&&from| score >= from).count();
        let bin = &mut self.bins[above.max(1) - 1];
        bin.answers += 1;
        bin.right_sum += right;
        bin.score_sum += score;
    }

    /// The bins with answers, lowest scores first.
    pub fn bins(&self) -> Vec<CalibrationBin> {
        let bins = FROM.iter().zip(&self.bins);
        let held = bins.filter(|(_, bin)| bin.answers > 0);
        held.map(|(&from, bin)| CalibrationBin {
            from,
            answers: bin.answers,
            score: bin.score_sum / bin.answers as f64,
            right: bin.right_sum / bin.answers as f64,
        })
        .collect()
    }

    /// Mean distance between score and share that is right, over all answers; `None` without any.
    pub fn error(&self) -> Option<f64> {
        let answers: u64 = self.bins.iter().map(|bin| bin.answers).sum();
        let gaps = self.bins.iter().map(|b| (b.score_sum - b.right_sum).abs());
        (answers > 0).then(|| gaps.sum::<f64>() / answers as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_of_ten_correct_at_score_eight_tenths_is_calibrated() {
        let mut calibration = Calibration::default();
        assert_eq!(calibration.error(), None);
        (0..10).for_each(|i| calibration.add(0.8, if i < 8 { 1.0 } else { 0.0 }));
        assert!(calibration.error().unwrap() < 1e-9);
        // As many that are surely right and never are.
        (0..10).for_each(|_| calibration.add(1.0, 0.0));
        assert!((calibration.error().unwrap() - 0.5).abs() < 1e-9);
        let bins = calibration.bins().into_iter();
        let bins: Vec<_> = bins.map(|b| (b.from, b.answers, b.right)).collect();
        assert_eq!(bins, [(0.8, 10, 0.8), (0.99, 10, 0.0)]);
    }

    #[test]
    fn each_score_has_a_bin() {
        let mut calibration = Calibration::default();
        for score in [0.0, 0.499, 0.5, 0.7, 0.9499, 0.95, 0.9999, 1.0] {
            calibration.add(score, 1.0);
        }
        let bins = calibration.bins().into_iter();
        let counted: Vec<_> = bins.map(|b| (b.from, b.answers)).collect();
        let expected = [(0.0, 2), (0.5, 1), (0.7, 1), (0.9, 1), (0.95, 1), (0.99, 2)];
        assert_eq!(counted, expected);
    }
}
