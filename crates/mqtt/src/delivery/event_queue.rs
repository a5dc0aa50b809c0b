//! Events: kept in order until the broker has acknowledged them, over outages and restarts.
//!
//! An event is **fresh** on the connection that was up when it happened, and **late** on any other. Late ones go oldest
//! first and slowly, so that a consumer is not flooded after an outage; fresh ones do not wait behind them, except on a
//! topic of which late ones wait: the order of a topic is never changed.
//!
//! In a fleet an event has the epoch of its camera's owner. It is sent while the node publishes the camera with that epoch, and dropped when the
//! camera has a newer one.

use std::{
    collections::{BTreeMap, HashMap},
    ops::RangeBounds,
    sync::Arc,
    time::Duration,
};

use super::{
    DeliveryOptions, MessageIds, Outgoing,
    gate::{Fate, GateAt},
    rates::RateLimit,
};
use crate::contract::message::Body;
use spotter_config::SpoolConfig;
use spotter_core::{CameraId, Epoch, Event, Mono, WallTime};
use spotter_state::{EventLog, EventReceiver, LoggedEvent};

/// Events without an acknowledgement.
const EVENTS_IN_FLIGHT_MAX: usize = 8;
/// Events a second, all topics together; more wait.
const EVENTS_PER_S: usize = 100;
/// Late events a second, of all.
const LATE_PER_S: usize = 50;
/// An event that waited longer is marked `delayed`, as one from the spool is.
const DELAYED_AFTER: Duration = Duration::from_secs(3);
/// While connected, this many events wait even when the configuration keeps fewer over an outage.
const CONNECTED_MIN: usize = 64;
/// Bytes of a record beyond its event, on disk and in memory.
const OVERHEAD_BYTES: u64 = 64;

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
    logged: Arc<LoggedEvent>,
    bytes: u64,
    since: Mono,
    expires: Mono,
    was_declined: bool,
    phase: EventPhase,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct EventQueue {
    pub(crate) bounds: SpoolConfig,
    /// Bound of the bytes of all events, in memory and on disk.
    max_bytes: u64,
    ids: MessageIds,
    /// Time in the last id: ids sort in the order of publishing even when a clock is set back.
    id_ms: u64,
    /// The first number of a fresh event; `None`: there is no connection, and all are late.
    fresh_from: Option<u64>,
    entries: BTreeMap<u64, QueuedEvent>,
    /// How many waiting ones are late, by topic.
    late_on: HashMap<Arc<str>, usize>,
    in_flight: usize,
    bytes: u64,
    rate: RateLimit,
    late_rate: RateLimit,
    log: EventLog,
    receiver: EventReceiver,
    /// Events that the broker refused.
    pub(super) declined: u64,
    /// Dropped: more than the bounds allow.
    pub(super) over_bound: u64,
    /// Dropped: older than the bounds allow.
    pub(super) too_old: u64,
    /// Dropped: the camera has a newer owner.
    pub(super) older_epoch: u64,
}

impl EventQueue {
    pub(super) fn new(bounds: SpoolConfig, log: EventLog, ids: MessageIds) -> Self {
        Self {
            bounds,
            // On the disk, pages of the database take up to 1.6 times the bytes of their events.
            max_bytes: bounds.max_mb * 1_000_000 / 5 * 3,
            ids,
            id_ms: 0,
            fresh_from: None,
            entries: BTreeMap::new(),
            late_on: HashMap::new(),
            in_flight: 0,
            bytes: 0,
            rate: RateLimit::new(EVENTS_PER_S),
            late_rate: RateLimit::new(LATE_PER_S),
            log,
            receiver: EventReceiver::broker(),
            declined: 0,
            over_bound: 0,
            too_old: 0,
            older_epoch: 0,
        }
    }

    /// Events that are not delivered.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_waiting(&self) -> bool {
        let mut all = self.entries.values();
        all.any(|entry| entry.phase == EventPhase::Waiting)
    }

    /// `epoch`: of a fleet's camera.
    pub(crate) fn push(&mut self, topic: &str, event: &Event, epoch: Option<Epoch>, now: Mono) {
        let id = self.next_id(event.ended.unwrap_or(event.last_seen));
        let logged = LoggedEvent::new(id, event, epoch).linked(self.log.page());
        self.log(topic, logged, now);
    }

    /// For an event of this time.
    pub(crate) fn next_id(&mut self, at: WallTime) -> String {
        let at_ms = u64::try_from(at.unix_millis()).unwrap_or(0);
        self.id_ms = self.id_ms.max(at_ms);
        self.ids.next(self.id_ms)
    }

    pub(crate) fn log(&mut self, topic: &str, event: LoggedEvent, now: Mono) {
        let logged = self.log.append(event);
        self.insert(topic, logged, now, now.after(self.bounds.max_age));
    }

    /// Ends a track that the next run would end; nothing is sent.
    pub(super) fn end_track(&self, end: &Event) {
        self.log.end_track(end);
    }

    /// Queues an event that an earlier run did not deliver; called in the order of their numbers, before any push. It expires after `left`.
    pub(crate) fn restore(
        &mut self,
        topic: &str,
        logged: Arc<LoggedEvent>,
        left: Duration,
        now: Mono,
    ) {
        self.insert(topic, logged, now, now.after(left));
    }

    /// An event of the camera waits or is in flight.
    pub(super) fn is_waiting_of(&self, camera: &CameraId) -> bool {
        let mut of_camera = self.entries.values();
        of_camera.any(|entry| {
            entry.logged.camera == *camera
                && matches!(entry.phase, EventPhase::Waiting | EventPhase::InFlight)
        })
    }

    fn insert(&mut self, topic: &str, logged: Arc<LoggedEvent>, now: Mono, mut expires: Mono) {
        let number = logged.number;
        // An event does not expire before an older one, although the machine's clock may have been set between them.
        if let Some((_, before)) = self.entries.last_key_value() {
            expires = expires.max(before.expires);
        }
        let entry = QueuedEvent {
            topic: topic.into(),
            bytes: logged.bytes() + OVERHEAD_BYTES,
            since: now,
            expires,
            was_declined: false,
            phase: EventPhase::Declined,
            logged,
        };
        self.bytes += entry.bytes;
        self.entries.insert(number, entry);
        self.set_phase(number, EventPhase::Waiting);
        self.expire(now);
        self.keep_to_bounds();
    }

    /// The broker accepted a connection.
    pub(super) fn connected(&mut self) {
        let last = self.entries.last_key_value();
        self.all_are_late(Some(last.map_or(0, |(number, _)| number + 1)));
    }

    /// All undelivered events are late from now on.
    pub(super) fn disconnected(&mut self) {
        self.all_are_late(None);
        self.keep_to_bounds();
    }

    fn is_late(&self, number: u64) -> bool {
        self.fresh_from.is_none_or(|first| number < first)
    }

    fn all_are_late(&mut self, fresh_from: Option<u64>) {
        self.fresh_from = fresh_from;
        self.in_flight = 0;
        self.late_on.clear();
        for entry in self.entries.values_mut() {
            entry.phase = EventPhase::Waiting;
            *self.late_on.entry(Arc::clone(&entry.topic)).or_default() += 1;
        }
    }

    /// Every change of a phase.
    fn set_phase(&mut self, number: u64, phase: EventPhase) {
        let is_late = self.is_late(number);
        let Some(entry) = self.entries.get_mut(&number) else {
            return;
        };
        let before = std::mem::replace(&mut entry.phase, phase);
        self.in_flight += usize::from(phase == EventPhase::InFlight);
        self.in_flight -= usize::from(before == EventPhase::InFlight);
        if is_late {
            let late = self.late_on.entry(Arc::clone(&entry.topic)).or_default();
            *late += usize::from(phase == EventPhase::Waiting);
            *late -= usize::from(before == EventPhase::Waiting);
        }
    }

    /// The next event with its number, when the rates, the acknowledgements and the gate allow one. Those of older epochs before it are dropped.
    pub(super) fn take(&mut self, gate: GateAt<'_>) -> Option<(u64, Outgoing)> {
        let now = gate.now;
        self.expire(now);
        if self.in_flight >= EVENTS_IN_FLIGHT_MAX || self.rate.ready_at(now) > now {
            return None;
        }
        let number = loop {
            let next = self.next_fresh(gate);
            let (number, fate) = next.or_else(|| self.next_late(gate))?;
            if fate == Fate::Send {
                break number;
            }
            self.remove(number);
            self.older_epoch += 1;
        };
        self.set_phase(number, EventPhase::InFlight);
        let is_late = self.is_late(number);
        let entry = self.entries.get(&number)?;
        self.rate.count(now);
        if is_late {
            self.late_rate.count(now);
        }
        let delayed = is_late || now.since(entry.since) > DELAYED_AFTER;
        let payload = entry.logged.payload(delayed, None);
        let delivery = DeliveryOptions {
            expiry: Some(entry.expires.since(now)),
            epoch: entry.logged.epoch,
            ..DeliveryOptions::default()
        };
        let outgoing = Outgoing {
            topic: entry.topic.to_string(),
            delivery,
            body: Body::Bytes(payload.into()),
        };
        Some((number, outgoing))
    }

    /// When [`take`](Self::take) may have one, if nothing else happens before.
    pub(super) fn next_at(&self, gate: GateAt<'_>) -> Option<Mono> {
        if self.in_flight >= EVENTS_IN_FLIGHT_MAX {
            return None;
        }
        let ready = self.rate.ready_at(gate.now);
        if self.next_fresh(gate).is_some() {
            return Some(ready);
        }
        let late = self.next_of(..self.fresh_from.unwrap_or(u64::MAX), gate, |_| true);
        late.map(|_| ready.max(self.late_rate.ready_at(gate.now)))
    }

    fn next_fresh(&self, gate: GateAt<'_>) -> Option<(u64, Fate)> {
        let is_free =
            |entry: &QueuedEvent| self.late_on.get(&entry.topic).is_none_or(|late| *late == 0);
        self.next_of(self.fresh_from?.., gate, is_free)
    }

    fn next_late(&self, gate: GateAt<'_>) -> Option<(u64, Fate)> {
        let is_ready = self.late_rate.ready_at(gate.now) <= gate.now;
        let next = self.next_of(..self.fresh_from.unwrap_or(u64::MAX), gate, |_| true);
        next.filter(|(_, fate)| is_ready || *fate == Fate::Drop)
    }

    /// The first event of these numbers that does not have to wait.
    fn next_of(
        &self,
        numbers: impl RangeBounds<u64>,
        gate: GateAt<'_>,
        is_free: impl Fn(&QueuedEvent) -> bool,
    ) -> Option<(u64, Fate)> {
        let waits = |entry: &QueuedEvent| entry.phase == EventPhase::Waiting && is_free(entry);
        let all = self.entries.range(numbers);
        let mut waiting = all.filter(|(_, entry)| waits(entry));
        waiting.find_map(|(number, entry)| {
            let fate = gate.fate(&entry.logged.camera, entry.logged.epoch);
            (fate != Fate::Wait).then_some((*number, fate))
        })
    }

    pub(super) fn acked(&mut self, number: u64) {
        self.remove(number);
    }

    pub(super) fn failed(&mut self, number: u64) {
        self.set_phase(number, EventPhase::Waiting);
    }

    /// The broker refused the event. Counted the first time.
    pub(super) fn declined(&mut self, number: u64) {
        self.set_phase(number, EventPhase::Declined);
        if let Some(entry) = self.entries.get_mut(&number) {
            self.declined += u64::from(!std::mem::replace(&mut entry.was_declined, true));
        }
    }

    /// Refused events wait again.
    pub(super) fn retry_declined(&mut self) {
        let all = self.entries.iter();
        let declined = all.filter(|(_, entry)| entry.phase == EventPhase::Declined);
        for number in declined.map(|(number, _)| *number).collect::<Vec<_>>() {
            self.set_phase(number, EventPhase::Waiting);
        }
    }

    /// Drops expired events that are not in flight.
    pub(super) fn expire(&mut self, now: Mono) {
        let over = self.entries.iter();
        let over = over.take_while(|(_, entry)| entry.expires <= now);
        let over = over.filter(|(_, entry)| entry.phase != EventPhase::InFlight);
        for number in over.map(|(&number, _)| number).collect::<Vec<_>>() {
            self.remove(number);
            self.too_old += 1;
        }
    }

    /// Drops the oldest events beyond the bounds, except those in flight.
    fn keep_to_bounds(&mut self) {
        let events = match self.fresh_from.is_some() {
            true => self.bounds.events.max(CONNECTED_MIN),
            false => self.bounds.events,
        };
        while self.entries.len() > events || self.bytes > self.max_bytes {
            let mut oldest = self.entries.iter();
            let Some((&number, _)) = oldest.find(|(_, entry)| entry.phase != EventPhase::InFlight)
            else {
                return;
            };
            self.remove(number);
            self.over_bound += 1;
        }
    }

    fn remove(&mut self, number: u64) {
        self.set_phase(number, EventPhase::Declined);
        if let Some(gone) = self.entries.remove(&number) {
            self.bytes -= gone.bytes;
            self.log.done(&self.receiver, [number]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        delivery::{
            gate::open,
            tests::{json, ms, spool},
        },
        testing::event,
    };
    use spotter_core::EventStep;

    /// Keeps this number of events while there is no connection.
    fn offline(events: usize) -> EventQueue {
        EventQueue::new(spool(events), EventLog::default(), MessageIds::new(7))
    }

    fn online() -> EventQueue {
        let mut queue = offline(5000);
        queue.connected();
        queue
    }

    fn push(queue: &mut EventQueue, camera: &str, track: u64, now: Mono) {
        queue.push(camera, &event(camera, track, EventStep::New), None, now);
    }

    fn take_all(queue: &mut EventQueue, now: Mono) -> Vec<(u64, Outgoing)> {
        std::iter::from_fn(|| queue.take(open(now))).collect()
    }

    /// Takes the events that are due within `seconds` and acknowledges each one at once.
    fn deliver(queue: &mut EventQueue, from: Mono, seconds: u64) -> Vec<(Mono, Outgoing)> {
        let mut all = Vec::new();
        for step in 0..seconds * 100 {
            let now = from.after(Duration::from_millis(10 * step));
            while let Some((number, sent)) = queue.take(open(now)) {
                queue.acked(number);
                all.push((now, sent));
            }
        }
        all
    }

    /// The numbers at the end of the tracks' names.
    fn tracks<T>(sent: &[(T, Outgoing)]) -> Vec<u64> {
        let track = |sent: &Outgoing| {
            let json = json(sent);
            let name = json["event"].as_str().unwrap();
            name.rsplit('-').next().unwrap().parse().unwrap()
        };
        sent.iter().map(|(_, sent)| track(sent)).collect()
    }

    #[test]
    fn few_events_are_in_flight_and_none_overtakes_another() {
        let mut queue = online();
        for number in 0..20 {
            push(&mut queue, "gate", number, ms(0));
        }
        let first = take_all(&mut queue, ms(0));
        assert_eq!(first.len(), EVENTS_IN_FLIGHT_MAX);
        let next_at = queue.next_at(open(ms(0)));
        assert_eq!(next_at, None, "the queue waits for an acknowledgement");
        // The client library had no room: the same event is the next.
        queue.failed(first[7].0);
        assert_eq!(tracks(&take_all(&mut queue, ms(0))), [7]);
        for (number, _) in &first[..7] {
            queue.acked(*number);
        }
        let next = tracks(&take_all(&mut queue, ms(1)));
        assert_eq!(next, [8, 9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn spooled_events_leave_slowly_and_new_topics_at_once() {
        let mut queue = offline(5000);
        for number in 0..200 {
            push(&mut queue, "gate", number, ms(number));
        }
        queue.connected();
        let mut sent = deliver(&mut queue, ms(10_000), 1);
        // Half of them still wait when two cameras publish an event each.
        push(&mut queue, "yard", 1000, ms(11_000));
        push(&mut queue, "gate", 1001, ms(11_000));
        sent.extend(deliver(&mut queue, ms(11_000), 9));

        let tracks = tracks(&sent);
        let mut of_gate = tracks.clone();
        of_gate.retain(|&track| track != 1000);
        let expected: Vec<u64> = (0..200).chain([1001]).collect();
        assert_eq!(of_gate, expected, "the order of a topic is kept");
        let of = |track| &sent[tracks.iter().position(|&other| other == track).unwrap()];
        // The topic of the yard has no backlog.
        assert_eq!(of(1000).0, ms(11_000));
        assert!(of(1001).0 >= ms(13_000) && of(1001).0 <= ms(14_100));
        for (first, last) in sent.iter().zip(&sent[51..]) {
            // At most 50 late events and a fresh one per second.
            assert!(last.0.since(first.0) >= Duration::from_millis(900));
        }
        let is_delayed = |track| json(&of(track).1)["delayed"].as_bool().unwrap();
        assert!(is_delayed(0) && is_delayed(199));
        assert!(!is_delayed(1000) && !is_delayed(1001));
    }

    // Faults: B8.
    #[test]
    fn beyond_the_bound_exactly_the_oldest_are_dropped_and_counted() {
        let mut queue = offline(10);
        for number in 0..25 {
            push(&mut queue, "gate", number, ms(number));
        }
        assert_eq!(queue.len(), 10);
        queue.connected();
        let sent = deliver(&mut queue, ms(100), 2);
        assert_eq!(tracks(&sent), (15..25).collect::<Vec<_>>());
        assert_eq!(queue.over_bound, 15);
    }

    #[test]
    fn bytes_and_age_are_bounds_too() {
        let mut queue = offline(1000);
        push(&mut queue, "gate", 10, ms(0));
        // The number of the last event has one digit more.
        let max_bytes = 4 * queue.bytes + 1;
        let mut queue = offline(1000);
        queue.max_bytes = max_bytes;
        queue.bounds.max_age = Duration::from_secs(60);
        for number in 10..20 {
            push(&mut queue, "gate", number, ms(1000 * number));
        }
        assert_eq!(queue.len(), 4);
        assert_eq!(queue.over_bound, 6);
        // Of the four, which were pushed in the seconds 16 to 19, three are older than a minute now.
        queue.connected();
        let sent = take_all(&mut queue, ms(78_000));
        assert_eq!(tracks(&sent), [19]);
        let expiry = sent[0].1.delivery.expiry;
        assert_eq!(expiry, Some(Duration::from_secs(1)));
        assert_eq!(queue.too_old, 3);
    }

    #[test]
    fn bound_of_zero_sends_while_connected_and_spools_nothing() {
        let mut queue = offline(0);
        queue.connected();
        push(&mut queue, "gate", 1, ms(0));
        assert_eq!(take_all(&mut queue, ms(0)).len(), 1);
        queue.disconnected();
        push(&mut queue, "gate", 2, ms(1));
        assert_eq!(queue.len(), 0);
        assert_eq!(queue.over_bound, 2);
    }
}
