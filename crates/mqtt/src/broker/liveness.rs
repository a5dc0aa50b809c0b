//! Whether the broker still answers. Pure: takes `now`.
//!
//! The client library's keep-alive is not enough: it pings only when nothing was sent for a while, but QoS 0 messages are sent
//! all the time and never answered; and it does not check its timer while it waits for a full socket.

use std::{collections::VecDeque, time::Duration};

use spotter_core::Mono;

/// How long a broker may be silent.
#[derive(Clone, Debug)]
pub(super) struct SilenceLimits {
    /// Without a packet for this time, the broker is sent a request that it must answer.
    pub(super) ask_after: Duration,
    /// Without a packet for this time, the connection is closed.
    pub(super) silence_max: Duration,
    /// A broker that sends packets, but does not acknowledge a message for this time, has lost it: the message is sent
    /// again on a new connection.
    pub(super) ack_within: Duration,
}

impl Default for SilenceLimits {
    fn default() -> Self {
        Self {
            ask_after: Duration::from_secs(15),
            silence_max: Duration::from_secs(25),
            ack_within: Duration::from_secs(30),
        }
    }
}

#[cfg(test)]
impl SilenceLimits {
    pub(super) fn divided_by(&self, divisor: u32) -> Self {
        Self {
            ask_after: self.ask_after / divisor,
            silence_max: self.silence_max / divisor,
            ack_within: self.ack_within / divisor,
        }
    }
}

/// The packets of one connection. `K` identifies a message in flight.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLiveness<K> {
    limits: SilenceLimits,
    heard: Mono,
    asked: bool,
    /// Messages in flight with the time of their hand-over, oldest first.
    unanswered: VecDeque<(K, Mono)>,
}

impl<K: PartialEq> ConnectionLiveness<K> {
    pub(super) fn new(limits: SilenceLimits, now: Mono) -> Self {
        Self {
            limits,
            heard: now,
            asked: false,
            unanswered: VecDeque::new(),
        }
    }

    /// The broker sent a packet.
    pub(super) fn heard(&mut self, now: Mono) {
        self.heard = now;
        self.asked = false;
    }

    /// A message that the broker will acknowledge was sent.
    pub(super) fn sent(&mut self, message: K, now: Mono) {
        self.unanswered.push_back((message, now));
    }

    /// The broker acknowledged or rejected the message.
    pub(super) fn answered(&mut self, message: &K) {
        self.unanswered.retain(|(waiting, _)| waiting != message);
    }

    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// True once in a silence, when a request must be sent.
    pub(super) fn must_ask(&mut self, now: Mono) -> bool {
        let must_ask = !self.asked && now.since(self.heard) >= self.limits.ask_after;
        self.asked |= must_ask;
        must_ask
    }

    /// Why the connection must be closed, if it must.
    pub(super) fn lost(&self, now: Mono) -> Option<String> {
        let SilenceLimits {
            silence_max,
            ack_within,
            ..
        } = self.limits;
        let oldest = self.unanswered.front().map(|(_, since)| now.since(*since));
        if now.since(self.heard) >= silence_max {
            let seconds = silence_max.as_secs();
            Some(format!("the broker has been silent for {seconds} s"))
        } else if oldest.is_some_and(|waited| waited >= ack_within) {
            let seconds = ack_within.as_secs();
            Some(format!(
                "the broker has not acknowledged a message for {seconds} s"
            ))
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn silence_is_asked_about_once_and_then_is_the_end() {
        let mut liveness = ConnectionLiveness::<u8>::new(SilenceLimits::default(), at(0));
        assert!(
            !liveness.must_ask(at(14)) && liveness.must_ask(at(15)) && !liveness.must_ask(at(16))
        );
        assert_eq!(liveness.lost(at(24)), None);
        assert!(liveness.lost(at(25)).is_some());
        liveness.heard(at(24));
        assert_eq!(liveness.lost(at(48)), None);
        assert!(liveness.must_ask(at(39)), "the broker is silent again");
    }

    #[test]
    fn a_message_that_is_never_acknowledged_is_the_end_too() {
        let mut liveness = ConnectionLiveness::new(SilenceLimits::default(), at(0));
        liveness.sent('a', at(0));
        liveness.sent('b', at(10));
        for second in 0..40 {
            liveness.heard(at(second));
        }
        assert!(liveness.lost(at(30)).is_some());
        liveness.answered(&'a');
        assert_eq!((liveness.unanswered(), liveness.lost(at(39))), (1, None));
        assert!(liveness.lost(at(40)).is_some());
    }
}
