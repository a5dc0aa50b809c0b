//! What waits for the broker. Pure: time goes in, messages come out.
//!
//! Why our own and not the client library's queue: that one loses what is unacknowledged when a session ends, gives
//! nothing back, and keeps the oldest. Here:
//!
//! - A **state** is kept for ever, one a topic, the newest. It is sent until the broker acknowledges it, and again
//!   after every connect: `info` early, `status` last. One without a payload clears what the broker keeps at its topic;
//!   it is forgotten once the broker has acknowledged it.
//! - A **stream** message is kept for at most [`STREAM_MAX_AGE`]. Answers that come at once are all sent; over the rates
//!   a newer one takes the place of the last of its topic. What is replaced, comes too late, or finds the broker away is
//!   dropped and counted; an old frame is never sent late.
//! - A **picture** is a stream message too, at most one a second and topic.
//! - An **event** is kept until the broker acknowledges it, in the order of its topic, on disk as in memory (`spool`). What
//!   an outage holds back comes afterwards, oldest first and slowly. Only the bounds of the configuration drop one, the
//!   oldest first, and count it.
//! - A **reply** is kept while the connection lasts.
//! - Replies go first, for somebody waits; then states; then events; then streams. Only streams wait for the rates of
//!   the contract; all are counted in them. Events come after the birth with its `status`, not between the states: it must
//!   not wait for what an outage held back, and who sees an event has seen what is true.
//! - The **farewell** is a state that goes when nothing else waits, so that nobody hears of us after it. Events that are
//!   too many to go before it stay in the spool.

mod clear;
mod declined;
#[cfg(test)]
mod event_tests;
mod events;
#[cfg(test)]
mod flood_tests;
mod leave;
#[cfg(test)]
mod outage_tests;
mod promise;
mod rates;
mod replies;
mod states;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    message::{Body, Content, Message, Rank},
    spool::{Batch, Kept},
    tally::Tally,
};
use spotter_core::{CameraId, Event, Mono};

pub use events::Bounds;
use events::Events;
use leave::Leave;
pub(super) use promise::{Outgoing, Promise, Ticket};
use rates::RateLimit;
use replies::{Replies, Reply};
use states::State;
use streams::{Line, Waiting};

/// Messages on their way without an acknowledgement. Brokers accept 20 by default (mosquitto).
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
    /// Events.
    pub events: Bounds,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            camera_per_s: 20,
            node_per_s: 200,
            waiting: 256,
            events: Bounds::default(),
        }
    }
}

/// What is on its way.
#[derive(Clone, Debug)]
enum Carried {
    /// The state of a topic.
    State(String),
    /// The event with this number.
    Event(u64),
    Reply(Reply),
    /// The last word at a place.
    Farewell(Message),
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
    events: Events,
    replies: Replies,
    in_flight: HashMap<Ticket, (Carried, Mono)>,
    /// What the broker did not take is tried again then.
    declined_again: Option<Mono>,
    waiting: VecDeque<Waiting>,
    /// With the moment from which nothing is waited for any more.
    farewell: Option<(Message, Mono)>,
    said_farewell: bool,
    /// The connection is left for another place.
    leave: Option<Leave>,
    lines: HashMap<String, Line>,
    node_rate: RateLimit,
    camera_rates: HashMap<CameraId, RateLimit>,
    pubacks: VecDeque<Duration>,
    serial: u64,
    /// Time of the last event's id.
    event_ms: u64,
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
            events: Events::new(limits.events),
            replies: Replies::default(),
            in_flight: HashMap::new(),
            declined_again: None,
            waiting: VecDeque::new(),
            farewell: None,
            said_farewell: false,
            leave: None,
            lines: HashMap::new(),
            node_rate: RateLimit::new(limits.node_per_s),
            camera_rates: HashMap::new(),
            pubacks: VecDeque::new(),
            serial: 0,
            event_ms: 0,
            tally: Tally::default(),
        }
    }

    /// From now on the events of this run are for the disk too, numbered from `first_number` on.
    pub(super) fn keep_on_disk(&mut self, first_number: u64) {
        self.events.keep_on_disk(first_number);
    }

    /// Takes over an event that an earlier run did not deliver; in their order, before anything else is pushed. `left` is
    /// what remains of its time.
    pub(super) fn restore(&mut self, topic: &str, kept: Arc<Kept>, left: Duration, now: Mono) {
        self.events.restore(topic, kept, left, now, &mut self.tally);
    }

    /// Accepts a message at `now`.
    pub(super) fn push(&mut self, message: Message, now: Mono) {
        let topic = message.topic;
        match message.content {
            Content::State {
                rank,
                refresh,
                payload,
            } => self.push_state(topic, payload, (rank, refresh), now),
            Content::Stream(stream) => self.push_stream(topic, stream, now),
            Content::Event(event) => self.push_event(&topic, *event, now),
            Content::Reply {
                correlation,
                payload,
            } => {
                let correlation = correlation.map(Arc::from);
                let reply = Reply {
                    topic,
                    correlation,
                    payload,
                };
                self.replies.push(reply, self.connected, &mut self.tally);
            }
        }
    }

    fn push_event(&mut self, topic: &str, event: Event, now: Mono) {
        let told = event.ended.unwrap_or(event.last_seen).unix_millis();
        // Ids sort as the events were told, though a clock was set back between them.
        self.event_ms = self.event_ms.max(u64::try_from(told).unwrap_or(0));
        let id = self.message_id(self.event_ms);
        self.events.push(topic, id, event, now, &mut self.tally);
    }

    /// A ULID: unique, and it sorts by time.
    fn message_id(&mut self, unix_ms: u64) -> String {
        self.serial += 1;
        let random = u128::from(self.id_seed & 0xff_ffff_ffff) << 40
            | u128::from(self.serial & 0xff_ffff_ffff);
        ulid::Ulid::from_parts(unix_ms, random).to_string()
    }

    /// Accepts the last message of all, a state. Streams that still wait `at_latest` then are dropped for it; events stay.
    pub(super) fn end_with(&mut self, farewell: Message, at_latest: Mono) {
        self.farewell = Some((farewell, at_latest));
    }

    /// The broker accepted a connection: every state is due again.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        self.declined_again = None;
        self.in_flight.clear();
        self.pending.clear();
        let topics: Vec<String> = self.states.keys().cloned().collect();
        for topic in topics {
            self.make_pending(&topic);
        }
        self.events.connected();
    }

    /// The connection ended. Streams that waited for it and replies are dropped, events are late from now on.
    pub(super) fn disconnected(&mut self) {
        self.connected = false;
        self.in_flight.clear();
        self.drop_streams();
        self.replies.disconnected(&mut self.tally);
        self.events.disconnected(&mut self.tally);
    }

    /// The message to send now, if any; in which order, the module's documentation says.
    pub(super) fn take(&mut self, now: Mono) -> Option<Outgoing> {
        if !self.connected {
            return None;
        }
        if self.leave.is_some() {
            return self.take_last(now);
        }
        self.try_declined(now);
        let is_late = |(_, at_latest): &(Message, Mono)| *at_latest <= now;
        let hurries = self.farewell.as_ref().is_some_and(is_late);
        if hurries {
            self.drop_streams();
        }
        if let Some(reply) = self.take_reply(now) {
            return Some(reply);
        }
        let due = self.take_state(now);
        // Not before the birth is complete: a consumer that sees a frame has seen the states.
        if due.is_some() || !self.pending.is_empty() || self.said_farewell {
            return due;
        }
        if let Some(event) = self.take_event(now) {
            return Some(event);
        }
        if let Some(stream) = self.take_stream(now) {
            return Some(stream);
        }
        let rest = self.events.is_waiting() || !self.replies.is_settled();
        let ends = self.waiting.is_empty() && (hurries || !rest);
        let (farewell, _) = self.farewell.take_if(|_| ends)?;
        self.said_farewell = true;
        self.push(farewell, now);
        self.take_state(now)
    }

    fn take_reply(&mut self, now: Mono) -> Option<Outgoing> {
        if self.in_flight.len() >= IN_FLIGHT_MAX || self.said_farewell {
            return None;
        }
        let reply = self.replies.take()?;
        let ticket = self.sends(Carried::Reply(reply.clone()), now);
        Some(Outgoing {
            topic: reply.topic,
            promise: Promise::Reply {
                ticket,
                correlation: reply.correlation,
            },
            body: Body::Bytes(reply.payload),
            label: None,
        })
    }

    fn take_event(&mut self, now: Mono) -> Option<Outgoing> {
        if self.in_flight.len() >= IN_FLIGHT_MAX {
            return None;
        }
        let due = self.events.take(now, &mut self.tally)?;
        let ticket = self.sends(Carried::Event(due.number), now);
        let expiry = due.expiry;
        Some(Outgoing {
            topic: due.topic.to_string(),
            promise: Promise::Event { ticket, expiry },
            body: Body::Bytes(due.payload.into()),
            label: None,
        })
    }

    /// A message that will be acknowledged leaves.
    fn sends(&mut self, carried: Carried, now: Mono) -> Ticket {
        self.serial += 1;
        let ticket = Ticket(self.serial);
        self.in_flight.insert(ticket, (carried, now));
        self.node_rate.count(now);
        ticket
    }

    /// When [`take`](Self::take) may have something, if nothing else happens before; `None` = not by time alone.
    pub(super) fn next_at(&self, now: Mono) -> Option<Mono> {
        if !self.connected || !self.pending.is_empty() {
            return None;
        }
        let streams = self.waiting.iter().map(|item| self.ready_at(item, now));
        let farewell = self.farewell.iter().map(|(_, at_latest)| *at_latest);
        let has_room = self.in_flight.len() < IN_FLIGHT_MAX && !self.said_farewell;
        let event = has_room.then(|| self.events.next_at(now)).flatten();
        let declined = self.declined_again.filter(|_| self.leave.is_none());
        streams.chain(farewell).chain(event).chain(declined).min()
    }

    /// The broker has the message for which `ticket` was given.
    pub(super) fn acked(&mut self, ticket: Ticket, now: Mono) {
        let Some((carried, since)) = self.in_flight.remove(&ticket) else {
            return; // Of an earlier connection; it was made due again.
        };
        self.pubacks.push_back(now.since(since));
        if self.pubacks.len() > PUBACKS_KEPT {
            self.pubacks.pop_front();
        }
        match carried {
            Carried::State(topic) => {
                self.tally.states_acked += 1;
                self.settle_state(&topic, now);
                self.forget_cleared(&topic);
            }
            Carried::Event(number) => {
                self.tally.events_acked += 1;
                self.events.acked(number);
            }
            Carried::Reply(_) => {
                self.tally.replies_acked += 1;
                self.replies.settled();
            }
            Carried::Farewell(_) => {}
        }
    }

    /// The hand-over did not succeed, or the connection ended before the broker answered: the message is due again.
    pub(super) fn failed(&mut self, ticket: Ticket) {
        match self.in_flight.remove(&ticket) {
            Some((Carried::State(topic), _)) => self.make_pending(&topic),
            Some((Carried::Event(number), _)) => self.events.failed(number),
            Some((Carried::Reply(reply), _)) => self.replies.failed(reply),
            Some((Carried::Farewell(farewell), _)) => self.leave = Some(Leave::ToSay(farewell)),
            None => {}
        }
    }

    /// True when the broker has answered everything that was sent, and the farewell if there is one.
    pub(super) fn is_settled(&self) -> bool {
        let nothing_waits = match &self.leave {
            Some(leave) => matches!(leave, Leave::Said),
            None => self.pending.is_empty() && self.farewell.is_none(),
        };
        nothing_waits && self.in_flight.is_empty()
    }

    /// From now on so many events are kept.
    pub(super) fn keep_within(&mut self, bounds: Bounds) {
        self.events.keep_within(bounds, &mut self.tally);
    }

    /// Events that the broker does not have.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// What the disk does not know yet.
    pub(super) fn unwritten(&mut self, now: Mono) -> Batch {
        self.events.unwritten(now, &mut self.tally)
    }

    /// A batch could not be written.
    pub(super) fn still_unwritten(&mut self, batch: Batch) {
        self.events.still_unwritten(batch);
    }

    /// Counters.
    pub(super) fn tally(&self) -> Tally {
        self.tally
    }

    /// 95th percentile of hand-over to acknowledgement over the last 128 messages that were acknowledged.
    pub(super) fn puback_p95(&self) -> Option<Duration> {
        let mut sorted: Vec<Duration> = self.pubacks.iter().copied().collect();
        sorted.sort_unstable();
        sorted
            .get((sorted.len() * 95).div_ceil(100).checked_sub(1)?)
            .copied()
    }
}
