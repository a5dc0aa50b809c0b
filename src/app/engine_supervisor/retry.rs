//! When a lost engine is opened again. Pure: takes `now`.
//!
//! ```text
//!   running ── failed, or no progress ──▶ lost ── 10 s, then 1, 5, 15 min ──▶ opening ─┬─▶ running
//!                                          ▲                                           │
//!                                          └────────────── failed ◀────────────────────┘
//! ```

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

#[derive(Debug)]
struct EngineRetry {
    attempts: usize,
    state: RetryState,
}

#[derive(Debug)]
enum RetryState {
    Lost { retry_at: Mono },
    Running { since: Mono },
}

impl RetrySchedule {
    /// An engine was lost, or could not be opened again. Returns the pause before the next attempt.
    pub fn lose(&mut self, label: &str, now: Mono) -> Duration {
        let attempts = match self.0.get(label) {
            Some(EngineRetry {
                state: RetryState::Running { since },
                ..
            }) if now.since(*since) >= STABLE_AFTER => 0,
            Some(retry) => retry.attempts,
            None => 0,
        };
        let pause = PAUSES[attempts.min(PAUSES.len() - 1)];
        let retry = EngineRetry {
            attempts: attempts + 1,
            state: RetryState::Lost {
                retry_at: now.after(pause),
            },
        };
        self.0.insert(label.to_owned(), retry);
        pause
    }

    /// The engine runs again.
    pub fn recover(&mut self, label: &str, now: Mono) {
        if let Some(retry) = self.0.get_mut(label) {
            retry.state = RetryState::Running { since: now };
        }
    }

    /// The label of an engine that is to be opened now.
    pub fn due(&self, now: Mono) -> Option<&str> {
        let is_due = |retry: &EngineRetry| matches!(retry.state, RetryState::Lost { retry_at } if retry_at <= now);
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
    fn only_an_hour_of_running_resets_the_pauses() {
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
