//! What is removed. Pure.

use std::time::Duration;

use serde::Serialize;
use spotter_config::HistoryConfig;

/// Age and space of what is stored.
#[derive(Clone, Debug)]
pub(crate) struct HistoryLimits {
    pub keep_ms: i64,
    pub size: u64,
    pub judged: u64,
    /// Objects below `min_score`, a day and prompt.
    pub near: u16,
}

/// Bytes of all rows and their pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredTotals {
    /// Those below `min_score` are none.
    pub events: u64,
    pub unjudged: u64,
    pub judged: u64,
}

/// An event that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemovalCandidate {
    pub number: i64,
    pub last_seen_ms: i64,
    pub bytes: u64,
    pub is_judged: bool,
}

/// What ends the history at its old end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum HistoryEnd {
    /// Nothing was removed yet: it begins where events were first stored.
    Start,
    Keep,
    Size,
}

impl StoredTotals {
    fn of_kind(&mut self, is_judged: bool) -> &mut u64 {
        match is_judged {
            true => &mut self.judged,
            false => &mut self.unjudged,
        }
    }

    pub fn add(&mut self, bytes: u64, is_judged: bool) {
        *self.of_kind(is_judged) += bytes;
    }

    pub fn subtract(&mut self, bytes: u64, is_judged: bool) {
        let of_kind = self.of_kind(is_judged);
        *of_kind = of_kind.saturating_sub(bytes);
    }

    /// An event of these bytes is judged now, or is not any more.
    pub fn judge(&mut self, bytes: u64, is_judged: bool) {
        self.subtract(bytes, !is_judged);
        self.add(bytes, is_judged);
    }
}

impl HistoryLimits {
    pub fn new(config: &HistoryConfig) -> Self {
        Self {
            keep_ms: millis(config.keep),
            size: config.size,
            judged: config.judged,
            near: config.near,
        }
    }

    /// Which of `oldest`, the oldest first, are removed so that `incoming` bytes of new events fit.
    pub fn removed(
        &self,
        oldest: &[RemovalCandidate],
        totals: StoredTotals,
        incoming: u64,
        now_ms: i64,
    ) -> Vec<i64> {
        let mut left = [totals.unjudged + incoming, totals.judged];
        let limits = [self.size, self.judged];
        let mut removed = Vec::new();
        for candidate in oldest {
            let kind = usize::from(candidate.is_judged);
            let age_ms = now_ms.saturating_sub(candidate.last_seen_ms);
            let is_old = !candidate.is_judged && age_ms > self.keep_ms;
            if is_old || left[kind] > limits[kind] {
                left[kind] = left[kind].saturating_sub(candidate.bytes);
                removed.push(candidate.number);
            }
        }
        removed
    }

    /// Whether [`removed`](Self::removed) may find something beside what is too old.
    pub fn is_exceeded(&self, totals: StoredTotals, incoming: u64) -> bool {
        totals.unjudged + incoming > self.size || totals.judged > self.judged
    }

    /// `oldest_ms`: the start of the oldest event that is not judged.
    pub fn end(&self, totals: StoredTotals, oldest_ms: i64, now_ms: i64) -> HistoryEnd {
        // What is removed makes room for one picture, so a full history stays near its limit; the age of the oldest one is near its limit
        // where events are frequent.
        if totals.unjudged >= self.size / 10 * 9 {
            HistoryEnd::Size
        } else if now_ms.saturating_sub(oldest_ms) >= self.keep_ms / 10 * 9 {
            HistoryEnd::Keep
        } else {
            HistoryEnd::Start
        }
    }
}

pub(crate) fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: HistoryLimits = HistoryLimits {
        keep_ms: 1000,
        size: 100,
        judged: 50,
        near: 0,
    };

    /// Ten bytes each, a tenth of `keep` apart.
    fn oldest(judged: &[i64]) -> Vec<RemovalCandidate> {
        let candidate = |number| RemovalCandidate {
            number,
            last_seen_ms: number * 100,
            bytes: 10,
            is_judged: judged.contains(&number),
        };
        (0..20).map(candidate).collect()
    }

    fn totals(unjudged: u64, judged: u64) -> StoredTotals {
        StoredTotals {
            events: 0,
            unjudged,
            judged,
        }
    }

    #[test]
    fn old_events_are_removed_and_judged_ones_stay() {
        let removed = LIMITS.removed(&oldest(&[1, 2]), totals(0, 20), 0, 1350);
        assert_eq!(removed, [0, 3]);
    }

    #[test]
    fn oldest_events_make_room_within_their_own_limit() {
        let removed = |unjudged, judged, incoming| {
            LIMITS.removed(&oldest(&[0, 2]), totals(unjudged, judged), incoming, 0)
        };
        assert_eq!(removed(100, 50, 0), [0; 0]);
        assert_eq!(removed(100, 50, 1), [1]);
        assert_eq!(removed(100, 50, 25), [1, 3, 4]);
        assert_eq!(removed(0, 51, 0), [0]);
        assert_eq!(removed(110, 71, 0), [0, 1, 2]);
        // A picture that fits nowhere removes all, and ends.
        assert_eq!(removed(180, 20, 1000).len(), 18);
        assert!(LIMITS.is_exceeded(totals(100, 0), 1) && LIMITS.is_exceeded(totals(0, 51), 0));
        assert!(!LIMITS.is_exceeded(totals(100, 50), 0));
    }

    #[test]
    fn end_is_the_limit_that_removes() {
        let end = |unjudged, oldest_ms| LIMITS.end(totals(unjudged, 0), oldest_ms, 2000);
        assert_eq!(end(10, 1500), HistoryEnd::Start);
        assert_eq!(end(10, 1050), HistoryEnd::Keep);
        assert_eq!(end(95, 1500), HistoryEnd::Size);
    }
}
