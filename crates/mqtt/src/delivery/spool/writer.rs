//! The task that writes the outbox's events to the journal. It uses tokio's blocking threads, so a slow disk delays no other
//! task. While the disk fails, events are in memory only, and a log message reports it.

use std::{
    io, mem,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    task::spawn_blocking,
    time::{sleep, timeout},
};

use super::{Folder, Journal, SYNC_EVERY};
use crate::delivery::Shared;
use spotter_core::{Clock, Mono};

/// Pause after an error of the disk.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// The end of the task waits for the disk for this time at most.
const CLOSE_WITHIN: Duration = Duration::from_secs(2);

pub(crate) struct SpoolWriter {
    pub(crate) journal: Journal<Folder>,
    pub(crate) path: PathBuf,
    pub(crate) shared: Arc<Shared>,
    pub(crate) clock: Arc<dyn Clock>,
}

impl SpoolWriter {
    /// Runs until `stop` resolves, also by a dropped sender. Then writes the last batch, within [`CLOSE_WITHIN`].
    pub(crate) async fn run(self, mut stop: oneshot::Receiver<()>) {
        let Self {
            mut journal,
            path,
            shared,
            clock,
        } = self;
        let (mut synced, mut retry_at) = (clock.now(), Mono::default());
        let mut stopping = false;
        while !stopping {
            tokio::select! {
                () = shared.event_pushed.notified() => {}
                () = sleep(SYNC_EVERY) => {}
                _ = &mut stop => stopping = true,
            }
            let now = clock.now();
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
            let turn = write_batch(journal, &shared, &*clock, finish);
            let turn = match stopping {
                true => timeout(CLOSE_WITHIN, turn).await.ok().flatten(),
                false => turn.await,
            };
            let Some((back, result)) = turn else {
                let path = path.display();
                tracing::warn!(%path, "disk did not finish within 2 s of the stop; events may be lost");
                return;
            };
            journal = back;
            let trouble = result.err().map(|error| trouble(&path, &error));
            if trouble.is_some() {
                retry_at = now.after(RETRY_AFTER);
            }
            let before = mem::replace(&mut shared.outbox().events.spool_trouble, trouble.clone());
            match (before, trouble) {
                (None, Some(trouble)) => log_trouble(&trouble),
                (Some(_), None) => {
                    tracing::info!(path = %path.display(), "events are written to disk again");
                }
                (None, None) | (Some(_), Some(_)) => {}
            }
        }
    }
}

/// Writes one batch on a blocking thread, and calls `finish`. `None` = the runtime is ending.
async fn write_batch(
    mut journal: Journal<Folder>,
    shared: &Shared,
    clock: &dyn Clock,
    finish: fn(&mut Journal<Folder>) -> io::Result<()>,
) -> Option<(Journal<Folder>, io::Result<()>)> {
    let (now, wall) = (clock.now(), clock.wall());
    let batch = shared.outbox().events.unwritten(now);
    let work = move || {
        let written = journal.write(&batch, now, wall);
        let finished = finish(&mut journal);
        let unwritten = written.is_err().then_some(batch);
        (journal, unwritten, written.and(finished))
    };
    let (journal, unwritten, result) = spawn_blocking(work).await.ok()?;
    if let Some(batch) = unwritten {
        shared.outbox().events.still_unwritten(batch);
    }
    Some((journal, result))
}

/// The text of an error of the disk.
pub(crate) fn trouble(path: &Path, error: &io::Error) -> String {
    format!("cannot keep events in {}: {error}", path.display())
}

/// Logs the beginning of a failure; `/healthz` shows it while it lasts.
pub(crate) fn log_trouble(trouble: &str) {
    tracing::warn!(
        trouble,
        "events are in memory only; a restart would lose them"
    );
}
