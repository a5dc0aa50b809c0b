//! Alarms that repeat another one: a statue that alarms each hour is one mistake and not 24.

use spotter_core::{Location, WallTime};

/// An alarm repeats one that was at most so long before it, seconds.
const REPEATS_WITHIN_S: f64 = 24.0 * 60.0 * 60.0;

/// Where and when an alarm of a prompt was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AlarmPlace {
    pub location: Location,
    pub at: WallTime,
}

impl AlarmPlace {
    fn is_within_a_day_of(&self, earlier: &Self) -> bool {
        self.at.seconds_since(earlier.at) <= REPEATS_WITHIN_S
    }
}

/// The group of each alarm, from 0 on: an alarm belongs to the group whose first alarm it repeats, or is the first of a new one. So a group
/// lasts for a day at most.
pub fn groups_of_repeats(alarms: &[AlarmPlace]) -> Vec<usize> {
    let mut in_order = Vec::from_iter(0..alarms.len());
    in_order.sort_by_key(|&index| alarms[index].at);
    let mut first_of_groups: Vec<&AlarmPlace> = Vec::new();
    let mut groups = vec![0; alarms.len()];
    for index in in_order {
        let alarm = &alarms[index];
        let newest_first = first_of_groups.iter().enumerate().rev();
        let mut of_the_day = newest_first.take_while(|(_, first)| alarm.is_within_a_day_of(first));
        let known = of_the_day.find(|(_, first)| alarm.location.is_same_place(&first.location));
        groups[index] = known.map(|(group, _)| group).unwrap_or_else(|| {
            first_of_groups.push(alarm);
            first_of_groups.len() - 1
        });
    }
    groups
}

#[cfg(test)]
pub(crate) mod tests {
    use spotter_core::NormBox;

    use super::*;

    /// A box whose left edge is at `x0`, at this hour.
    pub fn boxed(x0: f64, hour: i64) -> AlarmPlace {
        AlarmPlace {
            location: Location::Box(NormBox::from_corners(x0, 0.2, x0 + 0.2, 0.6)),
            at: WallTime::from_unix_millis(hour * 3_600_000),
        }
    }

    #[test]
    fn alarms_at_one_place_within_a_day_are_one_group() {
        let hours = [0, 10, 24, 25, 30];
        let alarms = hours.map(|hour| boxed(0.1, hour));
        assert_eq!(groups_of_repeats(&alarms), [0, 0, 0, 1, 1]);
        // A third of both is common to boxes that are half a width apart, and eight tenths to those that are a tenth apart.
        let alarms = [boxed(0.1, 5), boxed(0.2, 5), boxed(0.12, 5)];
        assert_eq!(groups_of_repeats(&alarms), [0, 1, 0]);
        // The later ones come first.
        let alarms = [boxed(0.1, 30), boxed(0.1, 0), boxed(0.1, 20)];
        assert_eq!(groups_of_repeats(&alarms), [1, 0, 0]);
    }
}
