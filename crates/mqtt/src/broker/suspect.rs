//! Finds the message for which a broker closes the connection: MQTT 3.1.1 cannot say what is too large. Pure: takes `now`.

use std::time::Duration;

use spotter_core::Mono;

/// Who closes for a message does it as soon as it comes, and what was not answered is sent at once on the next connection. One
/// that lasted longer ended for another reason: the broker was killed, or the network.
const AT_ONCE: Duration = Duration::from_secs(3);
/// So many closes in a row with an equally large message on its way are no chance.
const CLOSES: u32 = 2;
/// It is tried again soon, on the same connection too: a network that cuts two connections just after their beginning looks the
/// same, and then everything of that size would be missing.
const HELD_FOR: Duration = Duration::from_secs(60);
/// It doubles each time that the same size is found again, up to so long, because finding it costs connections.
const HELD_MAX: Duration = Duration::from_secs(24 * 3600);

/// No broker is set to take less, so smaller messages are not suspected: whoever closes while one is on its way, a rival
/// with our id for example, has other reasons.
const PLAUSIBLE_BYTES: usize = 256;

/// Outlives connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Suspect {
    bytes: usize,
    closes: u32,
    held: Option<Held>,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    bytes: usize,
    long: Duration,
    until: Mono,
}

impl Suspect {
    /// The broker closed a connection that had lasted so long, without a word and while messages were on their way, the
    /// largest of so many bytes; 0 = there were none. True when messages of that size are held back from now on.
    pub(super) fn closed(&mut self, bytes: usize, lasted: Duration, now: Mono) -> bool {
        let again = if bytes == self.bytes { self.closes } else { 0 };
        self.closes = if bytes >= PLAUSIBLE_BYTES && lasted < AT_ONCE {
            again + 1
        } else {
            0
        };
        self.bytes = bytes;
        let found = self.closes >= CLOSES;
        if found {
            self.too_large(bytes, now);
        }
        found
    }

    /// The broker was not there: it ended for a reason of its own.
    pub(super) fn away(&mut self) {
        self.closes = 0;
    }

    /// The broker said that a message was too large, and not which: the largest of those on their way.
    pub(super) fn too_large(&mut self, bytes: usize, now: Mono) {
        self.closes = 0;
        if bytes > 0 {
            let is_again = |held: &Held| held.bytes == bytes && now < held.until.after(HELD_MAX);
            let before = self.held.filter(is_again);
            let long = before.map_or(HELD_FOR, |held| (held.long * 2).min(HELD_MAX));
            let until = now.after(long);
            self.held = Some(Held { bytes, long, until });
        }
    }

    /// The largest message that may be sent now.
    pub(super) fn max_bytes(&self, now: Mono) -> Option<usize> {
        let held = self.held.filter(|held| held.until > now);
        held.map(|held| held.bytes - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    #[test]
    fn a_size_that_ends_two_connections_is_held_back_for_a_while() {
        let mut suspect = Suspect::default();
        assert!(!suspect.closed(900, SOON, at(0)) && suspect.closed(900, SOON, at(1)));
        assert_eq!(suspect.max_bytes(at(2)), Some(899));
        assert!(!suspect.closed(500, SOON, at(3)) && suspect.closed(500, SOON, at(4)));
        assert_eq!(suspect.max_bytes(at(5)), Some(499));
        assert_eq!(suspect.max_bytes(at(64)), None);
    }

    #[test]
    fn what_is_found_again_and_again_is_held_back_longer_and_longer() {
        let mut suspect = Suspect::default();
        let mut now = 0;
        let mut held_s = Vec::new();
        for _ in 0..13 {
            suspect.closed(900, SOON, at(now));
            suspect.closed(900, SOON, at(now));
            let free = |s: &u64| suspect.max_bytes(at(now + s)).is_none();
            let long = (0..).step_by(60).find(free).unwrap();
            held_s.push(long);
            now += long;
        }
        assert_eq!(held_s[..3], [60, 120, 240]);
        assert_eq!(held_s[11..], [24 * 3600, 24 * 3600]);
        suspect.too_large(800, at(now));
        assert_eq!(suspect.max_bytes(at(now + 60)), None, "another size");
        let next_week = now + 7 * 24 * 3600;
        suspect.too_large(800, at(next_week));
        assert_eq!(suspect.max_bytes(at(next_week + 60)), None, "long ago");
    }

    #[test]
    fn closes_with_other_messages_or_none_on_their_way_prove_nothing() {
        let mut suspect = Suspect::default();
        for (second, bytes) in [900, 0, 900, 500, 900, 0, 0, 90, 90, 90]
            .into_iter()
            .enumerate()
        {
            assert!(!suspect.closed(bytes, SOON, at(second as u64)));
        }
        // A broker that dies and comes back.
        for second in 10..20 {
            assert!(!suspect.closed(900, SOON, at(second)));
            suspect.away();
        }
        // Outages of a broker that took what is on its way now, many a time.
        for second in 10..20 {
            assert!(!suspect.closed(900, Duration::from_secs(4), at(second)));
        }
        assert_eq!(suspect.max_bytes(at(9)), None);
    }
}
