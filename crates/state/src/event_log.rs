//! The event log: events in the database until each receiver is done with them.
//!
//! ```text
//!   append ──▶ event        a cursor per receiver: done up to a number, and with some beyond it, because a broker
//!   done   ──▶ cursor       acknowledges out of order over topics
//! ```
//!
//! An event stays while a receiver is not done with it, within [`LogLimits`], and as long as it is the last one of a track that has not
//! ended: the next run ends that track. What was appended survives `kill -9` when [`EventLog::write`] returns, and a power failure if an
//! event of the batch waits for a receiver then: an event that all receivers have is not synced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};
use spotter_core::{Epoch, Event, EventStep, TrackId, WallTime};

/// Of events that are done and were never written, this number of the newest is kept.
const DONE_KEPT: usize = 1024;
/// Beyond this number of open tracks the oldest are forgotten.
const OPEN_MAX: usize = 4096;

/// Who gets events: the broker, a webhook, the page.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventReceiver(Arc<str>);

impl EventReceiver {
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }
}

/// An event as it is stored, with what stays the same each time it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Orders the events of all runs.
    #[serde(skip)]
    pub number: u64,
    /// Id of its message.
    pub id: String,
    pub event: Event,
    /// Of a fleet's camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Another node may have been the owner of the camera when the event happened.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncertain: bool,
}

/// The most that the log contains.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogLimits {
    /// Of all events, without their pictures.
    pub bytes: u64,
}

/// A new event.
#[derive(Clone, Debug)]
struct Appended {
    event: Arc<LoggedEvent>,
    expires_ms: i64,
    /// The others are done with it.
    receivers: BTreeSet<EventReceiver>,
}

/// Changes since the last write. While the disk fails, they are collected.
#[derive(Clone, Debug, Default)]
pub struct EventChanges {
    appended: BTreeMap<u64, Appended>,
    done: BTreeMap<EventReceiver, BTreeSet<u64>>,
    pictures: BTreeMap<u64, Arc<[u8]>>,
}

impl EventChanges {
    /// `receivers`: those that want it.
    pub fn append(
        &mut self,
        event: Arc<LoggedEvent>,
        expires: WallTime,
        receivers: BTreeSet<EventReceiver>,
    ) {
        let appended = Appended {
            expires_ms: expires.unix_millis(),
            receivers,
            event,
        };
        self.appended.insert(appended.event.number, appended);
    }

    /// The receiver has the event, or the caller dropped it for this receiver.
    pub fn done(&mut self, receiver: &EventReceiver, number: u64) {
        self.done
            .entry(receiver.clone())
            .or_default()
            .insert(number);
    }

    /// A picture that came after its event. It stays as long as the event.
    pub fn add_picture(&mut self, number: u64, jpeg: Arc<[u8]>) {
        self.pictures.insert(number, jpeg);
    }

    pub fn is_empty(&self) -> bool {
        self.appended.is_empty() && self.done.is_empty() && self.pictures.is_empty()
    }

    /// Adds later changes. Of events that all receivers have and that were never written, [`DONE_KEPT`] of the newest are kept: they show
    /// which tracks are open.
    pub(crate) fn merge(&mut self, later: Self) {
        self.appended.extend(later.appended);
        for (receiver, numbers) in later.done {
            self.done.entry(receiver).or_default().extend(numbers);
        }
        self.pictures.extend(later.pictures);
        let has = |receiver: &EventReceiver, number: &u64| {
            let done = self.done.get(receiver);
            done.is_some_and(|numbers| numbers.contains(number))
        };
        let unwritten = self.appended.iter().rev();
        let delivered = unwritten.filter(|(number, appended)| {
            let mut receivers = appended.receivers.iter();
            receivers.all(|receiver| has(receiver, number))
        });
        let too_many: Vec<u64> = delivered
            .skip(DONE_KEPT)
            .map(|(number, _)| *number)
            .collect();
        for number in too_many {
            self.appended.remove(&number);
            self.pictures.remove(&number);
            for numbers in self.done.values_mut() {
                numbers.remove(&number);
            }
        }
    }
}

/// What an earlier run left.
#[derive(Debug, Default)]
pub struct FoundLog {
    /// Numbers of the events with which each receiver is not done, in order.
    pub waiting: BTreeMap<EventReceiver, Vec<u64>>,
    /// Those events, and the last one of each track that has not ended.
    pub events: BTreeMap<u64, Arc<LoggedEvent>>,
    /// When they expire, in Unix milliseconds.
    pub expires_ms: BTreeMap<u64, i64>,
    /// The last events of tracks that have not ended.
    pub open: Vec<u64>,
    /// The first event of this run has this number or a later one.
    pub first_number: u64,
    /// Rows that cannot be read. They are removed.
    pub unreadable: usize,
}

/// Events that left the log before a receiver had them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostEvents {
    pub over_bound: BTreeMap<EventReceiver, Vec<u64>>,
    pub too_old: BTreeMap<EventReceiver, Vec<u64>>,
}

impl LostEvents {
    pub(crate) fn add(&mut self, later: Self) {
        for (all, later) in [
            (&mut self.over_bound, later.over_bound),
            (&mut self.too_old, later.too_old),
        ] {
            for (receiver, numbers) in later {
                all.entry(receiver).or_default().extend(numbers);
            }
        }
    }
}

/// What a receiver has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct ReceiverCursor {
    /// It is done with this number and all before it.
    done_to: u64,
    done_beyond: BTreeSet<u64>,
}

impl ReceiverCursor {
    fn is_done(&self, number: u64) -> bool {
        number <= self.done_to || self.done_beyond.contains(&number)
    }

    fn finish(&mut self, number: u64) {
        if number > self.done_to {
            self.done_beyond.insert(number);
        }
    }

    /// Moves on to before the first number of `numbers`, the log's, that is not done.
    fn advance(&mut self, numbers: &BTreeMap<u64, LoggedEntry>) {
        let mut after = numbers.range(self.done_to + 1..);
        let first = after.find(|(number, _)| !self.done_beyond.contains(number));
        let last = numbers.last_key_value().map_or(0, |(number, _)| *number);
        let done_to = first.map_or(last, |(number, _)| number - 1);
        self.done_to = self.done_to.max(done_to);
        self.done_beyond = self.done_beyond.split_off(&(self.done_to + 1));
    }

    /// As in the table: `7-9,12`.
    fn beyond_text(&self) -> String {
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for &number in &self.done_beyond {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == number => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        let texts = ranges.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        texts.collect::<Vec<_>>().join(",")
    }

    /// `known`: the numbers of the log. What is no range of them is left out: an event is sent twice then.
    fn from_text(done_to: u64, text: &str, known: &BTreeMap<u64, LoggedEntry>) -> Self {
        let ranges = text.split(',').filter_map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
            (first <= last).then_some(first..=last)
        });
        let numbers = ranges.flat_map(|range| known.range(range).map(|(number, _)| *number));
        Self {
            done_to,
            done_beyond: numbers.collect(),
        }
    }
}

/// What is known of an event without reading it.
#[derive(Clone, Debug)]
struct LoggedEntry {
    track: TrackId,
    expires_ms: i64,
    bytes: u64,
}

/// What a write puts into the table and takes out of it.
struct PlannedWrite {
    /// Number, expiry and JSON of new events.
    bodies: Vec<(u64, i64, String)>,
    unneeded: BTreeSet<u64>,
}

/// The log of one database. Its calls block on the disk.
#[derive(Debug)]
pub(crate) struct EventLog {
    limits: LogLimits,
    entries: BTreeMap<u64, LoggedEntry>,
    /// Of all entries.
    bytes: u64,
    cursors: BTreeMap<EventReceiver, ReceiverCursor>,
    /// The last event of each track that has not ended.
    open: HashMap<TrackId, u64>,
    /// The greatest number that was ever in use.
    last_number: u64,
}

impl EventLog {
    /// Reads the log. A receiver that is new gets the events from now on; what one had that is not among `receivers` is forgotten.
    pub fn open(
        connection: &mut Connection,
        receivers: &[EventReceiver],
        limits: LogLimits,
    ) -> rusqlite::Result<(Self, FoundLog)> {
        let mut log = Self {
            limits,
            entries: BTreeMap::new(),
            bytes: 0,
            cursors: BTreeMap::new(),
            open: HashMap::new(),
            last_number: 0,
        };
        let transaction = connection.transaction()?;
        let mut found = log.read_events(&transaction)?;
        log.read_cursors(&transaction, receivers)?;
        let unneeded = log.unneeded(log.entries.keys().copied());
        log.delete(&transaction, &unneeded)?;
        transaction.commit()?;
        for number in unneeded {
            found.events.remove(&number);
            found.expires_ms.remove(&number);
        }
        for (receiver, cursor) in &log.cursors {
            let numbers = log.entries.keys().copied();
            let waiting = numbers.filter(|number| !cursor.is_done(*number)).collect();
            found.waiting.insert(receiver.clone(), waiting);
        }
        found.open = log.open.values().copied().collect();
        found.open.sort_unstable();
        found.first_number = log.last_number + 1;
        Ok((log, found))
    }

    fn read_events(&mut self, transaction: &Transaction<'_>) -> rusqlite::Result<FoundLog> {
        let mut found = FoundLog::default();
        let mut unreadable = Vec::new();
        let mut rows =
            transaction.prepare("SELECT number, expires_ms, body FROM event ORDER BY number")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (number, expires_ms): (i64, i64) = (row.get(0)?, row.get(1)?);
            let body = row.get_ref(2)?.as_bytes().unwrap_or_default();
            let (Ok(key), Ok(event)) = (u64::try_from(number), serde_json::from_slice(body)) else {
                unreadable.push(number);
                continue;
            };
            let event = LoggedEvent {
                number: key,
                ..event
            };
            self.insert(&event, expires_ms, body.len() as u64);
            found.expires_ms.insert(key, expires_ms);
            found.events.insert(key, Arc::new(event));
        }
        found.unreadable = unreadable.len();
        for number in unreadable {
            transaction.execute("DELETE FROM event WHERE number = ?1", [number])?;
        }
        Ok(found)
    }

    fn read_cursors(
        &mut self,
        transaction: &Transaction<'_>,
        receivers: &[EventReceiver],
    ) -> rusqlite::Result<()> {
        let mut rows = transaction.prepare("SELECT receiver, done_to, done_beyond FROM cursor")?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let (name, done_to, beyond): (String, i64, String) =
                (row.get(0)?, row.get(1)?, row.get(2)?);
            let done_to = u64::try_from(done_to).unwrap_or(0);
            self.last_number = self.last_number.max(done_to);
            let receiver = EventReceiver::new(&name);
            if receivers.contains(&receiver) {
                let cursor = ReceiverCursor::from_text(done_to, &beyond, &self.entries);
                self.cursors.insert(receiver, cursor);
            } else {
                transaction.execute("DELETE FROM cursor WHERE receiver = ?1", [name])?;
            }
        }
        for receiver in receivers {
            if !self.cursors.contains_key(receiver) {
                let cursor = ReceiverCursor {
                    done_to: self.last_number,
                    ..ReceiverCursor::default()
                };
                write_cursor(transaction, receiver, &cursor)?;
                self.cursors.insert(receiver.clone(), cursor);
            }
        }
        Ok(())
    }

    /// Writes a batch and removes what is not needed any more. After an error none of the batch is written, and the log is to be opened
    /// again.
    pub fn write(
        &mut self,
        connection: &mut Connection,
        changes: &EventChanges,
        wall: WallTime,
    ) -> rusqlite::Result<LostEvents> {
        let mut touched: BTreeSet<u64> = BTreeSet::new();
        let mut bodies = Vec::new();
        for (number, appended) in &changes.appended {
            // Numbers, texts and lists under text keys always serialise.
            let body = serde_json::to_string(&*appended.event).unwrap_or_default();
            touched.extend(self.insert(&appended.event, appended.expires_ms, body.len() as u64));
            for (receiver, cursor) in &mut self.cursors {
                if !appended.receivers.contains(receiver) {
                    cursor.finish(*number);
                }
            }
            touched.insert(*number);
            bodies.push((*number, appended.expires_ms, body));
        }
        for (receiver, numbers) in &changes.done {
            if let Some(cursor) = self.cursors.get_mut(receiver) {
                numbers.iter().for_each(|number| cursor.finish(*number));
                touched.extend(numbers);
            }
        }
        let mut lost = LostEvents::default();
        touched.extend(self.drop_old(wall, &mut lost));
        touched.extend(self.drop_excess(&mut lost));
        let unneeded = self.unneeded(touched.into_iter());

        let is_waiting = |number: &u64| self.is_waiting(*number);
        let is_durable = changes.appended.keys().any(is_waiting);
        let level = if is_durable { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", level)?;
        let planned = PlannedWrite { bodies, unneeded };
        let written = self.commit(connection, changes, planned);
        // As documents need it.
        connection.pragma_update(None, "synchronous", "FULL")?;
        written.map(|()| lost)
    }

    fn commit(
        &mut self,
        connection: &mut Connection,
        changes: &EventChanges,
        planned: PlannedWrite,
    ) -> rusqlite::Result<()> {
        let PlannedWrite { bodies, unneeded } = planned;
        let transaction = connection.transaction()?;
        for (number, expires_ms, body) in bodies {
            if !unneeded.contains(&number) {
                let sql = "INSERT INTO event (number, expires_ms, body) VALUES (?1, ?2, ?3)";
                transaction.execute(sql, params![number as i64, expires_ms, body])?;
            }
        }
        for (number, jpeg) in &changes.pictures {
            if self.entries.contains_key(number) && !unneeded.contains(number) {
                let sql = "INSERT OR REPLACE INTO event_picture (number, jpeg) VALUES (?1, ?2)";
                transaction.execute(sql, params![*number as i64, &jpeg[..]])?;
            }
        }
        let before = self.cursors.clone();
        for cursor in self.cursors.values_mut() {
            cursor.advance(&self.entries);
        }
        for (receiver, cursor) in &self.cursors {
            if changes.touches(receiver) || before.get(receiver) != Some(cursor) {
                write_cursor(&transaction, receiver, cursor)?;
            }
        }
        self.delete(&transaction, &unneeded)?;
        transaction.commit()
    }

    /// An event with its picture; `None`: the log does not have it.
    pub fn read(
        &self,
        connection: &Connection,
        number: u64,
    ) -> rusqlite::Result<Option<(LoggedEvent, Option<Vec<u8>>)>> {
        let sql =
            "SELECT body, jpeg FROM event LEFT JOIN event_picture USING (number) WHERE number = ?1";
        let row = connection
            .query_row(sql, [number as i64], |row| {
                let body = row.get_ref(0)?.as_bytes().unwrap_or_default();
                let event = serde_json::from_slice::<LoggedEvent>(body).ok();
                Ok((event, row.get(1)?))
            })
            .optional()?;
        Ok(row.and_then(|(event, jpeg)| {
            let event = event.map(|event| LoggedEvent { number, ..event });
            Some((event?, jpeg))
        }))
    }

    /// Returns the numbers of events that do not keep a track open any more.
    fn insert(&mut self, event: &LoggedEvent, expires_ms: i64, bytes: u64) -> Vec<u64> {
        let track = event.event.track.clone();
        let entry = LoggedEntry {
            track: track.clone(),
            expires_ms,
            bytes,
        };
        self.last_number = self.last_number.max(event.number);
        self.bytes += bytes;
        if let Some(before) = self.entries.insert(event.number, entry) {
            self.bytes -= before.bytes;
        }
        let before = match event.event.step {
            EventStep::End(_) => self.open.remove(&track),
            EventStep::New | EventStep::Update(_) => self.open.insert(track, event.number),
        };
        let mut closed: Vec<u64> = before.into_iter().collect();
        if self.open.len() > OPEN_MAX
            && let Some((oldest, number)) = self.open.iter().min_by_key(|(_, number)| **number)
        {
            let (oldest, number) = (oldest.clone(), *number);
            self.open.remove(&oldest);
            closed.push(number);
        }
        closed
    }

    fn is_waiting(&self, number: u64) -> bool {
        self.cursors.values().any(|cursor| !cursor.is_done(number))
    }

    fn unneeded(&self, numbers: impl Iterator<Item = u64>) -> BTreeSet<u64> {
        let is_unneeded = |number: &u64| {
            let entry = self.entries.get(number);
            let is_open = entry.is_some_and(|entry| self.open.get(&entry.track) == Some(number));
            entry.is_some() && !is_open && !self.is_waiting(*number)
        };
        numbers.filter(is_unneeded).collect()
    }

    /// All receivers are done with events that expired. Returns their numbers.
    fn drop_old(&mut self, wall: WallTime, lost: &mut LostEvents) -> Vec<u64> {
        let now_ms = wall.unix_millis();
        let old = self.entries.iter();
        let old = old.take_while(|(_, entry)| entry.expires_ms <= now_ms);
        let old: Vec<u64> = old.map(|(number, _)| *number).collect();
        for number in &old {
            give_up(&mut self.cursors, *number, &mut lost.too_old);
        }
        old
    }

    /// All receivers are done with the oldest events beyond the limit. Returns their numbers.
    fn drop_excess(&mut self, lost: &mut LostEvents) -> Vec<u64> {
        let mut left = self.bytes;
        let mut dropped = Vec::new();
        for (number, entry) in &self.entries {
            if left <= self.limits.bytes {
                break;
            }
            // The last event of an open track stays, so that the next run ends the track.
            if self.open.get(&entry.track) != Some(number) {
                left -= entry.bytes;
            }
            give_up(&mut self.cursors, *number, &mut lost.over_bound);
            dropped.push(*number);
        }
        dropped
    }

    fn delete(
        &mut self,
        transaction: &Transaction<'_>,
        numbers: &BTreeSet<u64>,
    ) -> rusqlite::Result<()> {
        for number in numbers {
            if let Some(entry) = self.entries.remove(number) {
                self.bytes -= entry.bytes;
            }
            for sql in [
                "DELETE FROM event WHERE number = ?1",
                "DELETE FROM event_picture WHERE number = ?1",
            ] {
                transaction.execute(sql, [*number as i64])?;
            }
        }
        Ok(())
    }
}

impl EventChanges {
    fn touches(&self, receiver: &EventReceiver) -> bool {
        self.done.contains_key(receiver)
    }
}

fn give_up(
    cursors: &mut BTreeMap<EventReceiver, ReceiverCursor>,
    number: u64,
    lost: &mut BTreeMap<EventReceiver, Vec<u64>>,
) {
    for (receiver, cursor) in cursors {
        if !cursor.is_done(number) {
            cursor.finish(number);
            lost.entry(receiver.clone()).or_default().push(number);
        }
    }
}

fn write_cursor(
    transaction: &Transaction<'_>,
    receiver: &EventReceiver,
    cursor: &ReceiverCursor,
) -> rusqlite::Result<()> {
    let sql = "INSERT OR REPLACE INTO cursor (receiver, done_to, done_beyond) VALUES (?1, ?2, ?3)";
    let values = params![&*receiver.0, cursor.done_to as i64, cursor.beyond_text()];
    transaction.execute(sql, values).map(drop)
}

#[cfg(test)]
pub(crate) mod tests;
