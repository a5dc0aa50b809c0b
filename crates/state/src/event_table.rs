//! The table of events: each is in it as long as a receiver waits for it.
//!
//! A row names the receivers that wait for its event. It also stays while its event is the last one of a track that has not ended, because the
//! next run ends that track; and the end of a track stays while an older event of the track does, which would be its last one otherwise. What
//! was appended survives `kill -9` when [`EventTable::write`] returns, and a power failure if a receiver waits for it then: an event that all
//! receivers have is not synced.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde::{Deserialize, Serialize};
use spotter_core::{Epoch, Event, EventStep, TrackId, WallTime, WebhookId};

/// Of events that all receivers have and that were never written, this number of the newest is kept: they show which tracks are open.
const DONE_KEPT: usize = 1024;
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

/// An event as it is stored, with what stays the same each time it is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoggedEvent {
    /// Orders the events of all runs.
    #[serde(skip)]
    pub number: u64,
    /// Length of its JSON.
    #[serde(skip)]
    pub bytes: u64,
    /// Id of its message.
    pub id: String,
    pub event: Event,
    /// Of a fleet's camera.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
}

impl LoggedEvent {
    /// The time until it is `max_age` old.
    pub fn time_left(&self, max_age: Duration, wall: WallTime) -> Duration {
        let at = self.event.ended.unwrap_or(self.event.last_seen);
        // The machine's clock may have been set back: then it is new.
        let age_ms = u64::try_from(wall.unix_millis() - at.unix_millis()).unwrap_or(0);
        max_age.saturating_sub(Duration::from_millis(age_ms))
    }
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
    /// The first event of this run has this number or a later one.
    pub next_number: u64,
}

impl FoundEvents {
    /// Those that the receiver waits for.
    pub fn waiting_for(&self, receiver: &EventReceiver) -> impl Iterator<Item = &FoundEvent> {
        let events = self.events.iter();
        events.filter(move |found| found.waiting.contains(receiver))
    }
}

/// A new event.
#[derive(Clone, Debug)]
pub(crate) struct Appended {
    pub(crate) logged: Arc<LoggedEvent>,
    /// Its JSON.
    pub(crate) body: String,
    pub(crate) waiting: BTreeSet<EventReceiver>,
}

/// Changes since the last write. While the disk fails, they are collected.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventChanges {
    pub(crate) appended: BTreeMap<u64, Appended>,
    /// Receivers that do not wait any more, by the number of an event that was appended before.
    pub(crate) done: BTreeMap<u64, BTreeSet<EventReceiver>>,
    /// Of events that were appended before.
    pub(crate) pictures: BTreeMap<u64, Arc<[u8]>>,
    /// No others wait for the events that were appended before.
    pub(crate) receivers: Option<BTreeSet<EventReceiver>>,
    /// Those of `appended` that all receivers have.
    pub(crate) delivered: BTreeSet<u64>,
}

impl EventChanges {
    pub(crate) fn is_empty(&self) -> bool {
        self.appended.is_empty()
            && self.done.is_empty()
            && self.pictures.is_empty()
            && self.receivers.is_none()
    }

    /// Adds later changes, and forgets what is too much while the disk fails: never an event that a receiver waits for.
    pub(crate) fn merge(&mut self, later: Self) {
        let changed = later.done.keys().chain(later.appended.keys());
        let mut changed: Vec<u64> = changed.copied().collect();
        if let Some(receivers) = &later.receivers {
            for (number, appended) in &mut self.appended {
                changed.push(*number);
                appended.waiting.retain(|one| receivers.contains(one));
            }
            self.receivers = later.receivers;
        }
        for (number, receivers) in later.done {
            match self.appended.get_mut(&number) {
                Some(appended) => appended.waiting.retain(|one| !receivers.contains(one)),
                None => self.done.entry(number).or_default().extend(receivers),
            }
        }
        self.appended.extend(later.appended);
        self.pictures.extend(later.pictures);
        while self.pictures.values().map(|jpeg| jpeg.len()).sum::<usize>() > PICTURES_MAX_BYTES {
            self.pictures.pop_first();
        }
        let is_delivered = |number: &u64| {
            let appended = self.appended.get(number);
            appended.is_some_and(|appended| appended.waiting.is_empty())
        };
        self.delivered
            .extend(changed.into_iter().filter(is_delivered));
        while self.delivered.len() > DONE_KEPT
            && let Some(number) = self.delivered.pop_first()
        {
            self.appended.remove(&number);
        }
    }
}

/// What is known of an event without reading it.
#[derive(Debug)]
struct EventRow {
    track: TrackId,
    is_end: bool,
    waiting: BTreeSet<EventReceiver>,
}

/// The table of one database. Its calls block on the disk.
#[derive(Debug, Default)]
pub(crate) struct EventTable {
    rows: BTreeMap<u64, EventRow>,
    /// Numbers of the rows of each track.
    tracks: HashMap<TrackId, BTreeSet<u64>>,
}

impl EventTable {
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
            let body = row.get_ref(2)?.as_bytes().unwrap_or_default();
            // SQLite has no checksums: a block that was not written has zeros in it.
            let event = serde_json::from_slice::<LoggedEvent>(body).ok();
            let (Some(event), Ok(key)) = (event, u64::try_from(number)) else {
                for receiver in waiting {
                    *found.unreadable.entry(receiver).or_default() += 1;
                }
                removed.push(number);
                continue;
            };
            let logged = Arc::new(LoggedEvent {
                number: key,
                bytes: body.len() as u64,
                ..event
            });
            table.insert(&logged, waiting.clone());
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
        let is_open = |found: &&FoundEvent| table.is_open(&found.logged);
        let open = found.events.iter().filter(is_open);
        found.open = open.map(|found| Arc::clone(&found.logged)).collect();
        let last = found.events.last();
        found.next_number = last.map_or(1, |found| found.logged.number + 1);
        Ok((table, found))
    }

    fn insert(&mut self, logged: &LoggedEvent, waiting: BTreeSet<EventReceiver>) {
        let track = logged.event.track.clone();
        let numbers = self.tracks.entry(track.clone()).or_default();
        numbers.insert(logged.number);
        let row = EventRow {
            track,
            is_end: matches!(logged.event.step, EventStep::End(_)),
            waiting,
        };
        self.rows.insert(logged.number, row);
    }

    /// It is the last one of a track that has not ended.
    fn is_open(&self, logged: &LoggedEvent) -> bool {
        let numbers = self.tracks.get(&logged.event.track);
        let is_last = numbers.is_some_and(|numbers| numbers.last() == Some(&logged.number));
        is_last && !matches!(logged.event.step, EventStep::End(_))
    }

    /// Writes changes and removes what is not needed any more. After an error none of them is written, and the table is to be opened again.
    pub(crate) fn write(
        &mut self,
        connection: &mut Connection,
        changes: &EventChanges,
    ) -> rusqlite::Result<()> {
        let mut changed = BTreeSet::new();
        if let Some(receivers) = &changes.receivers {
            for (number, row) in &mut self.rows {
                row.waiting.retain(|one| receivers.contains(one));
                changed.insert(*number);
            }
        }
        for (number, receivers) in &changes.done {
            if let Some(row) = self.rows.get_mut(number) {
                row.waiting.retain(|one| !receivers.contains(one));
                changed.insert(*number);
            }
        }
        for (number, appended) in &changes.appended {
            self.insert(&appended.logged, appended.waiting.clone());
            changed.insert(*number);
        }
        let unneeded = self.take_unneeded(&changed);
        let is_waited_for = |number: &u64| {
            let row = self.rows.get(number);
            row.is_some_and(|row| !row.waiting.is_empty())
        };
        let is_durable = changes.appended.keys().any(is_waited_for);
        let level = if is_durable { "FULL" } else { "NORMAL" };
        connection.pragma_update(None, "synchronous", level)?;
        let transaction = connection.transaction()?;
        let written = self
            .put(&transaction, changes, &changed)
            .and_then(|()| delete(&transaction, &unneeded))
            .and_then(|()| transaction.commit());
        // As documents need it.
        connection.pragma_update(None, "synchronous", "FULL")?;
        written
    }

    fn put(
        &self,
        transaction: &Transaction<'_>,
        changes: &EventChanges,
        changed: &BTreeSet<u64>,
    ) -> rusqlite::Result<()> {
        for number in changed {
            let Some(row) = self.rows.get(number) else {
                continue;
            };
            let (key, waiting) = (*number as i64, names(&row.waiting));
            match changes.appended.get(number) {
                Some(appended) => {
                    let sql =
                        "INSERT OR REPLACE INTO event (number, waiting, body) VALUES (?1, ?2, ?3)";
                    transaction.execute(sql, params![key, waiting, appended.body])?
                }
                None => {
                    let sql = "UPDATE event SET waiting = ?2 WHERE number = ?1";
                    transaction.execute(sql, params![key, waiting])?
                }
            };
        }
        for (number, jpeg) in &changes.pictures {
            if self.rows.contains_key(number) {
                let sql = "INSERT OR REPLACE INTO event_picture (number, jpeg) VALUES (?1, ?2)";
                transaction.execute(sql, params![*number as i64, &jpeg[..]])?;
            }
        }
        Ok(())
    }

    /// The numbers of events that are not needed any more, of the tracks of those that changed.
    fn take_unneeded(&mut self, changed: &BTreeSet<u64>) -> BTreeSet<u64> {
        let mut unneeded = BTreeSet::new();
        for number in changed {
            let Some(track) = self.rows.get(number).map(|row| row.track.clone()) else {
                continue; // It went with another one of its track.
            };
            let Some(numbers) = self.tracks.get_mut(&track) else {
                continue;
            };
            let is_done = |number: &u64| {
                let row = self.rows.get(number);
                row.is_some_and(|row| row.waiting.is_empty())
            };
            let last = numbers.last().copied();
            let older = numbers.iter().filter(|number| Some(**number) != last);
            let mut gone: BTreeSet<u64> = older.copied().filter(is_done).collect();
            if let Some(last) = last
                && gone.len() + 1 == numbers.len()
                && is_done(&last)
                && self.rows.get(&last).is_some_and(|row| row.is_end)
            {
                gone.insert(last);
                self.tracks.remove(&track);
            } else {
                numbers.retain(|number| !gone.contains(number));
            }
            for number in gone {
                self.rows.remove(&number);
                unneeded.insert(number);
            }
        }
        unneeded
    }
}

fn delete(transaction: &Transaction<'_>, numbers: &BTreeSet<u64>) -> rusqlite::Result<()> {
    for number in numbers {
        for sql in [
            "DELETE FROM event WHERE number = ?1",
            "DELETE FROM event_picture WHERE number = ?1",
        ] {
            transaction.execute(sql, [*number as i64])?;
        }
    }
    Ok(())
}

/// The picture of an event; `None`: it has none, or left the table.
pub(crate) fn picture(connection: &Connection, number: u64) -> rusqlite::Result<Option<Vec<u8>>> {
    let sql = "SELECT jpeg FROM event_picture WHERE number = ?1";
    let row = connection.query_row(sql, [number as i64], |row| row.get(0));
    row.optional()
}

#[cfg(test)]
pub(crate) mod tests;
