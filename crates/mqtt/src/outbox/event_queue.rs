//! Events: kept in order until the broker has acknowledged them, over outages and restarts.
//!
//! An event is **fresh** on the connection that was up when it happened, and **late** on any other. Late ones go oldest
//! first and slowly, so that a consumer is not flooded after an outage; fresh ones do not wait behind them, except on a
//! topic of which late ones wait: the order of a topic is never changed.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use super::rates::RateLimit;
use crate::{
    event,
    message_counters::MessageCounters,
    spool::{Batch, SpooledEvent},
};
use spotter_core::{Event, Mono};

/// Events without an acknowledgement.
pub(super) const EVENTS_IN_FLIGHT_MAX: usize = 8;
/// Events a second at most, all topics together; what is over waits.
const EVENTS_PER_S: usize = 100;
/// Of them late ones.
const LATE_PER_S: usize = 50;
/// An event that had to wait longer than this says so, as one from the spool does.
const DELAYED_AFTER: Duration = Duration::from_secs(5);
/// While connected, this many events wait even when the configuration keeps fewer over an outage.
const CONNECTED_MIN: usize = 64;
/// Bytes of a record beyond its event, on disk and in memory.
const OVERHEAD_BYTES: u64 = 64;

/// How much is kept (`mqtt.spool`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventBounds {
    /// Number of events.
    pub events: usize,
    /// Older ones are forgotten.
    pub max_age: Duration,
    /// Their bytes, in memory as on disk.
    pub max_bytes: u64,
}

impl Default for EventBounds {
    fn default() -> Self {
        Self {
            events: 5000,
            max_age: Duration::from_secs(24 * 60 * 60),
            max_bytes: 15_000_000,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventPhase {
    Waiting,
    InFlight,
    /// The broker refused it; the mixer retries it later.
    Declined,
}

#[derive(Debug)]
struct QueuedEvent {
    topic: Arc<str>,
    kept: Arc<SpooledEvent>,
    bytes: u64,
    since: Mono,
    expires: Mono,
    late: bool,
    /// It was declined before.
    declined: bool,
    phase: EventPhase,
}

#[derive(Clone, Copy, Debug)]
struct EventTimes {
    since: Mono,
    expires: Mono,
}

/// An event that is due.
pub(super) struct DueEvent {
    pub(super) number: u64,
    pub(super) topic: Arc<str>,
    pub(super) payload: Vec<u8>,
    /// What is left of its time.
    pub(super) expiry: Duration,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct EventQueue {
    bounds: EventBounds,
    connected: bool,
    entries: BTreeMap<u64, QueuedEvent>,
    /// Those that wait, by number.
    fresh: BTreeSet<u64>,
    late: BTreeSet<u64>,
    late_on: HashMap<Arc<str>, usize>,
    in_flight: usize,
    bytes: u64,
    next_number: u64,
    rate: RateLimit,
    late_rate: RateLimit,
    /// Changes for the disk; `None` = events are in memory only.
    unwritten: Option<Batch>,
}

impl EventQueue {
    pub(super) fn new(bounds: EventBounds) -> Self {
        Self {
            bounds,
            connected: false,
            entries: BTreeMap::new(),
            fresh: BTreeSet::new(),
            late: BTreeSet::new(),
            late_on: HashMap::new(),
            in_flight: 0,
            bytes: 0,
            next_number: 1,
            rate: RateLimit::new(EVENTS_PER_S),
            late_rate: RateLimit::new(LATE_PER_S),
            unwritten: None,
        }
    }

    /// From now on changes are remembered for a disk. New events are numbered from `first_number` on.
    pub(super) fn keep_on_disk(&mut self, first_number: u64) {
        self.next_number = self.next_number.max(first_number);
        self.unwritten = Some(Batch::default());
    }

    /// How many are not delivered.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Some could go when the rates and the acknowledgements allow it.
    pub(super) fn is_waiting(&self) -> bool {
        !(self.fresh.is_empty() && self.late.is_empty())
    }

    /// Accepts an event; `id` names its message for ever.
    pub(super) fn push(
        &mut self,
        topic: &str,
        id: String,
        event: Event,
        now: Mono,
        counters: &mut MessageCounters,
    ) {
        let number = self.next_number;
        self.next_number += 1;
        let kept = Arc::new(SpooledEvent { number, id, event });
        let expires = now.after(self.bounds.max_age);
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.keep(Arc::clone(&kept), expires);
        }
        let times = EventTimes {
            since: now,
            expires,
        };
        self.insert(topic, kept, times, !self.connected);
        self.expire(now, counters);
        self.keep_to_bounds(counters);
    }

    /// Takes over an event of an earlier run, which the disk has. In the order of their numbers, before any new one.
    pub(super) fn restore(
        &mut self,
        topic: &str,
        kept: Arc<SpooledEvent>,
        left: Duration,
        now: Mono,
        counters: &mut MessageCounters,
    ) {
        self.next_number = self.next_number.max(kept.number + 1);
        let times = EventTimes {
            since: now,
            expires: now.after(left),
        };
        self.insert(topic, kept, times, true);
        self.expire(now, counters);
        self.keep_to_bounds(counters);
    }

    fn insert(&mut self, topic: &str, kept: Arc<SpooledEvent>, times: EventTimes, late: bool) {
        let EventTimes { since, mut expires } = times;
        // No event outlives a younger one, though the machine's clock may have been set between them.
        if let Some((_, before)) = self.entries.last_key_value() {
            expires = expires.max(before.expires);
        }
        // The length on disk; all of it is numbers, texts and lists, so it serialises.
        let encoded = serde_json::to_vec(&*kept).map_or(0, |json| json.len() as u64);
        let entry = QueuedEvent {
            topic: topic.into(),
            bytes: encoded + OVERHEAD_BYTES,
            since,
            expires,
            late,
            declined: false,
            phase: EventPhase::Waiting,
            kept,
        };
        self.bytes += entry.bytes;
        let number = entry.kept.number;
        self.entries.insert(number, entry);
        self.wait(number);
    }

    /// The broker accepted a connection.
    pub(super) fn connected(&mut self) {
        self.connected = true;
        self.all_wait_as_late();
    }

    /// What is not delivered by now is late.
    pub(super) fn disconnected(&mut self, counters: &mut MessageCounters) {
        self.connected = false;
        self.all_wait_as_late();
        self.keep_to_bounds(counters);
    }

    fn all_wait_as_late(&mut self) {
        self.in_flight = 0;
        self.fresh.clear();
        self.late.clear();
        self.late_on.clear();
        for (&number, entry) in &mut self.entries {
            entry.late = true;
            entry.phase = EventPhase::Waiting;
            self.late.insert(number);
            *self.late_on.entry(Arc::clone(&entry.topic)).or_default() += 1;
        }
    }

    /// The next event, when the rates and the acknowledgements allow one.
    pub(super) fn take(&mut self, now: Mono, counters: &mut MessageCounters) -> Option<DueEvent> {
        self.expire(now, counters);
        if self.in_flight >= EVENTS_IN_FLIGHT_MAX || self.rate.ready_at(now) > now {
            return None;
        }
        let number = self.next_fresh().or_else(|| self.next_late(now))?;
        self.stop_waiting(number);
        let entry = self.entries.get_mut(&number)?;
        entry.phase = EventPhase::InFlight;
        self.in_flight += 1;
        self.rate.count(now);
        if entry.late {
            self.late_rate.count(now);
        }
        let delayed = entry.late || now.since(entry.since) > DELAYED_AFTER;
        Some(DueEvent {
            number,
            topic: Arc::clone(&entry.topic),
            payload: event::to_json(&entry.kept.event, &entry.kept.id, delayed),
            expiry: entry.expires.since(now),
        })
    }

    /// When [`take`](Self::take) may have one, if nothing else happens before.
    pub(super) fn next_at(&self, now: Mono) -> Option<Mono> {
        if self.in_flight >= EVENTS_IN_FLIGHT_MAX {
            return None;
        }
        let ready = self.rate.ready_at(now);
        if self.next_fresh().is_some() {
            return Some(ready);
        }
        (!self.late.is_empty()).then(|| ready.max(self.late_rate.ready_at(now)))
    }

    fn next_fresh(&self) -> Option<u64> {
        let is_free = |number: &&u64| {
            let topic = self.entries.get(number).map(|entry| &entry.topic);
            topic.is_some_and(|topic| !self.late_on.contains_key(topic))
        };
        self.fresh.iter().find(is_free).copied()
    }

    fn next_late(&self, now: Mono) -> Option<u64> {
        let number = self.late.first().copied()?;
        (self.late_rate.ready_at(now) <= now).then_some(number)
    }

    pub(super) fn acked(&mut self, number: u64) {
        self.remove(number);
    }

    /// The hand-over failed: the event is due again.
    pub(super) fn failed(&mut self, number: u64) {
        self.set_phase(number, EventPhase::Waiting);
        self.wait(number);
    }

    /// The broker refused the event. Counted the first time.
    pub(super) fn declined(&mut self, number: u64, counters: &mut MessageCounters) {
        self.set_phase(number, EventPhase::Declined);
        if let Some(entry) = self.entries.get_mut(&number) {
            counters.events_declined += u64::from(!std::mem::replace(&mut entry.declined, true));
        }
    }

    /// Refused events wait again.
    pub(super) fn retry_declined(&mut self) {
        let declined = self.entries.iter_mut();
        let declined = declined.filter(|(_, entry)| entry.phase == EventPhase::Declined);
        let again = declined.map(|(&number, entry)| {
            entry.phase = EventPhase::Waiting;
            number
        });
        for number in again.collect::<Vec<_>>() {
            self.wait(number);
        }
    }

    fn set_phase(&mut self, number: u64, phase: EventPhase) {
        if let Some(entry) = self.entries.get_mut(&number)
            && entry.phase == EventPhase::InFlight
        {
            entry.phase = phase;
            self.in_flight -= 1;
        }
    }

    /// Drops the events whose time is over.
    pub(super) fn expire(&mut self, now: Mono, counters: &mut MessageCounters) {
        let over = self.entries.iter();
        let over = over.take_while(|(_, entry)| entry.expires <= now);
        let over = over.filter(|(_, entry)| entry.phase != EventPhase::InFlight);
        for number in over.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.remove(number);
            counters.events_too_old += 1;
        }
    }

    /// Drops the oldest events beyond the bounds; those on their way stay.
    fn keep_to_bounds(&mut self, counters: &mut MessageCounters) {
        let events = match self.connected {
            true => self.bounds.events.max(CONNECTED_MIN),
            false => self.bounds.events,
        };
        while self.entries.len() > events || self.bytes > self.bounds.max_bytes {
            let mut oldest = self.entries.iter();
            let Some((&number, _)) = oldest.find(|(_, entry)| entry.phase != EventPhase::InFlight)
            else {
                return;
            };
            self.remove(number);
            counters.events_over_bound += 1;
        }
    }

    fn remove(&mut self, number: u64) {
        self.stop_waiting(number);
        let Some(gone) = self.entries.remove(&number) else {
            return;
        };
        self.bytes -= gone.bytes;
        if gone.phase == EventPhase::InFlight {
            self.in_flight -= 1;
        }
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.done(number);
        }
    }

    fn wait(&mut self, number: u64) {
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        if !entry.late {
            self.fresh.insert(number);
        } else if self.late.insert(number) {
            *self.late_on.entry(Arc::clone(&entry.topic)).or_default() += 1;
        }
    }

    fn stop_waiting(&mut self, number: u64) {
        self.fresh.remove(&number);
        if !self.late.remove(&number) {
            return;
        }
        let Some(entry) = self.entries.get(&number) else {
            return;
        };
        if let Some(count) = self.late_on.get_mut(&entry.topic) {
            *count -= 1;
            if *count == 0 {
                self.late_on.remove(&entry.topic);
            }
        }
    }

    /// Takes the changes since the last write to the disk.
    pub(super) fn unwritten(&mut self, now: Mono, counters: &mut MessageCounters) -> Batch {
        self.expire(now, counters);
        self.unwritten
            .as_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// A batch could not be written.
    pub(super) fn still_unwritten(&mut self, batch: Batch) {
        if let Some(unwritten) = &mut self.unwritten {
            unwritten.put_back(batch);
        }
    }
}
