//! An exact rate limit: no second has more messages than the limit.

use std::{collections::VecDeque, time::Duration};

use spotter_core::Mono;

const SECOND: Duration = Duration::from_secs(1);

/// Remembers the messages of the last second. A token bucket would let twice the limit through in its first second.
#[derive(Clone, Debug)]
pub(super) struct RateLimit {
    limit: usize,
    sent: VecDeque<Mono>,
}

impl RateLimit {
    /// `per_second` is at least 1.
    pub(super) fn new(per_second: usize) -> Self {
        Self {
            limit: per_second.max(1),
            sent: VecDeque::new(),
        }
    }

    /// When the next message may be sent; not after `now` if it may be sent now.
    pub(super) fn ready_at(&self, now: Mono) -> Mono {
        match self.sent.len().checked_sub(self.limit) {
            // The oldest message in the window has to leave it.
            Some(index) => self.sent[index].after(SECOND),
            None => now,
        }
    }

    /// Counts a message. States are counted too but never wait, so this may go over the limit.
    pub(super) fn count(&mut self, now: Mono) {
        while self.sent.front().is_some_and(|&at| at.after(SECOND) <= now) {
            self.sent.pop_front();
        }
        self.sent.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_second_holds_more_than_the_limit(gaps_ms in prop::collection::vec(0u64..300, 1..200), limit in 1usize..8) {
            let mut rate = RateLimit::new(limit);
            let (mut now, mut passed) = (Mono::default(), Vec::new());
            for gap_ms in gaps_ms {
                now = now.after(Duration::from_millis(gap_ms));
                if rate.ready_at(now) <= now {
                    rate.count(now);
                    passed.push(now);
                }
            }
            for (first, last) in passed.iter().zip(passed.iter().skip(limit)) {
                prop_assert!(last.since(*first) >= SECOND);
            }
        }
    }
}
