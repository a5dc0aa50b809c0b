//! How long the daemon's loop takes for what woke it. Meanwhile it does nothing else: no answer is handed on, no command executed.
//!
//! A turn is one poll of the loop, or a handler that waits inside of the loop.

use std::{
    fmt,
    future::poll_fn,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use spotter_core::{Clock, Mono};

/// Bucket `n` has turns of less than `FIRST · GROWTH^n`; the last has all others.
const BUCKETS: usize = 64;
const FIRST: Duration = Duration::from_micros(50);
const GROWTH: f64 = 1.25;
/// Longer turns are logged.
const LONG: Duration = Duration::from_millis(20);

/// The turns of a run. Clones have the same.
#[derive(Clone)]
pub struct LoopTurns {
    counts: Arc<Mutex<TurnCounts>>,
    clock: Arc<dyn Clock>,
}

struct TurnCounts {
    buckets: [u64; BUCKETS],
    longest: Duration,
}

/// A turn, until it is dropped.
pub struct LoopTurn {
    turns: LoopTurns,
    name: &'static str,
    began: Mono,
}

impl Default for TurnCounts {
    fn default() -> Self {
        Self {
            buckets: [0; BUCKETS],
            longest: Duration::ZERO,
        }
    }
}

impl LoopTurns {
    pub fn new(clock: &Arc<dyn Clock>) -> Self {
        Self {
            counts: Arc::default(),
            clock: Arc::clone(clock),
        }
    }

    /// Each poll of `run` is a turn.
    pub async fn watch<F: Future>(&self, run: F) -> F::Output {
        let mut run = pin!(run);
        poll_fn(|context| {
            let _turn = self.begin("poll");
            run.as_mut().poll(context)
        })
        .await
    }

    pub fn begin(&self, name: &'static str) -> LoopTurn {
        LoopTurn {
            turns: self.clone(),
            name,
            began: self.clock.now(),
        }
    }

    fn add(&self, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let below = |index: &usize| took < bound(*index);
        let index = (0..BUCKETS).find(below).unwrap_or(BUCKETS - 1);
        counts.buckets[index] += 1;
        counts.longest = counts.longest.max(took);
    }
}

impl Drop for LoopTurn {
    fn drop(&mut self) {
        let took = self.turns.clock.now().since(self.began);
        self.turns.add(took);
        if took > LONG {
            tracing::debug!(
                turn = self.name,
                ?took,
                "the daemon's loop was busy for long"
            );
        }
    }
}

fn bound(index: usize) -> Duration {
    FIRST.mul_f64(GROWTH.powi(index as i32))
}

impl TurnCounts {
    /// An upper bound of the shortest turns that are this share of all.
    fn within(&self, share: f64) -> Duration {
        let wanted = share * self.buckets.iter().sum::<u64>() as f64;
        let mut counted = 0;
        let index = self.buckets.iter().position(|count| {
            counted += count;
            counted as f64 >= wanted
        });
        bound(index.unwrap_or_default()).min(self.longest)
    }
}

impl fmt::Display for LoopTurns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        write!(
            f,
            "{} turns, 99 % within {:.2} ms, 99.9 % within {:.2} ms, the longest {:.2} ms",
            counts.buckets.iter().sum::<u64>(),
            ms(counts.within(0.99)),
            ms(counts.within(0.999)),
            ms(counts.longest)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_turns_are_bounded_by_buckets_and_the_longest() {
        let clock: Arc<dyn Clock> = Arc::new(spotter_core::ManualClock::default());
        let turns = LoopTurns::new(&clock);
        assert!(turns.to_string().starts_with("0 turns"));
        for _ in 0..999 {
            turns.add(Duration::from_micros(10));
        }
        turns.add(Duration::from_secs(3600));
        let text = turns.to_string();
        let expected =
            "1000 turns, 99 % within 0.05 ms, 99.9 % within 0.05 ms, the longest 3600000.00 ms";
        assert_eq!(text, expected);
    }
}
