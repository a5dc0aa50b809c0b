//! How long the daemon's loop takes for what woke it. Meanwhile it does nothing else: no answer is handed on, no command executed.

use std::{fmt, future::poll_fn, pin::pin, sync::Arc, time::Duration};

use spotter_core::Clock;

/// Longer turns are logged and counted: the loop is meant to have at most one in a thousand.
const LONG: Duration = Duration::from_millis(20);

/// The turns of a run: each is one poll of the loop.
pub struct LoopTurns {
    clock: Arc<dyn Clock>,
    all: u64,
    long: u64,
    longest: Duration,
}

impl LoopTurns {
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            clock: Arc::clone(clock),
            all: 0,
            long: 0,
            longest: Duration::ZERO,
        }
    }

    pub async fn watch<F: Future>(&mut self, run: F) -> F::Output {
        let mut run = pin!(run);
        poll_fn(|context| {
            let began = self.clock.now();
            let turn = run.as_mut().poll(context);
            self.add(self.clock.now().since(began));
            turn
        })
        .await
    }

    fn add(&mut self, took: Duration) {
        self.all += 1;
        self.longest = self.longest.max(took);
        if took > LONG {
            self.long += 1;
            tracing::debug!(?took, "the daemon's loop was busy for long");
        }
    }
}

impl fmt::Display for LoopTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} turns, {:.3} % of them longer than {} ms, the longest {:.2} ms",
            self.all,
            100.0 * self.long as f64 / self.all.max(1) as f64,
            LONG.as_millis(),
            self.longest.as_secs_f64() * 1e3
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_turns_are_counted_as_a_share_of_all() {
        let clock: Arc<dyn Clock> = Arc::new(spotter_core::ManualClock::default());
        let mut turns = LoopTurns::new(&clock);
        assert!(turns.to_string().starts_with("0 turns, 0.000 %"));
        for _ in 0..999 {
            turns.add(LONG);
        }
        turns.add(Duration::from_secs(3600));
        let expected = "1000 turns, 0.100 % of them longer than 20 ms, the longest 3600000.00 ms";
        assert_eq!(turns.to_string(), expected);
    }
}
