//! The journal: records in numbered files that only grow. The oldest file is removed when none of its events is needed.
//!
//! The *done* record of an event is never in an older file than its *keep* record, and the oldest file is removed first: so
//! a delivered event is not read again because its *done* record was removed before it. A few old events that keep a file
//! are written once more at the end. After an error no record follows the torn one: the file is truncated, or the next file
//! starts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use super::{
    Batch, SpooledEvent,
    disk::Disk,
    record::{self, SpoolRecord},
};
use spotter_core::{EventStep, Mono, TrackId, WallTime};

/// With more files, the oldest is emptied.
const SEGMENTS_MAX: usize = 32;
/// Beyond this number of open tracks the oldest are forgotten.
const OPEN_MAX: usize = 4096;
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 64 * 1024..=1024 * 1024;

/// An event that is needed.
#[derive(Debug)]
struct JournalEntry {
    kept: Arc<SpooledEvent>,
    expires_ms: i64,
    /// The file with its newest record.
    segment: u64,
    bytes: u64,
    /// Delivered or dropped. It is kept because its track is open.
    done: bool,
}

#[derive(Debug, Default)]
struct JournalSegment {
    bytes: u64,
    needed: usize,
}

/// The events of an earlier run.
#[derive(Debug, Default)]
pub(crate) struct FoundEvents {
    /// To be delivered, in order, with their expiry in Unix milliseconds.
    pub(crate) waiting: Vec<(Arc<SpooledEvent>, i64)>,
    /// The last event of each track that has not ended.
    pub(crate) open: Vec<Arc<SpooledEvent>>,
    /// The first event of this run has this number or a later one.
    pub(crate) first_number: u64,
    /// Files with a torn record at their end.
    pub(crate) torn: u64,
    /// Records of another version, and unreadable files.
    pub(crate) unreadable: u64,
}

/// See the module's documentation. Its calls block on the disk.
#[derive(Debug)]
pub(crate) struct Journal<D> {
    disk: D,
    max_bytes: u64,
    segments: BTreeMap<u64, JournalSegment>,
    /// The file that is appended to.
    active: Option<u64>,
    next_segment: u64,
    needed: BTreeMap<u64, JournalEntry>,
    /// The last event of each track that has not ended.
    open: HashMap<TrackId, u64>,
    /// The active file has bytes that are not synced.
    dirty: bool,
}

impl<D: Disk> Journal<D> {
    /// Reads all files. The journal has about `max_bytes` on the disk at most. Fails when the folder cannot be read.
    pub(crate) fn open(disk: D, max_bytes: u64) -> io::Result<(Self, FoundEvents)> {
        let mut journal = Self {
            disk,
            max_bytes,
            segments: BTreeMap::new(),
            active: None,
            next_segment: 1,
            needed: BTreeMap::new(),
            open: HashMap::new(),
            dirty: false,
        };
        let mut found = journal.read_all()?;
        found.first_number = journal.next_segment << 32;
        for needed in journal.needed.values() {
            if !needed.done {
                let waiting = (Arc::clone(&needed.kept), needed.expires_ms);
                found.waiting.push(waiting);
            }
        }
        let open = journal.open.values();
        let mut open: Vec<&JournalEntry> = open.filter_map(|n| journal.needed.get(n)).collect();
        open.sort_unstable_by_key(|needed| needed.kept.number);
        found.open = open.into_iter().map(|n| Arc::clone(&n.kept)).collect();
        journal.remove_unneeded();
        Ok((journal, found))
    }

    fn read_all(&mut self) -> io::Result<FoundEvents> {
        let mut found = FoundEvents::default();
        let mut names = self.disk.list()?;
        names.sort_unstable();
        let (mut keeps, mut done) = (BTreeMap::new(), BTreeSet::new());
        for segment in names {
            // An unreadable file keeps its name: it may be readable at the next start.
            self.next_segment = segment + 1;
            let Ok(bytes) = self.disk.read(segment) else {
                found.unreadable += 1;
                continue;
            };
            let bytes_of = bytes.len() as u64;
            self.segments.entry(segment).or_default().bytes = bytes_of;
            let read = record::read(&bytes);
            found.torn += u64::from(read.torn);
            found.unreadable += read.unknown;
            for record in read.records {
                match record {
                    SpoolRecord::Keep {
                        kept,
                        expires_ms,
                        superseded,
                    } => {
                        keeps.insert(kept.number, (kept, expires_ms, superseded, segment));
                    }
                    SpoolRecord::Done(numbers) => done.extend(numbers),
                }
            }
        }
        // In the order of the events, not of the records: some events were written twice.
        for (number, (kept, expires_ms, superseded, segment)) in keeps {
            let bytes = SpoolRecord::keep(&kept, expires_ms, superseded).write(&mut Vec::new());
            if !superseded {
                self.follow(&kept);
            }
            self.need(kept, expires_ms, segment, bytes);
            if done.contains(&number) {
                self.finish(number);
            }
        }
        Ok(found)
    }

    /// Writes a batch. After an error none of it counts as written.
    pub(crate) fn write(&mut self, batch: &Batch, now: Mono, wall: WallTime) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut lengths = Vec::new();
        for (kept, expires) in batch.keep.values() {
            let expires_ms = wall.unix_millis() + expires.since(now).as_millis() as i64;
            let length = SpoolRecord::keep(kept, expires_ms, false).write(&mut bytes);
            lengths.push((Arc::clone(kept), expires_ms, length));
        }
        if !batch.done.is_empty() {
            SpoolRecord::Done(batch.done.iter().copied().collect()).write(&mut bytes);
        }
        if bytes.is_empty() {
            return Ok(());
        }
        let segment = self.append(&bytes)?;
        for (kept, expires_ms, bytes) in lengths {
            self.follow(&kept);
            self.need(kept, expires_ms, segment, bytes);
        }
        for &number in &batch.done {
            self.finish(number);
        }
        self.remove_unneeded();
        // The batch is written, so this is not its error; the next batch tries it again.
        _ = self.make_room();
        Ok(())
    }

    /// Syncs the active file if an event is not delivered.
    pub(crate) fn sync(&mut self) -> io::Result<()> {
        let waits = || self.needed.values().any(|needed| !needed.done);
        match self.active {
            Some(active) if self.dirty && waits() => {
                self.disk.sync(active)?;
                self.dirty = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The last call: syncs, and removes files without needed events.
    pub(crate) fn close(&mut self) -> io::Result<()> {
        self.sync()?;
        self.active = None;
        self.remove_unneeded();
        Ok(())
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    fn segment_max(&self) -> u64 {
        (self.max_bytes / 16).clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end())
    }

    /// Appends to the active file, or to a new one, and returns its number.
    fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let active = self.active.and_then(|number| {
            let segment = self.segments.get(&number)?;
            (segment.bytes < self.segment_max()).then_some((number, segment.bytes))
        });
        let (number, before) = match active {
            Some(active) => active,
            None => {
                if let (Some(full), true) = (self.active, self.dirty) {
                    self.disk.sync(full)?;
                    self.dirty = false;
                }
                let number = self.next_segment;
                self.next_segment += 1;
                (number, 0)
            }
        };
        if let Err(error) = self.disk.append(number, bytes) {
            let repaired = match before {
                0 => self.disk.remove(number),
                _ => self.disk.cut(number, before),
            };
            if repaired.is_err() || before == 0 {
                self.active = None;
            }
            return Err(error);
        }
        self.active = Some(number);
        self.dirty = true;
        self.segments.entry(number).or_default().bytes = before + bytes.len() as u64;
        Ok(number)
    }

    /// Updates the open tracks.
    fn follow(&mut self, kept: &SpooledEvent) {
        let track = &kept.event.track;
        let before = match kept.event.step {
            EventStep::End(_) => self.open.remove(track),
            EventStep::New | EventStep::Update(_) => self.open.insert(track.clone(), kept.number),
        };
        if let Some(before) = before {
            self.release(before);
        }
        if self.open.len() > OPEN_MAX
            && let Some((oldest, number)) = self.open.iter().min_by_key(|(_, number)| **number)
        {
            let (oldest, number) = (oldest.clone(), *number);
            self.open.remove(&oldest);
            self.release(number);
        }
    }

    fn need(&mut self, kept: Arc<SpooledEvent>, expires_ms: i64, segment: u64, bytes: u64) {
        self.segments.entry(segment).or_default().needed += 1;
        let number = kept.number;
        let needed = JournalEntry {
            kept,
            expires_ms,
            segment,
            bytes,
            done: false,
        };
        if let Some(before) = self.needed.insert(number, needed) {
            self.unneeded_in(before.segment);
        }
    }

    /// The event is delivered or dropped.
    fn finish(&mut self, number: u64) {
        let Some(needed) = self.needed.get_mut(&number) else {
            return;
        };
        needed.done = true;
        if self.open.get(&needed.kept.event.track) != Some(&number) {
            self.release(number);
        }
    }

    /// Removes an event that is done and not the last of an open track.
    fn release(&mut self, number: u64) {
        if self.needed.get(&number).is_some_and(|needed| needed.done)
            && let Some(gone) = self.needed.remove(&number)
        {
            self.unneeded_in(gone.segment);
        }
    }

    fn unneeded_in(&mut self, segment: u64) {
        if let Some(segment) = self.segments.get_mut(&segment) {
            segment.needed -= 1;
        }
    }

    /// Removes the oldest files without needed events.
    fn remove_unneeded(&mut self) {
        while let Some((&oldest, segment)) = self.segments.first_key_value() {
            let goes = segment.needed == 0 && self.active != Some(oldest);
            // The next batch tries again to remove it.
            if !goes || self.disk.remove(oldest).is_err() {
                return;
            }
            self.segments.remove(&oldest);
        }
    }

    /// Empties the oldest file when there are too many bytes or files: writes its needed events once more.
    fn make_room(&mut self) -> io::Result<()> {
        let needed: u64 = self.needed.values().map(|needed| needed.bytes).sum();
        let enough = (4 * (needed + self.segment_max())).min(self.max_bytes);
        let crowded = self.bytes() > enough || self.segments.len() > SEGMENTS_MAX;
        let Some((&oldest, _)) = self.segments.first_key_value() else {
            return Ok(());
        };
        if !crowded || self.active == Some(oldest) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        let (mut moved, mut done) = (Vec::new(), Vec::new());
        for (&number, needed) in &self.needed {
            if needed.segment != oldest {
                continue;
            }
            let event = &needed.kept.event;
            let superseded = !matches!(event.step, EventStep::End(_))
                && self.open.get(&event.track) != Some(&number);
            SpoolRecord::keep(&needed.kept, needed.expires_ms, superseded).write(&mut bytes);
            moved.push(number);
            done.extend(needed.done.then_some(number));
        }
        if !done.is_empty() {
            SpoolRecord::Done(done).write(&mut bytes);
        }
        if bytes.is_empty() {
            return Ok(()); // It could not be removed.
        }
        let segment = self.append(&bytes)?;
        self.disk.sync(segment)?;
        self.dirty = false;
        for number in moved {
            if let Some(needed) = self.needed.get_mut(&number) {
                needed.segment = segment;
                self.segments.entry(segment).or_default().needed += 1;
                self.unneeded_in(oldest);
            }
        }
        self.remove_unneeded();
        Ok(())
    }
}

/// The time until the expiry of an event.
pub(crate) fn time_left(expires_ms: i64, wall: WallTime, max_age: Duration) -> Duration {
    let left_ms = u64::try_from(expires_ms - wall.unix_millis()).unwrap_or(0);
    // Limited because the machine's clock may have been set back.
    Duration::from_millis(left_ms).min(max_age)
}
