//! The events that are needed: each is in the table as long as a receiver waits for it.
//!
//! A row names the receivers that wait for its event. It also stays while its event is the last one of a track that has not ended, because the
//! next run ends that track; and the end of a track stays while an older event of the track does, which would be its last one otherwise. A
//! crossing reports one moment and not the track, so it is never the last one.
//!
//! The rows are in memory, and the file follows them: [`EventTable::take`] has what differs, [`EventBatch::write`] writes it in one transaction.
//! What was appended survives `kill -9` then, and a power failure if a receiver waits for it: an event that all receivers have is not synced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use spotter_core::{EventKind, TrackId, WebhookId};

use crate::logged_event::LoggedEvent;

/// Of pictures that are not written.
const PICTURES_MAX_BYTES: usize = 8_000_000;

/// Who gets events: the broker or a webhook.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventReceiver(Arc<str>);

impl EventReceiver {
    pub fn broker() -> Self {
        Self("mqtt".into())
    }

    pub fn webhook(id: &WebhookId) -> Self {
        Self(format!("webhook/{id}").into())
    }
}

/// As in the table.
pub(crate) fn names(receivers: &BTreeSet<EventReceiver>) -> String {
    let names: Vec<&str> = receivers.iter().map(|receiver| &*receiver.0).collect();
    names.join(" ")
}

/// An event of an earlier run.
#[derive(Clone, Debug)]
pub struct FoundEvent {
    pub logged: Arc<LoggedEvent>,
    pub waiting: BTreeSet<EventReceiver>,
    /// 0 without a picture.
    pub picture_bytes: u64,
}

/// What earlier runs left.
#[derive(Clone, Debug, Default)]
pub struct FoundEvents {
    /// In order.
    pub events: Vec<FoundEvent>,
    /// The last event of each track that has not ended, in order.
    pub open: Vec<Arc<LoggedEvent>>,
    /// Events that cannot be read, by the receivers that waited for them. They are removed.
    pub unreadable: BTreeMap<EventReceiver, u64>,
}

impl FoundEvents {
    /// Those that the receiver waits for.
    pub fn waiting_for(&self, receiver: &EventReceiver) -> impl Iterator<Item = &FoundEvent> {
        let events = self.events.iter();
        events.filter(move |found| found.waiting.contains(receiver))
    }
}

/// Gives an event to a receiver; false when that does not want it. Called under the lock of the store, so it must not call the log.
pub type OfferEvent = Arc<dyn Fn(&Arc<LoggedEvent>) -> bool + Send + Sync>;

#[derive(Debug)]
struct EventRow {
    logged: Arc<LoggedEvent>,
    waiting: BTreeSet<EventReceiver>,
    /// The file has its JSON.
    is_stored: bool,
}

impl EventRow {
    fn is_end(&self) -> bool {
        self.logged.kind == EventKind::End
    }
}

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct EventTable {
    next_number: u64,
    webhooks: BTreeMap<EventReceiver, OfferEvent>,
    rows: BTreeMap<u64, EventRow>,
    /// Numbers of the rows of each track.
    tracks: HashMap<TrackId, BTreeSet<u64>>,
    /// Numbers of events whose rows are others in the file, or not there, or there only.
    unwritten: BTreeSet<u64>,
    /// Pictures that the file does not have.
    pictures: BTreeMap<u64, Arc<[u8]>>,
    is_writing: bool,
    /// The file may have rows that this table takes for new, so none is taken for absent there.
    is_rewritten: bool,
}

/// Changes on their way to the file.
#[derive(Debug, Default)]
pub(crate) struct EventBatch {
    /// `None`: the row is removed.
    rows: BTreeMap<u64, Option<RowWrite>>,
    pictures: BTreeMap<u64, Arc<[u8]>>,
}

#[derive(Debug)]
struct RowWrite {
    waiting: String,
    /// `None`: the file has it.
    added: Option<Arc<LoggedEvent>>,
}

impl EventTable {
    /// Reads what earlier runs left.
    pub(crate) fn open(connection: &Connection) -> rusqlite::Result<(Self, FoundEvents)> {
        let (mut table, mut found) = (Self::default(), FoundEvents::default());
        let mut removed = Vec::new();
        let mut rows = connection.prepare(
            "SELECT number, waiting, body, length(jpeg) FROM event LEFT JOIN event_picture USING (number) ORDER BY number",
        )?;
        let mut rows = rows.query([])?;
        while let Some(row) = rows.next()? {
            let number: i64 = row.get(0)?;
            let waiting: String = row.get(1)?;
            let waiting = waiting.split_whitespace();
            let waiting: BTreeSet<_> = waiting.map(|name| EventReceiver(name.into())).collect();
            // SQLite has no checksums: a block that was not written has zeros in it.
            let body = row.get_ref(2)?.as_str().ok();
            let read = body.and_then(LoggedEvent::read);
            let (Some(event), Ok(number)) = (read, u64::try_from(number)) else {
                for receiver in waiting {
                    *found.unreadable.entry(receiver).or_default() += 1;
                }
                removed.push(number);
                continue;
            };
            let logged = Arc::new(LoggedEvent { number, ..event });
            table.insert(&logged, waiting.clone(), true);
            table.next_number = number + 1;
            found.events.push(FoundEvent {
                logged,
                waiting,
                picture_bytes: row.get::<_, Option<u32>>(3)?.unwrap_or(0).into(),
            });
        }
        for number in &removed {
            connection.execute("DELETE FROM event WHERE number = ?1", [number])?;
        }
        if !removed.is_empty() {
            let events = removed.len();
            tracing::error!(events, "events in state.db cannot be read; they are lost");
        }
        let tracks = table.tracks.values();
        let last: BTreeSet<u64> = tracks.filter_map(|it| last_of(&table.rows, it)).collect();
        let open = last.iter().filter_map(|number| table.rows.get(number));
        let open = open.filter(|row| !row.is_end());
        found.open = open.map(|row| Arc::clone(&row.logged)).collect();
        Ok((table, found))
    }

    /// The next event has this number or a later one.
    pub(crate) fn number_from(&mut self, first: u64) {
        self.next_number = self.next_number.max(first);
    }

    /// Gives events from now on to these webhooks, and keeps none for others.
    pub(crate) fn set_webhooks(&mut self, webhooks: BTreeMap<EventReceiver, OfferEvent>) {
        self.webhooks = webhooks;
        let (broker, webhooks) = (EventReceiver::broker(), &self.webhooks);
        for (number, row) in &mut self.rows {
            let before = row.waiting.len();
            row.waiting
                .retain(|one| *one == broker || webhooks.contains_key(one));
            if row.waiting.len() < before {
                self.unwritten.insert(*number);
            }
        }
        for track in self.tracks.keys().cloned().collect::<Vec<_>>() {
            self.remove_unneeded(&track);
        }
    }

    /// Without `is_sent`, no receiver gets the event.
    pub(crate) fn append(&mut self, event: LoggedEvent, is_sent: bool) -> Arc<LoggedEvent> {
        let number = self.next_number;
        let logged = Arc::new(LoggedEvent { number, ..event });
        self.next_number += 1;
        let mut waiting = BTreeSet::new();
        if is_sent {
            let accepted = self.webhooks.iter().filter(|(_, offer)| offer(&logged));
            waiting.extend(accepted.map(|(receiver, _)| receiver.clone()));
            waiting.insert(EventReceiver::broker());
        }
        self.insert(&logged, waiting, false);
        self.unwritten.insert(logged.number);
        self.remove_unneeded(&logged.track);
        logged
    }

    fn insert(
        &mut self,
        logged: &Arc<LoggedEvent>,
        waiting: BTreeSet<EventReceiver>,
        is_stored: bool,
    ) {
        let numbers = self.tracks.entry(logged.track.clone());
        numbers.or_default().insert(logged.number);
        let row = EventRow {
            logged: Arc::clone(logged),
            waiting,
            is_stored,
        };
        self.rows.insert(logged.number, row);
    }

    /// The receiver has these events, or dropped them.
    pub(crate) fn done(&mut self, receiver: &EventReceiver, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            let Some(row) = self.rows.get_mut(&number) else {
                continue;
            };
            if row.waiting.remove(receiver) {
                let track = row.logged.track.clone();
                self.unwritten.insert(number);
                self.remove_unneeded(&track);
            }
        }
    }

    /// Of an event that left the table, no picture is kept. While the disk fails, only the newest are.
    pub(crate) fn add_picture(&mut self, number: u64, jpeg: Arc<[u8]>) {
        if self.rows.contains_key(&number) {
            self.pictures.insert(number, jpeg);
        }
        while self.pictures.values().map(|jpeg| jpeg.len()).sum::<usize>() > PICTURES_MAX_BYTES {
            self.pictures.pop_first();
        }
    }

    /// A picture that the file does not have.
    pub(crate) fn unwritten_picture(&self, number: u64) -> Option<&Arc<[u8]>> {
        self.pictures.get(&number)
    }

    pub(crate) fn has_pictures(&self) -> bool {
        !self.pictures.is_empty()
    }

    pub(crate) fn has_changes(&self) -> bool {
        !self.unwritten.is_empty() || self.has_pictures()
    }

    /// What the file does not have. [`finish`](Self::finish) follows.
    pub(crate) fn take(&mut self) -> EventBatch {
        let unwritten = std::mem::take(&mut self.unwritten).into_iter();
        let rows = unwritten.map(|number| {
            let write = self.rows.get(&number).map(|row| RowWrite {
                waiting: names(&row.waiting),
                added: (!row.is_stored).then(|| Arc::clone(&row.logged)),
            });
            (number, write)
        });
        self.is_writing = true;
        EventBatch {
            rows: rows.collect(),
            pictures: std::mem::take(&mut self.pictures),
        }
    }

    /// The file has the batch, or nothing of it.
    pub(crate) fn finish(&mut self, batch: EventBatch, is_written: bool) {
        self.is_writing = false;
        for (number, write) in &batch.rows {
            let is_new = write.as_ref().is_some_and(|write| write.added.is_some());
            match (is_written, self.rows.get_mut(number)) {
                (true, Some(row)) => row.is_stored = true,
                (true, None) => {}
                // What came and went needs no write.
                (false, None) if is_new && !self.is_rewritten => {
                    self.unwritten.remove(number);
                }
                (false, _) => {
                    self.unwritten.insert(*number);
                }
            }
        }
        if !is_written {
            let newer = std::mem::take(&mut self.pictures);
            for (number, jpeg) in batch.pictures.into_iter().chain(newer) {
                self.add_picture(number, jpeg);
            }
        }
    }

    /// The file may be a new one.
    pub(crate) fn rewrite(&mut self) {
        self.is_rewritten = true;
        for (number, row) in &mut self.rows {
            row.is_stored = false;
            self.unwritten.insert(*number);
        }
    }

    fn remove_unneeded(&mut self, track: &TrackId) {
        let Some(numbers) = self.tracks.get_mut(track) else {
            return;
        };
        let row = |number: &u64| self.rows.get(number);
        let is_done = |number: &u64| row(number).is_none_or(|row| row.waiting.is_empty());
        let last = last_of(&self.rows, numbers);
        let is_last = |number: &u64| Some(*number) == last;
        let mut unneeded: Vec<u64> = numbers
            .extract_if(.., |number| !is_last(number) && is_done(number))
            .collect();
        let is_over = |last: &u64| is_done(last) && row(last).is_none_or(EventRow::is_end);
        if numbers.len() == 1 {
            unneeded.extend(numbers.extract_if(.., |number| is_last(number) && is_over(number)));
        }
        if numbers.is_empty() {
            self.tracks.remove(track);
        }
        for number in unneeded {
            let removed = self.rows.remove(&number);
            self.pictures.remove(&number);
            let is_new = removed.is_some_and(|row| !row.is_stored);
            match is_new && !self.is_writing && !self.is_rewritten {
                true => self.unwritten.remove(&number),
                false => self.unwritten.insert(number),
            };
        }
    }
}

/// The last event of the track with these numbers that reports the track.
fn last_of(rows: &BTreeMap<u64, EventRow>, numbers: &BTreeSet<u64>) -> Option<u64> {
    let reports_track = |row: &EventRow| row.logged.kind != EventKind::Crossing;
    let mut newest = numbers.iter().rev().copied();
    newest.find(|number| rows.get(number).is_some_and(reports_track))
}

impl fmt::Debug for EventTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventTable").field(&self.rows).finish()
    }
}

impl EventBatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.pictures.is_empty()
    }

    /// Blocks on the disk. After an error nothing of the batch is written.
    pub(crate) fn write(&self, connection: &mut Connection) -> rusqlite::Result<()> {
        let mut writes = self.rows.values().flatten();
        let is_durable = writes.any(|row| row.added.is_some() && !row.waiting.is_empty());
        let level = if is_durable { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", level)?;
        let transaction = connection.transaction()?;
        let written = self
            .write_rows(&transaction)
            .and_then(|()| transaction.commit());
        // As documents need it.
        connection.pragma_update(None, "synchronous", "FULL")?;
        written
    }

    fn write_rows(&self, transaction: &Transaction<'_>) -> rusqlite::Result<()> {
        for (number, row) in &self.rows {
            let key = *number as i64;
            match row {
                Some(RowWrite {
                    waiting,
                    added: Some(event),
                }) => {
                    let sql =
                        "INSERT OR REPLACE INTO event (number, waiting, body) VALUES (?1, ?2, ?3)";
                    transaction.execute(sql, params![key, waiting, event.json])?;
                }
                Some(RowWrite {
                    waiting,
                    added: None,
                }) => {
                    let sql = "UPDATE event SET waiting = ?2 WHERE number = ?1";
                    transaction.execute(sql, params![key, waiting])?;
                }
                None => {
                    transaction.execute("DELETE FROM event WHERE number = ?1", [key])?;
                    transaction.execute("DELETE FROM event_picture WHERE number = ?1", [key])?;
                }
            }
        }
        for (number, jpeg) in &self.pictures {
            let sql = "INSERT OR REPLACE INTO event_picture (number, jpeg) VALUES (?1, ?2)";
            transaction.execute(sql, params![*number as i64, &jpeg[..]])?;
        }
        Ok(())
    }
}

/// The picture of an event; `None`: it has none, or left the table.
pub(crate) fn picture(connection: &Connection, number: u64) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT jpeg FROM event_picture WHERE number = ?1";
    let row = connection.query_row(sql, [number as i64], |row| row.get(0));
    row.optional()
}

#[cfg(test)]
pub(crate) mod tests;
