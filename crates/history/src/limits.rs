//! What is removed. Pure.

use std::time::Duration;

use serde::Serialize;
use spotter_config::HistoryConfig;

/// Objects below `min_score` have at most this part of `size`: so full of alarms, the history still has some of them, and events reach back nearly as
/// far as without them.
const NEAR_PART: u64 = 10;

/// Age and space of what is stored.
#[derive(Clone, Debug)]
pub(crate) struct HistoryLimits {
    pub keep_ms: i64,
    pub size: u64,
    pub judged: u64,
    /// Objects below `min_score`, a day and prompt.
    pub near: u16,
}

/// What is removed together, the oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoredKind {
    /// Objects below `min_score` that are not judged.
    Near,
    /// Alarms that are not judged.
    Alarm,
    Judged,
}

/// Bytes of all rows and their pictures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StoredTotals {
    /// Those below `min_score` are none.
    pub events: u64,
    pub near: u64,
    pub alarms: u64,
    pub judged: u64,
}

/// An event that may be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemovalCandidate {
    pub number: i64,
    pub last_seen_ms: i64,
    pub bytes: u64,
    pub kind: StoredKind,
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

impl StoredKind {
    pub fn new(is_near: bool, is_judged: bool) -> Self {
        match (is_near, is_judged) {
            (_, true) => Self::Judged,
            (true, false) => Self::Near,
            (false, false) => Self::Alarm,
        }
    }
}

impl StoredTotals {
    fn of(&mut self, kind: StoredKind) -> &mut u64 {
        match kind {
            StoredKind::Near => &mut self.near,
            StoredKind::Alarm => &mut self.alarms,
            StoredKind::Judged => &mut self.judged,
        }
    }

    pub fn unjudged(&self) -> u64 {
        self.near + self.alarms
    }

    pub fn add(&mut self, bytes: u64, kind: StoredKind) {
        *self.of(kind) += bytes;
    }

    pub fn subtract(&mut self, bytes: u64, kind: StoredKind) {
        let of_kind = self.of(kind);
        *of_kind = of_kind.saturating_sub(bytes);
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

    /// Which of `oldest`, of each kind the oldest first and those below `min_score` before alarms, are removed so that `incoming` bytes of new events
    /// fit.
    pub fn removed(
        &self,
        oldest: &[RemovalCandidate],
        totals: StoredTotals,
        incoming: u64,
        now_ms: i64,
    ) -> Vec<i64> {
        let mut left = totals;
        let mut removed = Vec::new();
        for candidate in oldest {
            let kind = candidate.kind;
            let age_ms = now_ms.saturating_sub(candidate.last_seen_ms);
            let is_old = kind != StoredKind::Judged && age_ms > self.keep_ms;
            // Further objects below `min_score` are removed in the next round, which follows where this one removes some.
            let has_next_round = left.near < totals.near
                && kind == StoredKind::Alarm
                && self.is_exceeded_by(StoredKind::Near, left, incoming);
            if is_old || !has_next_round && self.is_exceeded_by(kind, left, incoming) {
                left.subtract(candidate.bytes, kind);
                removed.push(candidate.number);
            }
        }
        removed
    }

    fn is_exceeded_by(&self, kind: StoredKind, totals: StoredTotals, incoming: u64) -> bool {
        match kind {
            StoredKind::Near => totals.near > self.size / NEAR_PART,
            StoredKind::Alarm => totals.unjudged() + incoming > self.size,
            StoredKind::Judged => totals.judged > self.judged,
        }
    }

    /// Whether [`removed`](Self::removed) may find something beside what is too old.
    pub fn is_exceeded(&self, totals: StoredTotals, incoming: u64) -> bool {
        let kinds = [StoredKind::Near, StoredKind::Alarm, StoredKind::Judged];
        let mut kinds = kinds.into_iter();
        kinds.any(|kind| self.is_exceeded_by(kind, totals, incoming))
    }

    /// `oldest_ms`: the start of the oldest event that is not judged.
    pub fn end(&self, totals: StoredTotals, oldest_ms: i64, now_ms: i64) -> HistoryEnd {
        // What is removed makes room for one picture, so a full history stays near its limit; the age of the oldest one is near its limit
        // where events are frequent.
        if totals.unjudged() >= self.size / 10 * 9 {
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
    fn oldest(kind: impl Fn(i64) -> StoredKind) -> Vec<RemovalCandidate> {
        let candidate = |number| RemovalCandidate {
            number,
            last_seen_ms: number * 100,
            bytes: 10,
            kind: kind(number),
        };
        (0..20).map(candidate).collect()
    }

    fn judged(numbers: &[i64]) -> Vec<RemovalCandidate> {
        oldest(|number| StoredKind::new(false, numbers.contains(&number)))
    }

    fn totals(near: u64, alarms: u64, judged: u64) -> StoredTotals {
        StoredTotals {
            events: 0,
            near,
            alarms,
            judged,
        }
    }

    #[test]
    fn old_events_are_removed_and_judged_ones_stay() {
        let removed = LIMITS.removed(&judged(&[1, 2]), totals(0, 0, 20), 0, 1350);
        assert_eq!(removed, [0, 3]);
    }

    #[test]
    fn oldest_events_make_room_within_their_own_limit() {
        let removed = |alarms, of_judged, incoming| {
            let totals = totals(0, alarms, of_judged);
            LIMITS.removed(&judged(&[0, 2]), totals, incoming, 0)
        };
        assert_eq!(removed(100, 50, 0), [0; 0]);
        assert_eq!(removed(100, 50, 1), [1]);
        assert_eq!(removed(100, 50, 25), [1, 3, 4]);
        assert_eq!(removed(0, 51, 0), [0]);
        assert_eq!(removed(110, 71, 0), [0, 1, 2]);
        // A picture that fits nowhere removes all, and ends.
        assert_eq!(removed(180, 20, 1000).len(), 18);
        let is_exceeded = |alarms, of_judged, incoming| {
            LIMITS.is_exceeded(totals(0, alarms, of_judged), incoming)
        };
        assert!(is_exceeded(100, 0, 1) && is_exceeded(0, 51, 0) && !is_exceeded(100, 50, 0));
    }

    #[test]
    fn objects_below_min_score_have_a_tenth_beside_alarms() {
        let near = oldest(|number| StoredKind::new(number < 4, false));
        let removed = |near_bytes, alarms, now_ms| {
            LIMITS.removed(&near, totals(near_bytes, alarms, 0), 0, now_ms)
        };
        assert_eq!(removed(10, 90, 0), [0; 0]);
        assert_eq!(removed(10, 100, 0), [4]);
        assert_eq!(removed(40, 80, 0), [0, 1, 2]);
        // Alarms only once those that are not among the candidates are removed too.
        assert_eq!(removed(100, 80, 0), [0, 1, 2, 3]);
        let alarms = |near_bytes| LIMITS.removed(&near[4..], totals(near_bytes, 80, 0), 0, 0);
        assert_eq!(alarms(30), [4]);
        assert_eq!(removed(30, 90, 1150), [0, 1]);
        assert!(LIMITS.is_exceeded(totals(11, 0, 0), 0));
    }

    #[test]
    fn end_is_the_limit_that_removes() {
        let end = |alarms, oldest_ms| LIMITS.end(totals(0, alarms, 0), oldest_ms, 2000);
        assert_eq!(end(10, 1500), HistoryEnd::Start);
        assert_eq!(end(10, 1050), HistoryEnd::Keep);
        assert_eq!(end(95, 1500), HistoryEnd::Size);
    }
}
