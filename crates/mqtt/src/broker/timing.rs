//! Pauses and time limits of a connection to the broker.

use std::time::Duration;

use super::{liveness::SilenceLimits, policy::RetryPauses};

/// The defaults are those of the daemon; tests of outages shorten them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionTiming {
    pub(super) retry: RetryPauses,
    pub(super) silence: SilenceLimits,
    /// CONNECT without an answer. Whole seconds: the library for MQTT 3.1.1 accepts no fractions.
    pub(super) connect_timeout: Duration,
    /// After half as much again without a packet from us, the broker publishes our will.
    pub(super) keep_alive_s: u16,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        Self {
            retry: RetryPauses::default(),
            silence: SilenceLimits::default(),
            connect_timeout: Duration::from_secs(10),
            keep_alive_s: 10,
        }
    }
}

#[cfg(test)]
impl ConnectionTiming {
    /// The same decisions in less time: pauses between attempts are a 25th, limits of silence a fifth.
    pub(crate) fn quick() -> Self {
        let plain = Self::default();
        Self {
            retry: plain.retry.divided_by(25),
            silence: plain.silence.divided_by(5),
            connect_timeout: plain.connect_timeout / 5,
            keep_alive_s: plain.keep_alive_s / 5,
        }
    }
}
