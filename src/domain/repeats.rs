//! Telling a problem once a minute instead of every time. Pure: takes `now`.

use std::time::Duration;

use super::Mono;

/// A problem of one kind is told at most so often.
pub const TELL_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Which kinds of problems were told when, of one camera or one part. Kinds are few and known, so nothing is forgotten.
#[derive(Clone, Debug)]
pub struct Repeats<K>(Vec<Told<K>>);

#[derive(Clone, Debug)]
struct Told<K> {
    kind: K,
    at: Mono,
    untold: u64,
}

impl<K: PartialEq> Repeats<K> {
    /// A problem of this kind came up. `Some` when it is to be told, with how often it came up untold since the last
    /// time it was.
    pub fn tell(&mut self, kind: K, now: Mono) -> Option<u64> {
        match self.0.iter_mut().find(|told| told.kind == kind) {
            None => {
                self.0.push(Told {
                    kind,
                    at: now,
                    untold: 0,
                });
                Some(0)
            }
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
}

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Self(Vec::new())
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
}
