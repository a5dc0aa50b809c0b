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

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use crate::domain::{CameraId, Mono, SinceLast};

use super::{
    detection::Label,
    message::{Body, Delivery, Message, Rank},
    rate::RateLimit,
    tally::Tally,
};

/// A stream message that is older is not sent; also its expiry at the broker.
pub(super) const STREAM_MAX_AGE: Duration = Duration::from_secs(5);
/// After an empty detection the next empty one is sent so much later, unless objects came between.
const EMPTY_EVERY: Duration = Duration::from_secs(10);
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
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
}

#[derive(Clone, Debug)]
struct State {
    payload: Arc<[u8]>,
    rank: Rank,
    phase: Phase,
}

#[derive(Clone, Debug)]
struct Waiting {
    topic: String,
    camera: Option<CameraId>,
    body: Body,
    label: Option<Label>,
    since: Mono,
}

/// What is remembered about a topic of detections.
#[derive(Clone, Debug, Default)]
struct Line {
    seq: u64,
    /// Counts of messages that were not sent; the next one carries them.
    carried: SinceLast,
    /// When an empty detection was the last thing sent.
    empty_since: Option<Mono>,
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

    /// Stream messages that wait are dropped: there is no broker for them, or no time.
    fn drop_streams(&mut self) {
        self.tally.dropped_offline += self.waiting.len() as u64;
        while let Some(lost) = self.waiting.pop_front() {
            self.carry(&lost.topic, &lost.body);
        }
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

    /// A stream message that was taken was too large, or the client library refused it.
    pub(super) fn refused(&mut self, topic: &str, body: &Body) {
        self.tally.streams_sent = self.tally.streams_sent.saturating_sub(1);
        self.tally.dropped_refused += 1;
        self.carry(topic, body);
    }

    /// Sends a state again although nothing changed.
    pub(super) fn repeat(&mut self, topic: &str) {
        if self.states.contains_key(topic) {
            self.make_pending(topic);
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

    fn push_state(
        &mut self,
        topic: String,
        payload: Arc<[u8]>,
        (rank, refresh): (Rank, Option<Duration>),
        now: Mono,
    ) {
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
            Some(state) => {
                let changed = state.payload != payload;
                state.payload = payload;
                match &mut state.phase {
                    Phase::Pending { .. } => {}
                    Phase::InFlight { newer } => *newer |= changed,
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

    fn push_stream(&mut self, topic: String, camera: Option<CameraId>, body: Body, now: Mono) {
        let place = self.waiting.iter().rposition(|item| item.topic == topic);
        let label = match &body {
            Body::Bytes(_) => None,
            Body::Detection(detection) => {
                let line = self.lines.entry(topic.clone()).or_default();
                let recent = line
                    .empty_since
                    .is_some_and(|at| now.since(at) < EMPTY_EVERY);
                let follows_empty = place.map_or(recent, |place| self.waiting[place].is_empty());
                if detection.is_empty() && follows_empty {
                    line.carried.add(detection.since_last);
                    self.tally.empties_skipped += 1;
                    return;
                }
                line.seq += 1;
                let seq = line.seq;
                self.serial += 1;
                let random = u128::from(self.id_seed & 0xff_ffff_ffff) << 40
                    | u128::from(self.serial & 0xff_ffff_ffff);
                let id = ulid::Ulid::from_parts(detection.unix_ms(now), random).to_string();
                Some(Label {
                    id,
                    boot: Arc::clone(&self.boot),
                    seq,
                })
            }
        };
        let item = Waiting {
            topic,
            camera,
            body,
            label,
            since: now,
        };
        if !self.connected {
            self.tally.dropped_offline += 1;
            self.carry(&item.topic, &item.body);
        } else if let Some(place) =
            place.filter(|&place| self.ready_at(&self.waiting[place], now) > now)
        {
            // It keeps the place in the queue, so a busy topic does not fall behind for ever.
            let replaced = std::mem::replace(&mut self.waiting[place], item);
            self.tally.dropped_replaced += 1;
            self.carry(&replaced.topic, &replaced.body);
        } else {
            self.waiting.push_back(item);
            if self.waiting.len() > self.limits.waiting {
                self.tally.dropped_full += 1;
                if let Some(lost) = self.waiting.pop_front() {
                    self.carry(&lost.topic, &lost.body);
                }
            }
        }
    }

    fn take_state(&mut self, now: Mono) -> Option<Outgoing> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let (_, _, topic) = self.pending.pop_first()?;
        let state = self.states.get_mut(&topic)?;
        state.phase = Phase::InFlight { newer: false };
        self.serial += 1;
        let ticket = Ticket(self.serial);
        self.in_flight.insert(ticket, (topic.clone(), now));
        self.node_rate.count(now);
        Some(Outgoing {
            topic,
            promise: Promise::State(ticket),
            body: Body::Bytes(Arc::clone(&state.payload)),
            label: None,
        })
    }

    fn take_stream(&mut self, now: Mono) -> Option<Outgoing> {
        while let Some(index) = self.waiting.iter().position(|item| expired(item, now)) {
            self.tally.dropped_expired += 1;
            if let Some(lost) = self.waiting.remove(index) {
                self.carry(&lost.topic, &lost.body);
            }
        }
        let index = self
            .waiting
            .iter()
            .position(|item| self.ready_at(item, now) <= now)?;
        let mut item = self.waiting.remove(index)?;
        self.node_rate.count(now);
        if let Some(camera) = item.camera {
            let per_s = self.limits.camera_per_s;
            let rate = self.camera_rates.entry(camera);
            rate.or_insert_with(|| RateLimit::new(per_s)).count(now);
        }
        if let Body::Detection(detection) = &mut item.body {
            let line = self.lines.entry(item.topic.clone()).or_default();
            detection.since_last.add(std::mem::take(&mut line.carried));
            line.empty_since = detection.is_empty().then_some(now);
        }
        self.tally.streams_sent += 1;
        let expires = matches!(item.body, Body::Detection(_));
        Some(Outgoing {
            topic: item.topic,
            promise: Promise::Stream { expires },
            body: item.body,
            label: item.label,
        })
    }

    fn ready_at(&self, item: &Waiting, now: Mono) -> Mono {
        let node = self.node_rate.ready_at(now);
        match item
            .camera
            .as_ref()
            .and_then(|camera| self.camera_rates.get(camera))
        {
            Some(rate) => rate.ready_at(now).max(node),
            None => node,
        }
    }

    fn make_pending(&mut self, topic: &str) {
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

    /// Keeps the counts of a message that will not be sent for its successor.
    fn carry(&mut self, topic: &str, body: &Body) {
        if let Body::Detection(detection) = body {
            let line = self.lines.entry(topic.to_owned()).or_default();
            line.carried.add(detection.since_last);
        }
    }
}

impl Waiting {
    fn is_empty(&self) -> bool {
        matches!(&self.body, Body::Detection(detection) if detection.is_empty())
    }
}

fn expired(item: &Waiting, now: Mono) -> bool {
    now.since(item.since) > STREAM_MAX_AGE
}

#[cfg(test)]
#[path = "outbox_tests.rs"]
mod tests;
