//! Whether the daemon works: what `/readyz` answers to a supervisor that restarts it. The HTTP server's threads ask, which do not
//! depend on the daemon's loop.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use spotter_core::{Clock, Mono};

/// The daemon's loop turns once a second, unless it is stopped in something.
const LOOP_LIMIT: Duration = Duration::from_secs(10);

/// Clones share the state.
#[derive(Clone)]
pub struct Readiness {
    /// When the daemon's loop turned, and whether an engine made progress then; `None`: the daemon starts, or starts again after a reload.
    turned: Arc<Mutex<Option<(Mono, bool)>>>,
    clock: Arc<dyn Clock>,
}

/// Why the daemon is not ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    #[error("the model is being opened")]
    Opening,
    #[error("no engine makes progress")]
    NoEngine,
    #[error("the daemon's loop has not turned for {} s", .0.as_secs())]
    LoopStopped(Duration),
}

impl Readiness {
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            turned: Arc::default(),
            clock,
        }
    }

    /// The daemon's loop turns now. `has_engine`: at least one makes progress.
    pub fn turned(&self, has_engine: bool) {
        *self.lock() = Some((self.clock.now(), has_engine));
    }

    pub fn check(&self) -> Result<(), NotReady> {
        let (turned, has_engine) = self.lock().ok_or(NotReady::Opening)?;
        match self.clock.now().since(turned) {
            stopped if stopped >= LOOP_LIMIT => Err(NotReady::LoopStopped(stopped)),
            _ if !has_engine => Err(NotReady::NoEngine),
            _ => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Mono, bool)>> {
        self.turned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::ManualClock;

    #[test]
    fn readiness_ends_with_model_engine_or_loop_and_returns() {
        let clock = ManualClock::default();
        let readiness = Readiness::new(Arc::new(clock.clone()));
        clock.advance(Duration::from_secs(60));
        assert_eq!(readiness.check(), Err(NotReady::Opening));
        readiness.turned(true);
        clock.advance(Duration::from_secs(9));
        assert_eq!(readiness.check(), Ok(()));
        clock.advance(Duration::from_secs(1));
        let stopped = NotReady::LoopStopped(LOOP_LIMIT);
        assert_eq!(readiness.check(), Err(stopped));
        assert_eq!(
            stopped.to_string(),
            "the daemon's loop has not turned for 10 s"
        );
        readiness.turned(false);
        assert_eq!(readiness.check(), Err(NotReady::NoEngine));
        readiness.turned(true);
        assert_eq!(readiness.check(), Ok(()));
    }
}
