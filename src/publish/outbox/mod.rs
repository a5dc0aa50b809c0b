//! What waits for the broker. Pure: time goes in, messages come out.
//!
//! Why our own and not the client library's queue: that one loses what is unacknowledged when a session ends, gives
//! nothing back, and keeps the oldest. Here:
//!
//! - A **state** is kept for ever, one a topic, the newest. It is sent until the broker acknowledges it, and again
//!   after every connect: `info` first, `status` last.
//! - A **stream** message is kept for at most [`STREAM_MAX_AGE`]. Answers that come at once are all sent; over the rates
//!   a newer one takes the place of the last of its topic. What is replaced, comes too late, or finds the broker away is
//!   dropped and counted; an old frame is never sent late.
//! - States go before streams and are not held back by the rate limits, only counted in them.
//! - The **farewell** is a state that goes when nothing else waits, so that nobody hears of us after it.

mod rates;
mod states;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::domain::{CameraId, Mono};

use super::{
    detection::Label,
    message::{Body, Delivery, Message, Rank},
    tally::Tally,
};

use rates::RateLimit;
use states::{Phase, State};
pub(super) use streams::STREAM_MAX_AGE;
use streams::{Line, Waiting};

/// States on their way without an acknowledgement. Brokers accept 20 by default (mosquitto).
const IN_FLIGHT_MAX: usize = 16;
/// Acknowledgement times kept for the percentile.
const PUBACKS_KEPT: usize = 128;

/// Bounds; the defaults are the contract's (section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Stream messages a second of one camera.
    pub camera_per_s: usize,
    /// Messages a second of the node.
    pub node_per_s: usize,
    /// Stream messages waiting, all topics together; beyond it the oldest is dropped.
    pub waiting: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            camera_per_s: 20,
            node_per_s: 200,
            waiting: 256,
        }
    }
}

/// Names a hand-over of a state, until it is acknowledged or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

/// How a message that is due must be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promise {
    /// QoS 1, retained; the ticket comes back with [`Outbox::acked`] or [`Outbox::failed`].
    State(Ticket),
    /// QoS 0, with expiry when it says what a frame showed.
    Stream { expires: bool },
}

/// A message that is due.
#[derive(Clone, Debug)]
pub(super) struct Outgoing {
    pub(super) topic: String,
    pub(super) promise: Promise,
    pub(super) body: Body,
    /// Of detections.
    pub(super) label: Option<Label>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Outbox {
    limits: Limits,
    boot: Arc<str>,
    /// Upper half of the random part of message ids; the lower half counts.
    id_seed: u64,
    connected: bool,
    states: BTreeMap<String, State>,
    pending: BTreeSet<(Rank, u64, String)>,
    in_flight: HashMap<Ticket, (String, Mono)>,
    waiting: VecDeque<Waiting>,
    /// With the moment from which nothing is waited for any more.
    farewell: Option<(Message, Mono)>,
    lines: HashMap<String, Line>,
    node_rate: RateLimit,
    camera_rates: HashMap<CameraId, RateLimit>,
    pubacks: VecDeque<Duration>,
    serial: u64,
    tally: Tally,
}

impl Outbox {
    /// `boot` names this run; `id_seed` is random, so that message ids of two runs never meet.
    pub(super) fn new(limits: Limits, boot: Arc<str>, id_seed: u64) -> Self {
        Self {
            limits,
            boot,
            id_seed,
            connected: false,
            states: BTreeMap::new(),
            pending: BTreeSet::new(),
            in_flight: HashMap::new(),
            waiting: VecDeque::new(),
            farewell: None,
            lines: HashMap::new(),
            node_rate: RateLimit::new(limits.node_per_s),
            camera_rates: HashMap::new(),
            pubacks: VecDeque::new(),
            serial: 0,
            tally: Tally::default(),
        }
    }

    /// Accepts a message at `now`.
    pub(super) fn push(&mut self, message: Message, now: Mono) {
        match (message.delivery, message.body) {
            (Delivery::State { rank, refresh }, Body::Bytes(payload)) => {
                self.push_state(message.topic, payload, (rank, refresh), now);
            }
            (Delivery::Stream { camera }, body) => {
                self.push_stream(message.topic, camera, body, now);
            }
            // A state is a short text that is known when it is pushed; no message is built like this.
            (Delivery::State { .. }, Body::Detection(_)) => self.tally.dropped_refused += 1,
        }
    }

    /// Accepts the last message of all, a state. What still waits `at_latest` then is dropped for it.
    pub(super) fn end_with(&mut self, farewell: Message, at_latest: Mono) {
        self.farewell = Some((farewell, at_latest));
    }

    /// The broker accepted a connection: every state is due again.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        self.in_flight.clear();
        self.pending.clear();
        let topics: Vec<String> = self.states.keys().cloned().collect();
        for topic in topics {
            self.make_pending(&topic);
        }
    }

    /// The connection ended. Stream messages that waited for it are dropped.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
        self.in_flight.clear();
        self.drop_streams();
    }

    /// The message to send now, if any. States first, then the oldest stream message that the rates allow, then the farewell.
    pub(super) fn take(&mut self, now: Mono) -> Option<Outgoing> {
        if !self.connected {
            return None;
        }
        let is_late = |(_, at_latest): &(Message, Mono)| *at_latest <= now;
        if self.farewell.as_ref().is_some_and(is_late) {
            self.drop_streams();
        }
        let due = self.take_state(now);
        // Not before the birth is complete: a consumer that sees a frame has seen the states.
        if due.is_some() || !self.pending.is_empty() {
            return due;
        }
        if let Some(stream) = self.take_stream(now) {
            return Some(stream);
        }
        let (farewell, _) = self.farewell.take_if(|_| self.waiting.is_empty())?;
        self.push(farewell, now);
        self.take_state(now)
    }

    /// When [`take`](Self::take) may have something, if nothing else happens before; `None` = not by time alone.
    pub(super) fn next_at(&self, now: Mono) -> Option<Mono> {
        if !self.connected || !self.pending.is_empty() {
            return None;
        }
        let streams = self.waiting.iter().map(|item| self.ready_at(item, now));
        let farewell = self.farewell.iter().map(|(_, at_latest)| *at_latest);
        streams.chain(farewell).min()
    }

    /// The broker has the state for which `ticket` was given.
    pub(super) fn acked(&mut self, ticket: Ticket, now: Mono) {
        let Some((topic, since)) = self.in_flight.remove(&ticket) else {
            return; // Of an earlier connection; the state was made due again.
        };
        self.tally.states_acked += 1;
        self.pubacks.push_back(now.since(since));
        if self.pubacks.len() > PUBACKS_KEPT {
            self.pubacks.pop_front();
        }
        match self.states.get_mut(&topic).map(|state| &mut state.phase) {
            Some(Phase::InFlight { newer: true }) => self.make_pending(&topic),
            Some(phase @ Phase::InFlight { newer: false }) => *phase = Phase::Settled { at: now },
            // Due again already, by `repeat`: this acknowledgement is not of what will be sent.
            Some(Phase::Pending { .. } | Phase::Settled { .. }) | None => {}
        }
    }

    /// The hand-over did not succeed: the state is due again.
    pub(super) fn failed(&mut self, ticket: Ticket) {
        if let Some((topic, _)) = self.in_flight.remove(&ticket) {
            self.make_pending(&topic);
        }
    }

    /// True when the broker has acknowledged every state, and the farewell if there is one.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty() && self.in_flight.is_empty() && self.farewell.is_none()
    }

    /// Counters.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// 95th percentile of hand-over to acknowledgement over the last 128 states.
    pub(super) fn puback_p95(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.pubacks.iter().copied().collect();
        sorted.sort_unstable();
        sorted
            .get((sorted.len() * 95).div_ceil(100).checked_sub(1)?)
            .copied()
    }
}
