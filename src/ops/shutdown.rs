//! Signals: the first SIGINT or SIGTERM asks for an orderly stop, the second for an end now; SIGHUP asks for a reload.

use std::time::Duration;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

/// A request by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorSignal {
    /// Read the configuration again.
    Reload,
    /// Finish the work in progress, then exit.
    Stop,
    /// Exit now; losses are logged.
    StopNow,
}

/// Signals this soon after the first are copies of one request: `timeout` signals its child and then the whole group, and so
/// do some supervisors.
const COPY_WINDOW: Duration = Duration::from_millis(200);

/// The process's signals. While it lives they no longer kill the process.
#[derive(Debug)]
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
    phase: StopPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopPhase {
    Never,
    /// The first request was returned.
    Asked(Instant),
    /// The second request was returned.
    Now,
}

impl Signals {
    /// Needs a tokio runtime. Fails when the system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            phase: StopPhase::Never,
        })
    }

    /// Waits for the next request. May be cancelled and called again.
    pub async fn next(&mut self) -> OperatorSignal {
        self.next_of(true).await
    }

    /// Waits until a stop is asked for. A reload that is asked for meanwhile is kept for [`next`](Self::next).
    pub async fn next_stop(&mut self) -> OperatorSignal {
        self.next_of(false).await
    }

    async fn next_of(&mut self, reloads: bool) -> OperatorSignal {
        loop {
            tokio::select! {
                _ = self.interrupt.recv() => {}
                _ = self.terminate.recv() => {}
                _ = self.hangup.recv(), if reloads => return OperatorSignal::Reload,
            }
            if let Some(request) = self.stop() {
                return request;
            }
        }
    }

    /// What a signal to stop asks for; `None`: it is a copy.
    fn stop(&mut self) -> Option<OperatorSignal> {
        match self.phase {
            StopPhase::Never => {
                self.phase = StopPhase::Asked(Instant::now());
                Some(OperatorSignal::Stop)
            }
            StopPhase::Asked(at) if at.elapsed() < COPY_WINDOW => None,
            StopPhase::Asked(_) | StopPhase::Now => {
                self.phase = StopPhase::Now;
                Some(OperatorSignal::StopNow)
            }
        }
    }

    /// Waits for [`OperatorSignal::StopNow`]. Does not wait if it was returned before.
    pub async fn stop_now(&mut self) {
        while self.phase != StopPhase::Now {
            self.next_stop().await;
        }
    }

    /// True after the first signal to stop.
    pub fn stop_asked(&self) -> bool {
        self.phase != StopPhase::Never
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use tokio::time::timeout;

    use super::*;

    /// Sends a signal to this very process, whose handlers are installed by then.
    fn send(name: &str) {
        let done = Command::new("kill")
            .arg(name)
            .arg(std::process::id().to_string())
            .status();
        assert!(done.unwrap().success());
    }

    // Faults: D5.
    #[tokio::test]
    async fn sighup_reloads_first_sigterm_stops_second_ends_now() {
        let mut signals = Signals::listen().unwrap();
        send("-HUP");
        assert_eq!(signals.next().await, OperatorSignal::Reload);
        assert!(!signals.stop_asked());
        send("-TERM");
        assert_eq!(signals.next().await, OperatorSignal::Stop);
        assert!(signals.stop_asked());
        send("-INT");
        // A copy.
        let copy = timeout(COPY_WINDOW * 2, signals.next_stop()).await;
        assert!(copy.is_err());
        send("-HUP");
        send("-INT");
        signals.stop_now().await;
        assert_eq!(
            signals.next().await,
            OperatorSignal::Reload,
            "kept for later"
        );
        // The stop that follows does not wait for a third one: the daemon may have taken the second while a node left its fleet.
        let ended = timeout(Duration::ZERO, signals.stop_now()).await;
        assert!(ended.is_ok());
    }
}
