//! Signals: the first SIGINT or SIGTERM asks for an orderly stop, the second for an end now; SIGHUP asks for a reload.

use std::time::Duration;

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
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
    stops: StopSignals,
    hangup: Signal,
}

impl Signals {
    /// Needs a tokio runtime. Fails when the system refuses a handler.
    pub fn listen() -> std::io::Result<Self> {
        let stops = StopSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            asked: StopPhase::Never,
        };
        let hangup = signal(SignalKind::hangup())?;
        Ok(Self { stops, hangup })
    }

    /// Waits for the next request. May be cancelled and called again.
    pub async fn next(&mut self) -> OperatorSignal {
        tokio::select! {
            request = self.stops.next() => request,
            _ = self.hangup.recv() => OperatorSignal::Reload,
        }
    }

    /// Waits until a stop is asked for. A reload that is asked for meanwhile is kept for [`next`](Self::next).
    pub async fn next_stop(&mut self) -> OperatorSignal {
        self.stops.next().await
    }

    /// Waits for [`OperatorSignal::StopNow`]. Does not wait if it was returned before.
    pub async fn stop_now(&mut self) {
        if self.stops.asked == StopPhase::Now {
            return;
        }
        while self.stops.next().await != OperatorSignal::StopNow {}
    }

    /// True after the first signal to stop.
    pub fn stop_asked(&self) -> bool {
        self.stops.asked != StopPhase::Never
    }
}

/// The two signals that ask for a stop, which mean the same.
#[derive(Debug)]
struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    asked: StopPhase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StopPhase {
    Never,
    /// The first request was returned; copies of its signal may still arrive.
    JustNow,
    Before,
    /// The second request was returned.
    Now,
}

impl StopSignals {
    /// The first request is returned at once, however often a caller cancels this; only a call for the second one waits until
    /// copies of the first are past.
    async fn next(&mut self) -> OperatorSignal {
        if self.asked == StopPhase::JustNow {
            self.pass_over_copies().await;
        }
        self.signal().await;
        match self.asked {
            StopPhase::Never => {
                self.asked = StopPhase::JustNow;
                OperatorSignal::Stop
            }
            StopPhase::JustNow | StopPhase::Before | StopPhase::Now => {
                self.asked = StopPhase::Now;
                OperatorSignal::StopNow
            }
        }
    }

    async fn pass_over_copies(&mut self) {
        let copies = async {
            loop {
                self.signal().await;
            }
        };
        // The loop ends with the time alone.
        let _ = timeout(COPY_WINDOW, copies).await;
        self.asked = StopPhase::Before;
    }

    async fn signal(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

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
        signals.stops.pass_over_copies().await;
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
