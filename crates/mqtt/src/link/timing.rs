//! Pauses and time limits of a connection to the broker.

use std::time::Duration;

/// The defaults are those of the daemon; tests of outages shorten them.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionTiming {
    /// Pause after the first failure; each further failure doubles it.
    pub(super) backoff_first: Duration,
    pub(super) backoff_max: Duration,
    /// Longer than the back-off: some brokers ban clients that repeat a rejected login.
    pub(super) refused_first: Duration,
    pub(super) refused_max: Duration,
    /// Two clients with one id end each other's sessions; this limits the rounds.
    pub(super) taken_over: Duration,
    /// The certificate or our authority may be replaced meanwhile.
    pub(super) untrusted: Duration,
    /// A connection that ends sooner may have been taken over. MQTT 3.1.1 cannot report that, and mosquitto 2.0 does not
    /// in MQTT 5.
    pub(super) quick_close: Duration,
    /// Without a packet for this time, the broker is sent a request that it must answer.
    pub(super) ask_after: Duration,
    /// Without a packet for this time, the connection is closed.
    pub(super) silence_max: Duration,
    /// A broker that sends packets, but does not acknowledge a message for this time, has lost it: the message is sent
    /// again on a new connection.
    pub(super) ack_within: Duration,
    /// CONNECT without an answer. Whole seconds: the library for MQTT 3.1.1 accepts no fractions.
    pub(super) connect_timeout: Duration,
    /// After half as much again without a packet from us, the broker publishes our will.
    pub(super) keep_alive_s: u16,
}

impl Default for ConnectionTiming {
    fn default() -> Self {
        Self {
            backoff_first: Duration::from_secs(1),
            backoff_max: Duration::from_secs(60),
            refused_first: Duration::from_secs(30),
            refused_max: Duration::from_secs(300),
            taken_over: Duration::from_secs(60),
            untrusted: Duration::from_secs(300),
            quick_close: Duration::from_secs(10),
            ask_after: Duration::from_secs(15),
            silence_max: Duration::from_secs(25),
            ack_within: Duration::from_secs(30),
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
            backoff_first: plain.backoff_first / 25,
            backoff_max: plain.backoff_max / 25,
            refused_first: plain.refused_first / 25,
            refused_max: plain.refused_max / 25,
            taken_over: plain.taken_over / 25,
            untrusted: plain.untrusted / 25,
            quick_close: plain.quick_close / 25,
            ask_after: plain.ask_after / 5,
            silence_max: plain.silence_max / 5,
            ack_within: plain.ack_within / 5,
            connect_timeout: plain.connect_timeout / 5,
            keep_alive_s: plain.keep_alive_s / 5,
        }
    }
}
