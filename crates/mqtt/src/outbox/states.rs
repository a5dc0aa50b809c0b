//! What is true now: one payload a topic, the newest, until the broker has it.

use std::{sync::Arc, time::Duration};

use super::{Carried, IN_FLIGHT_MAX, Outbox, Outgoing, Promise};
use crate::message::{Body, Rank};
use spotter_core::Mono;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
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
    /// The broker did not take it; it is tried again after a while.
    Declined,
}

#[derive(Clone, Debug)]
pub(super) struct State {
    pub(super) payload: Arc<[u8]>,
    pub(super) rank: Rank,
    pub(super) phase: Phase,
}

impl Outbox {
    /// Sends a state again although nothing changed.
    pub(crate) fn repeat(&mut self, topic: &str) {
        if self.states.contains_key(topic) {
            self.make_pending(topic);
        }
    }

    /// The broker has the state.
    pub(super) fn settle_state(&mut self, topic: &str, now: Mono) {
        match self.states.get_mut(topic).map(|state| &mut state.phase) {
            Some(Phase::InFlight { newer: true }) => self.make_pending(topic),
            Some(phase @ Phase::InFlight { newer: false }) => *phase = Phase::Settled { at: now },
            // Due again already, by `repeat`: this acknowledgement is not of what will be sent.
            Some(Phase::Pending { .. } | Phase::Settled { .. } | Phase::Declined) | None => {}
        }
    }

    pub(super) fn push_state(
        &mut self,
        topic: String,
        payload: Arc<[u8]>,
        (rank, refresh): (Rank, Option<Duration>),
        now: Mono,
    ) {
        if payload.is_empty() {
            self.drop_pictures_of(&topic);
        }
        match self.states.get_mut(&topic) {
            None => {
                let phase = Phase::Pending { order: 0 };
                let state = State {
                    payload,
                    rank,
                    phase,
                };
                self.states.insert(topic.clone(), state);
                self.make_pending(&topic);
            }
            Some(state) if state.rank != rank => self.move_to_rank(&topic, payload, rank),
            Some(state) => {
                let changed = state.payload != payload;
                state.payload = payload;
                match &mut state.phase {
                    Phase::Pending { .. } => {}
                    Phase::InFlight { newer } => *newer |= changed,
                    Phase::Declined if changed => self.make_pending(&topic),
                    Phase::Declined => {}
                    Phase::Settled { at } => {
                        let stale = refresh.is_some_and(|every| now.since(*at) >= every);
                        if changed || stale {
                            self.make_pending(&topic);
                        }
                    }
                }
            }
        }
    }

    pub(super) fn take_state(&mut self, now: Mono) -> Option<Outgoing> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let (_, _, topic) = self.pending.pop_first()?;
        let state = self.states.get_mut(&topic)?;
        state.phase = Phase::InFlight { newer: false };
        let payload = Arc::clone(&state.payload);
        let ticket = self.sends(Carried::State(topic.clone()), now);
        Some(Outgoing {
            topic,
            promise: Promise::State(ticket),
            body: Body::Bytes(payload),
            label: None,
        })
    }

    pub(super) fn make_pending(&mut self, topic: &str) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        if let Phase::Pending { order } = state.phase {
            self.pending.remove(&(state.rank, order, topic.to_owned()));
        }
        self.serial += 1;
        state.phase = Phase::Pending { order: self.serial };
        self.pending
            .insert((state.rank, self.serial, topic.to_owned()));
    }
}
