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

/// The judged alarms whose looks could be replayed: all of the sample or a part of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReplayedSample {
    pub sample: DrawnSample,
    /// One for each of [`min_scores_above`] the present value. Numbers of alarms are those of `sample`.
    pub by_min_score: Vec<ReplayedMinScore>,
    /// False: there was no time for further ones.
    pub is_finished: bool,
}

/// What judged alarms say about `min_score`.
#[derive(Clone, Debug, PartialEq)]
pub enum Outlook {
    /// Further looks have to be replayed before something can be said.
    Replaying,
    /// About so many more judged alarms are needed.
    TooFew { more: u32 },
    /// Enough are judged, but the looks of so many of them cannot be replayed, each repeat counted.
    LooksMissing { alarms: u32 },
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
    /// The judged alarms that were replayed, each repeat counted.
    pub replayed: u32,
    /// Of these, those that would not have come.
    pub lost: RightCount,
}

/// The values above the present `min_score` that can be proposed.
pub fn min_scores_above(present: f64) -> impl Iterator<Item = f64> {
    let all = (1..STEPS).map(|step| f64::from(step) / f64::from(STEPS));
    all.filter(move |value| *value > present)
}

/// The whole sample says what the present `min_score` reaches; its replayed part, what others do.
pub fn outlook(sample: &DrawnSample, replayed: &ReplayedSample) -> Outlook {
    if !replayed.is_finished {
        return Outlook::Replaying;
    }
    let mut proposals = Vec::from_iter(
        TARGETS_PERCENT
            .iter()
            .filter_map(|&target_percent| proposal(sample, replayed, target_percent)),
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
    match proposals.is_empty() {
        true => without_proposal(sample, replayed),
        false => Outlook::Proposals(proposals),
    }
}

fn without_proposal(sample: &DrawnSample, replayed: &ReplayedSample) -> Outlook {
    let all = |sample: &DrawnSample| sample.count_with_repeats(|_| true).judged;
    let missing = all(sample).saturating_sub(all(&replayed.sample));
    if sample.count().judged < JUDGED_FEW {
        let more = match missing {
            0 => more_needed(sample, &replayed.by_min_score),
            _ => more_needed(sample, &[]),
        };
        return Outlook::TooFew {
            more: more.unwrap_or(MORE_USUAL),
        };
    }
    if missing > 0 && replayed.sample.count().judged < JUDGED_FEW {
        return Outlook::LooksMissing { alarms: missing };
    }
    match more_needed(&replayed.sample, &replayed.by_min_score) {
        Some(more) => Outlook::TooFew { more },
        None => Outlook::OutOfReach,
    }
}

/// The lowest `min_score` that reaches a target.
fn proposal(
    sample: &DrawnSample,
    replayed: &ReplayedSample,
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
    let ReplayedSample {
        sample,
        by_min_score,
        ..
    } = replayed;
    let reaching = by_min_score
        .iter()
        .filter(|replay| count_with(sample, replay).shows_at_least(target));
    let lowest = reaching.min_by(|a, b| a.min_score.total_cmp(&b.min_score))?;
    Some(reached(Some(MinScoreChange {
        min_score: lowest.min_score,
        replayed: sample.count_with_repeats(|_| true).judged,
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
        let replayed = replayed(&judged, replays);
        outlook(&replayed.sample, &replayed)
    }

    /// All of these alarms.
    pub fn replayed(judged: &[JudgedAlarm], by_min_score: Vec<ReplayedMinScore>) -> ReplayedSample {
        ReplayedSample {
            sample: DrawnSample::new(judged),
            by_min_score,
            is_finished: true,
        }
    }

    /// What is lost of so many.
    fn change(min_score: f64, [right, wrong]: [u32; 2], replayed: u32) -> Option<MinScoreChange> {
        let lost = RightCount {
            right,
            judged: right + wrong,
        };
        Some(MinScoreChange {
            min_score,
            replayed,
            lost,
        })
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
                proposal(80, change(0.45, [10, 20], 94)),
                proposal(90, change(0.65, [30, 24], 94)),
            ])
        );
        // Too few of the highest scores for 90.
        let one = Outlook::Proposals(vec![proposal(80, change(0.65, [30, 24], 66))]);
        assert_eq!(outlook_of(&[found[0], found[1], (0.81, 12, 0)]), one);
        // One value reaches both targets.
        let one = Outlook::Proposals(vec![proposal(90, change(0.65, [10, 46], 86))]);
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
    #[test]
    fn present_min_score_is_judged_by_the_whole_sample() {
        let (judged, replays) = alarms(&[(0.42, 60, 40)]);
        let sample = DrawnSample::new(&judged);
        // Only right ones could be replayed: alone, they would reach 90.
        let (right, higher) = alarms(&[(0.42, 60, 0)]);
        let part = replayed(&right, higher);
        assert_eq!(
            outlook(&part.sample, &part),
            Outlook::Proposals(vec![Proposal {
                target_percent: 90,
                change: None
            }])
        );
        assert!(matches!(
            outlook(&sample, &part),
            Outlook::TooFew { .. } | Outlook::OutOfReach
        ));
        let few = replayed(&right[..20], Vec::new());
        assert_eq!(outlook(&sample, &few), Outlook::LooksMissing { alarms: 80 });
        // Without a replay, the present value still reaches a target.
        let (all_right, _) = alarms(&[(0.42, 60, 0)]);
        let reached = outlook(&DrawnSample::new(&all_right), &replayed(&[], Vec::new()));
        assert!(matches!(reached, Outlook::Proposals(_)));
        let unfinished = ReplayedSample {
            is_finished: false,
            ..replayed(&judged, replays)
        };
        assert_eq!(outlook(&sample, &unfinished), Outlook::Replaying);
    }
}
