//! Whether the broker still answers. Pure: takes `now`.
//!
//! The client library's keep-alive is not enough: it pings only when nothing was sent for a while, but QoS 0 messages are sent
//! all the time and never answered; and it does not check its timer while it waits for a full socket.

use super::timing::ConnectionTiming;
use spotter_core::Mono;

/// The packets of one connection.
#[derive(Clone, Debug)]
pub(super) struct ConnectionLiveness {
    timing: ConnectionTiming,
    heard: Mono,
    asked: bool,
}

impl ConnectionLiveness {
    pub(super) fn new(timing: ConnectionTiming, now: Mono) -> Self {
        Self {
            timing,
            heard: now,
            asked: false,
        }
    }

    /// The broker sent a packet.
    pub(super) fn heard(&mut self, now: Mono) {
        self.heard = now;
        self.asked = false;
    }

    /// True once in a silence, when a request must be sent.
    pub(super) fn must_ask(&mut self, now: Mono) -> bool {
        let must_ask = !self.asked && now.since(self.heard) >= self.timing.ask_after;
        self.asked |= must_ask;
        must_ask
    }

    /// Why the connection must be closed, if it must. `oldest`: the hand-over of the oldest message in flight.
    pub(super) fn lost(&self, now: Mono, oldest: Option<Mono>) -> Option<String> {
        let (silence_max, ack_within) = (self.timing.silence_max, self.timing.ack_within);
        if now.since(self.heard) >= silence_max {
            let seconds = silence_max.as_secs();
            Some(format!("the broker has been silent for {seconds} s"))
        } else if oldest.is_some_and(|since| now.since(since) >= ack_within) {
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
    use std::time::Duration;

    use super::*;

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn silent_broker_is_asked_once_and_then_disconnected() {
        let mut liveness = ConnectionLiveness::new(ConnectionTiming::default(), at(0));
        let asked = [14, 15, 16].map(|second| liveness.must_ask(at(second)));
        assert_eq!(asked, [false, true, false]);
        assert_eq!(liveness.lost(at(24), None), None);
        assert!(liveness.lost(at(25), None).is_some());
        liveness.heard(at(24));
        assert_eq!(liveness.lost(at(48), None), None);
        assert!(liveness.must_ask(at(39)), "the broker is silent again");
        // It answers pings, but not the oldest message.
        assert_eq!(liveness.lost(at(48), Some(at(19))), None);
        assert!(liveness.lost(at(48), Some(at(18))).is_some());
    }
}
