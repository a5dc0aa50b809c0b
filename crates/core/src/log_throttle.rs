//! Limits how often a repeated problem is logged. Pure: takes `now`.
//!
//! Faults: B20, B28.

use std::time::Duration;

use super::Mono;

/// A problem of one kind is logged at most once in this time.
const LOG_REPEAT_INTERVAL: Duration = Duration::from_secs(60);

/// Remembers when each kind of problem was last logged, for one camera or one component. Without a maximum, kinds are never
/// forgotten, so that their number must be small and known.
#[derive(Clone, Debug)]
pub struct LogThrottle<K> {
    logged: Vec<LoggedKind<K>>,
    max_kinds: usize,
}

#[derive(Clone, Debug)]
struct LoggedKind<K> {
    kind: K,
    at: Mono,
    suppressed: u64,
}

impl<K: PartialEq> LogThrottle<K> {
    /// For kinds that a remote party chooses: `max_kinds` of them are logged per interval and remembered, further ones are not logged.
    pub fn with_max_kinds(max_kinds: usize) -> Self {
        Self {
            logged: Vec::new(),
            max_kinds,
        }
    }

    /// Counts a problem of this kind. `Some` when the caller must log it, with the number of suppressed ones since it was last
    /// logged.
    pub fn admit(&mut self, kind: K, now: Mono) -> Option<u64> {
        let mut known = self.logged.iter_mut();
        if let Some(logged) = known.find(|logged| logged.kind == kind) {
            if now.since(logged.at) < LOG_REPEAT_INTERVAL {
                logged.suppressed += 1;
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.suppressed));
        }
        if self.logged.len() >= self.max_kinds {
            let is_recent = |logged: &LoggedKind<K>| now.since(logged.at) < LOG_REPEAT_INTERVAL;
            self.logged.retain(is_recent);
        }
        if self.logged.len() >= self.max_kinds {
            return None;
        }
        let (at, suppressed) = (now, 0);
        self.logged.push(LoggedKind {
            kind,
            at,
            suppressed,
        });
        Some(0)
    }
}

impl<K: PartialEq> Default for LogThrottle<K> {
    fn default() -> Self {
        Self::with_max_kinds(usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_problem_is_admitted_once_per_interval_with_suppressed_count() {
        let mut throttle = LogThrottle::default();
        let mut admitted = Vec::new();
        for second in 0..=150 {
            let now = Mono::from_nanos(second * 1_000_000_000);
            if let Some(suppressed) = throttle.admit("stalled", now) {
                admitted.push((second, suppressed));
            }
        }
        assert_eq!(admitted, [(0, 0), (60, 59), (120, 59)]);
        let now = Mono::from_nanos(150_000_000_000);
        assert_eq!(throttle.admit("unreachable", now), Some(0), "another kind");
    }

    #[test]
    fn unbounded_kinds_are_limited_per_interval() {
        let mut throttle = LogThrottle::with_max_kinds(2);
        let mut admitted_at = |second: u64| {
            let now = Mono::from_nanos(second * 1_000_000_000);
            let kinds = (0..1000).filter(|kind| throttle.admit(*kind, now).is_some());
            (kinds.collect::<Vec<_>>(), throttle.logged.len())
        };
        assert_eq!(admitted_at(0), (vec![0, 1], 2));
        assert_eq!(admitted_at(59), (vec![], 2));
        assert_eq!(admitted_at(60), (vec![0, 1], 2), "old kinds are forgotten");
        let later = Mono::from_nanos(120_000_000_000);
        assert_eq!(throttle.admit(999, later), Some(0), "a new kind");
    }
}
