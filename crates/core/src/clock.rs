//! What shows the time: the machine, and in tests a hand.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use super::{Mono, WallTime, anchor::WallClockAnchor};

/// The only way to learn the time.
pub trait Clock: Send + Sync {
    fn now(&self) -> Mono;
    fn wall(&self) -> WallTime;
}

/// The machine's clocks. UTC is monotonic time from a [`WallClockAnchor`] on, which is read again once a minute: a step of the
/// machine's clock is logged once, and published times follow it within that minute.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
    /// What it showed at the start.
    origin: Mono,
    anchor: Mutex<WallClockAnchor>,
}

impl SystemClock {
    /// A clock whose monotonic time starts at zero now.
    pub fn new() -> Self {
        Self::showing(Mono::default())
    }

    /// A clock that shows `origin` now: it goes on as that of another process, which showed it a moment ago.
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the machine's clock"
    )]
    pub fn showing(origin: Mono) -> Self {
        let start = Instant::now();
        Self {
            start,
            origin,
            anchor: Mutex::new(WallClockAnchor::new(origin, machine_wall())),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Mono {
        self.origin.after(self.start.elapsed())
    }

    fn wall(&self) -> WallTime {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        if anchor.is_due(self.now())
            && let Some(step_s) = anchor.read_again(self.now(), machine_wall())
        {
            tracing::warn!(
                step_s,
                "this machine's UTC clock was set, or it slept; ages and latencies are not touched"
            );
        }
        anchor.wall_at(self.now())
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that reads the machine's clock"
)]
fn machine_wall() -> WallTime {
    match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => WallTime::from_unix_nanos(since.as_nanos() as i64),
        Err(before) => WallTime::from_unix_nanos(-(before.duration().as_nanos() as i64)),
    }
}

/// A clock that tests move by hand; clones share one time.
#[derive(Clone, Debug, Default)]
pub struct ManualClock(Arc<Mutex<(Mono, WallTime)>>);

impl ManualClock {
    /// Starts at monotonic zero and the given UTC time.
    pub fn at(wall: WallTime) -> Self {
        Self(Arc::new(Mutex::new((Mono::default(), wall))))
    }

    /// Moves both clocks on.
    pub fn advance(&self, by: Duration) {
        let mut both = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        both.0 = both.0.after(by);
        both.1 = WallTime::from_unix_nanos(both.1.unix_nanos() + by.as_nanos() as i64);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Mono {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }

    fn wall(&self) -> WallTime {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn utc_time_is_that_of_the_machine() {
        let clock = SystemClock::showing(Mono::from_nanos(5_000_000_000));
        assert!(clock.now() >= Mono::from_nanos(5_000_000_000));
        let apart_s = clock.wall().seconds_since(machine_wall());
        assert!(apart_s.abs() < 5.0, "{apart_s}");
    }
}
