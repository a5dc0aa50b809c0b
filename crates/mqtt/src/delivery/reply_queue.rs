//! Replies to commands, in order. They are dropped at the end of the connection, on which the sender of the command waits.

use std::collections::VecDeque;

use super::Outgoing;

/// Replies that wait or are in flight; beyond this number the oldest that waits is dropped.
const REPLIES_MAX: usize = 64;
/// Replies without an acknowledgement.
const IN_FLIGHT_MAX: usize = 4;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    waiting: VecDeque<Outgoing>,
    in_flight: usize,
    pub(super) dropped: u64,
}

impl ReplyQueue {
    /// Drops the oldest that waits beyond [`REPLIES_MAX`].
    pub(super) fn push(&mut self, reply: Outgoing) {
        self.waiting.push_back(reply);
        if self.waiting.len() + self.in_flight > REPLIES_MAX {
            self.waiting.pop_front();
            self.dropped += 1;
        }
    }

    /// Drops all replies: their receivers wait on a connection that has ended.
    pub(super) fn disconnected(&mut self) {
        self.dropped += (self.waiting.len() + self.in_flight) as u64;
        self.waiting.clear();
        self.in_flight = 0;
    }

    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    pub(super) fn take(&mut self) -> Option<Outgoing> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        let reply = self.waiting.pop_front()?;
        self.in_flight += 1;
        Some(reply)
    }

    /// The broker acknowledged or refused a reply that was taken.
    pub(super) fn settled(&mut self) {
        self.in_flight -= 1;
    }

    /// A reply that was taken could not be handed over.
    pub(super) fn failed(&mut self, reply: Outgoing) {
        self.in_flight -= 1;
        self.waiting.push_front(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{contract::message::Body, delivery::DeliveryOptions};

    fn queue_of(replies: usize) -> ReplyQueue {
        let mut queue = ReplyQueue::default();
        for number in 0..replies {
            queue.push(Outgoing {
                topic: number.to_string(),
                delivery: DeliveryOptions::default(),
                body: Body::Bytes([].into()),
            });
        }
        queue
    }

    fn take_all(queue: &mut ReplyQueue) -> Vec<usize> {
        std::iter::from_fn(|| queue.take())
            .map(|reply| reply.topic.parse().unwrap())
            .collect()
    }

    #[test]
    fn replies_leave_in_order_and_few_at_a_time() {
        let mut queue = queue_of(REPLIES_MAX + 10);
        assert_eq!(queue.dropped, 10, "the oldest");
        let first = queue.take().unwrap();
        queue.failed(first);
        assert_eq!(take_all(&mut queue), [10, 11, 12, 13]);
        (0..2).for_each(|_| queue.settled());
        assert_eq!(take_all(&mut queue), [14, 15]);
        assert!(!queue.is_settled());
        queue.disconnected();
        assert_eq!(queue.dropped, 10 + REPLIES_MAX as u64 - 2);
        assert!(queue.is_settled() && queue.take().is_none());
    }
}
