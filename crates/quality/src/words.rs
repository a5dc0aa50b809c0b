//! The figures as sentences, the same ones on the page and in commands.

use super::{
    judged::DrawnSample,
    outlook::{Outlook, Proposal},
    right_count::{RightCount, ShareInterval},
};

/// What the sentences are about: one series of marks.
#[derive(Clone, Copy, Debug)]
pub struct QualityFigures<'a> {
    pub sample: &'a DrawnSample,
    pub outlook: &'a Outlook,
    /// Alarms that were drawn by chance, judged or not.
    pub drawn: u32,
    /// The days of these alarms, such as `3–24 November`.
    pub days: &'a str,
    /// Objects with a lower score were not kept.
    pub kept_from: f64,
    /// What a proposal said whose `min_score` is in use since this series began.
    pub promise: Option<Promise>,
}

/// Of 100 alarms, at least so many should be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    pub target_percent: u8,
    /// The drawn alarms that came since then, repeats counted once.
    pub since: RightCount,
}

/// The sentences, in their order. What is between `**` is shown in bold, what is between backticks as a key of the configuration.
pub fn words(figures: &QualityFigures) -> Vec<String> {
    let judged = figures.sample.count_with_repeats(|_| true);
    let promised = figures.promise.map(kept);
    let mut sentences = Vec::from_iter(promised);
    match figures.outlook {
        Outlook::Replaying => {
            sentences.extend((judged.judged > 0).then(|| share(figures, judged)));
            sentences.push(
                "The looks of judged alarms are being replayed: ask again for a proposal."
                    .to_owned(),
            );
        }
        Outlook::LooksMissing { alarms } => {
            sentences.push(share(figures, judged));
            sentences.push(format!(
                "No proposal: the looks of {alarms} of the {} judged alarms are not stored, or the zones and other rules of the camera have changed since. New alarms have them: judge these.",
                judged.judged
            ));
        }
        Outlook::TooFew { more } => {
            sentences.push(match judged {
                RightCount { judged: 0, .. } => {
                    format!("None judged. For a proposal, judge about {more}.")
                }
                RightCount { judged, right } => format!(
                    "{judged} judged, {right} right. Too few for a proposal: judge about {more} more."
                ),
            });
        }
        Outlook::Proposals(proposals) => {
            sentences.push(share(figures, judged));
            let proposed = proposals.iter();
            sentences.extend(proposed.map(|proposal| proposed_words(proposal, judged)));
        }
        Outlook::OutOfReach => {
            sentences.push(share(figures, judged));
            sentences.push(
                "No `min_score` makes 80 of 100 alarms right. Other words, a `region` or `verify` may."
                    .to_owned(),
            );
        }
    }
    sentences.push(format!(
        "**Not known:** what Spotter never reported. Below {} nothing was kept.",
        figures.kept_from
    ));
    sentences
}

fn share(figures: &QualityFigures, judged: RightCount) -> String {
    let count = figures.sample.count();
    let (low, high) = percents(count.interval());
    let repeats = match judged.judged - count.judged {
        0 => String::new(),
        1 => "; 1 repeat counted once".to_owned(),
        repeats => format!("; {repeats} repeats counted once"),
    };
    format!(
        "**{} of 100 alarms are right** (between {low} and {high}; {} judged of {} drawn by chance, {}{repeats}).",
        percent(count.share().unwrap_or(0.0)),
        judged.judged,
        figures.drawn,
        figures.days
    )
}

fn proposed_words(proposal: &Proposal, judged: RightCount) -> String {
    let target = proposal.target_percent;
    let promise = format!(
        "at least **{target} of 100** alarms should be right (such a sentence is wrong at most once in ten times)."
    );
    let Some(change) = proposal.change else {
        return format!("With the present `min_score`, {promise}");
    };
    let (right, wrong) = (change.lost.right, change.lost.wrong());
    let ones = if wrong == 1 { "one" } else { "ones" };
    let replayed = match change.replayed < judged.judged {
        true => " that could be replayed",
        false => "",
    };
    format!(
        "With `min_score` **{}**, {promise} Of the {} judged alarms{replayed}, {right} right and {wrong} wrong {ones} would not have come.",
        change.min_score, change.replayed
    )
}

/// What became of a promise.
fn kept(promise: Promise) -> String {
    let (count, target) = (promise.since, promise.target_percent);
    let (low, high) = percents(count.interval());
    match count.judged {
        0 => format!("Promised: at least {target}. None judged since then."),
        judged => format!(
            "Promised: at least {target}. Since then: {} of {judged} right ({low}–{high}).",
            count.right
        ),
    }
}

fn percents(interval: ShareInterval) -> (u32, u32) {
    (percent(interval.low), percent(interval.high))
}

fn percent(share: f64) -> u32 {
    (share * 100.0).round() as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        judged::JudgedAlarm,
        outlook::tests::{alarms, replayed},
        outlook::{ReplayedSample, outlook},
    };

    fn words_of(
        by_score: &[(f64, u32, u32)],
        repeats: usize,
        target_percent: Option<u8>,
    ) -> Vec<String> {
        let (mut judged, replays) = alarms(by_score);
        let again: Vec<JudgedAlarm> = judged.iter().take(repeats).copied().collect();
        judged.extend(again);
        words_with(&replayed(&judged, replays), &judged, target_percent)
    }

    fn words_with(
        replayed: &ReplayedSample,
        judged: &[JudgedAlarm],
        target_percent: Option<u8>,
    ) -> Vec<String> {
        let sample = DrawnSample::new(judged);
        words(&QualityFigures {
            sample: &sample,
            outlook: &outlook(&sample, replayed),
            drawn: 200,
            days: "3–24 November",
            kept_from: 0.4,
            promise: target_percent.map(|target_percent| Promise {
                target_percent,
                since: sample.count(),
            }),
        })
    }

    const NOT_KNOWN: &str =
        "**Not known:** what Spotter never reported. Below 0.4 nothing was kept.";

    #[test]
    fn few_marks_ask_for_more() {
        let few = "31 judged, 27 right. Too few for a proposal: judge about 10 more.";
        assert_eq!(
            words_of(&[(0.42, 11, 3), (0.8, 16, 1)], 0, None),
            [few, NOT_KNOWN]
        );
        let none = "None judged. For a proposal, judge about 20.";
        assert_eq!(words_of(&[], 0, None), [none, NOT_KNOWN]);
    }

    #[test]
    fn share_and_proposals_name_what_they_are_made_of() {
        let found = [(0.42, 24, 8), (0.57, 10, 7), (0.8, 57, 0)];
        let expected = [
            "**86 of 100 alarms are right** (between 78 and 91; 120 judged of 200 drawn by chance, 3–24 November; 14 repeats counted once).",
            "With the present `min_score`, at least **80 of 100** alarms should be right (such a sentence is wrong at most once in ten times).",
            "With `min_score` **0.6**, at least **90 of 100** alarms should be right (such a sentence is wrong at most once in ten times). \
             Of the 120 judged alarms, 48 right and 15 wrong ones would not have come.",
            NOT_KNOWN,
        ];
        assert_eq!(words_of(&found, 14, None), expected);
    }

    #[test]
    fn numbers_of_one_are_singular() {
        let shown = words_of(&[(0.5, 1, 0), (0.52, 2, 1), (0.8, 11, 0)], 1, None);
        assert!(shown[0].ends_with("; 1 repeat counted once)."), "{shown:?}");
        let lost = "Of the 16 judged alarms, 4 right and 1 wrong one would not have come.";
        assert!(shown[1].ends_with(lost), "{shown:?}");
    }

    #[test]
    fn promise_is_compared_with_what_came() {
        let since = "Promised: at least 90. Since then: 41 of 43 right (85–99).";
        assert_eq!(words_of(&[(0.8, 41, 2)], 0, Some(90))[0], since);
        let none = "Promised: at least 80. None judged since then.";
        assert_eq!(words_of(&[], 0, Some(80))[0], none);
    }

    #[test]
    fn no_min_score_that_helps_is_said() {
        let shown = words_of(&[(0.5, 30, 90)], 0, None);
        let expected =
            "No `min_score` makes 80 of 100 alarms right. Other words, a `region` or `verify` may.";
        assert_eq!(shown[1..], [expected, NOT_KNOWN]);
    }
    #[test]
    fn alarms_that_were_not_replayed_are_named() {
        let (judged, _) = alarms(&[(0.8, 40, 0), (0.42, 20, 40)]);
        let (part, replays) = alarms(&[(0.8, 40, 0), (0.42, 10, 20)]);
        let shown = words_with(&replayed(&part, replays), &judged, None);
        let lost = "Of the 70 judged alarms that could be replayed, 10 right and 20 wrong ones would not have come.";
        assert!(shown[1].ends_with(lost), "{shown:?}");
        let shown = words_with(&replayed(&part[..10], Vec::new()), &judged, None);
        let missing = "No proposal: the looks of 90 of the 100 judged alarms are not stored";
        assert!(shown[1].starts_with(missing), "{shown:?}");
        let shown = words_with(&ReplayedSample::default(), &judged, None);
        assert!(shown[1].contains("ask again"), "{shown:?}");
    }
}
