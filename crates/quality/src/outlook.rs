//! Which `min_score` can be promised to make 80 or 90 of 100 alarms right.
//!
//! Higher targets are not offered: with the marks that a person gives in a year at home, 95 of 100 cannot be shown. Lower values than the
//! present `min_score` neither: what it drops was never seen.

use super::{judged::DrawnSample, right_count::RightCount};

/// Of 100 alarms, so many are to be right.
pub const TARGETS_PERCENT: [u8; 2] = [80, 90];
/// Of the values that can be proposed there are so many from 0 to 1: steps of 0.05.
const STEPS: u32 = 20;
/// Marks that are asked for at a time, and the most.
const MORE_STEP: u32 = 10;
const MORE_USUAL: u32 = 20;
const MORE_MAX: u32 = 100;
/// With fewer judged alarms, a low share of right ones may be chance.
const JUDGED_FEW: u32 = 50;

/// What the tracker, run again over the recorded looks with another `min_score`, gives of the judged alarms.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplayedMinScore {
    pub min_score: f64,
    /// One for each judged alarm: whether it comes with this `min_score`, too.
    pub comes: Vec<bool>,
}

/// What judged alarms say about `min_score`.
#[derive(Clone, Debug, PartialEq)]
pub enum Outlook {
    /// About so many more judged alarms are needed.
    TooFew { more: u32 },
    /// By target; never empty. Where one `min_score` reaches two targets, the higher one.
    Proposals(Vec<Proposal>),
    /// No `min_score` makes enough alarms right.
    OutOfReach,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// Of 100 alarms, so many at least should be right: false for at most one of ten such statements.
    pub target_percent: u8,
    /// `None`: the present `min_score` reaches it.
    pub change: Option<MinScoreChange>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinScoreChange {
    pub min_score: f64,
    /// The judged alarms that would not have come, each repeat counted.
    pub lost: RightCount,
}

/// The values above the present `min_score` that can be proposed.
pub fn min_scores_above(present: f64) -> impl Iterator<Item = f64> {
    let all = (1..STEPS).map(|step| f64::from(step) / f64::from(STEPS));
    all.filter(move |value| *value > present)
}

/// `replays`: one for each of [`min_scores_above`] the present value.
pub fn outlook(sample: &DrawnSample, replays: &[ReplayedMinScore]) -> Outlook {
    let mut proposals = Vec::from_iter(
        TARGETS_PERCENT
            .iter()
            .filter_map(|&target_percent| proposal(sample, replays, target_percent)),
    );
    let reaches_more = |proposal: &Proposal, next: &Proposal| {
        let min_score = |proposal: &Proposal| proposal.change.map(|change| change.min_score);
        min_score(proposal) == min_score(next)
    };
    if let [lower, higher] = &proposals[..]
        && reaches_more(lower, higher)
    {
        proposals.remove(0);
    }
    if !proposals.is_empty() {
        return Outlook::Proposals(proposals);
    }
    match more_needed(sample, replays) {
        Some(more) => Outlook::TooFew { more },
        None if sample.count().judged < JUDGED_FEW => Outlook::TooFew { more: MORE_USUAL },
        None => Outlook::OutOfReach,
    }
}

/// The lowest `min_score` that reaches a target.
fn proposal(
    sample: &DrawnSample,
    replays: &[ReplayedMinScore],
    target_percent: u8,
) -> Option<Proposal> {
    let target = f64::from(target_percent) / 100.0;
    let reached = |change| Proposal {
        target_percent,
        change,
    };
    if sample.count().shows_at_least(target) {
        return Some(reached(None));
    }
    let reaching = replays
        .iter()
        .filter(|replay| count_with(sample, replay).shows_at_least(target));
    let lowest = reaching.min_by(|a, b| a.min_score.total_cmp(&b.min_score))?;
    Some(reached(Some(MinScoreChange {
        min_score: lowest.min_score,
        lost: sample.count_with_repeats(|index| !comes(lowest, index)),
    })))
}

fn comes(replay: &ReplayedMinScore, index: usize) -> bool {
    replay.comes.get(index).copied().unwrap_or(false)
}

fn count_with(sample: &DrawnSample, replay: &ReplayedMinScore) -> RightCount {
    sample.count_of(|index| comes(replay, index))
}

/// About how many more alarms have to be judged until the lowest target is reached, if the shares stay; `None`: very many.
fn more_needed(sample: &DrawnSample, replays: &[ReplayedMinScore]) -> Option<u32> {
    let now = sample.count();
    let with = replays.iter().map(|replay| count_with(sample, replay));
    let counts = Vec::from_iter([now].into_iter().chain(with));
    let target = f64::from(TARGETS_PERCENT[0]) / 100.0;
    let grown = |count: RightCount, more: u32| {
        let factor = f64::from(now.judged + more) / f64::from(now.judged);
        let judged = (f64::from(count.judged) * factor) as u32;
        let right = f64::from(judged) * count.share().unwrap_or(0.0);
        RightCount {
            judged,
            right: right.round() as u32,
        }
    };
    let reaches = |more: &u32| {
        let mut counts = counts.iter();
        now.judged > 0 && counts.any(|&count| grown(count, *more).shows_at_least(target))
    };
    let steps = (1..=MORE_MAX / MORE_STEP).map(|step| step * MORE_STEP);
    steps.into_iter().find(reaches)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::judged::{JudgedAlarm, Judgement, tests::drawn};

    /// Alarms of different days: `right` and `wrong` ones for each score.
    pub fn alarms(by_score: &[(f64, u32, u32)]) -> (Vec<JudgedAlarm>, Vec<ReplayedMinScore>) {
        let (mut judged, mut scores) = (Vec::new(), Vec::new());
        for &(score, right, wrong) in by_score {
            let both = [(Judgement::Right, right), (Judgement::Wrong, wrong)];
            for (judgement, count) in both {
                for _ in 0..count {
                    judged.push(drawn(judgement, judged.len() as i64));
                    scores.push(score);
                }
            }
        }
        let replay = |min_score| ReplayedMinScore {
            min_score,
            comes: scores.iter().map(|score| *score >= min_score).collect(),
        };
        (judged, min_scores_above(0.4).map(replay).collect())
    }

    fn outlook_of(by_score: &[(f64, u32, u32)]) -> Outlook {
        let (judged, replays) = alarms(by_score);
        outlook(&DrawnSample::new(&judged), &replays)
    }

    fn change(min_score: f64, right: u32, wrong: u32) -> Option<MinScoreChange> {
        let lost = RightCount {
            right,
            judged: right + wrong,
        };
        Some(MinScoreChange { min_score, lost })
    }

    #[test]
    fn values_above_the_present_one_are_steps_of_a_twentieth() {
        assert_eq!(Vec::from_iter(min_scores_above(0.83)), [0.85, 0.9, 0.95]);
        assert_eq!(Vec::from_iter(min_scores_above(0.9)), [0.95]);
        assert_eq!(min_scores_above(0.0).count(), 19);
    }

    #[test]
    fn lowest_min_score_that_reaches_a_target_is_proposed() {
        let found = [(0.42, 10, 20), (0.62, 20, 4), (0.81, 40, 0)];
        let proposal = |target_percent, change| Proposal {
            target_percent,
            change,
        };
        // From 0.65 on 40 of 40 are right, from 0.45 on 60 of 64.
        assert_eq!(
            outlook_of(&found),
            Outlook::Proposals(vec![
                proposal(80, change(0.45, 10, 20)),
                proposal(90, change(0.65, 30, 24)),
            ])
        );
        // Too few of the highest scores for 90.
        let one = Outlook::Proposals(vec![proposal(80, change(0.65, 30, 24))]);
        assert_eq!(outlook_of(&[found[0], found[1], (0.81, 12, 0)]), one);
        // One value reaches both targets.
        let one = Outlook::Proposals(vec![proposal(90, change(0.65, 10, 46))]);
        assert_eq!(
            outlook_of(&[(0.42, 10, 40), (0.62, 0, 6), (0.81, 30, 0)]),
            one
        );
        // The present value reaches 80.
        let reached = outlook_of(&[(0.42, 88, 12)]);
        assert_eq!(reached, Outlook::Proposals(vec![proposal(80, None)]));
    }

    #[test]
    fn more_marks_are_asked_for_unless_none_help() {
        for (found, expected) in [
            (&[][..], Outlook::TooFew { more: 20 }),
            (&[(0.42, 27, 4)], Outlook::TooFew { more: 40 }),
            (&[(0.42, 3, 9)], Outlook::TooFew { more: 20 }),
            (&[(0.42, 9, 0)], Outlook::TooFew { more: 10 }),
            (&[(0.42, 30, 90), (0.7, 20, 20)], Outlook::OutOfReach),
        ] {
            assert_eq!(outlook_of(found), expected, "{found:?}");
        }
    }
}
