//! Retained topics: the newest payload of each, until the broker has acknowledged it.
//!
//! A state without a payload clears its topic; it is removed from the queue when the broker has acknowledged it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use crate::message::Rank;
use spotter_core::Mono;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StatePhase {
    Pending {
        order: u64,
    },
    /// `newer`: the payload changed since it was handed over.
    InFlight {
        newer: bool,
    },
    Settled {
        at: Mono,
    },
    /// The broker refused it; the mixer retries it later.
    Declined,
}

#[derive(Clone, Debug)]
struct QueuedState {
    payload: Arc<[u8]>,
    rank: Rank,
    phase: StatePhase,
}

/// A state as it is pushed.
#[derive(Clone, Debug)]
pub(super) struct NewState {
    pub(super) topic: String,
    pub(super) payload: Arc<[u8]>,
    pub(super) rank: Rank,
    /// An unchanged payload is sent again after this time; `None` = never.
    pub(super) refresh: Option<Duration>,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct StateQueue {
    states: BTreeMap<String, QueuedState>,
    pending: BTreeSet<(Rank, u64, String)>,
    /// Order of the last state that became pending.
    order: u64,
}

impl StateQueue {
    /// Returns true when the state changed its rank: acknowledgements of earlier payloads of this topic no longer count.
    pub(super) fn push(&mut self, new: NewState, now: Mono) -> bool {
        let NewState {
            topic,
            payload,
            rank,
            refresh,
        } = new;
        let Some(state) = self.states.get_mut(&topic) else {
            // Not pending yet, so that `make_pending` does not look for it there.
            let phase = StatePhase::InFlight { newer: true };
            let state = QueuedState {
                payload,
                rank,
                phase,
            };
            self.states.insert(topic.clone(), state);
            self.make_pending(&topic);
            return false;
        };
        if state.rank != rank {
            self.change_rank(&topic, payload, rank);
            return true;
        }
        let changed = state.payload != payload;
        state.payload = payload;
        let is_due = match &mut state.phase {
            StatePhase::Pending { .. } => false,
            StatePhase::InFlight { newer } => {
                *newer |= changed;
                false
            }
            StatePhase::Declined => changed,
            StatePhase::Settled { at } => {
                changed || refresh.is_some_and(|every| now.since(*at) >= every)
            }
        };
        if is_due {
            self.make_pending(&topic);
        }
        false
    }

    /// A topic that is cleared, or used again after that, has another rank and is due again.
    fn change_rank(&mut self, topic: &str, payload: Arc<[u8]>, rank: Rank) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        if let StatePhase::Pending { order } = state.phase {
            self.pending.remove(&(state.rank, order, topic.to_owned()));
        }
        (state.payload, state.rank) = (payload, rank);
        // It is out of `pending`, where `make_pending` would look for it under its new rank.
        state.phase = StatePhase::InFlight { newer: true };
        self.make_pending(topic);
    }

    /// Every state is due again, on a new connection.
    pub(super) fn connected(&mut self) {
        self.pending.clear();
        self.make_all_pending(|_| true);
    }

    /// The next topic and payload, in the order of ranks.
    pub(super) fn take(&mut self) -> Option<(String, Arc<[u8]>)> {
        let (_, _, topic) = self.pending.pop_first()?;
        let state = self.states.get_mut(&topic)?;
        state.phase = StatePhase::InFlight { newer: false };
        Some((topic, Arc::clone(&state.payload)))
    }

    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    pub(super) fn acked(&mut self, topic: &str, now: Mono) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        match state.phase {
            StatePhase::InFlight { newer: true } => self.make_pending(topic),
            StatePhase::InFlight { newer: false } if state.payload.is_empty() => {
                self.states.remove(topic);
            }
            StatePhase::InFlight { newer: false } => state.phase = StatePhase::Settled { at: now },
            // Due again by `repeat`: this acknowledgement is for the earlier copy.
            StatePhase::Pending { .. } | StatePhase::Settled { .. } | StatePhase::Declined => {}
        }
    }

    /// The hand-over failed: the state is due again.
    pub(super) fn failed(&mut self, topic: &str) {
        self.make_pending(topic);
    }

    /// The broker refused the state. A payload that changed meanwhile is sent at once.
    pub(super) fn declined(&mut self, topic: &str) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        match state.phase {
            StatePhase::InFlight { newer: true } => self.make_pending(topic),
            StatePhase::InFlight { newer: false } => state.phase = StatePhase::Declined,
            StatePhase::Pending { .. } | StatePhase::Settled { .. } | StatePhase::Declined => {}
        }
    }

    /// Refused states are due again.
    pub(super) fn retry_declined(&mut self) {
        self.make_all_pending(|state| state.phase == StatePhase::Declined);
    }

    /// Sends a state again although it did not change.
    pub(super) fn repeat(&mut self, topic: &str) {
        self.make_pending(topic);
    }

    /// Sends every state of a rank again although none changed.
    pub(super) fn repeat_rank(&mut self, rank: Rank) {
        self.make_all_pending(|state| state.rank == rank);
    }

    /// Topics that the broker has not cleared yet.
    pub(super) fn clearing(&self) -> impl Iterator<Item = &String> {
        let cleared = self
            .states
            .iter()
            .filter(|(_, state)| state.payload.is_empty());
        cleared.map(|(topic, _)| topic)
    }

    /// True when the broker has acknowledged every state of the ranks up to and with `rank`.
    pub(super) fn is_settled_to(&self, rank: Rank) -> bool {
        let mut of_ranks = self.states.values().filter(|state| state.rank <= rank);
        of_ranks.all(|state| matches!(state.phase, StatePhase::Settled { .. }))
    }

    fn make_all_pending(&mut self, wanted: impl Fn(&QueuedState) -> bool) {
        let due = self.states.iter().filter(|(_, state)| wanted(state));
        let due: Vec<String> = due.map(|(topic, _)| topic.clone()).collect();
        for topic in due {
            self.make_pending(&topic);
        }
    }

    fn make_pending(&mut self, topic: &str) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        if let StatePhase::Pending { order } = state.phase {
            self.pending.remove(&(state.rank, order, topic.to_owned()));
        }
        self.order += 1;
        state.phase = StatePhase::Pending { order: self.order };
        self.pending
            .insert((state.rank, self.order, topic.to_owned()));
    }
}
