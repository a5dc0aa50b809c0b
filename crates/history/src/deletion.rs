//! Deleting events, by the daemon or beside it.

use std::{fs, io, path::Path};

use rusqlite::{Connection, OptionalExtension as _, Transaction, named_params};
use serde::{Deserialize, Serialize};
use spotter_core::TrackId;
use spotter_state::{ExecutedBeside, StatementsError, execute_beside};

use crate::{
    folder::{file_name, picture_path},
    limits::{StoredKind, StoredTotals},
    records::{DELETED_MAX, DeletedTime, EventLooks},
    row::track_id,
};

/// What is deleted: all that is given must fit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistorySelection {
    #[serde(default)]
    pub id: Option<String>,
    /// With the events that the one with this `id` has as repeats.
    #[serde(default)]
    pub repeats: bool,
    #[serde(default)]
    pub camera: Option<String>,
    /// Events that began in this time, the end not included.
    #[serde(default)]
    pub from_ms: Option<i64>,
    #[serde(default)]
    pub to_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeletedEvents {
    /// Objects below `min_score` are none; their pictures count.
    pub events: u64,
    pub pictures: u64,
    pub bytes: u64,
}

/// What another process deleted.
#[derive(Debug, PartialEq, Eq)]
pub struct DeletedBeside {
    pub events: DeletedEvents,
    /// What of them is still on the disk, and why.
    pub left: Option<String>,
}

/// What a transaction deleted.
#[derive(Debug)]
pub(crate) struct DeletedPart {
    pub rows: Vec<DeletedRow>,
    /// Of recorded looks that no row had alone.
    pub look_bytes: u64,
}

/// A row that was deleted.
#[derive(Debug)]
pub(crate) struct DeletedRow {
    pub id: TrackId,
    picture: u64,
    has_picture: bool,
    pub bytes: u64,
    is_near: bool,
    is_judged: bool,
}

impl HistorySelection {
    /// One of nothing would delete all.
    pub fn check(&self) -> Result<(), &'static str> {
        let names = [&self.id, &self.camera];
        let mut given = names.iter().copied().flatten();
        if given.any(String::is_empty) {
            return Err("the id or the camera is empty; leave it out, or name one");
        }
        let times = [self.from_ms, self.to_ms];
        if names == [&None; 2] && times == [None; 2] {
            return Err("name an id, a camera, or the begin or end of a time");
        }
        match times {
            [Some(from_ms), Some(to_ms)] if from_ms >= to_ms => {
                Err("the time ends before it begins, or is empty; its end must be later")
            }
            _ => Ok(()),
        }
    }

    /// Deletes at most [`DELETED_MAX`] rows with the recorded looks of their time, and as many records of the time of the selection. The first call
    /// keeps out all that waits of that time; further ones go on until nothing is left.
    pub(crate) fn delete_some(
        &self,
        transaction: &Transaction<'_>,
        now_ms: i64,
    ) -> rusqlite::Result<DeletedPart> {
        let time = self.time(now_ms);
        // Before its events, whose own times it covers.
        if let Some(time) = &time {
            time.keep_out(transaction, now_ms)?;
        }
        let numbers = self.numbers(transaction)?;
        let rows = delete_rows(transaction, &numbers, SharedLooks::Delete { now_ms })?;
        let look_bytes = time.map_or(Ok(0), |time| time.delete_some(transaction))?;
        Ok(DeletedPart { rows, look_bytes })
    }

    /// The past part of its time. `None`: all of it is in the future, of which no look is known, or its events say which time is deleted.
    fn time(&self, now_ms: i64) -> Option<DeletedTime> {
        let from_ms = self.from_ms.unwrap_or(i64::MIN);
        let until_ms = self
            .to_ms
            .map_or(now_ms, |to_ms| now_ms.min(to_ms.saturating_sub(1)));
        let is_past = self.id.is_none() && from_ms <= until_ms;
        is_past.then(|| DeletedTime {
            camera: self.camera.clone(),
            prompt: None,
            from_ms,
            until_ms,
        })
    }

    fn numbers(&self, connection: &Connection) -> rusqlite::Result<Vec<i64>> {
        let sql = "SELECT number FROM history WHERE (:id IS NULL OR id = :id OR :repeats AND place = (SELECT place FROM history WHERE id = :id))
            AND (:camera IS NULL OR camera = :camera) AND (:from IS NULL OR start_ms >= :from) AND (:to IS NULL OR start_ms < :to)
            ORDER BY id = :id, number LIMIT :limit";
        let mut rows = connection.prepare(sql)?;
        let key = named_params! {
            ":id": self.id, ":repeats": self.repeats, ":camera": self.camera, ":from": self.from_ms, ":to": self.to_ms,
            ":limit": DELETED_MAX as i64,
        };
        rows.query_map(key, |row| row.get(0))?.collect()
    }
}

impl DeletedPart {
    /// Nothing of the selection was left.
    pub fn is_empty(&self) -> bool {
        // Each record has some.
        self.rows.is_empty() && self.look_bytes == 0
    }
}

impl DeletedRow {
    pub fn subtract_from(&self, totals: &mut StoredTotals) {
        totals.events = totals.events.saturating_sub(u64::from(!self.is_near));
        totals.subtract(self.bytes, StoredKind::new(self.is_near, self.is_judged));
    }

    /// The name of its picture.
    pub fn file(&self) -> Option<String> {
        self.has_picture
            .then(|| file_name(self.id.as_str(), self.picture))
    }
}

impl DeletedEvents {
    pub(crate) fn add(&mut self, DeletedPart { rows, look_bytes }: &DeletedPart) {
        self.events += rows.iter().filter(|row| !row.is_near).count() as u64;
        self.pictures += rows.iter().filter(|row| row.has_picture).count() as u64;
        self.bytes += rows.iter().map(|row| row.bytes).sum::<u64>() + look_bytes;
    }
}

/// What is deleted of the recorded looks that other events have too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SharedLooks {
    /// Nothing: limits remove the event.
    Keep,
    /// All of its prompt from its time: a person deletes the event, and nothing may be left of it.
    Delete { now_ms: i64 },
}

/// Returns those that were there. Recorded looks that no other event has are deleted with them.
pub(crate) fn delete_rows(
    transaction: &Transaction<'_>,
    numbers: &[i64],
    shared: SharedLooks,
) -> rusqlite::Result<Vec<DeletedRow>> {
    let mut looks = transaction.prepare("DELETE FROM history_looks WHERE number = ?1")?;
    let sql = "DELETE FROM history WHERE number = ?1
        RETURNING id, picture, picture_bytes > 0, bytes, mark IS NOT NULL, camera, prompt, record_ms, near, start_ms, last_seen_ms";
    let mut rows = transaction.prepare(sql)?;
    let mut deleted = Vec::new();
    for number in numbers {
        looks.execute([number])?;
        let row = rows.query_row([number], |row| {
            let looks = EventLooks {
                camera: row.get(5)?,
                prompt: row.get(6)?,
                record_ms: row.get(7)?,
                start_ms: row.get(9)?,
                last_seen_ms: row.get(10)?,
            };
            let row = DeletedRow {
                id: track_id(row, 0)?,
                picture: row.get::<_, i64>(1)? as u64,
                has_picture: row.get(2)?,
                bytes: row.get::<_, i64>(3)? as u64,
                is_judged: row.get(4)?,
                is_near: row.get(8)?,
            };
            Ok((row, looks))
        });
        if let Some((mut row, looks)) = row.optional()? {
            row.bytes += match shared {
                SharedLooks::Keep => looks.delete_unused(transaction)?,
                SharedLooks::Delete { now_ms } => looks.delete_all(transaction, now_ms)?,
            };
            deleted.push(row);
        }
    }
    Ok(deleted)
}

/// Deletes events of the history in `state_dir` from another process, also while a daemon writes it: that writes no event again whose row is
/// gone. `None`: there is no history.
pub fn delete_beside(
    state_dir: &Path,
    selection: &HistorySelection,
    now_ms: i64,
) -> Result<Option<DeletedBeside>, StatementsError> {
    let mut events = DeletedEvents::default();
    let mut left = None;
    loop {
        let removed = execute_beside(state_dir, |transaction| {
            selection.delete_some(transaction, now_ms)
        })?;
        let Some(ExecutedBeside { value, is_log_cut }) = removed else {
            return Ok(None);
        };
        events.add(&value);
        let pictured = value.rows.iter().filter(|row| row.has_picture);
        let paths = pictured.map(|row| picture_path(state_dir, row.id.as_str(), row.picture));
        for path in paths {
            if let Err(error) = fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                events.pictures -= 1;
                left = Some(format!("cannot remove {}: {error}", path.display()));
            }
        }
        // None left: the daemon may have replaced the file between the commit of the last one and now.
        if value.is_empty() {
            let log = (!is_log_cut)
                .then(|| format!("{}; run the command again then", StatementsError::Read));
            let left = left.or(log);
            return Ok(Some(DeletedBeside { events, left }));
        }
    }
}
