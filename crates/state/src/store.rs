//! The handle of the daemon, and the thread that writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io, mem,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use rusqlite::{Connection, Transaction};
use tokio::sync::{oneshot, watch};

use crate::{
    database::{Database, OpenError, damaged_files, read_only, truncate_log},
    document::{Document, Documents},
    event_table::{self, EventBatch, EventTable, FoundEvents},
    statements::{QueuedStatements, StatementsError, queued},
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
}

#[derive(Debug, Default)]
pub(crate) struct StoreShared {
    state: Mutex<SharedState>,
    changed: Condvar,
}

/// What is in memory. Where no thread writes, that is all there is.
#[derive(Debug, Default)]
pub(crate) struct SharedState {
    /// The last version that the thread has written, or has failed to write; `None`: there is no thread.
    written: Option<watch::Receiver<u64>>,
    /// Rises with each change.
    version: u64,
    /// A caller waits for a version.
    is_awaited: bool,
    documents: Documents,
    /// Not on the disk as they are in `documents`.
    unwritten: BTreeSet<Document>,
    /// What earlier runs left, until it is taken.
    found: FoundEvents,
    pub(crate) events: EventTable,
    /// Pictures to read, by the numbers of their events.
    requests: Vec<(u64, oneshot::Sender<Option<Vec<u8>>>)>,
    /// Of other crates. Each has a thread that waits for it, which bounds them.
    statements: Vec<QueuedStatements>,
    /// Why values are in memory only.
    disk_trouble: Option<OpenError>,
    damage: Option<String>,
    is_closing: bool,
}

/// Values on their way to the disk.
#[derive(Debug)]
pub struct PendingWrite {
    written: Option<watch::Receiver<u64>>,
    version: u64,
}

impl PendingWrite {
    /// Returns when the values survive a power failure, or when it is known that the disk fails: then [`StateStore::troubles`] says so.
    /// Dropping the future loses nothing.
    pub async fn finished(&mut self) {
        if let Some(written) = &mut self.written {
            // An error: the thread has ended, and nothing is written any more.
            _ = written.wait_for(|written| *written >= self.version).await;
        }
    }
}

impl StateStore {
    /// Reads what earlier runs stored in `state_dir`. A disk that fails is logged, and tried again: until it works, values are in memory. Fails
    /// only where a newer version wrote the file. Blocks on the disk.
    pub fn open(state_dir: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let shared = Arc::new(StoreShared::default());
        let mut writer = Writer::new(state_dir, Arc::clone(&shared), clock);
        match writer.open().and_then(|()| writer.read_events()) {
            Ok(()) => {}
            Err(error @ OpenError::Newer { .. }) => return Err(error),
            Err(error) => {
                writer.failed(error);
                shared.lock().documents = read_only(state_dir);
            }
        }
        writer.number_events();
        let thread = thread::Builder::new().name("state".into());
        thread.spawn(move || writer.run())?;
        let folder = state_dir.to_owned();
        Ok(Self(Arc::new(StoreHandle { folder, shared })))
    }

    /// The newest text, written or not. Its owner checks it: users can write to the file.
    pub fn get(&self, document: Document) -> Option<String> {
        self.0.shared.lock().documents.get(&document).cloned()
    }

    /// Replaces the text. Never waits for the disk: [`pending`](Self::pending) waits until it is stored.
    pub fn put(&self, document: Document, text: String) {
        self.replace(document, Some(text));
    }

    pub fn remove(&self, document: Document) {
        self.replace(document, None);
    }

    fn replace(&self, document: Document, text: Option<String>) {
        self.0.shared.change(|state| {
            if state.documents.get(&document) != text.as_ref() {
                match text {
                    Some(text) => state.documents.insert(document, text),
                    None => state.documents.remove(&document),
                };
                state.unwritten.insert(document);
            }
        });
    }

    /// Runs the statements of another crate on the thread of the database, in a transaction of their own. It survives `kill -9` and is not
    /// synced. After an error the file has nothing of it. Blocks until then: not for the daemon's loop.
    pub fn execute<T: Send + 'static>(
        &self,
        run: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StatementsError> {
        self.run(move |connection| {
            connection.pragma_update(None, "synchronous", "NORMAL")?;
            let transaction = connection.transaction()?;
            let done = run(&transaction).and_then(|value| transaction.commit().map(|()| value));
            // As documents need it.
            connection.pragma_update(None, "synchronous", "FULL")?;
            done
        })
    }

    /// Removes what the log has of deleted rows: they are in no file then, also after a power failure. Blocks; an error also while another
    /// program reads for longer than five seconds.
    pub fn remove_deleted(&self) -> Result<(), StatementsError> {
        match self.run(|connection| truncate_log(connection))? {
            true => Ok(()),
            false => Err(StatementsError::Read),
        }
    }

    fn run<T: Send + 'static>(
        &self,
        run: impl FnOnce(&mut Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, StatementsError> {
        let (statements, done) = queued(run);
        self.0.shared.change(|state| {
            // Without a thread, the sender is dropped here.
            if state.written.is_some() && !state.is_closing {
                state.statements.push(statements);
            }
        });
        done.recv().unwrap_or(Err(StatementsError::Closed))
    }

    /// Where the database is.
    pub fn folder(&self) -> &Path {
        &self.0.folder
    }

    /// What earlier runs left, once.
    pub(crate) fn take_found(&self) -> FoundEvents {
        mem::take(&mut self.0.shared.lock().found)
    }

    pub(crate) fn shared(&self) -> &Arc<StoreShared> {
        &self.0.shared
    }

    /// All that was put until now.
    pub fn pending(&self) -> PendingWrite {
        self.0.shared.pending()
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
        let written = self.0.shared.lock().written.clone();
        let ended = async {
            if let Some(mut written) = written {
                while written.changed().await.is_ok() {}
            }
        };
        if tokio::time::timeout(CLOSE_WITHIN, ended).await.is_err() {
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
    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.change(|state| state.is_closing = true);
    }

    /// The first changes after a pause are written at once, events that follow within 200 ms together.
    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut SharedState) -> T) -> T {
        let mut state = self.lock();
        state.version += 1;
        let changed = change(&mut state);
        self.changed.notify_one();
        changed
    }

    /// All that was changed until now.
    pub(crate) fn pending(&self) -> PendingWrite {
        let mut state = self.lock();
        state.is_awaited = true;
        self.changed.notify_one();
        PendingWrite {
            written: state
                .written
                .clone()
                .filter(|_| state.disk_trouble.is_none()),
            version: state.version,
        }
    }

    pub(crate) async fn event_picture(&self, number: u64) -> Option<Vec<u8>> {
        let (found, answer) = oneshot::channel();
        self.change(|state| {
            // Without a thread, the sender is dropped here.
            if state.written.is_some() {
                state.requests.push((number, found));
            }
        });
        answer.await.ok().flatten()
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
                WritePace::Idle => state.is_urgent() || state.events.has_changes(),
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

/// What a turn writes.
#[derive(Debug, Default)]
struct StateBatch {
    /// `None`: removed.
    documents: BTreeMap<Document, Option<String>>,
    events: EventBatch,
}

struct Writer {
    state_dir: PathBuf,
    /// `None`: it cannot be opened.
    database: Option<Database>,
    shared: Arc<StoreShared>,
    written: watch::Sender<u64>,
    clock: Arc<dyn Clock>,
}

impl Writer {
    fn new(state_dir: &Path, shared: Arc<StoreShared>, clock: Arc<dyn Clock>) -> Self {
        let (written, last_written) = watch::channel(0);
        shared.lock().written = Some(last_written);
        Self {
            state_dir: state_dir.to_owned(),
            database: None,
            shared,
            written,
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
            let (is_closing, has_events) = (state.is_closing, state.events.has_changes());
            let version = state.version;
            state.is_awaited = false;
            let requests = mem::take(&mut state.requests);
            let statements = mem::take(&mut state.statements);
            drop(state);
            let turn = self.turn();
            for one in statements {
                let works = if turn.is_ok() {
                    self.with_short_log()
                } else {
                    Err(io::Error::other("the disk fails").into())
                };
                if one.execute(works) {
                    // The next turn opens it again, and renames it.
                    self.database = None;
                }
            }
            pace = match turn {
                Ok(()) if has_events => WritePace::Grouping,
                Ok(()) => WritePace::Idle,
                Err(()) => WritePace::Failing,
            };
            self.written.send_replace(version);
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

    /// Writes what is new.
    fn turn(&mut self) -> Result<(), ()> {
        let written = self.write_new();
        match &written {
            Ok(()) => self.works(),
            // The next turn opens it again, and renames it.
            Err(error) if error.is_damage() => self.database = None,
            Err(_) => {}
        }
        let damage = damage(&self.state_dir);
        self.shared.lock().damage = damage;
        written.map_err(|error| self.failed(error))
    }

    fn write_new(&mut self) -> Result<(), OpenError> {
        if self.database.is_none() {
            // The events in it are for the next run.
            self.open()?;
        }
        let batch = self.shared.lock().take_batch();
        let written = self.write(&batch);
        self.shared.lock().finish(batch, written.is_ok());
        written
    }

    fn write(&mut self, batch: &StateBatch) -> Result<(), OpenError> {
        for (document, text) in &batch.documents {
            let connection = self.with_short_log()?;
            document.write(connection, text.as_deref())?;
        }
        if !batch.events.is_empty() {
            batch.events.write(self.with_short_log()?)?;
        }
        Ok(())
    }

    fn with_short_log(&mut self) -> Result<&mut Connection, OpenError> {
        let closed = || io::Error::other("the database is closed");
        // After an error, the next turn opens it again.
        let mut database = self.database.take().ok_or_else(closed)?;
        database.limit_log()?;
        Ok(&mut self.database.insert(database).connection)
    }

    /// One that is not written yet, or from the disk.
    fn picture(&mut self, number: u64) -> Option<Vec<u8>> {
        if let Some(jpeg) = self.shared.lock().events.unwritten_picture(number) {
            return Some(jpeg.to_vec());
        }
        let connection = &self.database.as_ref()?.connection;
        event_table::picture(connection, number).ok().flatten()
    }

    /// After all events of earlier runs, also of those that cannot be read now.
    fn number_events(&self) {
        let first = (self.clock.wall().unix_millis().max(0) as u64) << 20;
        self.shared.lock().events.number_from(first);
    }

    /// The file gets all that is in memory: what was put before is newer, and the file may be a new one.
    fn open(&mut self) -> Result<(), OpenError> {
        let mut database = Database::open(&self.state_dir, self.clock.wall())?;
        let found = mem::take(&mut database.documents);
        let damage = damage(&self.state_dir);
        // No disk is read or written under the lock: callers are on the daemon's loop.
        let mut state = self.shared.lock();
        let SharedState {
            documents,
            unwritten,
            events,
            ..
        } = &mut *state;
        let newer = documents
            .iter()
            .filter(|(document, text)| found.get(document) != Some(text));
        unwritten.extend(newer.map(|(document, _)| *document));
        let known = found
            .into_iter()
            .filter(|(document, _)| !unwritten.contains(document));
        documents.extend(known);
        events.rewrite();
        state.damage = damage;
        drop(state);
        self.database = Some(database);
        Ok(())
    }

    /// At the start.
    fn read_events(&mut self) -> Result<(), OpenError> {
        if let Some(database) = &self.database {
            let (events, found) = EventTable::open(&database.connection)?;
            let mut state = self.shared.lock();
            (state.events, state.found) = (events, found);
        }
        Ok(())
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
    /// A caller waits for the disk.
    fn is_urgent(&self) -> bool {
        let is_awaited =
            self.is_awaited || !self.requests.is_empty() || !self.statements.is_empty();
        // Pictures are large.
        is_awaited || !self.unwritten.is_empty() || self.events.has_pictures()
    }

    fn take_batch(&mut self) -> StateBatch {
        let unwritten = mem::take(&mut self.unwritten).into_iter();
        let with_text = |document| (document, self.documents.get(&document).cloned());
        StateBatch {
            documents: unwritten.map(with_text).collect(),
            events: self.events.take(),
        }
    }

    fn finish(&mut self, batch: StateBatch, is_written: bool) {
        if !is_written {
            self.unwritten.extend(batch.documents.into_keys());
        }
        self.events.finish(batch.events, is_written);
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
