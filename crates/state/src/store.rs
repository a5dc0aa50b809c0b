//! The handle of the daemon, and the thread that writes.

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use tokio::sync::{oneshot, watch};

use crate::{
    database::{Database, OpenError, damaged_files, read_only},
    document::{Document, Documents},
};
use spotter_core::Clock;

/// Pause after an error of the disk.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// How often the thread looks whether a damaged file is still there.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The end waits for the disk for this time at most.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The stored values of one daemon. Clones share them; with the last one the thread ends, after it wrote what is new.
#[derive(Clone, Debug)]
pub struct StateStore(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    ended: watch::Receiver<bool>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<SharedState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct SharedState {
    documents: Documents,
    /// Not on the disk as they are in `documents`.
    unwritten: BTreeSet<Document>,
    waiting: Vec<oneshot::Sender<()>>,
    /// Why values are in memory only.
    disk_trouble: Option<String>,
    damage: Option<String>,
    is_closing: bool,
}

/// A value on its way to the disk.
#[derive(Debug)]
pub struct PendingWrite(Option<oneshot::Receiver<()>>);

impl PendingWrite {
    /// Returns when the value survives a power failure, or when it is known that the disk fails: then [`StateStore::troubles`] says so.
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
        let shared = Arc::new(Shared::default());
        let mut writer = Writer {
            state_dir: state_dir.to_owned(),
            database: None,
            shared: Arc::clone(&shared),
            clock,
        };
        match writer.open() {
            Ok(()) => {}
            Err(error @ OpenError::Newer { .. }) => return Err(error),
            Err(error) => {
                writer.failed(&error);
                shared.lock().documents = read_only(state_dir);
            }
        }
        let (running, ended) = watch::channel(false);
        let body = move || {
            writer.run();
            running.send_replace(true);
        };
        thread::Builder::new().name("state".into()).spawn(body)?;
        Ok(Self(Arc::new(Handle { shared, ended })))
    }

    /// The newest text, written or not. Its owner checks it: users can write to the file.
    pub fn get(&self, document: Document) -> Option<String> {
        self.0.shared.lock().documents.get(&document).cloned()
    }

    /// Replaces the text. Never waits for the disk.
    pub fn put(&self, document: Document, text: String) -> PendingWrite {
        self.change(document, Some(text))
    }

    pub fn remove(&self, document: Document) -> PendingWrite {
        self.change(document, None)
    }

    fn change(&self, document: Document, text: Option<String>) -> PendingWrite {
        let mut state = self.0.shared.lock();
        if state.documents.get(&document) != text.as_ref() {
            match text {
                Some(text) => state.documents.insert(document, text),
                None => state.documents.remove(&document),
            };
            state.unwritten.insert(document);
        }
        drop(state);
        self.pending()
    }

    /// All that was put until now.
    pub fn pending(&self) -> PendingWrite {
        let mut state = self.0.shared.lock();
        self.0.shared.changed.notify_one();
        if state.unwritten.is_empty() || state.disk_trouble.is_some() {
            return PendingWrite(None);
        }
        let (sender, written) = oneshot::channel();
        state.waiting.push(sender);
        PendingWrite(Some(written))
    }

    /// Why values do not survive a restart, and which damaged file was found.
    pub fn troubles(&self) -> Vec<String> {
        let state = self.0.shared.lock();
        let both = state.disk_trouble.iter().chain(&state.damage);
        both.cloned().collect()
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

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, SharedState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closing = true;
        self.changed.notify_one();
    }

    /// Waits for something new; after an error, until it is time to try again.
    fn wait(&self, is_failing: bool) -> MutexGuard<'_, SharedState> {
        let pause = if is_failing { RETRY_AFTER } else { LOOK_EVERY };
        let is_quiet = |state: &mut SharedState| {
            !state.is_closing && (is_failing || state.unwritten.is_empty())
        };
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), pause, is_quiet);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// The texts to write; `None`: removed.
type Batch = BTreeMap<Document, Option<String>>;

struct Writer {
    state_dir: PathBuf,
    /// `None`: it cannot be opened.
    database: Option<Database>,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
}

impl Writer {
    fn run(mut self) {
        let mut is_failing = self.database.is_none();
        loop {
            let mut state = self.shared.wait(is_failing);
            let is_closing = state.is_closing;
            let batch = state.take_batch();
            let waiting = mem::take(&mut state.waiting);
            drop(state);
            is_failing = self.turn(batch).is_err();
            for waiting in waiting {
                // A caller that stopped waiting needs no answer.
                _ = waiting.send(());
            }
            if is_closing {
                return;
            }
        }
    }

    /// Writes a batch; what was not written is put back.
    fn turn(&mut self, mut batch: Batch) -> Result<(), ()> {
        let written = self.write(&mut batch);
        match &written {
            Ok(()) => self.works(),
            Err(error) => self.failed(error),
        }
        let mut state = self.shared.lock();
        state.unwritten.extend(batch.into_keys());
        state.damage = damage(&self.state_dir);
        written.map_err(drop)
    }

    /// Takes out of the batch what is written.
    fn write(&mut self, batch: &mut Batch) -> Result<(), OpenError> {
        if self.database.is_none() {
            self.open()?;
        }
        let Some(database) = &mut self.database else {
            return Ok(());
        };
        while let Some((document, text)) = batch.first_key_value() {
            if let Err(error) = database.limit_log() {
                // The next turn opens it again.
                self.database = None;
                return Err(error);
            }
            document.write(&database.connection, text.as_deref())?;
            batch.pop_first();
        }
        Ok(())
    }

    /// What was put before stays newer than what is on the disk.
    fn open(&mut self) -> Result<(), OpenError> {
        let mut database = Database::open(&self.state_dir, self.clock.wall())?;
        let found = mem::take(&mut database.documents);
        let mut state = self.shared.lock();
        for (document, text) in found {
            if !state.unwritten.contains(&document) {
                state.documents.entry(document).or_insert(text);
            }
        }
        state.damage = damage(&self.state_dir);
        drop(state);
        self.database = Some(database);
        Ok(())
    }

    fn works(&self) {
        if self.shared.lock().disk_trouble.take().is_some() {
            tracing::info!(path = %self.state_dir.display(), "settings are written to disk again");
        }
    }

    /// Logs the beginning of a failure; `/healthz` shows it while it lasts.
    fn failed(&self, error: &OpenError) {
        let folder = self.state_dir.display();
        let trouble = format!("cannot keep settings in {folder}: {error}");
        let before = self.shared.lock().disk_trouble.replace(trouble.clone());
        if before.is_none() {
            tracing::error!(
                trouble,
                "settings, counts and lists are in memory only; a restart would lose what changed"
            );
        }
    }
}

impl SharedState {
    fn take_batch(&mut self) -> Batch {
        let unwritten = mem::take(&mut self.unwritten).into_iter();
        let with_text = |document| (document, self.documents.get(&document).cloned());
        unwritten.map(with_text).collect()
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
