//! Which alarms a person judges next, by chance.
//!
//! Each group of repeats has the same chance, and one of its alarms is drawn: a door with twenty visits and one mistake a day is then not
//! judged by its one mistake. Alarms that have a mark already are drawn like others. Without that, an operator who marks each wrong
//! alarm when it comes would leave the right ones to be drawn.

use super::repeats::{AlarmPlace, groups_of_repeats};

/// Why an alarm has a mark, or gets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlarmChoice {
    /// It was drawn by chance.
    Drawn,
    /// A person chose it.
    Given,
}

/// An alarm that may be drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DrawableAlarm {
    pub place: AlarmPlace,
    /// `Drawn` also while it waits to be judged; `None`: it has no mark.
    pub choice: Option<AlarmChoice>,
}

/// Numbers of alarms in the list that was drawn from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrawnAlarms {
    /// In the order in which they were drawn.
    pub to_judge: Vec<usize>,
    /// These have a mark that a person gave. It counts from now on as one that was drawn.
    pub judged_before: Vec<usize>,
}

/// Draws until there are `wanted` alarms to judge; fewer when all others repeat alarms that were drawn. `random_below(n)` is a random
/// number from 0 to n − 1.
pub fn draw(
    alarms: &[DrawableAlarm],
    wanted: usize,
    mut random_below: impl FnMut(usize) -> usize,
) -> DrawnAlarms {
    let places = Vec::from_iter(alarms.iter().map(|alarm| alarm.place));
    let groups = groups_of_repeats(&places);
    let mut members = vec![Vec::new(); groups.iter().max().map_or(0, |last| last + 1)];
    for (index, group) in groups.into_iter().enumerate() {
        members[group].push(index);
    }
    let is_drawn = |&index: &usize| alarms[index].choice == Some(AlarmChoice::Drawn);
    members.retain(|group| !group.iter().any(is_drawn));
    let mut drawn = DrawnAlarms::default();
    while drawn.to_judge.len() < wanted && !members.is_empty() {
        let group = members.swap_remove(random_below(members.len()));
        let index = group[random_below(group.len())];
        match alarms[index].choice {
            Some(_) => drawn.judged_before.push(index),
            None => drawn.to_judge.push(index),
        }
    }
    drawn
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg32;

    use super::*;
    use crate::repeats::tests::boxed;

    fn random(seed: u64) -> impl FnMut(usize) -> usize {
        let mut random = Pcg32::seed_from_u64(seed);
        move |below| random.random_range(0..below)
    }

    fn alarm(x0: f64, hour: i64, choice: Option<AlarmChoice>) -> DrawableAlarm {
        let place = boxed(x0, hour);
        DrawableAlarm { place, choice }
    }

    #[test]
    fn marks_of_wrong_alarms_do_not_change_what_is_drawn() {
        // Of 200 alarms, a person has marked every fourth one: all wrong ones.
        let alarms = (0..200).map(|day| {
            let choice = (day % 4 == 0).then_some(AlarmChoice::Given);
            alarm(0.1, day * 48, choice)
        });
        let alarms = Vec::from_iter(alarms);
        let mut marked = 0;
        for seed in 0..200 {
            let drawn = draw(&alarms, 20, random(seed));
            assert_eq!(drawn.to_judge.len(), 20);
            marked += drawn.judged_before.len();
        }
        // One third of 20, in the mean of 200 draws.
        assert!((1200..1470).contains(&marked), "{marked}");
    }

    proptest! {
        #[test]
        fn draw_has_one_alarm_of_each_undrawn_group(
            alarms in prop::collection::vec((0..3u8, 0..200i64, 0..6u8), 0..60), wanted in 0usize..30, seed: u64,
        ) {
            let choice = |number| match number {
                0 => Some(AlarmChoice::Drawn),
                1 => Some(AlarmChoice::Given),
                _ => None,
            };
            let alarms = alarms.iter().map(|&(x, hour, number)| alarm(0.3 * f64::from(x), hour, choice(number)));
            let alarms = Vec::from_iter(alarms);
            let drawn = draw(&alarms, wanted, random(seed));
            prop_assert_eq!(&drawn, &draw(&alarms, wanted, random(seed)));
            let groups = groups_of_repeats(&Vec::from_iter(alarms.iter().map(|alarm| alarm.place)));
            let mut taken = BTreeSet::new();
            for (index, alarm) in alarms.iter().enumerate() {
                if alarm.choice == Some(AlarmChoice::Drawn) {
                    taken.insert(groups[index]);
                }
            }
            let mut all = drawn.to_judge.iter().chain(&drawn.judged_before);
            prop_assert!(all.all(|&index| taken.insert(groups[index])));
            prop_assert!(drawn.to_judge.iter().all(|&index| alarms[index].choice.is_none()));
            // Fewer than wanted only when nothing is left.
            let is_complete = taken.len() == BTreeSet::from_iter(&groups).len();
            prop_assert!(drawn.to_judge.len() == wanted || is_complete && drawn.to_judge.len() < wanted);
        }
    }
}
