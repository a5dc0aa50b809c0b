//! Replies to commands, in order. They are kept while the connection lasts: the sender of the command waits on it.

use std::{collections::VecDeque, sync::Arc};

use crate::message_counters::MessageCounters;

/// Replies that wait or are in flight; beyond it the oldest that waits is dropped.
pub(super) const REPLIES_MAX: usize = 64;
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
