//! Recorded looks of prompts (`spotter_events::record`): the parts of records that wait, and the rows of `history_records`.
//!
//! A record is stored once an event began in it, until no event has it or a person deletes one of its events. Its looks are for replays with other rules, which need also what led to
//! no event; those of `history_looks` are what an event saw, also when the rules change later.

use std::{
    collections::HashMap,
    io::{self, Read as _},
    mem,
};

use flate2::{Compression, read::DeflateDecoder, read::DeflateEncoder};
use rusqlite::{Connection, Row, Transaction, named_params, params};
use spotter_core::{CameraId, PromptId, TrackId, WallTime};
use spotter_events::record::{CHUNK_MAX_BYTES, RecordChunk, StartedEvent};

/// Of parts that wait for an event or for the disk.
const WAITING_MAX_BYTES: usize = 16 << 20;
/// More than a record lasts, which is cut after six hours.
const LONGEST_MS: i64 = 24 * 3_600_000;
/// Of a row without the looks, with its entries in the indexes.
const ROW_BYTES: u64 = 300;
/// Events, and records, that a transaction deletes: its log stays short.
pub(crate) const DELETED_MAX: usize = 500;

/// Which records are read: those to which all fits that is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordFilter {
    pub camera: Option<CameraId>,
    /// Records of one of these.
    pub prompts: Option<Vec<PromptId>>,
    /// Records with looks after this time.
    pub since_ms: Option<i64>,
    /// Records in which one of these events began.
    pub events: Option<Vec<String>>,
}

/// Recorded looks of a prompt, whole or without their end.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    pub camera: String,
    pub prompt: String,
    pub record_ms: i64,
    /// The last look.
    pub until_ms: i64,
    /// The events that began, in their order, also those that were deleted. Times are whole milliseconds.
    pub started: Vec<StartedEvent>,
    /// For `spotter_events::replay`.
    pub chunks: Vec<Vec<u8>>,
    /// The record has no further parts.
    pub has_end: bool,
}

/// Names a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordKey {
    pub camera: String,
    pub prompt: String,
    pub record_ms: i64,
}

impl RecordKey {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            camera: row.get(0)?,
            prompt: row.get(1)?,
            record_ms: row.get(2)?,
        })
    }
}

/// Parts of records that wait in memory. Pure.
#[derive(Debug, Default)]
pub(crate) struct RecordQueue {
    open: HashMap<(CameraId, PromptId), WaitingRecord>,
    /// To be written, in this order.
    ready: Vec<RecordChunk>,
}

/// A record whose last part has not come.
#[derive(Debug)]
struct WaitingRecord {
    record: WallTime,
    has_event: bool,
    /// Its parts, while it has no event.
    waiting: Vec<RecordChunk>,
}

impl RecordQueue {
    /// Beyond the bound, the largest records without an event are discarded; if those with one fill it, the record of the part has no further
    /// ones. Returns how many records lost parts.
    pub fn push(&mut self, chunk: RecordChunk) -> u64 {
        let key = (chunk.camera.clone(), chunk.prompt.clone());
        if chunk.number == 0 {
            let open = WaitingRecord {
                record: chunk.record,
                has_event: false,
                waiting: Vec::new(),
            };
            self.open.insert(key.clone(), open);
        }
        let open = self.open.get_mut(&key);
        let Some(open) = open.filter(|open| open.record == chunk.record) else {
            return 0;
        };
        open.has_event |= !chunk.started.is_empty();
        let discarded = self.make_room(chunk.bytes.len());
        if self.bytes() + chunk.bytes.len() > WAITING_MAX_BYTES {
            let lost = self.open.remove(&key);
            return discarded + u64::from(lost.is_some());
        }
        // Its own record may be one of those.
        let Some(open) = self.open.get_mut(&key) else {
            return discarded;
        };
        let is_last = chunk.is_last;
        open.waiting.push(chunk);
        if open.has_event {
            self.ready.append(&mut open.waiting);
        }
        if is_last {
            self.open.remove(&key);
        }
        discarded
    }

    /// Discards records without an event until so many bytes fit, or none is left. Returns how many.
    fn make_room(&mut self, incoming: usize) -> u64 {
        let mut discarded = 0;
        while self.bytes() + incoming > WAITING_MAX_BYTES {
            let waiting = self.open.iter().filter(|(_, open)| !open.has_event);
            let largest = waiting.max_by_key(|(_, open)| bytes(&open.waiting));
            let Some(key) = largest.map(|(key, _)| key.clone()) else {
                break;
            };
            self.open.remove(&key);
            discarded += 1;
        }
        discarded
    }

    fn bytes(&self) -> usize {
        let waiting = self.open.values().map(|open| bytes(&open.waiting));
        waiting.sum::<usize>() + bytes(&self.ready)
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub fn take_ready(&mut self) -> Vec<RecordChunk> {
        mem::take(&mut self.ready)
    }
}

fn bytes(chunks: &[RecordChunk]) -> usize {
    chunks.iter().map(|chunk| chunk.bytes.len()).sum()
}

/// A part on its way to the disk.
#[derive(Clone, Debug)]
pub(crate) struct RecordWrite {
    key: RecordKey,
    part: u32,
    is_last: bool,
    until_ms: i64,
    started: Vec<StartedEvent>,
    body: Vec<u8>,
}

impl RecordWrite {
    pub fn new(chunk: &RecordChunk) -> Self {
        Self {
            key: RecordKey {
                camera: chunk.camera.to_string(),
                prompt: chunk.prompt.to_string(),
                record_ms: chunk.record.unix_millis(),
            },
            part: chunk.number,
            is_last: chunk.is_last,
            until_ms: chunk.until.unix_millis(),
            started: chunk.started.clone(),
            body: packed(&chunk.bytes),
        }
    }

    /// On the disk.
    pub fn bytes(&self) -> u64 {
        ROW_BYTES + self.body.len() as u64
    }

    /// Left out: a part whose record has looks of a deleted time, and one whose record lost the part before.
    fn insert(&self, transaction: &Transaction<'_>) -> rusqlite::Result<bool> {
        let RecordKey {
            camera,
            prompt,
            record_ms,
        } = &self.key;
        let started = self.started.iter().map(|event| {
            let first_look_ms = event.first_look.unix_millis();
            (event.track.as_str(), first_look_ms)
        });
        let started = serde_json::to_string(&Vec::from_iter(started)).unwrap_or_default();
        let sql = "INSERT OR IGNORE INTO history_records (camera, prompt, record_ms, part, is_last, until_ms, started, bytes, body)
            SELECT :camera, :prompt, :record, :part, :is_last, :until, :started, :bytes, :body
            WHERE NOT EXISTS (SELECT 1 FROM history_deleted WHERE (camera IS NULL OR camera = :camera) AND (prompt IS NULL OR prompt = :prompt)
                AND from_ms <= :until AND until_ms >= :record)
            AND (:part = 0 OR EXISTS (SELECT 1 FROM history_records WHERE camera = :camera AND prompt = :prompt AND record_ms = :record AND part = :part - 1))";
        let inserted = transaction.execute(
            sql,
            named_params! {
                ":camera": camera, ":prompt": prompt, ":record": record_ms, ":part": self.part, ":is_last": self.is_last, ":until": self.until_ms,
                ":started": started, ":bytes": self.bytes() as i64, ":body": self.body,
            },
        )?;
        if inserted == 1 {
            let mut row = transaction.prepare("UPDATE history SET record_ms = ?2 WHERE id = ?1")?;
            for event in &self.started {
                row.execute(params![event.track.as_str(), record_ms])?;
            }
        }
        Ok(inserted == 1)
    }
}

/// Writes parts, after the rows of their events. Returns by how many bytes records are more now.
pub(crate) fn write_records(
    transaction: &Transaction<'_>,
    writes: &[RecordWrite],
) -> rusqlite::Result<i64> {
    let mut bytes = 0;
    for write in writes {
        if write.insert(transaction)? {
            bytes += write.bytes() as i64;
        }
    }
    // The events of some may have been deleted meanwhile.
    for write in writes {
        bytes -= delete_unused(transaction, &write.key)? as i64;
    }
    Ok(bytes)
}

/// Where the recorded looks of a deleted event are.
#[derive(Debug)]
pub(crate) struct EventLooks {
    pub camera: String,
    pub prompt: String,
    /// The record in which it began.
    pub record_ms: Option<i64>,
    pub start_ms: i64,
    pub last_seen_ms: i64,
}

impl EventLooks {
    /// Deletes the record in which it began, when no event has it any more. Returns the bytes that it had.
    pub fn delete_unused(self, transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
        let record = self.record_ms.map(|record_ms| RecordKey {
            camera: self.camera,
            prompt: self.prompt,
            record_ms,
        });
        record.map_or(Ok(0), |record| delete_unused(transaction, &record))
    }

    /// Deletes the record in which it began and those of its time, also where other events have them. Returns the bytes that they had.
    pub fn delete_all(self, transaction: &Transaction<'_>, now_ms: i64) -> rusqlite::Result<u64> {
        let sql = "SELECT DISTINCT camera, prompt, record_ms FROM history_records WHERE camera = ?1 AND prompt = ?2 AND record_ms = ?3
            UNION SELECT camera, prompt, record_ms FROM history_records WHERE camera = ?1 AND prompt = ?2 AND record_ms BETWEEN ?6 AND ?5 AND until_ms >= ?4";
        let mut records = transaction.prepare(sql)?;
        let records = records.query_map(
            params![
                self.camera,
                self.prompt,
                self.record_ms,
                self.start_ms,
                self.last_seen_ms,
                self.start_ms.saturating_sub(LONGEST_MS)
            ],
            RecordKey::read,
        )?;
        let bytes = delete_shared(transaction, records.collect::<rusqlite::Result<Vec<_>>>()?)?;
        let time = DeletedTime {
            camera: Some(self.camera),
            prompt: Some(self.prompt),
            from_ms: self.start_ms,
            until_ms: self.last_seen_ms,
        };
        time.keep_out(transaction, now_ms)?;
        Ok(bytes)
    }
}

/// Looks that a person deletes: of a camera or all, of a prompt or all. Both ends are included.
#[derive(Debug)]
pub(crate) struct DeletedTime {
    pub camera: Option<String>,
    pub prompt: Option<String>,
    pub from_ms: i64,
    pub until_ms: i64,
}

impl DeletedTime {
    /// Deletes at most [`DELETED_MAX`] records of this time, also where events have them. Returns the bytes that they had; 0: none was left.
    pub fn delete_some(&self, transaction: &Transaction<'_>) -> rusqlite::Result<u64> {
        let sql = "SELECT DISTINCT camera, prompt, record_ms FROM history_records WHERE until_ms >= :from AND record_ms <= :until
            AND (:camera IS NULL OR camera = :camera) AND (:prompt IS NULL OR prompt = :prompt) LIMIT :limit";
        let mut records = transaction.prepare(sql)?;
        let key = named_params! {
            ":from": self.from_ms, ":until": self.until_ms, ":camera": self.camera, ":prompt": self.prompt, ":limit": DELETED_MAX as i64,
        };
        let records = records.query_map(key, RecordKey::read)?;
        delete_shared(transaction, records.collect::<rusqlite::Result<Vec<_>>>()?)
    }

    /// Looks of this time that wait in memory, also in that of another process, are not stored when they come.
    pub fn keep_out(&self, transaction: &Transaction<'_>, now_ms: i64) -> rusqlite::Result<()> {
        if self.until_ms < oldest_open(now_ms) {
            return Ok(());
        }
        // Each stored part looks at all rows: one that another covers is left out.
        let sql = "INSERT INTO history_deleted (camera, prompt, from_ms, until_ms) SELECT ?1, ?2, ?3, ?4
            WHERE NOT EXISTS (SELECT 1 FROM history_deleted WHERE (camera IS NULL OR camera = ?1) AND (prompt IS NULL OR prompt = ?2)
                AND from_ms <= ?3 AND until_ms >= ?4)";
        let Self {
            camera,
            prompt,
            from_ms,
            until_ms,
        } = self;
        transaction.execute(sql, params![camera, prompt, from_ms, until_ms])?;
        Ok(())
    }
}

/// No record from before has a part that was not stored.
fn oldest_open(now_ms: i64) -> i64 {
    now_ms.saturating_sub(LONGEST_MS)
}

/// Forgets deleted times of which nothing waits any more.
pub(crate) fn forget_deleted(transaction: &Transaction<'_>, now_ms: i64) -> rusqlite::Result<()> {
    let sql = "DELETE FROM history_deleted WHERE until_ms < ?1";
    transaction.execute(sql, [oldest_open(now_ms)])?;
    Ok(())
}

/// Deletes records also where events have them.
fn delete_shared(transaction: &Transaction<'_>, records: Vec<RecordKey>) -> rusqlite::Result<u64> {
    let sql =
        "UPDATE history SET record_ms = NULL WHERE camera = ?1 AND prompt = ?2 AND record_ms = ?3";
    let mut detach = transaction.prepare(sql)?;
    let mut bytes = 0;
    for record in records {
        detach.execute(params![record.camera, record.prompt, record.record_ms])?;
        bytes += delete_unused(transaction, &record)?;
    }
    Ok(bytes)
}

/// Deletes the record when no event has it any more. Returns the bytes that it had.
fn delete_unused(transaction: &Transaction<'_>, record: &RecordKey) -> rusqlite::Result<u64> {
    let RecordKey {
        camera,
        prompt,
        record_ms,
    } = record;
    let sql = "DELETE FROM history_records WHERE camera = ?1 AND prompt = ?2 AND record_ms = ?3
        AND NOT EXISTS (SELECT 1 FROM history WHERE camera = ?1 AND prompt = ?2 AND record_ms = ?3) RETURNING bytes";
    let mut delete = transaction.prepare(sql)?;
    let parts = delete.query_map(params![camera, prompt, record_ms], |row| {
        row.get::<_, i64>(0)
    })?;
    let bytes = parts.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(bytes.iter().sum::<i64>() as u64)
}

/// The records that fit, the newest first.
pub(crate) fn record_keys(
    connection: &Connection,
    filter: &RecordFilter,
) -> rusqlite::Result<Vec<RecordKey>> {
    let events = filter.events.as_ref();
    let events = events.map(|ids| serde_json::to_string(ids).unwrap_or_default());
    let prompts = filter.prompts.as_ref();
    let prompts = prompts.map(|ids| serde_json::to_string(ids).unwrap_or_default());
    let sql = "SELECT DISTINCT camera, prompt, record_ms FROM history_records WHERE until_ms > :since
        AND (:camera IS NULL OR camera = :camera) AND (:prompts IS NULL OR prompt IN (SELECT value FROM json_each(:prompts)))
        AND (:events IS NULL OR (camera, prompt, record_ms) IN
            (SELECT camera, prompt, record_ms FROM history WHERE id IN (SELECT value FROM json_each(:events))))
        ORDER BY record_ms DESC";
    let mut rows = connection.prepare(sql)?;
    let key = named_params! {
        ":since": filter.since_ms.unwrap_or(i64::MIN), ":camera": filter.camera.as_ref().map(CameraId::as_str),
        ":prompts": prompts, ":events": events,
    };
    let rows = rows.query_map(key, RecordKey::read)?;
    rows.collect()
}

/// `None`: it was removed, or is damaged.
pub(crate) fn read_record(
    connection: &Connection,
    key: RecordKey,
) -> rusqlite::Result<Option<StoredRecord>> {
    let sql = "SELECT part, until_ms, started, body, is_last FROM history_records WHERE camera = ?1 AND prompt = ?2 AND record_ms = ?3 ORDER BY part";
    let mut parts = connection.prepare(sql)?;
    let mut parts = parts.query(params![key.camera, key.prompt, key.record_ms])?;
    let mut record = StoredRecord {
        camera: key.camera,
        prompt: key.prompt,
        record_ms: key.record_ms,
        until_ms: key.record_ms,
        started: Vec::new(),
        chunks: Vec::new(),
        has_end: false,
    };
    while let Some(row) = parts.next()? {
        let (part, started): (i64, String) = (row.get(0)?, row.get(2)?);
        let body: Vec<u8> = row.get(3)?;
        let started = serde_json::from_str::<Vec<(TrackId, i64)>>(&started).ok();
        let chunk = unpacked(&body).ok();
        let Some((started, chunk)) = started
            .zip(chunk)
            .filter(|_| part == record.chunks.len() as i64)
        else {
            return Ok(None);
        };
        record.until_ms = row.get(1)?;
        record.has_end = row.get(4)?;
        record
            .started
            .extend(started.into_iter().map(|(track, ms)| StartedEvent {
                track,
                first_look: WallTime::from_unix_millis(ms),
            }));
        record.chunks.push(chunk);
    }
    Ok((!record.chunks.is_empty()).then_some(record))
}

/// Bytes of all records, and of those that a judged event has.
pub(crate) fn record_bytes(connection: &Connection) -> rusqlite::Result<(u64, u64)> {
    let all = "SELECT coalesce(sum(bytes), 0) FROM history_records";
    let judged = "SELECT coalesce(sum(r.bytes), 0) FROM (SELECT DISTINCT camera, prompt, record_ms FROM history WHERE mark IS NOT NULL) AS e
        JOIN history_records AS r ON r.camera = e.camera AND r.prompt = e.prompt AND r.record_ms = e.record_ms";
    let sum = |sql| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok((sum(all)? as u64, sum(judged)? as u64))
}

/// Written after this time, with the log of the database and its checkpoints.
pub(crate) fn record_bytes_written(
    connection: &Connection,
    since_ms: i64,
) -> rusqlite::Result<u64> {
    let sql = "SELECT coalesce(2 * sum(bytes), 0) FROM history_records WHERE until_ms > ?1";
    let written: i64 = connection.query_row(sql, [since_ms], |row| row.get(0))?;
    Ok(written as u64)
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    // Memory does not fail.
    _ = DeflateEncoder::new(bytes, Compression::default()).read_to_end(&mut packed);
    packed
}

fn unpacked(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let longest = CHUNK_MAX_BYTES as u64 + 1;
    DeflateDecoder::new(body)
        .take(longest)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(prompt: u32, number: u32) -> RecordChunk {
        RecordChunk {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new(&format!("prompt{prompt}")).unwrap(),
            record: WallTime::from_unix_millis(1),
            number,
            is_last: false,
            until: WallTime::from_unix_millis(2),
            started: Vec::new(),
            bytes: vec![0; CHUNK_MAX_BYTES],
        }
    }

    // Faults: S19.
    #[test]
    fn parts_that_wait_are_bounded_and_have_no_gap() {
        let mut queue = RecordQueue::default();
        let mut discarded = 0;
        for number in 0..100 {
            let chunks = (0..8).map(|prompt| chunk(prompt, number));
            discarded += chunks.map(|chunk| queue.push(chunk)).sum::<u64>();
            assert!(queue.bytes() <= WAITING_MAX_BYTES);
        }
        assert!(!queue.has_ready() && discarded > 0);
        let started = StartedEvent {
            track: TrackId::new("b7c1", &CameraId::new("gate").unwrap(), 1),
            first_look: WallTime::from_unix_millis(1),
        };
        // One with an event has the room of those without one.
        for number in 0..1000 {
            queue.push(RecordChunk {
                started: vec![started.clone()],
                ..chunk(9, number)
            });
        }
        let ready = queue.take_ready();
        assert_eq!(ready.len(), WAITING_MAX_BYTES / CHUNK_MAX_BYTES);
        queue.push(chunk(9, 1000));
        assert!(queue.take_ready().is_empty() && queue.bytes() == 0);
    }
}
