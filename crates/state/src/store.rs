//! The handle of the daemon, and the thread that writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io, mem,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use crate::{
    database::{Database, OpenError, damaged_files, read_only},
    document::{Document, Documents},
    event_table::{self, EventChanges, EventTable, FoundEvents},
};
use spotter_core::Clock;

/// Pause after an error of the disk.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How often the thread looks whether a damaged file is still there.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Events that come within this time after a write are written together, unless a caller waits.
const GROUP_WITHIN: Duration = Duration::from_millis(200);
/// The end waits for the disk for this time at most.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The stored values of one daemon. Clones share them; with the last one the thread ends, after it wrote what is new.
#[derive(Clone, Debug)]
pub struct StateStore(Arc<StoreHandle>);

#[derive(Debug)]
struct StoreHandle {
    folder: PathBuf,
    shared: Arc<StoreShared>,
    ended: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct StoreShared {
    state: Mutex<SharedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SharedState {
    documents: Documents,
    /// Not on the disk as they are in `documents`.
    unwritten: BTreeSet<Document>,
    /// A batch was taken and is not on the disk yet.
    is_writing: bool,
    waiting: Vec<oneshot::Sender<()>>,
    /// What earlier runs left, until it is taken.
    found: FoundEvents,
    events: EventChanges,
    /// Pictures to read, by the numbers of their events.
    requests: Vec<(u64, oneshot::Sender<Option<Vec<u8>>>)>,
    /// Why values are in memory only.
    disk_trouble: Option<OpenError>,
    damage: Option<String>,
    is_closing: bool,
}

/// Values on their way to the disk.
#[derive(Debug)]
pub struct PendingWrite(Option<oneshot::Receiver<()>>);

impl PendingWrite {
    /// Returns when the values survive a power failure, or when it is known that the disk fails: then [`StateStore::troubles`] says so.
    /// Dropping the future loses nothing.
    pub async fn finished(&mut self) {
        if let Some(written) = &mut self.0 {
            // The thread answers each; without it, nothing is written any more.
            _ = written.await;
            self.0 = None;
        }
    }
}

impl StateStore {
    /// Reads what earlier runs stored in `state_dir`. A disk that fails is logged, and tried again: until it works, values are in memory. Fails
    /// only where a newer version wrote the file. Blocks on the disk.
    pub fn open(state_dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let shared = Arc::new(StoreShared::default());
        let mut writer = Writer::new(state_dir, Arc::clone(&shared), clock);
        match writer.open(&StateBatch::default()) {
            Ok(found) => shared.lock().found = found,
            Err(error @ OpenError::Newer { .. }) => return Err(error),
            Err(error) => {
                writer.failed(error);
                shared.lock().documents = read_only(state_dir);
            }
        }
        writer.number_events();
        let (running, ended) = watch::channel(false);
        let body = move || {
            writer.run();
            running.send_replace(true);
        };
        thread::Builder::new().name("state".into()).spawn(body)?;
        let folder = state_dir.to_owned();
        Ok(Self(Arc::new(StoreHandle {
            folder,
            shared,
            ended,
        })))
    }

    /// The newest text, written or not. Its owner checks it: users can write to the file.
    pub fn get(&self, document: Document) -> Option<String> {
        self.0.shared.lock().documents.get(&document).cloned()
    }

    /// Replaces the text. Never waits for the disk: [`pending`](Self::pending) waits until it is stored.
    pub fn put(&self, document: Document, text: String) {
        self.change(document, Some(text));
    }

    pub fn remove(&self, document: Document) {
        self.change(document, None);
    }

    fn change(&self, document: Document, text: Option<String>) {
        let mut state = self.0.shared.lock();
        if state.documents.get(&document) != text.as_ref() {
            match text {
                Some(text) => state.documents.insert(document, text),
                None => state.documents.remove(&document),
            };
            state.unwritten.insert(document);
            self.0.shared.changed.notify_one();
        }
    }

    /// What earlier runs left, once.
    pub(crate) fn take_found(&self) -> FoundEvents {
        mem::take(&mut self.0.shared.lock().found)
    }

    /// Never waits for the disk. The first changes after a pause are written at once, those that follow within 200 ms together.
    pub(crate) fn write_events(&self, changes: EventChanges) {
        self.0.shared.lock().events.merge(changes);
        self.0.shared.changed.notify_one();
    }

    pub(crate) async fn event_picture(&self, number: u64) -> Option<Vec<u8>> {
        let (found, answer) = oneshot::channel();
        self.0.shared.lock().requests.push((number, found));
        self.0.shared.changed.notify_one();
        answer.await.ok().flatten()
    }

    /// All that was put until now.
    pub fn pending(&self) -> PendingWrite {
        let mut state = self.0.shared.lock();
        self.0.shared.changed.notify_one();
        let is_stored = !state.has_changes() && !state.is_writing;
        if is_stored || state.disk_trouble.is_some() {
            return PendingWrite(None);
        }
        let (sender, written) = oneshot::channel();
        state.waiting.push(sender);
        PendingWrite(Some(written))
    }

    /// Why values do not survive a restart, and which damaged file was found.
    pub fn troubles(&self) -> Vec<String> {
        let state = self.0.shared.lock();
        let folder = self.0.folder.display();
        let of_disk = state.disk_trouble.iter();
        let of_disk = of_disk.flat_map(|error| {
            ["settings", "events"].map(|what| format!("cannot keep {what} in {folder}: {error}"))
        });
        of_disk.chain(state.damage.clone()).collect()
    }

    /// Writes what is new and frees the file, within two seconds.
    pub async fn close(self) {
        self.0.shared.close();
        let mut ended = self.0.ended.clone();
        let ending = ended.wait_for(|ended| *ended);
        if tokio::time::timeout(CLOSE_WITHIN, ending).await.is_err() {
            tracing::warn!(
                "the disk did not finish within 2 s of the stop; the last settings may be lost"
            );
        }
    }
}

impl Drop for StoreHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl StoreShared {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closing = true;
        self.changed.notify_one();
    }

    /// Waits for what the turn has to do.
    fn wait(&self, pace: WritePace) -> MutexGuard<'_, SharedState> {
        let pause = match pace {
            WritePace::Idle => LOOK_EVERY,
            WritePace::Grouping => GROUP_WITHIN,
            WritePace::Failing => RETRY_AFTER,
        };
        let is_quiet = |state: &mut SharedState| {
            let is_due = match pace {
                WritePace::Idle => state.has_changes() || state.is_urgent(),
                WritePace::Grouping => state.is_urgent(),
                WritePace::Failing => false,
            };
            !is_due && !state.is_closing
        };
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), pause, is_quiet);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// When the thread writes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WritePace {
    /// With the next change.
    Idle,
    /// Events were written a moment ago.
    Grouping,
    /// The disk failed.
    Failing,
}

/// What a turn writes. What is left in it afterwards is not written.
#[derive(Debug, Default)]
struct StateBatch {
    /// `None`: removed.
    documents: BTreeMap<Document, Option<String>>,
    events: EventChanges,
}

struct Writer {
    state_dir: PathBuf,
    /// `None`: it cannot be opened.
    database: Option<Database>,
    /// `None`: it is to be read again, because a write failed.
    events: Option<EventTable>,
    shared: Arc<StoreShared>,
    clock: Arc<dyn Clock>,
}

impl Writer {
    fn new(state_dir: &Path, shared: Arc<StoreShared>, clock: Arc<dyn Clock>) -> Self {
        Self {
            state_dir: state_dir.to_owned(),
            database: None,
            events: None,
            shared,
            clock,
        }
    }

    fn run(mut self) {
        let mut pace = match self.database {
            Some(_) => WritePace::Idle,
            None => WritePace::Failing,
        };
        loop {
            let mut state = self.shared.wait(pace);
            let is_closing = state.is_closing;
            let batch = state.take_batch();
            let waiting = mem::take(&mut state.waiting);
            let requests = mem::take(&mut state.requests);
            drop(state);
            let has_events = !batch.events.is_empty();
            pace = match self.turn(batch) {
                Ok(()) if has_events => WritePace::Grouping,
                Ok(()) => WritePace::Idle,
                Err(()) => WritePace::Failing,
            };
            for waiting in waiting {
                // A caller that stopped waiting needs no answer.
                _ = waiting.send(());
            }
            for (number, found) in requests {
                // Without an answer, the event is posted without its picture.
                if let Some(picture) = self.picture(number) {
                    _ = found.send(Some(picture));
                }
            }
            if is_closing {
                return;
            }
        }
    }

    /// Writes a batch; what was not written is put back.
    fn turn(&mut self, mut batch: StateBatch) -> Result<(), ()> {
        let (written, mut is_damaged) = (self.write(&mut batch), false);
        match &written {
            Ok(()) => self.works(),
            Err(error) => is_damaged = error.is_damage(),
        }
        let written = written.map_err(|error| self.failed(error));
        let damage = damage(&self.state_dir);
        let mut state = self.shared.lock();
        state.unwritten.extend(batch.documents.into_keys());
        if is_damaged {
            // The next turn opens it again, renames it, and writes all that is in memory to a new file.
            (self.database, self.events) = (None, None);
            let known: Vec<Document> = state.documents.keys().copied().collect();
            state.unwritten.extend(known);
        }
        let newer = mem::replace(&mut state.events, batch.events);
        state.events.merge(newer);
        state.damage = damage;
        state.is_writing = false;
        written
    }

    /// Takes out of the batch what is written.
    fn write(&mut self, batch: &mut StateBatch) -> Result<(), OpenError> {
        if self.database.is_none() {
            // What was found now is for the next run.
            self.open(batch)?;
        }
        while let Some((document, text)) = batch.documents.first_key_value() {
            let database = self.with_short_log()?;
            document.write(&database.connection, text.as_deref())?;
            batch.documents.pop_first();
        }
        if batch.events.is_empty() {
            return Ok(());
        }
        // An error leaves none behind.
        let events = self.events.take();
        let database = self.with_short_log()?;
        let mut events = match events {
            Some(events) => events,
            None => EventTable::open(&database.connection)?.0,
        };
        events.write(&mut database.connection, &batch.events)?;
        self.events = Some(events);
        batch.events = EventChanges::default();
        Ok(())
    }

    fn with_short_log(&mut self) -> Result<&mut Database, OpenError> {
        let Some(database) = &mut self.database else {
            return Err(io::Error::other("the database is closed").into());
        };
        if let Err(error) = database.limit_log() {
            // The next turn opens it again.
            self.database = None;
            return Err(error);
        }
        self.database
            .as_mut()
            .ok_or_else(|| io::Error::other("the database is closed").into())
    }

    /// One that is not written yet, or from the disk.
    fn picture(&mut self, number: u64) -> Option<Vec<u8>> {
        if let Some(jpeg) = self.shared.lock().events.pictures.get(&number) {
            return Some(jpeg.to_vec());
        }
        let connection = &self.database.as_ref()?.connection;
        event_table::picture(connection, number).ok().flatten()
    }

    /// After all events of earlier runs, also of those that cannot be read now.
    fn number_events(&self) {
        let first = (self.clock.wall().unix_millis().max(0) as u64) << 20;
        let found = &mut self.shared.lock().found;
        found.next_number = found.next_number.max(first);
    }

    /// What was put before, also in `batch`, is newer than what is on the disk.
    fn open(&mut self, batch: &StateBatch) -> Result<FoundEvents, OpenError> {
        let mut database = Database::open(&self.state_dir, self.clock.wall())?;
        let (events, found_events) = EventTable::open(&database.connection)?;
        let found = mem::take(&mut database.documents);
        let damage = damage(&self.state_dir);
        // No disk is read or written under the lock: callers are on the daemon's loop.
        let mut state = self.shared.lock();
        for (document, text) in found {
            if !state.unwritten.contains(&document) && !batch.documents.contains_key(&document) {
                state.documents.entry(document).or_insert(text);
            }
        }
        state.damage = damage;
        drop(state);
        (self.database, self.events) = (Some(database), Some(events));
        Ok(found_events)
    }

    fn works(&self) {
        if self.shared.lock().disk_trouble.take().is_some() {
            tracing::info!(path = %self.state_dir.display(), "settings and events are written to disk again");
        }
    }

    /// Logs the beginning of a failure; `/healthz` shows it while it lasts.
    fn failed(&self, error: OpenError) {
        let (path, text) = (self.state_dir.display(), error.to_string());
        if self.shared.lock().disk_trouble.replace(error).is_none() {
            tracing::error!(
                %path,
                error = text,
                "settings, counts, lists and events are in memory only; a restart would lose what changed"
            );
        }
    }
}

impl SharedState {
    fn has_changes(&self) -> bool {
        !self.unwritten.is_empty() || !self.events.is_empty()
    }

    /// A caller waits for the disk.
    fn is_urgent(&self) -> bool {
        let waits = !self.waiting.is_empty() || !self.requests.is_empty();
        // Pictures are large.
        waits || !self.unwritten.is_empty() || !self.events.pictures.is_empty()
    }

    fn take_batch(&mut self) -> StateBatch {
        self.is_writing = true;
        let unwritten = mem::take(&mut self.unwritten).into_iter();
        let with_text = |document| (document, self.documents.get(&document).cloned());
        StateBatch {
            documents: unwritten.map(with_text).collect(),
            events: mem::take(&mut self.events),
        }
    }
}

fn damage(state_dir: &Path) -> Option<String> {
    let names = damaged_files(state_dir);
    let name = names.iter().max()?.to_string_lossy().into_owned();
    let folder = state_dir.display();
    Some(format!(
        "state.db was damaged, and only its readable settings are in use; the damaged file is {folder}/{name}: move or remove it to end this message"
    ))
}

#[cfg(test)]
mod tests;
