//! Who learns that an engine, the broker's connection or the daemon's loop makes no progress: the engines' owner, `/readyz`, systemd.

use std::time::Duration;

use crate::ops::notify::{self, Watchdog};
use spotter_core::Mono;
use spotter_page::Readiness;

/// An engine without progress for this time makes none for `/readyz`.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// An engine without progress for this time is given up, where systemd sets no watchdog interval.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30);
/// A look that takes this many times its measured time counts as one that hangs.
const SLOWEST_LOOK: u32 = 10;

/// Reports to systemd that the daemon makes progress: its loop, which calls this, and the connection to the broker.
pub struct SystemdWatchdog {
    watchdog: Watchdog,
    notify_every: Duration,
    notified_at: Mono,
}

impl SystemdWatchdog {
    /// `None` when the unit has no watchdog.
    pub fn new(now: Mono) -> Option<Self> {
        let interval = notify::watchdog_interval()?;
        Some(Self {
            watchdog: Watchdog::new([("mqtt".to_owned(), interval)], now),
            notify_every: interval / 4,
            notified_at: now,
        })
    }

    /// `progress`: a counter of the broker's connection.
    pub fn tick(&mut self, progress: u64, now: Mono) {
        let loops = self.watchdog.check(&[Some(progress)], now);
        if !loops.is_empty() {
            tracing::error!(?loops, "no progress; systemd restarts the daemon");
        } else if now.since(self.notified_at) >= self.notify_every {
            notify::alive();
            self.notified_at = now;
        }
    }
}

/// Counter of the progress of each engine by its label; `None`: it has ended.
type EngineProgress<'a> = [(&'a str, Option<u64>)];

/// Engines that make no progress: soon for `/readyz`, later they are given up.
pub struct EngineWatchdogs {
    readiness: Readiness,
    engines: Watchdog,
    stalls: Watchdog,
}

impl EngineWatchdogs {
    /// `look`: the time of the slowest engine for a look. An engine shows progress once a step; on a processor a step of a large model takes
    /// long, but no longer than its look.
    pub fn new(
        readiness: Readiness,
        engines: &EngineProgress<'_>,
        look: Option<Duration>,
        now: Mono,
    ) -> Self {
        let give_up = notify::watchdog_interval().unwrap_or(PROGRESS_LIMIT);
        let watchdog = |limit: Duration| {
            let limit = limit.max(look.unwrap_or_default() * SLOWEST_LOOK);
            let labels = engines.iter().map(|(label, _)| (*label).to_owned());
            Watchdog::new(labels.map(|label| (label, limit)), now)
        };
        Self {
            readiness,
            engines: watchdog(give_up),
            stalls: watchdog(STALL_LIMIT.min(give_up / 2)),
        }
    }

    /// Where it is reported.
    pub fn readiness(&self) -> Readiness {
        self.readiness.clone()
    }

    /// Once a second. Returns the labels of engines to give up.
    pub fn tick(&mut self, engines: &EngineProgress<'_>, now: Mono) -> Vec<String> {
        let progress: Vec<_> = engines.iter().map(|(_, count)| *count).collect();
        let running = progress.iter().flatten().count();
        let stalled = self.stalls.check(&progress, now).len();
        self.readiness.turned(running > stalled);
        self.engines.check(&progress, now)
    }
}
