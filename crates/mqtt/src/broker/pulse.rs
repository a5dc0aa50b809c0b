//! Whether the broker still lives. Pure: takes `now`.
//!
//! Why not the client library's keep-alive alone: it pings only when nothing was sent for a while, and QoS 0 messages are
//! sent all the time and never answered; and while it waits for a socket that takes nothing it does not look at its timer.

use std::{collections::VecDeque, time::Duration};

use spotter_core::Mono;

/// After so long without a word the broker is asked something that it must answer.
const ASK_AFTER: Duration = Duration::from_secs(15);
/// After so long without a word the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(25);
/// A broker that speaks, but does not acknowledge for so long, has forgotten the message: it is sent again on a new connection.
const ACK_WITHIN: Duration = Duration::from_secs(30);

/// One connection's signs of life. `K` names a message that is on its way.
#[derive(Clone, Debug)]
pub(super) struct Pulse<K> {
    heard: Mono,
    asked: bool,
    /// Messages without an acknowledgement, oldest first, and since when.
    unanswered: VecDeque<(K, Mono)>,
}

impl<K: PartialEq> Pulse<K> {
    pub(super) fn new(now: Mono) -> Self {
        Self {
            heard: now,
            asked: false,
            unanswered: VecDeque::new(),
        }
    }

    /// The broker said something.
    pub(super) fn heard(&mut self, now: Mono) {
        self.heard = now;
        self.asked = false;
    }

    /// A message that the broker will acknowledge was sent.
    pub(super) fn sent(&mut self, message: K, now: Mono) {
        self.unanswered.push_back((message, now));
    }

    /// The broker acknowledged or refused it.
    pub(super) fn answered(&mut self, message: &K) {
        self.unanswered.retain(|(waiting, _)| waiting != message);
    }

    /// Messages without an acknowledgement.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered.len()
    }

    /// True once in a silence, when it is time to ask.
    pub(super) fn asks(&mut self, now: Mono) -> bool {
        let asks = !self.asked && now.since(self.heard) >= ASK_AFTER;
        self.asked |= asks;
        asks
    }

    /// Why the connection must be given up, if it must.
    pub(super) fn is_dead(&self, now: Mono) -> Option<&'static str> {
        let oldest = self.unanswered.front().map(|(_, since)| now.since(*since));
        if now.since(self.heard) >= SILENCE_MAX {
            Some("the broker has been silent for 25 s")
        } else if oldest.is_some_and(|waited| waited >= ACK_WITHIN) {
            Some("the broker has not acknowledged a message for 30 s")
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
        let mut pulse = Pulse::<u8>::new(at(0));
        assert!(!pulse.asks(at(14)) && pulse.asks(at(15)) && !pulse.asks(at(16)));
        assert_eq!(pulse.is_dead(at(24)), None);
        assert!(pulse.is_dead(at(25)).is_some());
        pulse.heard(at(24));
        assert_eq!(pulse.is_dead(at(48)), None);
        assert!(pulse.asks(at(39)), "a new silence");
    }

    #[test]
    fn a_message_that_is_never_acknowledged_is_the_end_too() {
        let mut pulse = Pulse::new(at(0));
        pulse.sent('a', at(0));
        pulse.sent('b', at(10));
        for second in 0..40 {
            pulse.heard(at(second));
        }
        assert!(pulse.is_dead(at(30)).is_some());
        pulse.answered(&'a');
        assert_eq!((pulse.unanswered(), pulse.is_dead(at(39))), (1, None));
        assert!(pulse.is_dead(at(40)).is_some());
    }
}
