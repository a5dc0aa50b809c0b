//! The task that writes the outbox's events to the journal. It uses tokio's blocking threads, so a slow disk delays no other
//! task. While the disk fails, events are in memory only, and a log message reports it.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, oneshot},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{Folder, Journal, SYNC_EVERY};
use crate::broker::Shared;
use spotter_core::{Clock, Mono};

/// Pause after an error of the disk.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// A lasting error is logged again after this time.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// The end of the task waits for the disk for this time at most.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

/// The part of the writer that the publisher shares.
#[derive(Debug, Default)]
pub(crate) struct SpoolStatus {
    news: Notify,
    trouble: Mutex<Option<String>>,
}

impl SpoolStatus {
    /// `trouble`: why there is no journal.
    pub(crate) fn new(trouble: Option<String>) -> Self {
        Self {
            news: Notify::new(),
            trouble: Mutex::new(trouble),
        }
    }

    pub(crate) fn wake_writer(&self) {
        self.news.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why events are in memory only; `None` = they are on disk.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.lock().clone()
    }
}

pub(crate) struct SpoolWriter {
    /// `None` = the journal could not be opened.
    pub(crate) journal: Option<Journal<Folder>>,
    pub(crate) path: PathBuf,
    pub(crate) shared: Arc<Shared>,
    pub(crate) status: Arc<SpoolStatus>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl SpoolWriter {
    /// Runs until `stop` resolves, also by a dropped sender. Then writes the last batch, within [`CLOSE_WITHIN`].
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        let mut logged_at = None;
        let Some(mut journal) = self.journal.take() else {
            loop {
                self.log_trouble(&mut logged_at);
                tokio::select! {
                    () = sleep(LOG_EVERY) => {}
                    _ = &mut stop => return,
                }
            }
        };
        let (mut synced, mut retry_at) = (self.clock.now(), Mono::default());
        let mut stopping = false;
        while !stopping {
            tokio::select! {
                () = self.status.news.notified() => {}
                () = sleep(SYNC_EVERY) => {}
                _ = &mut stop => stopping = true,
            }
            let now = self.clock.now();
            if now < retry_at && !stopping {
                continue;
            }
            let sync = now.since(synced) >= SYNC_EVERY;
            if sync {
                synced = now;
            }
            let finish = match (stopping, sync) {
                (true, _) => Journal::close,
                (false, true) => Journal::sync,
                (false, false) => |_: &mut Journal<Folder>| Ok(()),
            };
            let turn = self.turn(journal, now, finish);
            let turn = match stopping {
                true => timeout(CLOSE_WITHIN, turn).await.ok().flatten(),
                false => turn.await,
            };
            let Some((back, result)) = turn else {
                let path = self.path.display();
                tracing::warn!(%path, "disk did not finish within 2 s of the stop; events may be lost");
                return;
            };
            journal = back;
            let trouble = result
                .err()
                .map(|error| format!("cannot keep events in {}: {error}", self.path.display()));
            if trouble.is_some() {
                retry_at = now.after(RETRY_AFTER);
            } else if logged_at.take().is_some() {
                tracing::info!(path = %self.path.display(), "events are written to disk again");
            }
            *self.status.lock() = trouble;
            self.log_trouble(&mut logged_at);
        }
    }

    /// Writes one batch on a blocking thread, and calls `finish`. `None` = the runtime is ending.
    async fn turn(
        &self,
        mut journal: Journal<Folder>,
        now: Mono,
        finish: fn(&mut Journal<Folder>) -> io::Result<()>,
    ) -> Option<(Journal<Folder>, io::Result<()>)> {
        let batch = self.shared.outbox().events.unwritten(now);
        let wall = self.clock.wall();
        let work = move || {
            let written = journal.write(&batch, now, wall);
            let finished = finish(&mut journal);
            let unwritten = written.is_err().then_some(batch);
            (journal, unwritten, written.and(finished))
        };
        let (journal, unwritten, result) = spawn_blocking(work).await.ok()?;
        if let Some(batch) = unwritten {
            self.shared.outbox().events.still_unwritten(batch);
        }
        Some((journal, result))
    }

    /// Logs the error, and again once a minute.
    fn log_trouble(&self, logged_at: &mut Option<Mono>) {
        let Some(trouble) = self.status.trouble() else {
            return;
        };
        let now = self.clock.now();
        if logged_at.is_none_or(|at| now.since(at) >= LOG_EVERY) {
            tracing::warn!(
                trouble,
                "events are in memory only; a restart would lose them"
            );
            *logged_at = Some(now);
        }
    }
}
