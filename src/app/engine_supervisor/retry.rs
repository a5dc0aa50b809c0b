//! When a lost engine is opened again. Pure: takes `now`.
//!
//! ```text
//!   running ── failed, or no progress ──▶ lost ── 10 s, then 1, 5, 15 min ──▶ opening ─┬─▶ running
//!                                          ▲                                           │
//!                                          └────────────── failed ◀────────────────────┘
//! ```
//!
//! Faults: D10.

use std::{collections::BTreeMap, time::Duration};

use spotter_core::Mono;

/// Pauses before the attempts; the last one applies to all further attempts. Each attempt loads a model beside the looks of
/// the other engines.
const PAUSES: [Duration; 4] = [
    Duration::from_secs(10),
    Duration::from_secs(60),
    Duration::from_secs(300),
    Duration::from_secs(900),
];
/// An engine that ran for so long was good; when it is lost again, the pauses begin from the first.
const STABLE_AFTER: Duration = Duration::from_secs(3600);

/// The engines that were lost, by their labels.
#[derive(Debug, Default)]
pub struct RetrySchedule(BTreeMap<String, EngineRetry>);

#[derive(Debug, Default)]
struct EngineRetry {
    attempts: usize,
    /// `None` while it runs.
    retry_at: Option<Mono>,
    running_since: Mono,
}

impl RetrySchedule {
    /// An engine was lost, or could not be opened again. Returns the pause before the next attempt.
    pub fn lose(&mut self, label: &str, now: Mono) -> Duration {
        let retry = self.0.entry(label.to_owned()).or_default();
        if retry.retry_at.is_none() && now.since(retry.running_since) >= STABLE_AFTER {
            retry.attempts = 0;
        }
        let pause = PAUSES[retry.attempts.min(PAUSES.len() - 1)];
        retry.attempts += 1;
        retry.retry_at = Some(now.after(pause));
        pause
    }

    /// The engine runs again.
    pub fn recover(&mut self, label: &str, now: Mono) {
        if let Some(retry) = self.0.get_mut(label) {
            (retry.retry_at, retry.running_since) = (None, now);
        }
    }

    /// The label of an engine that is to be opened now.
    pub fn due(&self, now: Mono) -> Option<&str> {
        let is_due = |retry: &EngineRetry| retry.retry_at.is_some_and(|at| at <= now);
        let mut due = self.0.iter().filter(|(_, retry)| is_due(retry));
        due.next().map(|(label, _)| label.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn pauses_between_attempts_grow_and_attempts_never_end() {
        let mut retries = RetrySchedule::default();
        assert_eq!(retries.due(at(1_000_000)), None);
        let mut now = 0;
        for pause in [10, 60, 300, 900, 900, 900] {
            assert_eq!(retries.lose("cuda 1", at(now)).as_secs(), pause);
            assert_eq!(retries.due(at(now + pause - 1)), None);
            now += pause;
            assert_eq!(retries.due(at(now)), Some("cuda 1"));
        }
    }

    #[test]
    fn one_hour_of_running_resets_the_back_off() {
        let mut retries = RetrySchedule::default();
        retries.lose("cuda 1", at(0));
        retries.recover("cuda 1", at(10));
        assert_eq!(retries.due(at(1_000_000)), None, "it runs");
        assert_eq!(retries.lose("cuda 1", at(11)).as_secs(), 60);
        retries.recover("cuda 1", at(71));
        assert_eq!(retries.lose("cuda 1", at(71 + 3600)).as_secs(), 10);
        assert_eq!(
            retries.lose("cuda 0", at(71 + 3600)).as_secs(),
            10,
            "each engine has its own pauses"
        );
    }
}
