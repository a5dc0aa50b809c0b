//! The counts at lines on the disk: written at most once a second, and at the end.

use std::path::PathBuf;

use tokio::task::{JoinHandle, spawn_blocking};

use spotter_events::{LineCountFile, LineCountFileError, track::LineCountRecord};

/// Owns the file. After an error the node counts on, and each change is tried again.
pub struct LineCountStore {
    /// `None`: counts do not survive a restart.
    file: Option<LineCountFile>,
    /// As they are in the file, or are being written.
    saved: Vec<LineCountRecord>,
    writing: Option<JoinHandle<Result<(), LineCountFileError>>>,
    /// The last write failed, and the log says so.
    is_failing: bool,
}

impl LineCountStore {
    /// Reads the counts of an earlier run. Without a directory there are none. Blocks on the disk.
    pub fn open(state_dir: Option<PathBuf>) -> Self {
        let file = state_dir.map(LineCountFile::new);
        let saved = file.as_ref().map_or(Ok(Vec::new()), LineCountFile::load);
        let saved = saved.unwrap_or_else(|error| {
            tracing::error!("{error}");
            Vec::new()
        });
        Self {
            file,
            saved,
            writing: None,
            is_failing: false,
        }
    }

    pub fn records(&self) -> &[LineCountRecord] {
        &self.saved
    }

    /// Begins to write `counts` if they changed and the last write has ended. Once a second.
    pub async fn tick(&mut self, counts: Vec<LineCountRecord>) {
        if self
            .writing
            .as_ref()
            .is_some_and(|task| !task.is_finished())
        {
            return;
        }
        self.finish_write().await;
        if let (Some(file), true) = (self.file.clone(), counts != self.saved) {
            self.saved.clone_from(&counts);
            self.writing = Some(spawn_blocking(move || file.save(counts)));
        }
    }

    /// Writes the last counts and waits for the disk.
    pub async fn finish(&mut self, counts: Vec<LineCountRecord>) {
        self.finish_write().await;
        self.tick(counts).await;
        self.finish_write().await;
    }

    async fn finish_write(&mut self) {
        let Some(writing) = self.writing.take() else {
            return;
        };
        // A panic of the task is in the log above.
        let Ok(written) = writing.await else { return };
        if let (Err(error), false) = (&written, self.is_failing) {
            tracing::error!("{error}");
        }
        self.is_failing = written.is_err();
    }
}
