//! The thread that writes: pictures to files, rows through the thread of the database.

use std::{collections::BTreeMap, io, sync::Arc};

use spotter_state::{Document, StateStore, StatementsError};

use crate::{
    deletion::{self, DeletedEvents, DeletedRow, HistorySelection, SELECTED_MAX},
    folder::{HistoryFolder, file_name},
    limits::{RemovalCandidate, StoredTotals},
    recorded::{
        EncodedPicture, EventWrite, HistoryShared, PictureRemoval, WriterParts, WriterTurn,
    },
};

/// How often what is too old is looked for.
const LOOK_EVERY_MS: i64 = 60_000;
/// After a failure, the next picture is tried after this time.
const RETRY_PICTURES_MS: i64 = 10_000;

pub(crate) struct HistoryWriter {
    store: StateStore,
    shared: Arc<HistoryShared>,
    parts: WriterParts,
    /// `None`: rows and files of the earlier run are not in order yet.
    folder: Option<HistoryFolder>,
    /// Files of pictures that better ones replace, once the rows say so.
    replaced: Vec<String>,
    last_look_ms: i64,
    /// Its log may have texts of deleted rows.
    has_uncut_log: bool,
    /// When pictures are tried again.
    pictures_from_ms: i64,
}

impl HistoryWriter {
    pub fn new(store: StateStore, shared: Arc<HistoryShared>, parts: WriterParts) -> Self {
        Self {
            store,
            shared,
            parts,
            folder: None,
            replaced: Vec::new(),
            last_look_ms: i64::MIN,
            has_uncut_log: false,
            pictures_from_ms: i64::MIN,
        }
    }

    pub fn run(mut self) {
        let mut is_failing = self.reported(|writer| writer.begin());
        loop {
            let WriterTurn {
                jpegs,
                deletions,
                removals,
                is_closing,
            } = self.shared.next_turn(is_failing);
            self.store_masks();
            is_failing = self.reported(|writer| {
                writer.remove_pictures(removals)?;
                writer.write(jpegs)
            });
            for deletion in deletions {
                let stopped = self.shared.lock().status.rows_stopped.clone();
                let deleted = match stopped {
                    None => self
                        .delete(&deletion.selection)
                        .map_err(|error| match error {
                            StatementsError::Read => format!("deleted, but {error}"),
                            error => format!("not deleted: {error}"),
                        }),
                    Some(why) => Err(format!("not deleted: {why}")),
                };
                // The one that asked may have left.
                _ = deletion.reply.send(deleted);
            }
            if is_closing {
                return;
            }
        }
    }

    /// The state has them before a row that is written next.
    fn store_masks(&self) {
        let masks = self.shared.lock().masks.text();
        self.store.put(Document::HistoryMasks, masks);
    }

    fn now_ms(&self) -> i64 {
        self.parts.clock.wall().unix_millis()
    }

    /// True: it failed. Logs the beginning and the end of a failure.
    fn reported(&mut self, write: impl FnOnce(&mut Self) -> Result<(), StatementsError>) -> bool {
        let error = write(self).err().map(|error| error.to_string());
        let mut state = self.shared.lock();
        let before = std::mem::replace(&mut state.status.rows_stopped, error.clone());
        drop(state);
        match (before, &error) {
            (None, Some(error)) => {
                tracing::error!(
                    error,
                    "events of the history wait in memory until the disk works"
                );
            }
            (Some(_), None) => tracing::info!("events of the history are written again"),
            _ => {}
        }
        error.is_some()
    }

    /// Ends events that a killed run left open, and removes what a row or a file lacks the other of.
    fn begin(&mut self) -> Result<(), StatementsError> {
        let (stored, totals) = self.store.execute(|transaction| {
            let end = "UPDATE history SET end_ms = last_seen_ms WHERE end_ms IS NULL";
            transaction.execute(end, [])?;
            Ok((stored_pictures(transaction)?, totals(transaction)?))
        })?;
        let folder = HistoryFolder::open(self.store.folder(), self.parts.free_min_bytes);
        let opened = folder.and_then(|folder| {
            let names = stored
                .iter()
                .map(|(name, (_, bytes))| (name.clone(), *bytes));
            let lost = folder.reconcile(names.collect())?;
            Ok((folder, lost))
        });
        let (folder, lost) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.pictures_failed(&error);
                self.shared.lock().status.totals = totals;
                return Ok(());
            }
        };
        self.folder = Some(folder);
        let lost: Vec<i64> = lost
            .iter()
            .filter_map(|name| Some(stored.get(name)?.0))
            .collect();
        let totals = self.store.execute(move |transaction| {
            let sql = "UPDATE history SET bytes = bytes - picture_bytes, picture_bytes = 0 WHERE number = ?1";
            for number in lost {
                transaction.execute(sql, [number])?;
            }
            self::totals(transaction)
        })?;
        self.shared.lock().status.totals = totals;
        Ok(())
    }

    /// In parts that fit beside what is stored.
    fn write(&mut self, jpegs: Vec<EncodedPicture>) -> Result<(), StatementsError> {
        let now_ms = self.now_ms();
        if self.folder.is_none() && now_ms >= self.pictures_from_ms {
            self.begin()?;
        }
        let part_bytes = self.parts.limits.size / 8;
        let mut left = jpegs.into_iter().peekable();
        loop {
            let (mut part, mut bytes) = (Vec::new(), self.shared.lock().unwritten_bytes());
            while let Some(picture) = left.next_if(|_| part.is_empty() || bytes < part_bytes) {
                bytes += picture.jpeg.len() as u64;
                part.push(picture);
            }
            let written = match self.make_room(bytes, now_ms) {
                Ok(()) => {
                    let part = std::mem::take(&mut part);
                    part.iter()
                        .for_each(|picture| self.write_picture(picture, now_ms));
                    self.write_rows()
                }
                Err(error) => Err(error),
            };
            if written.is_err() {
                let unwritten = part.into_iter().chain(left).collect();
                self.shared.lock().return_jpegs(unwritten);
                return written;
            }
            if left.peek().is_none() {
                return Ok(());
            }
        }
    }

    fn write_rows(&mut self) -> Result<(), StatementsError> {
        let writes = self.shared.lock().changed_events();
        let (there, writes) = self.store.execute(move |transaction| {
            let there = writes.iter().map(|write| write_event(transaction, write));
            Ok((there.collect::<rusqlite::Result<Vec<_>>>()?, writes))
        })?;
        let mut removed = std::mem::take(&mut self.replaced);
        let mut state = self.shared.lock();
        for (write, is_there) in writes.iter().zip(there) {
            if is_there {
                state.stored(write);
            } else {
                // Another process deleted it.
                state.forget(&write.row.id);
                removed.push(file_name(write.row.id.as_str(), write.row.picture));
            }
        }
        drop(state);
        self.remove_files(&removed);
        Ok(())
    }

    fn write_picture(&mut self, EncodedPicture { jpeg, seen }: &EncodedPicture, now_ms: i64) {
        let track = &seen.track;
        let Some(number) = self.shared.lock().picture_number(track) else {
            // The event was deleted meanwhile.
            return;
        };
        let name = |number| file_name(track.as_str(), number);
        let folder = self.folder.as_ref();
        let Some(folder) = folder.filter(|_| now_ms >= self.pictures_from_ms) else {
            return self.shared.lock().drop_picture(track);
        };
        match folder.write(&name(number + 1), jpeg) {
            Ok(()) => {
                if number > 0 {
                    self.replaced.push(name(number));
                }
                self.shared.lock().pictured(seen, jpeg.len());
                self.pictures_work();
            }
            Err(error) => {
                self.shared.lock().drop_picture(track);
                self.pictures_failed(&error);
            }
        }
    }

    fn pictures_work(&self) {
        if self.shared.lock().status.pictures_stopped.take().is_some() {
            tracing::info!("pictures of the history are written again");
        }
    }

    fn pictures_failed(&mut self, error: &io::Error) {
        let path = self.store.folder().join("history");
        let text = format!("cannot write to {}: {error}", path.display());
        self.pictures_from_ms = self.now_ms() + RETRY_PICTURES_MS;
        let before = self
            .shared
            .lock()
            .status
            .pictures_stopped
            .replace(text.clone());
        if before.is_none() {
            tracing::error!(
                error = text,
                "events are stored without pictures; the next one is tried in 10 s"
            );
        }
    }

    /// Removes what is too old once a minute, and the oldest where the new bytes do not fit.
    fn make_room(&mut self, incoming: u64, now_ms: i64) -> Result<(), StatementsError> {
        let limits = self.parts.limits.clone();
        loop {
            let known = self.shared.lock().status.totals;
            let is_due =
                now_ms.saturating_sub(self.last_look_ms).unsigned_abs() >= LOOK_EVERY_MS as u64;
            if !is_due && !limits.is_exceeded(known, incoming) {
                return Ok(());
            }
            let removed = self.store.execute({
                let limits = limits.clone();
                move |transaction| {
                    // Another process may have deleted some.
                    let totals = totals(transaction)?;
                    let oldest = oldest(transaction)?;
                    let removed = limits.removed(&oldest, totals, incoming, now_ms);
                    let removed = deletion::delete_rows(transaction, &removed)?;
                    Ok((removed, totals, self::totals(transaction)?))
                }
            });
            let (removed, found, totals) = removed?;
            self.shared.lock().status.totals = totals;
            self.last_look_ms = now_ms;
            // Another process deleted some, and may have left its texts in the log.
            self.has_uncut_log |= found.events < known.events;
            if is_due {
                _ = self.cut_log();
            }
            if removed.is_empty() {
                return Ok(());
            }
            self.forget(&removed);
        }
    }

    /// What was written before is deleted too.
    fn delete(&mut self, selection: &HistorySelection) -> Result<DeletedEvents, StatementsError> {
        let mut deleted = DeletedEvents::default();
        loop {
            let selection = selection.clone();
            let removed = self.store.execute(move |transaction| {
                let numbers = selection.numbers(transaction)?;
                let removed = deletion::delete_rows(transaction, &numbers)?;
                Ok((removed, totals(transaction)?))
            });
            let (removed, totals) = removed?;
            self.shared.lock().status.totals = totals;
            self.forget(&removed);
            deleted.add(&removed);
            if removed.len() < SELECTED_MAX {
                break;
            }
        }
        tracing::info!(events = deleted.events, "events of the history deleted");
        self.has_uncut_log = true;
        self.cut_log()?;
        Ok(deleted)
    }

    /// While another program reads, the look of each minute tries again.
    fn cut_log(&mut self) -> Result<(), StatementsError> {
        if self.has_uncut_log {
            self.store.remove_deleted()?;
            self.has_uncut_log = false;
        }
        Ok(())
    }

    /// Without a folder, none is written.
    fn remove_pictures(&self, removals: Vec<PictureRemoval>) -> Result<(), StatementsError> {
        let count = removals.len();
        for PictureRemoval { camera, areas } in &removals {
            loop {
                let id = camera.as_str().to_owned();
                let removed = self.store.execute(move |transaction| {
                    Ok((clear_pictures(transaction, &id)?, totals(transaction)?))
                });
                let (files, totals) = match removed {
                    Ok(removed) => removed,
                    Err(error) => {
                        self.shared.lock().return_removals(removals);
                        return Err(error);
                    }
                };
                self.remove_files(&files);
                self.shared.lock().status.totals = totals;
                if files.is_empty() {
                    break;
                }
            }
            // Of those, a file may be written and its row not.
            let open = self.shared.lock().unpictured(camera);
            let files = open
                .iter()
                .map(|(id, picture)| file_name(id.as_str(), *picture));
            self.remove_files(&files.collect::<Vec<_>>());
            self.shared.lock().masks.removed(camera, areas);
        }
        self.store_masks();
        self.shared.removed(count);
        Ok(())
    }

    fn forget(&self, removed: &[DeletedRow]) {
        let mut state = self.shared.lock();
        removed.iter().for_each(|row| state.forget(&row.id));
        drop(state);
        let files: Vec<String> = removed.iter().filter_map(DeletedRow::file).collect();
        self.remove_files(&files);
    }

    fn remove_files(&self, names: &[String]) {
        if let Some(folder) = &self.folder {
            names.iter().for_each(|name| folder.remove(name));
        }
    }
}

/// False: another process deleted it.
fn write_event(
    transaction: &rusqlite::Transaction<'_>,
    write: &EventWrite,
) -> rusqlite::Result<bool> {
    let is_there = !write.is_new || write.row.insert(transaction)?;
    if !is_there || !write.row.write(transaction)? {
        return Ok(false);
    }
    if !write.looks.is_empty() {
        write
            .row
            .write_looks(transaction, write.part, &write.looks)?;
    }
    Ok(true)
}

/// The numbers and bytes of the rows that have pictures, by the names of their files.
fn stored_pictures(
    connection: &rusqlite::Connection,
) -> rusqlite::Result<BTreeMap<String, (i64, u64)>> {
    let sql = "SELECT number, id, picture, picture_bytes FROM history WHERE picture_bytes > 0";
    let mut rows = connection.prepare(sql)?;
    let rows = rows.query_map([], |row| {
        let (id, picture): (String, i64) = (row.get(1)?, row.get(2)?);
        let bytes: i64 = row.get(3)?;
        Ok((file_name(&id, picture as u64), (row.get(0)?, bytes as u64)))
    })?;
    rows.collect()
}

/// The files of some of the camera's pictures, which its rows do not have any more.
fn clear_pictures(
    connection: &rusqlite::Connection,
    camera: &str,
) -> rusqlite::Result<Vec<String>> {
    let sql = "UPDATE history SET bytes = bytes - picture_bytes, picture_bytes = 0
        WHERE number IN (SELECT number FROM history WHERE camera = ?1 AND picture_bytes > 0 LIMIT 500) RETURNING id, picture";
    let mut rows = connection.prepare(sql)?;
    let rows = rows.query_map([camera], |row| {
        let (id, picture): (String, i64) = (row.get(0)?, row.get(1)?);
        Ok(file_name(&id, picture as u64))
    })?;
    rows.collect()
}

fn totals(connection: &rusqlite::Connection) -> rusqlite::Result<StoredTotals> {
    let sql = "SELECT count(*), coalesce(sum(bytes), 0), coalesce(sum(bytes) FILTER (WHERE mark IS NOT NULL), 0) FROM history";
    connection.query_row(sql, [], |row| {
        let [events, all, judged] = [row.get::<_, i64>(0)?, row.get(1)?, row.get(2)?];
        Ok(StoredTotals {
            events: events as u64,
            unjudged: (all - judged) as u64,
            judged: judged as u64,
        })
    })
}

/// The oldest of each kind.
fn oldest(connection: &rusqlite::Connection) -> rusqlite::Result<Vec<RemovalCandidate>> {
    let columns = "SELECT number, last_seen_ms, bytes, mark IS NOT NULL FROM history";
    let sql = format!(
        "SELECT * FROM ({columns} WHERE mark IS NULL ORDER BY start_ms LIMIT 256)
         UNION ALL SELECT * FROM ({columns} WHERE mark IS NOT NULL ORDER BY start_ms LIMIT 256)"
    );
    let mut rows = connection.prepare(&sql)?;
    let rows = rows.query_map([], |row| {
        Ok(RemovalCandidate {
            number: row.get(0)?,
            last_seen_ms: row.get(1)?,
            bytes: row.get::<_, i64>(2)? as u64,
            is_judged: row.get(3)?,
        })
    })?;
    rows.collect()
}
