//! Retained topics: the newest payload of each, until the broker has acknowledged it.
//!
//! A state without a payload clears its topic; it is removed from the queue when the broker has acknowledged it. States of a fleet's
//! cameras wait while the node is silent about them, and are dropped when the camera has a newer owner.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    DeliveryOptions, Outgoing,
    gate::{Fate, GateAt},
};
use crate::contract::message::{Body, CameraStamp, Rank, StateMessage};
use spotter_core::{CameraId, Mono};

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
    stamp: Option<CameraStamp>,
    is_once: bool,
    phase: StatePhase,
}

impl QueuedState {
    fn is_of(&self, camera: &CameraId) -> bool {
        self.stamp
            .as_ref()
            .is_some_and(|stamp| stamp.camera == *camera)
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct StateQueue {
    states: BTreeMap<String, QueuedState>,
    pending: BTreeMap<(Rank, u64), String>,
    /// Order of the last state that became pending.
    order: u64,
}

impl StateQueue {
    /// Returns true when the state changed its rank: acknowledgements of earlier payloads of this topic no longer count.
    pub(super) fn push(
        &mut self,
        topic: &str,
        stamp: Option<CameraStamp>,
        new: StateMessage,
        now: Mono,
    ) -> bool {
        let StateMessage {
            rank,
            refresh,
            is_once,
            payload,
        } = new;
        let is_due = match self.states.get_mut(topic) {
            Some(state) if state.rank == rank => {
                let changed = state.payload != payload || state.stamp != stamp;
                state.payload = payload;
                state.stamp = stamp;
                state.is_once = is_once;
                match &mut state.phase {
                    StatePhase::Pending { .. } => false,
                    StatePhase::InFlight { newer } => {
                        *newer |= changed;
                        false
                    }
                    StatePhase::Declined => changed,
                    StatePhase::Settled { at } => {
                        changed || refresh.is_some_and(|every| now.since(*at) >= every)
                    }
                }
            }
            // The topic is new, is cleared, or is used again after that.
            _ => {
                let phase = StatePhase::InFlight { newer: true };
                let state = QueuedState {
                    payload,
                    rank,
                    stamp,
                    is_once,
                    phase,
                };
                let before = self.states.insert(topic.to_owned(), state);
                before
                    .iter()
                    .for_each(|state| self.withdraw(state.rank, state.phase));
                self.repeat(topic);
                return before.is_some();
            }
        };
        if is_due {
            self.repeat(topic);
        }
        false
    }

    /// Every state is due again, on a new connection.
    pub(super) fn connected(&mut self) {
        self.pending.clear();
        self.make_all_pending(|_| true);
    }

    /// The next state that may be sent, in the order of ranks; those before it that are of older epochs are dropped.
    pub(super) fn take(&mut self, gate: GateAt<'_>) -> Option<Outgoing> {
        loop {
            let (key, topic, fate) = self.next_pending(gate)?;
            self.pending.remove(&key);
            if fate == Fate::Drop {
                self.states.remove(&topic);
                continue;
            }
            let state = self.states.get_mut(&topic)?;
            state.phase = StatePhase::InFlight { newer: false };
            return Some(Outgoing {
                topic,
                delivery: DeliveryOptions {
                    retained: true,
                    epoch: state.stamp.as_ref().map(|stamp| stamp.epoch),
                    ..DeliveryOptions::default()
                },
                body: Body::Bytes(Arc::clone(&state.payload)),
            });
        }
    }

    pub(super) fn has_pending(&self, gate: GateAt<'_>) -> bool {
        self.next_pending(gate).is_some()
    }

    fn next_pending(&self, gate: GateAt<'_>) -> Option<((Rank, u64), String, Fate)> {
        self.pending.iter().find_map(|(key, topic)| {
            let fate = gate.fate_of(self.states.get(topic)?.stamp.as_ref());
            (fate != Fate::Wait).then(|| (*key, topic.clone(), fate))
        })
    }

    /// A state of the camera waits or is in flight.
    pub(super) fn is_waiting_of(&self, camera: &CameraId) -> bool {
        let mut of_camera = self.states.values().filter(|state| state.is_of(camera));
        of_camera.any(|state| {
            matches!(
                state.phase,
                StatePhase::Pending { .. } | StatePhase::InFlight { .. }
            )
        })
    }

    pub(super) fn acked(&mut self, topic: &str, now: Mono) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        match state.phase {
            StatePhase::InFlight { newer: true } => self.repeat(topic),
            StatePhase::InFlight { newer: false } if state.is_once || state.payload.is_empty() => {
                self.states.remove(topic);
            }
            StatePhase::InFlight { newer: false } => state.phase = StatePhase::Settled { at: now },
            // Due again by `repeat`: this acknowledgement is for the earlier copy.
            StatePhase::Pending { .. } | StatePhase::Settled { .. } | StatePhase::Declined => {}
        }
    }

    /// The broker refused the state. A payload that changed meanwhile is sent at once.
    pub(super) fn declined(&mut self, topic: &str) {
        let Some(state) = self.states.get_mut(topic) else {
            return;
        };
        match state.phase {
            StatePhase::InFlight { newer: true } => self.repeat(topic),
            StatePhase::InFlight { newer: false } => state.phase = StatePhase::Declined,
            StatePhase::Pending { .. } | StatePhase::Settled { .. } | StatePhase::Declined => {}
        }
    }

    /// Refused states are due again.
    pub(super) fn retry_declined(&mut self) {
        self.make_all_pending(|state| state.phase == StatePhase::Declined);
    }

    /// Sends every state of a rank again although none changed.
    pub(crate) fn repeat_rank(&mut self, rank: Rank) {
        self.make_all_pending(|state| state.rank == rank);
    }

    /// Topics that the broker has not cleared yet.
    pub(crate) fn clearing(&self) -> impl Iterator<Item = &String> {
        let cleared = self
            .states
            .iter()
            .filter(|(_, state)| state.payload.is_empty());
        cleared.map(|(topic, _)| topic)
    }

    fn make_all_pending(&mut self, wanted: impl Fn(&QueuedState) -> bool) {
        let due = self.states.iter().filter(|(_, state)| wanted(state));
        let due: Vec<String> = due.map(|(topic, _)| topic.clone()).collect();
        for topic in due {
            self.repeat(&topic);
        }
    }

    /// The state is due again, although it may not have changed.
    pub(crate) fn repeat(&mut self, topic: &str) {
        let Some((rank, phase)) = self
            .states
            .get(topic)
            .map(|state| (state.rank, state.phase))
        else {
            return;
        };
        self.withdraw(rank, phase);
        self.order += 1;
        let order = self.order;
        self.pending.insert((rank, order), topic.to_owned());
        if let Some(state) = self.states.get_mut(topic) {
            state.phase = StatePhase::Pending { order };
        }
    }

    fn withdraw(&mut self, rank: Rank, phase: StatePhase) {
        if let StatePhase::Pending { order } = phase {
            self.pending.remove(&(rank, order));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::{gate::open, tests::ms};

    fn at(seconds: u64) -> Mono {
        Mono::default().after(Duration::from_secs(seconds))
    }

    fn state(rank: Rank, payload: &str) -> StateMessage {
        StateMessage {
            rank,
            refresh: None,
            is_once: false,
            payload: payload.as_bytes().into(),
        }
    }

    fn push(queue: &mut StateQueue, topic: &str, payload: &str, second: u64) -> bool {
        queue.push(topic, None, state(Rank::Usual, payload), at(second))
    }

    fn clear(queue: &mut StateQueue, topic: &str, second: u64) -> bool {
        queue.push(topic, None, state(Rank::Clear, ""), at(second))
    }

    /// True when every state of the ranks up to and with `rank` is acknowledged.
    fn is_settled_to(queue: &StateQueue, rank: Rank) -> bool {
        let mut of_ranks = queue.states.values().filter(|state| state.rank <= rank);
        of_ranks.all(|state| matches!(state.phase, StatePhase::Settled { .. }))
    }

    fn take_all(queue: &mut StateQueue) -> Vec<(String, String)> {
        std::iter::from_fn(|| queue.take(open(ms(0))))
            .map(|sent| match sent.body {
                Body::Bytes(bytes) => (sent.topic, String::from_utf8(bytes.to_vec()).unwrap()),
                Body::Detection(..) => panic!("not a state"),
            })
            .collect()
    }

    fn topics(queue: &mut StateQueue) -> Vec<String> {
        take_all(queue).into_iter().unzip::<_, _, _, Vec<_>>().0
    }

    fn payloads(queue: &mut StateQueue) -> Vec<String> {
        take_all(queue).into_iter().unzip::<_, _, Vec<_>, _>().1
    }

    #[test]
    fn state_changed_in_flight_follows_its_acknowledgement_once() {
        let mut queue = StateQueue::default();
        push(&mut queue, "count", "1", 0);
        assert_eq!(payloads(&mut queue), ["1"]);
        push(&mut queue, "count", "2", 1);
        push(&mut queue, "count", "3", 2);
        assert!(
            !queue.has_pending(open(ms(0))),
            "one at a time keeps the order"
        );
        queue.acked("count", at(4));
        assert_eq!(payloads(&mut queue), ["3"]);
        queue.acked("count", at(9));
        push(&mut queue, "count", "3", 10);
        assert!(!queue.has_pending(open(ms(0))) && is_settled_to(&queue, Rank::Last));

        // Sent again with the newest payload, when it is due again while it is in flight.
        push(&mut queue, "count", "4", 11);
        assert_eq!(payloads(&mut queue), ["4"]);
        queue.repeat("count");
        queue.acked("count", at(12));
        push(&mut queue, "count", "5", 13);
        assert_eq!(payloads(&mut queue), ["5"]);
    }

    #[test]
    fn declined_state_waits_for_a_change_or_the_retry() {
        let mut queue = StateQueue::default();
        push(&mut queue, "count", "1", 0);
        assert_eq!(payloads(&mut queue), ["1"]);
        queue.declined("count");
        push(&mut queue, "count", "1", 1);
        assert!(!queue.has_pending(open(ms(0))) && !is_settled_to(&queue, Rank::Last));
        queue.retry_declined();
        assert_eq!(payloads(&mut queue), ["1"]);
        queue.declined("count");
        push(&mut queue, "count", "2", 2);
        assert_eq!(payloads(&mut queue), ["2"]);
        // The payload changes while it is in flight.
        push(&mut queue, "count", "3", 3);
        queue.declined("count");
        assert_eq!(payloads(&mut queue), ["3"]);
    }

    #[test]
    fn cleared_topic_leaves_the_queue_when_it_is_acknowledged() {
        let mut queue = StateQueue::default();
        push(&mut queue, "count", "1", 0);
        clear(&mut queue, "removed", 0);
        assert_eq!(topics(&mut queue), ["removed", "count"]);
        queue.declined("removed");
        assert_eq!(queue.clearing().collect::<Vec<_>>(), ["removed"]);
        queue.connected();
        assert_eq!(topics(&mut queue), ["removed", "count"]);
        assert!(!is_settled_to(&queue, Rank::Clear));
        queue.acked("removed", at(1));
        assert!(is_settled_to(&queue, Rank::Clear) && queue.clearing().count() == 0);
        queue.connected();
        assert_eq!(topics(&mut queue), ["count"]);
    }
}
