//! The thread that writes: pictures to files, rows through the thread of the database.

use std::{collections::BTreeMap, io, sync::Arc};

use rusqlite::OptionalExtension as _;
use spotter_core::{CameraId, LogThrottle, PromptId, TrackId};
use spotter_state::{Document, StateStore, StatementsError};

use crate::{
    deletion::{self, DeletedEvents, DeletedRow, HistorySelection, SharedLooks},
    folder::{HistoryFolder, file_name},
    limits::{RemovalCandidate, StoredKind, StoredTotals},
    marks::{JudgingChange, JudgingError, count_after},
    near::NearPrompt,
    recorded::{
        EncodedPicture, EventWrite, HistoryShared, PictureRemoval, WithdrawnEvent, WriterParts,
        WriterTurn,
    },
    records::{RecordWrite, forget_deleted, record_bytes, write_records},
    time_zone::{day, day_start},
};

/// How often what is too old is looked for.
const TIDY_EVERY_MS: i64 = 60_000;
/// After a failure, the next picture is tried after this time.
const RETRY_PICTURES_MS: i64 = 10_000;

pub(crate) struct HistoryWriter {
    store: StateStore,
    shared: Arc<HistoryShared>,
    parts: WriterParts,
    /// `None`: rows and files of the earlier run are not in order yet.
    folder: Option<HistoryFolder>,
    has_ended_former: bool,
    /// Files of deleted pictures that could not be removed.
    left: Vec<String>,
    /// Files of pictures that better ones replace, once the rows say so.
    replaced: Vec<String>,
    /// Not on the disk yet.
    records: Arc<[RecordWrite]>,
    last_tidy_ms: i64,
    /// Its log may have texts of deleted rows.
    has_uncut_log: bool,
    /// When pictures are tried again.
    pictures_from_ms: i64,
    /// As many as the log has.
    records_dropped: u64,
    records_log: LogThrottle<()>,
}

impl Drop for HistoryWriter {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl HistoryWriter {
    pub fn new(store: StateStore, shared: Arc<HistoryShared>, parts: WriterParts) -> Self {
        Self {
            store,
            shared,
            parts,
            folder: None,
            has_ended_former: false,
            left: Vec::new(),
            replaced: Vec::new(),
            records: Arc::default(),
            last_tidy_ms: i64::MIN,
            has_uncut_log: false,
            pictures_from_ms: i64::MIN,
            records_dropped: 0,
            records_log: LogThrottle::default(),
        }
    }

    pub fn run(mut self) {
        let mut is_failing = self.reported(|writer| writer.begin().map(|()| true));
        loop {
            let WriterTurn {
                jpegs,
                deletions,
                judging,
                removals,
                is_closing,
            } = self.shared.next_turn(is_failing);
            self.store_masks();
            self.log_dropped_records();
            is_failing = self.reported(|writer| writer.turn(removals, jpegs));
            for queued in judging {
                // The one that asked may have left.
                _ = queued.reply.send(self.judge(queued.change));
            }
            for deletion in deletions {
                let stopped = self.shared.lock().status.rows_stopped.clone();
                let deleted = match stopped {
                    None => self.delete(&deletion.selection),
                    Some(why) => Err(format!("not deleted: {why}")),
                };
                // The one that asked may have left.
                _ = deletion.reply.send(deleted);
            }
            let mut state = self.shared.lock();
            state.status.pictures_left = (self.left.len() + state.left()) as u64;
            drop(state);
            if is_closing {
                return;
            }
        }
    }

    fn log_dropped_records(&mut self) {
        let dropped = self.shared.lock().status.records_dropped;
        let records = dropped - self.records_dropped;
        if records > 0 && self.records_log.admit((), self.parts.clock.now()).is_some() {
            self.records_dropped = dropped;
            tracing::warn!(
                records,
                "recorded looks discarded: those that wait for an event or for the disk fill 16 MiB"
            );
        }
    }

    /// False: files of pictures cannot be removed.
    fn turn(
        &mut self,
        removals: Vec<PictureRemoval>,
        jpegs: Vec<EncodedPicture>,
    ) -> Result<bool, StatementsError> {
        let removed = match self.begin() {
            Ok(()) => self.remove_pictures(removals),
            Err(error) => {
                self.shared.lock().return_removals(removals);
                Err(error)
            }
        };
        match removed {
            Ok(is_removed) => {
                self.write(jpegs)?;
                self.withdraw().map(|()| is_removed)
            }
            Err(error) => {
                self.shared.lock().return_jpegs(jpegs);
                Err(error)
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

    /// True: it failed. Logs the beginning and the end of a failure of the database.
    fn reported(&mut self, write: impl FnOnce(&mut Self) -> Result<bool, StatementsError>) -> bool {
        let (is_done, error) = match write(self) {
            Ok(is_done) => (is_done, None),
            Err(error) => (false, Some(error.to_string())),
        };
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
        !is_done
    }

    /// Until all of it is done: ends events that a killed run left open, and opens the folder.
    fn begin(&mut self) -> Result<(), StatementsError> {
        if !self.has_ended_former {
            let now_ms = self.now_ms();
            let (totals, near) = self.store.execute(move |transaction| {
                let end = "UPDATE history SET end_ms = last_seen_ms WHERE end_ms IS NULL";
                transaction.execute(end, [])?;
                Ok((
                    totals(transaction)?,
                    stored_near(transaction, day_start(now_ms))?,
                ))
            })?;
            let mut state = self.shared.lock();
            state.status.totals = totals;
            state.near.begin(day(now_ms), near);
            drop(state);
            self.has_ended_former = true;
        }
        if self.folder.is_none() && self.now_ms() >= self.pictures_from_ms {
            self.open_folder()?;
        }
        Ok(())
    }

    /// Removes what a row or a file lacks the other of. No row of this run has a picture.
    fn open_folder(&mut self) -> Result<(), StatementsError> {
        let stored = self.store.execute(|it| stored_pictures(it))?;
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
                return Ok(());
            }
        };
        let lost: Vec<i64> = lost
            .iter()
            .filter_map(|name| Some(stored.get(name)?.0))
            .collect();
        let totals = self.store.execute(move |transaction| {
            let sql = "UPDATE history SET bytes = bytes - picture_bytes, picture_bytes = 0 WHERE number = ?1";
            for number in lost {
                transaction.execute(sql, [number])?;
            }
            totals(transaction)
        })?;
        self.folder = Some(folder);
        self.shared.lock().status.totals = totals;
        Ok(())
    }

    /// In parts that fit beside what is stored.
    fn write(&mut self, jpegs: Vec<EncodedPicture>) -> Result<(), StatementsError> {
        let now_ms = self.now_ms();
        if self.records.is_empty() {
            let ready = self.shared.lock().records.take_ready();
            self.records = ready.iter().map(RecordWrite::new).collect();
        }
        let part_bytes = self.parts.limits.size / 8;
        let mut left = jpegs.into_iter().peekable();
        loop {
            let of_records: u64 = self.records.iter().map(RecordWrite::bytes).sum();
            let mut bytes = self.shared.lock().unwritten_bytes() + of_records;
            let mut part = Vec::new();
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
        let (writes, records) = (
            self.shared.lock().changed_events(),
            Arc::clone(&self.records),
        );
        let (there, of_records, writes) = self.store.execute(move |transaction| {
            let there = writes.iter().map(|write| write_event(transaction, write));
            let there = there.collect::<rusqlite::Result<Vec<_>>>()?;
            Ok((there, write_records(transaction, &records)?, writes))
        })?;
        self.records = Arc::default();
        let mut removed = std::mem::take(&mut self.replaced);
        let mut state = self.shared.lock();
        let alarms = &mut state.status.totals.alarms;
        *alarms = alarms.saturating_add_signed(of_records);
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
        self.remove_files(removed);
        Ok(())
    }

    fn write_picture(&mut self, picture: &EncodedPicture, now_ms: i64) {
        let EncodedPicture { jpeg, seen, .. } = picture;
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
        let since_tidy_ms = now_ms.saturating_sub(self.last_tidy_ms);
        if since_tidy_ms.unsigned_abs() >= TIDY_EVERY_MS as u64 {
            self.tidy(now_ms)?;
        }
        loop {
            let totals = self.shared.lock().status.totals;
            if !self.parts.limits.is_exceeded(totals, incoming)
                || !self.remove_oldest(incoming, now_ms)?
            {
                return Ok(());
            }
        }
    }

    /// Removes events below `min_score` whose objects have an alarm now; those that were judged stay.
    fn withdraw(&mut self) -> Result<(), StatementsError> {
        let withdrawn = self.shared.lock().take_withdrawn();
        if withdrawn.is_empty() {
            return Ok(());
        }
        let removed = self.store.execute({
            let withdrawn = withdrawn.clone();
            move |transaction| {
                let numbers = unjudged(transaction, &withdrawn)?;
                deletion::delete_rows(transaction, &numbers, SharedLooks::Keep)
            }
        });
        let mut state = self.shared.lock();
        let removed = match removed {
            Ok(removed) => removed,
            Err(error) => {
                state.return_withdrawn(withdrawn);
                return Err(error);
            }
        };
        for row in &removed {
            row.subtract_from(&mut state.status.totals);
            let mut withdrawn = withdrawn.iter();
            if let Some(event) = withdrawn.find(|event| event.track == row.id) {
                state.withdrew(event);
            }
        }
        drop(state);
        self.forget(&removed);
        Ok(())
    }

    /// Removes what is too old, and tries again what could not be removed.
    fn tidy(&mut self, now_ms: i64) -> Result<(), StatementsError> {
        let found = self.store.execute(move |transaction| {
            forget_deleted(transaction, now_ms)?;
            totals(transaction)
        })?;
        let mut state = self.shared.lock();
        let known = std::mem::replace(&mut state.status.totals, found);
        drop(state);
        // Another process deleted some, and may have left its texts in the log.
        self.has_uncut_log |= found.events < known.events;
        // Another program still reads: the next minute tries again.
        _ = self.cut_log();
        let left = std::mem::take(&mut self.left);
        self.remove_files(left);
        while self.remove_oldest(0, now_ms)? {}
        self.last_tidy_ms = now_ms;
        Ok(())
    }

    /// False: none is too old or too much. Its totals are those in memory, because a scan takes long.
    fn remove_oldest(&mut self, incoming: u64, now_ms: i64) -> Result<bool, StatementsError> {
        let limits = self.parts.limits.clone();
        let totals = self.shared.lock().status.totals;
        let removed = self.store.execute(move |transaction| {
            // What is removed of objects below `min_score` is room for alarms.
            let mut oldest = oldest(transaction, StoredKind::Near)?;
            oldest.extend(self::oldest(transaction, StoredKind::Alarm)?);
            if totals.judged > limits.judged {
                oldest.extend(self::oldest(transaction, StoredKind::Judged)?);
            }
            let removed = limits.removed(&oldest, totals, incoming, now_ms);
            count_after(transaction, &removed)?;
            deletion::delete_rows(transaction, &removed, SharedLooks::Keep)
        })?;
        let mut state = self.shared.lock();
        let totals = &mut state.status.totals;
        removed.iter().for_each(|row| row.subtract_from(totals));
        drop(state);
        self.forget(&removed);
        Ok(!removed.is_empty())
    }

    /// What was written before is deleted too. An error says what is not deleted.
    fn delete(&mut self, selection: &HistorySelection) -> Result<DeletedEvents, String> {
        let (now_ms, mut deleted) = (self.now_ms(), DeletedEvents::default());
        let left_before = self.left.len();
        loop {
            let selection = selection.clone();
            let part = self
                .store
                .execute(move |it| selection.delete_some(it, now_ms));
            let part = part.map_err(|error| format!("not deleted: {error}"))?;
            let removed = &part.rows;
            let mut state = self.shared.lock();
            let totals = &mut state.status.totals;
            removed.iter().for_each(|row| row.subtract_from(totals));
            totals.subtract(part.look_bytes, StoredKind::Alarm);
            drop(state);
            self.forget(removed);
            deleted.add(&part);
            if part.is_empty() {
                break;
            }
        }
        tracing::info!(events = deleted.events, "events of the history deleted");
        self.has_uncut_log = true;
        self.cut_log()
            .map_err(|error| format!("deleted, but {error}"))?;
        match self.left.len() - left_before {
            0 => Ok(deleted),
            left => Err(format!(
                "deleted, but {left} of its pictures cannot be removed from {}; the log says why, and Spotter tries again each minute",
                self.store.folder().join("history").display()
            )),
        }
    }

    /// The events that it is about are written. Each minute, `tidy` corrects the totals by recorded looks.
    fn judge(&self, change: JudgingChange) -> Result<usize, JudgingError> {
        if let Some(why) = self.shared.lock().status.rows_stopped.clone() {
            return Err(JudgingError::NotStored(why));
        }
        let now_ms = self.now_ms();
        let judged = self.store.execute(move |transaction| {
            let before = match &change {
                JudgingChange::Mark(order) => stored_row(transaction, &order.event)?,
                JudgingChange::Draw(..) | JudgingChange::Promise(..) => None,
            };
            let changed = change.execute(transaction, now_ms)?;
            Ok((changed, before, change))
        });
        let (changed, before, change) =
            judged.map_err(|error| JudgingError::NotStored(error.to_string()))?;
        if let (JudgingChange::Mark(order), Some(row), true) = (change, before, changed.is_ok()) {
            let is_judged = order.mark.verdict.is_some();
            let mut state = self.shared.lock();
            let totals = &mut state.status.totals;
            totals.subtract(row.bytes, StoredKind::new(row.is_near, row.is_judged));
            totals.add(row.bytes, StoredKind::new(row.is_near, is_judged));
            state.marked(&order.event, is_judged);
        }
        changed
    }

    /// While another program reads, `tidy` tries again each minute.
    fn cut_log(&mut self) -> Result<(), StatementsError> {
        if self.has_uncut_log {
            self.store.remove_deleted()?;
            self.has_uncut_log = false;
        }
        Ok(())
    }

    /// Without a folder, none is written. False: files of pictures cannot be removed.
    fn remove_pictures(&self, removals: Vec<PictureRemoval>) -> Result<bool, StatementsError> {
        let mut removals = removals.into_iter();
        let mut left = Vec::new();
        while let Some(mut removal) = removals.next() {
            let removed = self.clear_camera(&removal);
            if let Ok(files) = &removed {
                removal.left = self.unremoved(files);
            }
            if removed.is_ok() && removal.left.is_empty() {
                let mut state = self.shared.lock();
                state.masks.removed(&removal.camera, &removal.areas);
                drop(state);
                self.store_masks();
                self.shared.removed(&removal.camera);
            } else {
                left.push(removal);
            }
            if let Err(error) = removed {
                left.extend(removals);
                self.shared.lock().return_removals(left);
                return Err(error);
            }
        }
        let is_done = left.is_empty();
        self.shared.lock().return_removals(left);
        Ok(is_done)
    }

    /// The files that have the pictures of the camera, which no row has any more.
    fn clear_camera(&self, removal: &PictureRemoval) -> Result<Vec<String>, StatementsError> {
        let mut files = removal.left.clone();
        loop {
            let id = removal.camera.as_str().to_owned();
            let cleared = self.store.execute(move |it| clear_pictures(it, &id))?;
            if cleared.is_empty() {
                break;
            }
            let mut state = self.shared.lock();
            for picture in cleared {
                let totals = &mut state.status.totals;
                totals.subtract(picture.bytes, picture.kind);
                files.push(picture.file);
            }
        }
        // Of those, a file may be written and its row not.
        let open = self.shared.lock().unpictured(&removal.camera);
        let open = open
            .iter()
            .map(|(id, picture)| file_name(id.as_str(), *picture));
        files.extend(open);
        Ok(files)
    }

    fn forget(&mut self, removed: &[DeletedRow]) {
        let mut state = self.shared.lock();
        removed.iter().for_each(|row| state.forget(&row.id));
        drop(state);
        self.remove_files(removed.iter().filter_map(DeletedRow::file).collect());
    }

    /// Each minute, `tidy` tries again what cannot be removed.
    fn remove_files(&mut self, names: Vec<String>) {
        let left = self.unremoved(&names);
        self.left.extend(left);
    }

    /// Removes files and returns those that cannot be removed.
    fn unremoved(&self, names: &[String]) -> Vec<String> {
        let is_left = |name: &&String| {
            let folder = self.folder.as_ref();
            folder.is_none_or(|folder| !folder.remove(name))
        };
        names.iter().filter(is_left).cloned().collect()
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

/// How many objects below `min_score` each prompt has since this time.
fn stored_near(
    connection: &rusqlite::Connection,
    from_ms: i64,
) -> rusqlite::Result<Vec<(NearPrompt, u32)>> {
    let sql = "SELECT camera, prompt, count(*) FROM history WHERE near = 1 AND start_ms >= ?1 GROUP BY camera, prompt";
    let mut rows = connection.prepare(sql)?;
    let rows = rows.query_map([from_ms], |row| {
        let (camera, prompt): (String, String) = (row.get(0)?, row.get(1)?);
        let key = CameraId::new(&camera).ok().zip(PromptId::new(&prompt).ok());
        Ok((key, row.get(2)?))
    })?;
    let rows = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let known = |(key, count): (Option<NearPrompt>, u32)| Some((key?, count));
    Ok(rows.into_iter().filter_map(known).collect())
}

/// The numbers of these rows, as far as they have no mark.
fn unjudged(
    connection: &rusqlite::Connection,
    withdrawn: &[WithdrawnEvent],
) -> rusqlite::Result<Vec<i64>> {
    let sql = "SELECT number FROM history WHERE id = ?1 AND mark IS NULL";
    let mut found = connection.prepare(sql)?;
    let number = |event: &WithdrawnEvent| {
        let id = event.track.as_str();
        found.query_row([id], |row| row.get(0)).optional()
    };
    let numbers: rusqlite::Result<Vec<_>> = withdrawn.iter().map(number).collect();
    Ok(numbers?.into_iter().flatten().collect())
}

/// The bytes of a row with its picture, and what decides about its kind.
struct StoredRow {
    is_near: bool,
    is_judged: bool,
    bytes: u64,
}

fn stored_row(
    connection: &rusqlite::Connection,
    event: &TrackId,
) -> rusqlite::Result<Option<StoredRow>> {
    let sql = "SELECT near, mark IS NOT NULL, bytes FROM history WHERE id = ?1";
    let row = connection.query_row(sql, [event.as_str()], |row| {
        Ok(StoredRow {
            is_near: row.get(0)?,
            is_judged: row.get(1)?,
            bytes: row.get::<_, i64>(2)? as u64,
        })
    });
    row.optional()
}

/// A picture that its row does not have any more.
struct ClearedPicture {
    number: i64,
    file: String,
    bytes: u64,
    kind: StoredKind,
}

/// Some of the camera's.
fn clear_pictures(
    connection: &rusqlite::Connection,
    camera: &str,
) -> rusqlite::Result<Vec<ClearedPicture>> {
    let sql = "SELECT number, id, picture, picture_bytes, near, mark IS NOT NULL FROM history WHERE camera = ?1 AND picture_bytes > 0 LIMIT 500";
    let mut rows = connection.prepare(sql)?;
    let rows = rows.query_map([camera], |row| {
        let (id, picture): (String, i64) = (row.get(1)?, row.get(2)?);
        Ok(ClearedPicture {
            number: row.get(0)?,
            file: file_name(&id, picture as u64),
            bytes: row.get::<_, i64>(3)? as u64,
            kind: StoredKind::new(row.get(4)?, row.get(5)?),
        })
    })?;
    let cleared = rows.collect::<rusqlite::Result<Vec<_>>>()?;
    let sql =
        "UPDATE history SET bytes = bytes - picture_bytes, picture_bytes = 0 WHERE number = ?1";
    let mut clear = connection.prepare(sql)?;
    for picture in &cleared {
        clear.execute([picture.number])?;
    }
    Ok(cleared)
}

/// By a scan of the table.
pub(crate) fn totals(connection: &rusqlite::Connection) -> rusqlite::Result<StoredTotals> {
    let sql = "SELECT count(*) FILTER (WHERE near = 0), coalesce(sum(bytes) FILTER (WHERE mark IS NULL AND near = 1), 0),
        coalesce(sum(bytes) FILTER (WHERE mark IS NULL AND near = 0), 0), coalesce(sum(bytes) FILTER (WHERE mark IS NOT NULL), 0) FROM history";
    let (records, judged_records) = record_bytes(connection)?;
    connection.query_row(sql, [], |row| {
        let column = |index| row.get::<_, i64>(index).map(|number| number as u64);
        Ok(StoredTotals {
            events: column(0)?,
            near: column(1)?,
            alarms: column(2)? + records.saturating_sub(judged_records),
            judged: column(3)? + judged_records,
        })
    })
}

/// The oldest of a kind. The last event of a record has its bytes.
fn oldest(
    connection: &rusqlite::Connection,
    kind: StoredKind,
) -> rusqlite::Result<Vec<RemovalCandidate>> {
    // Each has an index.
    let condition = match kind {
        StoredKind::Near => "mark IS NULL AND near = 1",
        StoredKind::Alarm => "mark IS NULL AND near = 0",
        StoredKind::Judged => "mark IS NOT NULL",
    };
    let sql = format!(
        "SELECT e.number, e.last_seen_ms, e.bytes + coalesce(
            (SELECT sum(bytes) FROM history_records r WHERE r.camera = e.camera AND r.prompt = e.prompt AND r.record_ms = e.record_ms
             AND NOT EXISTS (SELECT 1 FROM history n WHERE n.camera = e.camera AND n.prompt = e.prompt AND n.record_ms = e.record_ms
                 AND (n.start_ms, n.number) > (e.start_ms, e.number))), 0)
        FROM history e WHERE {condition} ORDER BY start_ms LIMIT 256"
    );
    let mut rows = connection.prepare(&sql)?;
    let rows = rows.query_map([], |row| {
        Ok(RemovalCandidate {
            number: row.get(0)?,
            last_seen_ms: row.get(1)?,
            bytes: row.get::<_, i64>(2)? as u64,
            kind,
        })
    })?;
    rows.collect()
}
