//! Judged alarms, and what of them counts.

use super::{
    draw::AlarmChoice,
    repeats::{AlarmPlace, groups_of_repeats},
    right_count::RightCount,
};

/// What a person said of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Judgement {
    /// What the prompt asks for was at its place.
    Right,
    Wrong,
}

/// An alarm that a person judged.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct JudgedAlarm {
    pub place: AlarmPlace,
    pub judgement: Judgement,
    pub choice: AlarmChoice,
}

/// The judged alarms that were drawn by chance, with repeats together: what shares and proposals are made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DrawnSample {
    different: Vec<DifferentAlarm>,
}

/// An alarm with its repeats of the same judgement.
#[derive(Clone, Debug, PartialEq)]
struct DifferentAlarm {
    judgement: Judgement,
    /// Their numbers in the list of judged alarms; never empty.
    repeats: Vec<usize>,
}

impl DrawnSample {
    /// Of the judged alarms of one series.
    pub fn new(judged: &[JudgedAlarm]) -> Self {
        let of_judgement = |judgement| {
            let is_counted = |alarm: &&JudgedAlarm| {
                alarm.choice == AlarmChoice::Drawn && alarm.judgement == judgement
            };
            let counted = judged.iter().enumerate();
            let counted = Vec::from_iter(counted.filter(|(_, alarm)| is_counted(alarm)));
            let places = Vec::from_iter(counted.iter().map(|(_, alarm)| alarm.place));
            let groups = groups_of_repeats(&places);
            let count = groups.iter().max().map_or(0, |last| last + 1);
            let mut different = vec![
                DifferentAlarm {
                    judgement,
                    repeats: Vec::new()
                };
                count
            ];
            for ((index, _), group) in counted.iter().zip(groups) {
                different[group].repeats.push(*index);
            }
            different
        };
        let both = [Judgement::Right, Judgement::Wrong].map(of_judgement);
        Self {
            different: both.concat(),
        }
    }

    /// How many are right, repeats counted once.
    pub fn count(&self) -> RightCount {
        self.count_of(|_| true)
    }

    /// The same of those of which an alarm passes.
    pub fn count_of(&self, passes: impl Fn(usize) -> bool) -> RightCount {
        let mut count = RightCount::default();
        for alarm in &self.different {
            if alarm.repeats.iter().any(|&index| passes(index)) {
                count.judged += 1;
                count.right += u32::from(alarm.judgement == Judgement::Right);
            }
        }
        count
    }

    /// How many are right, each repeat counted.
    pub fn count_with_repeats(&self, passes: impl Fn(usize) -> bool) -> RightCount {
        let mut count = RightCount::default();
        for alarm in &self.different {
            let passing = alarm.repeats.iter().filter(|&&index| passes(index)).count() as u32;
            count.judged += passing;
            if alarm.judgement == Judgement::Right {
                count.right += passing;
            }
        }
        count
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::repeats::tests::boxed;

    /// A drawn alarm. Those of different `days` are not repeats.
    pub fn drawn(judgement: Judgement, day: i64) -> JudgedAlarm {
        JudgedAlarm {
            place: boxed(0.1, day * 48),
            judgement,
            choice: AlarmChoice::Drawn,
        }
    }

    #[test]
    fn given_marks_do_not_count_and_repeats_count_once() {
        let mut judged = vec![
            drawn(Judgement::Right, 0),
            drawn(Judgement::Wrong, 0),
            drawn(Judgement::Wrong, 1),
            drawn(Judgement::Wrong, 1),
            drawn(Judgement::Wrong, 1),
        ];
        judged.extend((0..50).map(|day| JudgedAlarm {
            choice: AlarmChoice::Given,
            ..drawn(Judgement::Wrong, day)
        }));
        let sample = DrawnSample::new(&judged);
        let count = |right, judged| RightCount { right, judged };
        assert_eq!(sample.count(), count(1, 3));
        assert_eq!(sample.count_with_repeats(|_| true), count(1, 5));
        // One of the repeats passes.
        assert_eq!(
            sample.count_of(|index| [0, 3].contains(&index)),
            count(1, 2)
        );
        assert_eq!(DrawnSample::new(&[]).count(), count(0, 0));
    }
}
