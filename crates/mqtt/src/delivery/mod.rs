//! Messages that wait for the broker. Pure: `now` goes in, messages come out.
//!
//! ```text
//!                 ┌ ReplyQueue   until the connection ends
//!   Message ─push─┼ StateQueue   newest per topic, by rank       ├─take─▶ Outgoing ──▶ broker
//!                 ├ EventQueue   until acknowledged              │        acked, failed, declined
//!                 └ StreamQueue  at most 5 s, within the rates   ┘
//! ```
//!
//! Each queue owns its messages; [`Outbox`] is the mixer, which decides what is sent next:
//!
//! - Replies go first, because a client waits for them; then states in the order of their ranks (`status` is last); then
//!   events; then streams. Events wait until every state was handed over: a consumer that sees an event has seen the
//!   states.
//! - Only streams wait for the rates; every message counts in them.
//! - The final `offline` is a state that is sent when nothing else waits, so that no message follows it. Events that do
//!   not fit in before it stay in the event log.
//! - A message of a fleet's camera is sent with the epoch that the node may publish now. With an older one it is dropped; while the node is silent
//!   about the camera, it waits. Messages of the node itself do not wait for that.
//! - Messages that the broker refused are retried once a minute: a refused `status` must not leave the node unavailable for
//!   hours.
//!
//! The client library's queue is not used for this: it loses unacknowledged messages when a session ends, and keeps the
//! oldest.

mod event_queue;
#[cfg(test)]
mod event_tests;
#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod flood_tests;
mod gate;
mod message_counters;
#[cfg(test)]
mod outage_tests;
mod outgoing;
mod part_pacer;
#[cfg(test)]
mod part_tests;
mod rates;
mod reply_queue;
mod state_queue;
mod stream_queue;
#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{
    Topics, Update,
    contract::message::{Body, Message, MessageContent},
};
use spotter_config::SpoolConfig;
use spotter_core::{CameraId, CameraRights, EventStep, MayPublish, Mono, PercentileWindow};
use spotter_state::EventLog;

use event_queue::EventQueue;
use gate::CameraGate;
pub use message_counters::MessageCounters;
pub use outgoing::SentDetection;
pub(crate) use outgoing::{DeliveryOptions, Outgoing, Ticket};
use reply_queue::ReplyQueue;
use state_queue::StateQueue;
use stream_queue::StreamQueue;

/// Messages without an acknowledgement. Brokers accept 20 by default (mosquitto).
const IN_FLIGHT_MAX: usize = 16;
/// Number of acknowledgement times for the percentile, and their age at most.
const PUBACKS_KEPT: usize = 128;
const PUBACKS_WITHIN: Duration = Duration::from_secs(3600);
/// All refused messages are retried this time after the first of them.
const RETRY_DECLINED_AFTER: Duration = Duration::from_secs(60);

/// A message in flight.
#[derive(Clone, Debug)]
enum SentMessage {
    /// The topic of the state.
    State(String),
    /// The number of the event.
    Event(u64),
    Reply(Outgoing),
}

/// Creates ULIDs: unique, sorted by time.
#[derive(Debug)]
struct MessageIds {
    /// Upper half of the random part; the lower half counts.
    seed: u64,
    serial: u64,
}

impl MessageIds {
    fn new(seed: u64) -> Self {
        Self { seed, serial: 0 }
    }

    fn next(&mut self, unix_ms: u64) -> String {
        self.serial += 1;
        let random =
            u128::from(self.seed & 0xff_ffff_ffff) << 40 | u128::from(self.serial & 0xff_ffff_ffff);
        ulid::Ulid::from_parts(unix_ms, random).to_string()
    }
}

/// The `offline` that ends a clean stop.
#[derive(Debug)]
enum FinalStatus {
    NotWanted,
    /// Streams that wait at this time are dropped.
    Due {
        message: Message,
        at_latest: Mono,
    },
    Sent,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Outbox {
    connected: bool,
    replies: ReplyQueue,
    pub(crate) states: StateQueue,
    pub(crate) events: EventQueue,
    pub(crate) streams: StreamQueue,
    pub(crate) gate: CameraGate,
    final_status: FinalStatus,
    in_flight: BTreeMap<Ticket, (SentMessage, Mono)>,
    last_ticket: u64,
    /// When refused messages are retried.
    retry_declined_at: Option<Mono>,
    /// Milliseconds from hand-over to acknowledgement.
    pubacks: PercentileWindow,
    /// Those that no queue has.
    pub(crate) counters: MessageCounters,
}

impl Outbox {
    /// `boot` names this run; `id_seed` is random, so that message ids of two runs differ.
    pub(crate) fn new(spool: SpoolConfig, log: EventLog, boot: Arc<str>, id_seed: u64) -> Self {
        Self {
            connected: false,
            replies: ReplyQueue::default(),
            states: StateQueue::default(),
            events: EventQueue::new(spool, log, MessageIds::new(id_seed)),
            // Another seed, so that no event and detection have the same id.
            streams: StreamQueue::new(boot, MessageIds::new(!id_seed)),
            gate: CameraGate::new(None),
            final_status: FinalStatus::NotWanted,
            in_flight: BTreeMap::new(),
            last_ticket: 0,
            retry_declined_at: None,
            pubacks: PercentileWindow::new(PUBACKS_WITHIN, PUBACKS_KEPT),
            counters: MessageCounters::default(),
        }
    }

    /// Of a node in a fleet.
    pub(crate) fn in_fleet(self, rights: Arc<dyn CameraRights>) -> Self {
        let gate = CameraGate::new(Some(rights));
        Self { gate, ..self }
    }

    /// Never fails: what does not fit is dropped by the rules of its queue and counted.
    pub(crate) fn push(&mut self, message: Message, now: Mono) {
        let Message {
            topic,
            stamp,
            content,
        } = message;
        let epoch = stamp.as_ref().map(|stamp| stamp.epoch);
        match content {
            MessageContent::State(state) => {
                if state.payload.is_empty() {
                    // A retained picture that is sent later would undo the clearing.
                    self.streams.drop_pictures_of(&topic);
                }
                if self.states.push(&topic, stamp, state, now) {
                    let is_of_topic =
                        |sent: &SentMessage| matches!(sent, SentMessage::State(of) if *of == topic);
                    self.in_flight.retain(|_, (sent, _)| !is_of_topic(sent));
                }
            }
            MessageContent::Stream(stream) => self.streams.push(topic, stream, epoch, now),
            MessageContent::Event(event) => self.events.push(&topic, &event, epoch, now),
            MessageContent::Reply { .. } if !self.connected => self.replies.dropped += 1,
            MessageContent::Reply {
                correlation,
                payload,
            } => self.replies.push(Outgoing {
                topic,
                delivery: DeliveryOptions {
                    correlation,
                    ..DeliveryOptions::default()
                },
                body: Body::Bytes(payload),
            }),
        }
    }

    /// The same of an update. That of a fleet's camera that this node may not publish is dropped.
    pub(crate) fn publish(&mut self, topics: &Topics, update: Update, now: Mono) {
        let camera = update.camera();
        let epoch = match camera.and_then(|camera| self.gate.may(camera, now)) {
            None => None,
            Some(MayPublish::Publish(epoch)) => Some(epoch),
            Some(MayPublish::Silent { .. }) => {
                self.counters.not_owned += 1;
                match update {
                    Update::Event(event) if matches!(event.step, EventStep::End(_)) => {
                        self.events.end_track(&event);
                    }
                    Update::Part(part) => self.streams.lose_part(&part),
                    _ => {}
                }
                return;
            }
        };
        self.push(Message::from_update(topics, update, epoch), now);
    }

    /// A message of the camera waits or is in flight.
    pub(crate) fn has_waiting(&self, camera: &CameraId) -> bool {
        self.states.is_waiting_of(camera)
            || self.streams.is_waiting_of(camera)
            || self.events.is_waiting_of(camera)
    }

    /// Sets the final status. Streams that wait at `at_latest` are dropped; events stay.
    pub(crate) fn end_with(&mut self, message: Message, at_latest: Mono) {
        self.final_status = FinalStatus::Due { message, at_latest };
    }

    /// The broker accepted a connection: every state is due again.
    pub(crate) fn connected(&mut self) {
        self.connected = true;
        self.retry_declined_at = None;
        self.in_flight.clear();
        self.gate.connected();
        self.states.connected();
        self.events.connected();
        self.streams.connected();
    }

    /// The connection ended: waiting streams and replies are dropped, waiting events are late from now on.
    pub(crate) fn disconnected(&mut self) {
        self.connected = false;
        self.in_flight.clear();
        self.streams.disconnected();
        self.replies.disconnected();
        self.events.disconnected();
    }

    /// The message to send now, if any; the module's documentation gives the order.
    pub(crate) fn take(&mut self, now: Mono) -> Option<Outgoing> {
        if !self.connected {
            return None;
        }
        self.retry_declined(now);
        let is_late =
            matches!(self.final_status, FinalStatus::Due { at_latest, .. } if at_latest <= now);
        if is_late {
            self.streams.drop_all();
        }
        if let Some(reply) = self.take_reply(now) {
            return Some(reply);
        }
        let state = self.take_state(now);
        if state.is_some() || self.has_pending_states(now) || self.is_final() {
            return state;
        }
        // In a fleet, all events and streams are of its cameras.
        if self.gate.is_open(now) {
            let taken = self.take_event(now);
            let taken = taken.or_else(|| self.streams.take(self.gate.at(now)));
            if taken.is_some() {
                return taken;
            }
        }
        let others_wait = self.events.is_waiting() || !self.replies.is_settled();
        if !self.streams.is_empty() || (others_wait && !is_late) {
            return None;
        }
        match std::mem::replace(&mut self.final_status, FinalStatus::Sent) {
            FinalStatus::Due { message, .. } => self.push(message, now),
            other => {
                self.final_status = other;
                return None;
            }
        }
        self.take_state(now)
    }

    /// After the final status, only states are sent.
    fn is_final(&self) -> bool {
        matches!(self.final_status, FinalStatus::Sent)
    }

    fn has_space(&self) -> bool {
        self.in_flight.len() < IN_FLIGHT_MAX
    }

    fn take_reply(&mut self, now: Mono) -> Option<Outgoing> {
        let may_reply = self.has_space() && !self.is_final();
        let reply = may_reply.then(|| self.replies.take()).flatten()?;
        Some(self.with_ticket(SentMessage::Reply(reply.clone()), reply, now))
    }

    fn has_pending_states(&self, now: Mono) -> bool {
        self.states.has_pending(self.gate.at(now))
    }

    fn take_state(&mut self, now: Mono) -> Option<Outgoing> {
        let gate = self.has_space().then(|| self.gate.at(now))?;
        let state = self.states.take(gate)?;
        let sent = SentMessage::State(state.topic.clone());
        Some(self.with_ticket(sent, state, now))
    }

    fn take_event(&mut self, now: Mono) -> Option<Outgoing> {
        let gate = self.has_space().then(|| self.gate.at(now))?;
        let (number, event) = self.events.take(gate)?;
        Some(self.with_ticket(SentMessage::Event(number), event, now))
    }

    /// Registers a message that the broker will acknowledge.
    fn with_ticket(&mut self, sent: SentMessage, mut outgoing: Outgoing, now: Mono) -> Outgoing {
        self.last_ticket += 1;
        let ticket = Ticket(self.last_ticket);
        self.in_flight.insert(ticket, (sent, now));
        self.streams.count_other(now);
        outgoing.delivery.ticket = Some(ticket);
        outgoing
    }

    /// When [`take`](Self::take) may have a message, if nothing else happens before; `None` = not by time alone.
    pub(crate) fn next_at(&self, now: Mono) -> Option<Mono> {
        if !self.connected || self.has_pending_states(now) {
            return None;
        }
        let final_status = match self.final_status {
            FinalStatus::Due { at_latest, .. } => Some(at_latest),
            FinalStatus::NotWanted | FinalStatus::Sent => None,
        };
        let is_open = self.gate.is_open(now);
        let gate = self.gate.at(now);
        let may_send_events = is_open && self.has_space() && !self.is_final();
        let event = may_send_events.then(|| self.events.next_at(gate));
        let stream = is_open.then(|| self.streams.next_at(gate));
        let opens_at = self.gate.opens_at().filter(|_| !is_open);
        let times = [
            stream.flatten(),
            final_status,
            event.flatten(),
            self.retry_declined_at,
            opens_at,
        ];
        times.into_iter().flatten().min()
    }

    /// The broker acknowledged the message of `ticket`.
    pub(crate) fn acked(&mut self, ticket: Ticket, now: Mono) {
        let Some((sent, since)) = self.in_flight.remove(&ticket) else {
            return; // Of an earlier connection; it was made due again.
        };
        let puback_ms = now.since(since).as_secs_f64() * 1e3;
        self.pubacks.add(now, puback_ms);
        match sent {
            SentMessage::State(topic) => {
                self.counters.states_acked += 1;
                self.states.acked(&topic, now);
            }
            SentMessage::Event(number) => {
                self.counters.events_acked += 1;
                self.events.acked(number);
            }
            SentMessage::Reply(_) => {
                self.counters.replies_acked += 1;
                self.replies.settled();
            }
        }
    }

    /// The hand-over failed, or the connection ended before the broker answered: the message is due again.
    pub(crate) fn failed(&mut self, ticket: Ticket) {
        match self.in_flight.remove(&ticket) {
            Some((SentMessage::State(topic), _)) => self.states.repeat(&topic),
            Some((SentMessage::Event(number), _)) => self.events.failed(number),
            Some((SentMessage::Reply(reply), _)) => self.replies.failed(reply),
            None => {}
        }
    }

    /// The broker refused the message, or it is larger than the broker accepts. A state is sent again when it changes,
    /// and with the events after [`RETRY_DECLINED_AFTER`]; a reply is dropped.
    pub(crate) fn declined(&mut self, ticket: Ticket, now: Mono) {
        match self.in_flight.remove(&ticket) {
            Some((SentMessage::State(topic), _)) => {
                self.counters.states_declined += 1;
                self.states.declined(&topic);
            }
            Some((SentMessage::Event(number), _)) => self.events.declined(number),
            Some((SentMessage::Reply(_), _)) => {
                self.replies.dropped += 1;
                self.replies.settled();
            }
            None => {}
        }
        let at = now.after(RETRY_DECLINED_AFTER);
        self.retry_declined_at.get_or_insert(at);
    }

    /// The final status does not wait for refused messages.
    fn retry_declined(&mut self, now: Mono) {
        let is_due = self.retry_declined_at.take_if(|at| *at <= now).is_some();
        if is_due && matches!(self.final_status, FinalStatus::NotWanted) {
            self.states.retry_declined();
            self.events.retry_declined();
        }
    }

    /// True when the broker has answered all messages, and the final status was sent if there is one.
    pub(crate) fn is_settled(&self, now: Mono) -> bool {
        let is_due = matches!(self.final_status, FinalStatus::Due { .. });
        !is_due
            && self.gate.is_open(now)
            && !self.has_pending_states(now)
            && self.in_flight.is_empty()
    }

    /// When the oldest message in flight was handed over.
    pub(crate) fn oldest_in_flight(&self) -> Option<Mono> {
        let (_, (_, since)) = self.in_flight.first_key_value()?;
        Some(*since)
    }

    pub(crate) fn counters(&self) -> MessageCounters {
        let own = &self.counters;
        MessageCounters {
            states_acked: own.states_acked,
            states_declined: own.states_declined,
            events_acked: own.events_acked,
            events_declined: self.events.declined,
            events_over_bound: self.events.over_bound,
            events_too_old: self.events.too_old,
            events_of_older_epoch: self.events.older_epoch,
            not_owned: own.not_owned + self.streams.counters.not_owned,
            replies_acked: own.replies_acked,
            replies_dropped: self.replies.dropped,
            inbound_dropped: own.inbound_dropped,
            inbound_retained: own.inbound_retained,
            ..self.streams.counters
        }
    }

    /// 95th percentile of hand-over to acknowledgement over the last 128 messages that were acknowledged.
    pub(crate) fn puback_p95_ms(&mut self, now: Mono) -> Option<f64> {
        let [p95] = self.pubacks.percentiles(now, [0.95]);
        p95
    }
}
