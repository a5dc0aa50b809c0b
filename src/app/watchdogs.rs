//! Who learns that an engine, the broker's connection or the daemon's loop makes no progress: the daemon, `/readyz`, systemd.

use std::time::Duration;

use super::engine_supervisor::EngineSupervisor;
use crate::ops::notify::{self, Watchdog};
use spotter_core::Mono;
use spotter_page::Readiness;

/// An engine without progress for this time makes none for `/readyz`.
const STALL_LIMIT: Duration = Duration::from_secs(10);
/// An engine without progress for this time is given up, where systemd sets no watchdog interval.
const PROGRESS_LIMIT: Duration = Duration::from_secs(30);
/// A look that takes this many times its measured time counts as one that hangs.
const SLOWEST_LOOK: u32 = 10;

pub struct Watchdogs {
    readiness: Readiness,
    engines: Watchdog,
    stalls: Watchdog,
    systemd: Option<SystemdWatchdog>,
}

/// Reports to systemd that the daemon makes progress: its loop, which calls this, and the connection to the broker.
struct SystemdWatchdog {
    watchdog: Watchdog,
    notify_every: Duration,
    notified_at: Mono,
}

impl SystemdWatchdog {
    /// `None` when the unit has no watchdog.
    fn new(now: Mono) -> Option<Self> {
        let interval = notify::watchdog_interval()?;
        Some(Self {
            watchdog: Watchdog::new([("mqtt".to_owned(), interval)], now),
            notify_every: interval / 4,
            notified_at: now,
        })
    }

    /// `progress`: a counter of the broker's connection.
    fn tick(&mut self, progress: u64, now: Mono) {
        let loops = self.watchdog.check(&[Some(progress)], now);
        if !loops.is_empty() {
            tracing::error!(?loops, "no progress; systemd restarts the daemon");
        } else if now.since(self.notified_at) >= self.notify_every {
            notify::alive();
            self.notified_at = now;
        }
    }
}

/// An engine shows progress once a step. On a processor a step of a large model takes long, but no longer than its look.
fn engine_watchdog(engines: &EngineSupervisor, limit: Duration, now: Mono) -> Watchdog {
    let limit = limit.max(engines.look().unwrap_or_default() * SLOWEST_LOOK);
    let labels = engines.progress().map(|(label, _)| label.to_owned());
    Watchdog::new(labels.map(|label| (label, limit)), now)
}

fn give_up_limit() -> Duration {
    notify::watchdog_interval().unwrap_or(PROGRESS_LIMIT)
}

fn stall_limit() -> Duration {
    STALL_LIMIT.min(give_up_limit() / 2)
}

impl Watchdogs {
    pub fn start(readiness: Readiness, engines: &EngineSupervisor, now: Mono) -> Self {
        Self {
            readiness,
            engines: engine_watchdog(engines, give_up_limit(), now),
            stalls: engine_watchdog(engines, stall_limit(), now),
            systemd: SystemdWatchdog::new(now),
        }
    }

    /// To another one than at the start.
    #[cfg(test)]
    pub fn report_to(&mut self, readiness: Readiness) {
        self.readiness = readiness;
    }

    /// Watches the engines that run now.
    pub fn engines_changed(&mut self, engines: &EngineSupervisor, now: Mono) {
        self.engines = engine_watchdog(engines, give_up_limit(), now);
        self.stalls = engine_watchdog(engines, stall_limit(), now);
    }

    /// Once a second. `broker` is a counter of its connection. Returns the labels of engines without progress.
    pub fn tick(&mut self, engines: &EngineSupervisor, broker: u64, now: Mono) -> Vec<String> {
        if let Some(systemd) = &mut self.systemd {
            systemd.tick(broker, now);
        }
        let progress: Vec<_> = engines.progress().map(|(_, count)| count).collect();
        let running = progress.iter().flatten().count();
        let stalled = self.stalls.check(&progress, now).len();
        self.readiness.turned(running > stalled);
        self.engines.check(&progress, now)
    }
}
