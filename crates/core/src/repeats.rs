//! Telling a problem once a minute instead of every time. Pure: takes `now`.

use std::time::Duration;

use super::Mono;

/// A problem of one kind is told at most so often.
pub const TELL_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Which kinds of problems were told when, of one camera or one part. Kinds that are few and known are never forgotten.
#[derive(Clone, Debug)]
pub struct Repeats<K> {
    told: Vec<Told<K>>,
    most: usize,
}

#[derive(Clone, Debug)]
struct Told<K> {
    kind: K,
    at: Mono,
    untold: u64,
}

impl<K: PartialEq> Repeats<K> {
    /// For kinds that strangers choose: `most` of them are told in a minute and remembered, what is beyond is not told.
    pub fn of_at_most(most: usize) -> Self {
        Self {
            told: Vec::new(),
            most,
        }
    }

    /// A problem of this kind came up. `Some` when it is to be told, with how often it came up untold since the last
    /// time it was.
    pub fn tell(&mut self, kind: K, now: Mono) -> Option<u64> {
        match self.told.iter_mut().find(|told| told.kind == kind) {
            None => self.tell_first(kind, now),
            Some(told) if now.since(told.at) < TELL_AGAIN_AFTER => {
                told.untold += 1;
                None
            }
            Some(told) => {
                told.at = now;
                Some(std::mem::take(&mut told.untold))
            }
        }
    }

    fn tell_first(&mut self, kind: K, now: Mono) -> Option<u64> {
        if self.told.len() >= self.most {
            self.told
                .retain(|told| now.since(told.at) < TELL_AGAIN_AFTER);
        }
        let has_room = self.told.len() < self.most;
        has_room.then(|| {
            self.told.push(Told {
                kind,
                at: now,
                untold: 0,
            });
            0
        })
    }
}

impl<K: PartialEq> Default for Repeats<K> {
    fn default() -> Self {
        Self::of_at_most(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn once_a_minute_and_kind_and_nothing_uncounted() {
        let mut repeats = Repeats::default();
        let mut told = Vec::new();
        for second in 0..=150 {
            let now = Mono::from_nanos(second * 1_000_000_000);
            if let Some(untold) = repeats.tell("stalled", now) {
                told.push((second, untold));
            }
        }
        assert_eq!(told, [(0, 0), (60, 59), (120, 59)]);
        let now = Mono::from_nanos(150_000_000_000);
        assert_eq!(repeats.tell("unreachable", now), Some(0), "another kind");
    }

    #[test]
    fn of_kinds_without_end_so_many_are_told_in_a_minute() {
        let mut repeats = Repeats::of_at_most(2);
        let mut told_at = |second: u64| {
            let now = Mono::from_nanos(second * 1_000_000_000);
            let kinds = (0..1000).filter(|kind| repeats.tell(*kind, now).is_some());
            (kinds.collect::<Vec<_>>(), repeats.told.len())
        };
        assert_eq!(told_at(0), (vec![0, 1], 2));
        assert_eq!(told_at(59), (vec![], 2));
        assert_eq!(told_at(60), (vec![0, 1], 2), "the first that come");
        let later = Mono::from_nanos(120_000_000_000);
        assert_eq!(repeats.tell(999, later), Some(0), "others have gone");
    }
}
