//! What makes no progress: the daemon's loop and the connection to the broker, for systemd; engines, for their supervisor.

use std::time::Duration;

use crate::ops::notify;
use spotter_core::Mono;

/// When a counter rose the last time. Pure.
#[derive(Debug, Default)]
pub struct ProgressClock(Option<(u64, Mono)>);

impl ProgressClock {
    /// For how long the counter has not risen, as far as calls have shown.
    pub fn idle(&mut self, counter: u64, now: Mono) -> Duration {
        match self.0 {
            Some((before, since)) if before == counter => now.since(since),
            _ => {
                self.0 = Some((counter, now));
                Duration::ZERO
            }
        }
    }
}

/// Reports to systemd that the daemon makes progress: its loop, which calls this, and the connection to the broker.
pub struct SystemdWatchdog {
    interval: Duration,
    broker: ProgressClock,
}

impl SystemdWatchdog {
    /// `None` when the unit has no watchdog.
    pub fn new() -> Option<Self> {
        Some(Self {
            interval: notify::watchdog_interval()?,
            broker: ProgressClock::default(),
        })
    }

    /// Once a second. `progress`: a counter of the broker's connection.
    pub fn tick(&mut self, progress: u64, now: Mono) {
        if self.broker.idle(progress, now) >= self.interval {
            tracing::error!(
                "the connection to the broker makes no progress; systemd restarts the daemon"
            );
        } else {
            notify::alive();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counter_is_idle_since_it_rose_last() {
        let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
        let mut progress = ProgressClock::default();
        let idle = [(0, 100), (0, 104), (1, 105), (1, 135)];
        let idle = idle.map(|(counter, now)| progress.idle(counter, at(now)).as_secs());
        assert_eq!(idle, [0, 4, 0, 30]);
    }
}
