//! Replies to commands, in order. They are dropped at the end of the connection, on which the sender of the command waits.

use std::{collections::VecDeque, sync::Arc};

use crate::message_counters::MessageCounters;

/// Replies that wait or are in flight; beyond this number the oldest that waits is dropped.
const REPLIES_MAX: usize = 64;
/// Replies without an acknowledgement.
const IN_FLIGHT_MAX: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct QueuedReply {
    pub(super) topic: String,
    pub(super) correlation: Option<Arc<[u8]>>,
    pub(super) payload: Arc<[u8]>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct ReplyQueue {
    waiting: VecDeque<QueuedReply>,
    in_flight: usize,
}

impl ReplyQueue {
    /// Drops the oldest that waits beyond [`REPLIES_MAX`].
    pub(super) fn push(&mut self, reply: QueuedReply, counters: &mut MessageCounters) {
        self.waiting.push_back(reply);
        if self.waiting.len() + self.in_flight > REPLIES_MAX {
            self.waiting.pop_front();
            counters.replies_dropped += 1;
        }
    }

    /// Drops all replies: their receivers wait on a connection that has ended.
    pub(super) fn disconnected(&mut self, counters: &mut MessageCounters) {
        counters.replies_dropped += (self.waiting.len() + self.in_flight) as u64;
        *self = Self::default();
    }

    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    pub(super) fn take(&mut self) -> Option<QueuedReply> {
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
    pub(super) fn failed(&mut self, reply: QueuedReply) {
        self.in_flight -= 1;
        self.waiting.push_front(reply);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue_of(replies: usize, counters: &mut MessageCounters) -> ReplyQueue {
        let mut queue = ReplyQueue::default();
        for number in 0..replies {
            let reply = QueuedReply {
                topic: "spotter/edge1/reply".into(),
                correlation: None,
                payload: number.to_string().as_bytes().into(),
            };
            queue.push(reply, counters);
        }
        queue
    }

    fn number(reply: &QueuedReply) -> usize {
        std::str::from_utf8(&reply.payload)
            .unwrap()
            .parse()
            .unwrap()
    }

    fn take_all(queue: &mut ReplyQueue) -> Vec<usize> {
        std::iter::from_fn(|| queue.take())
            .map(|reply| number(&reply))
            .collect()
    }

    #[test]
    fn few_replies_are_in_flight_and_they_leave_in_order() {
        let mut queue = queue_of(6, &mut MessageCounters::default());
        assert_eq!(take_all(&mut queue), [0, 1, 2, 3]);
        queue.settled();
        queue.settled();
        assert_eq!(take_all(&mut queue), [4, 5]);
        assert!(!queue.is_settled());
        (0..IN_FLIGHT_MAX).for_each(|_| queue.settled());
        assert!(queue.is_settled());
    }

    #[test]
    fn failed_reply_is_the_next_again() {
        let mut queue = queue_of(3, &mut MessageCounters::default());
        let first = queue.take().unwrap();
        queue.failed(first);
        assert_eq!(take_all(&mut queue), [0, 1, 2]);
    }

    #[test]
    fn oldest_waiting_replies_are_dropped_beyond_the_bound() {
        let mut counters = MessageCounters::default();
        let mut queue = queue_of(REPLIES_MAX + 10, &mut counters);
        assert_eq!(counters.replies_dropped, 10);
        assert_eq!(take_all(&mut queue), [10, 11, 12, 13]);
    }

    #[test]
    fn end_of_the_connection_drops_waiting_and_unacknowledged_replies() {
        let mut counters = MessageCounters::default();
        let mut queue = queue_of(6, &mut counters);
        assert_eq!(take_all(&mut queue).len(), 4);
        queue.disconnected(&mut counters);
        assert_eq!(counters.replies_dropped, 6);
        assert!(queue.is_settled() && queue.take().is_none());
    }
}
