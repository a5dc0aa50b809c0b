//! Presence and counts that do not flap.
//!
//! One rule serves presence and count, because "present" is "at least one":
//! - **up**: a count is confirmed when `m` of the last `n` looks saw this count or more;
//! - **down**: it falls to the most that was seen in the last `m` looks and in the last `end_after`, whichever reaches
//!   back further, and older looks are forgotten;
//! - **unknown** until something was confirmed or `n` looks confirmed nothing, and again without looks. Looks before
//!   the first "nothing" are forgotten too.
//!
//! So presence changes at most once in `m` looks, for any answers of the model.

use std::{collections::VecDeque, time::Duration};

use spotter_core::{Mono, Presence};

/// What confirms and ends presence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HysteresisRules {
    /// `m` of the last `n` looks, `1 <= m <= n`.
    pub confirm: (u32, u32),
    /// Presence ends at the earliest when no look found the object for this time.
    pub end_after: Duration,
    /// Without a look for longer, the count is unknown.
    pub stale_after: Duration,
}

/// The confirmed count. Times given to it must not run backwards.
#[derive(Clone, Debug, Default)]
pub struct Hysteresis {
    /// Counts of the last looks, at most `n`, oldest first.
    recent: VecDeque<u32>,
    peaks: Peaks,
    confirmed_count: Option<u32>,
    last_look: Option<Mono>,
}

impl Hysteresis {
    /// A look saw `count` objects.
    pub fn look(&mut self, count: u32, now: Mono, rules: HysteresisRules) {
        let is_stale = |last| now.since(last) > rules.stale_after;
        if self.last_look.is_some_and(is_stale) {
            self.forget();
        }
        self.last_look = Some(now);
        let (needed, window) = rules.confirm;
        self.recent.push_back(count);
        let beyond = self.recent.len().saturating_sub(window as usize);
        self.recent.drain(..beyond);
        self.peaks.look(count, now);
        let confirmed = self.confirmed_by_looks(needed);
        self.confirmed_count = match self.confirmed_count {
            None if confirmed == 0 && self.recent.len() < window as usize => None,
            None => {
                if confirmed == 0 {
                    self.recent.clear();
                }
                Some(confirmed)
            }
            Some(before) if confirmed > before => Some(confirmed),
            Some(before) => {
                let most_seen = self.peaks.most_seen(rules, now);
                if most_seen < before {
                    self.recent.clear();
                }
                Some(before.min(most_seen))
            }
        };
    }

    /// The count becomes unknown.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    pub fn presence(&self) -> Presence {
        match self.count() {
            None => Presence::Unknown,
            Some(0) => Presence::Off,
            Some(_) => Presence::On,
        }
    }

    /// `None` = unknown. At least 1 exactly while [`Presence::On`].
    pub fn count(&self) -> Option<u32> {
        self.confirmed_count
    }

    /// The highest count that `m` of the last looks reached: the `m`-th highest of them, 0 before there are `m`.
    fn confirmed_by_looks(&self, needed: u32) -> u32 {
        let mut highest_first: Vec<u32> = self.recent.iter().copied().collect();
        highest_first.sort_unstable_by(|a, b| b.cmp(a));
        let lowest = highest_first.get(needed as usize - 1);
        lowest.copied().unwrap_or_default()
    }
}

/// The most that was seen lately. Only looks that no later one reached are kept, so the oldest saw the most, and
/// there are never more than there are different counts.
#[derive(Clone, Debug, Default)]
struct Peaks {
    looks: u64,
    /// Falling counts, oldest first.
    falling: VecDeque<Peak>,
}

#[derive(Clone, Copy, Debug)]
struct Peak {
    count: u32,
    seen: Mono,
    look: u64,
}

impl Peaks {
    fn look(&mut self, count: u32, now: Mono) {
        self.looks += 1;
        while self.falling.back().is_some_and(|peak| peak.count <= count) {
            self.falling.pop_back();
        }
        self.falling.push_back(Peak {
            count,
            seen: now,
            look: self.looks,
        });
    }

    /// Drops looks that are older than both limits; returns the highest count of the rest.
    fn most_seen(&mut self, rules: HysteresisRules, now: Mono) -> u32 {
        let (looks, needed) = (self.looks, u64::from(rules.confirm.0));
        let over =
            |peak: &Peak| looks - peak.look >= needed && now.since(peak.seen) >= rules.end_after;
        while self.falling.front().is_some_and(over) {
            self.falling.pop_front();
        }
        self.falling.front().map_or(0, |peak| peak.count)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(m: u32, n: u32, end_after_ms: u64) -> HysteresisRules {
        HysteresisRules {
            confirm: (m, n),
            end_after: Duration::from_millis(end_after_ms),
            stale_after: Duration::from_secs(60),
        }
    }

    /// Counts after each look, one look every `step_ms`.
    fn counts(rules: HysteresisRules, step_ms: u64, looks: &[u32]) -> Vec<Option<u32>> {
        let mut hysteresis = Hysteresis::default();
        let mut now = Mono::default();
        let mut after = |&count: &u32| {
            now = now.after(Duration::from_millis(step_ms));
            hysteresis.look(count, now, rules);
            hysteresis.count()
        };
        looks.iter().map(&mut after).collect()
    }

    #[test]
    fn counts_rise_when_confirmed_and_fall_to_what_was_seen() {
        const UNKNOWN: i64 = -1;
        for (name, m, end_after_ms, step_ms, looks, expected) in [
            (
                "two of three looks begin, three seconds end",
                2,
                3000,
                1000,
                &[0, 1, 0, 1, 1, 0, 0, 0, 0][..],
                &[UNKNOWN, UNKNOWN, 0, 0, 1, 1, 1, 0, 0][..],
            ),
            (
                "one false hit is nothing",
                2,
                0,
                5000,
                &[0, 0, 0, 1, 0, 0, 1, 0, 0],
                &[UNKNOWN, UNKNOWN, 0, 0, 0, 0, 0, 0, 0],
            ),
            // With a look every five seconds, one miss takes longer than end_after, but one miss is too few.
            (
                "one miss ends nothing",
                2,
                3000,
                5000,
                &[1, 1, 0, 1, 0, 1, 0, 0],
                &[UNKNOWN, 1, 1, 1, 1, 1, 1, 0],
            ),
            // A single three is not confirmed, and one look below ends nothing.
            (
                "the count falls after two looks and two seconds below it",
                2,
                2000,
                1000,
                &[1, 2, 3, 2, 2, 3, 1, 2, 2, 1, 1, 1, 0, 0],
                &[UNKNOWN, 1, 2, 2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 0],
            ),
            // The last one was seen three seconds before the sixth look.
            (
                "a group ends with its last object",
                2,
                3000,
                1000,
                &[2, 2, 1, 0, 0, 0],
                &[UNKNOWN, 2, 2, 2, 1, 0],
            ),
        ] {
            let seen = counts(rules(m, 3, end_after_ms), step_ms, looks);
            let seen = seen
                .into_iter()
                .map(|count| count.map_or(UNKNOWN, i64::from));
            assert_eq!(seen.collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn look_after_the_stale_time_forgets_the_earlier_ones() {
        let at = |s| Mono::default().after(Duration::from_secs(s));
        for (pause_s, expected) in [(60, Presence::On), (61, Presence::Unknown)] {
            let mut hysteresis = Hysteresis::default();
            for (count, second) in [(1, 1), (1, 2), (0, 2 + pause_s)] {
                hysteresis.look(count, at(second), rules(2, 3, 0));
            }
            assert_eq!(hysteresis.presence(), expected, "{pause_s}");
        }
    }

    proptest! {
        #[test]
        fn presence_changes_at_most_once_per_window_and_ends(
            m in 1u32..5,
            more in 0u32..4,
            end_after_ms in 0u64..4000,
            looks in prop::collection::vec((0u32..4, 1u64..3000), 1..120),
        ) {
            let rules = rules(m, m + more, end_after_ms);
            let mut hysteresis = Hysteresis::default();
            let mut now = Mono::default();
            let mut looks_since_change = u32::MAX;
            let mut presence = Presence::Unknown;
            for (index, &(count, step_ms)) in looks.iter().enumerate() {
                now = now.after(Duration::from_millis(step_ms));
                hysteresis.look(count, now, rules);
                looks_since_change = looks_since_change.saturating_add(1);
                if hysteresis.presence() != presence {
                    prop_assert!(looks_since_change >= m);
                    prop_assert!(hysteresis.presence() != Presence::Unknown, "a look made the presence unknown");
                    presence = hysteresis.presence();
                    looks_since_change = 0;
                }
                prop_assert!(presence != Presence::Unknown || index + 1 < (m + more) as usize);
                let most = looks[..=index].iter().map(|l| l.0).max().unwrap();
                prop_assert!(hysteresis.count().unwrap_or(0) <= most);
            }
            // All objects leave: the count is 0 after m looks and end_after, not later.
            let left = now;
            for _ in 0..m + more {
                now = now.after(Duration::from_millis(1000));
                hysteresis.look(0, now, rules);
            }
            if now.since(left) > rules.end_after + Duration::from_secs(1) {
                prop_assert_eq!(hysteresis.presence(), Presence::Off);
            }
            // All objects return: they are counted after n looks, not later.
            for _ in 0..m + more {
                now = now.after(Duration::from_millis(1000));
                hysteresis.look(2, now, rules);
            }
            prop_assert!(hysteresis.count() >= Some(2));
        }
    }
}
