//! Answers to requests: worth something to who asked, who is there now.

use std::{collections::VecDeque, sync::Arc};

use crate::tally::Tally;

/// Answers that wait or are on their way; beyond it the oldest that waits is dropped.
pub(super) const REPLIES_MAX: usize = 64;
/// Answers on their way without an acknowledgement.
const IN_FLIGHT_MAX: usize = 4;

/// An answer.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) topic: String,
    pub(super) correlation: Option<Arc<[u8]>>,
    pub(super) payload: Arc<[u8]>,
}

/// Answers in the order in which they were given.
#[derive(Debug, Default)]
pub(super) struct Replies {
    waiting: VecDeque<Reply>,
    in_flight: usize,
}

impl Replies {
    pub(super) fn push(&mut self, reply: Reply, connected: bool, tally: &mut Tally) {
        if !connected {
            tally.replies_dropped += 1;
            return;
        }
        self.waiting.push_back(reply);
        if self.waiting.len() + self.in_flight > REPLIES_MAX {
            self.waiting.pop_front();
            tally.replies_dropped += 1;
        }
    }

    /// None is left: who asked is gone.
    pub(super) fn disconnected(&mut self, tally: &mut Tally) {
        tally.replies_dropped += (self.waiting.len() + self.in_flight) as u64;
        *self = Self::default();
    }

    pub(super) fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.in_flight == 0
    }

    pub(super) fn take(&mut self) -> Option<Reply> {
        if self.in_flight >= IN_FLIGHT_MAX {
            return None;
        }
        let reply = self.waiting.pop_front()?;
        self.in_flight += 1;
        Some(reply)
    }

    /// One that was taken is settled.
    pub(super) fn settled(&mut self) {
        self.in_flight -= 1;
    }

    /// One that was taken could not be handed over.
    pub(super) fn failed(&mut self, reply: Reply) {
        self.in_flight -= 1;
        self.waiting.push_front(reply);
    }
}
