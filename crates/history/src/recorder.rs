//! The handle of the daemon.

use std::{io, sync::Arc, thread, time::Duration};

use spotter_config::HistoryConfig;
use spotter_core::{CameraId, Clock, MarkOrder, Mono, TrackId, TrackedObject};
use spotter_events::record::RecordChunk;
use spotter_state::{Document, StateStore};
use tokio::sync::watch;

use crate::{
    HistorySelection,
    deletion::DeletedEvents,
    folder::FREE_MIN_BYTES,
    limits::HistoryLimits,
    marks::{JudgingChange, JudgingError, SeriesKey},
    masks::CameraMasks,
    message::HistoryMessage,
    near::NearCounts,
    reader::HistoryReader,
    recorded::{EncodePicture, HistoryShared, HistoryStatus, WriterParts},
    writer::HistoryWriter,
};

const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// See the crate's documentation. Clones share one history; with the last one its threads end.
#[derive(Clone, Debug)]
pub struct History(Arc<HistoryHandle>);

#[derive(Debug)]
struct HistoryHandle {
    shared: Arc<HistoryShared>,
    reader: HistoryReader,
    /// Closed when the writer has ended.
    ended: watch::Receiver<()>,
}

impl History {
    /// Starts the threads. Rows and files of an earlier run are put in order by them, so a disk that fails does not fail the start.
    pub fn start(
        store: &StateStore,
        config: &HistoryConfig,
        encode: EncodePicture,
        clock: Arc<dyn Clock>,
    ) -> io::Result<Self> {
        let parts = WriterParts {
            limits: HistoryLimits::new(config),
            free_min_bytes: FREE_MIN_BYTES,
            clock,
        };
        Self::start_with(store, parts, encode)
    }

    pub(crate) fn start_with(
        store: &StateStore,
        parts: WriterParts,
        encode: EncodePicture,
    ) -> io::Result<Self> {
        let masks = CameraMasks::read(store.get(Document::HistoryMasks));
        let near = NearCounts::new(parts.limits.near);
        let shared = Arc::new(HistoryShared::with_encoder(masks, near));
        let reader = HistoryReader::new(store.folder());
        let reader = reader.of_daemon(Arc::clone(&shared), &parts);
        let (end, ended) = watch::channel(());
        let (of_encoder, encoder_clock) = (Arc::clone(&shared), Arc::clone(&parts.clock));
        let writer = HistoryWriter::new(store.clone(), Arc::clone(&shared), parts);
        let thread = |name: &str| thread::Builder::new().name(name.into());
        thread("history-jpeg").spawn(move || of_encoder.encode_all(encode, &*encoder_clock))?;
        thread("history").spawn(move || {
            writer.run();
            drop(end);
        })?;
        Ok(Self(Arc::new(HistoryHandle {
            shared,
            reader,
            ended,
        })))
    }

    pub fn event(&self, message: &HistoryMessage<'_>) {
        self.0.shared.event(message);
    }

    /// An alarm has the object of an event below `min_score` now: its row and its picture go, unless a person has judged it.
    pub fn withdraw(&self, track: &TrackId) {
        self.0.shared.withdraw(track);
    }

    /// A look saw these objects.
    pub fn looks(&self, objects: &[TrackedObject]) {
        self.0.shared.looks(objects);
    }

    /// Recorded looks, each part after the messages of the events that started in it.
    pub fn records(&self, chunks: Vec<RecordChunk>) {
        self.0.shared.records(chunks);
    }

    /// Deletes events with their pictures. Returns when they are in no file any more, or why they may still be.
    pub async fn delete(&self, selection: HistorySelection) -> Result<DeletedEvents, String> {
        let replied = self.0.shared.delete(selection);
        let ended = || Err("Spotter is stopping; try again".to_owned());
        replied.await.unwrap_or_else(|_| ended())
    }

    /// Stores what a person says of an event, which may still be open. Returns when it is stored.
    pub async fn mark(&self, order: MarkOrder) -> Result<(), JudgingError> {
        self.judge(JudgingChange::Mark(order)).await.map(drop)
    }

    /// Draws alarms with a picture by chance until `wanted` of the series wait to be judged. Returns how many are new.
    pub async fn draw(&self, key: SeriesKey, wanted: usize) -> Result<usize, JudgingError> {
        self.judge(JudgingChange::Draw(key, wanted)).await
    }

    /// The series has the `min_score` of a proposal: of 100 of its alarms, at least `percent` should be right.
    pub async fn promise(&self, key: SeriesKey, percent: u8) -> Result<(), JudgingError> {
        let promised = self.judge(JudgingChange::Promise(key, percent)).await;
        promised.map(drop)
    }

    async fn judge(&self, change: JudgingChange) -> Result<usize, JudgingError> {
        let replied = self.0.shared.judge(change);
        let stopping = || Err(JudgingError::NotStored("Spotter is stopping".to_owned()));
        replied.await.unwrap_or_else(|_| stopping())
    }

    /// These polygons of a camera are masked from `now` on. If stored pictures may show some of it, they are removed and the events stay; frames
    /// from before become no pictures either. Does not wait: [`removed`](Self::removed) does.
    pub fn mask(&self, camera: &CameraId, areas: &[Vec<(f64, f64)>], now: Mono) {
        self.0.shared.mask(camera, areas, now);
    }

    /// A file may have a picture that is to be removed.
    pub fn is_removing(&self) -> bool {
        self.0.shared.is_removing()
    }

    /// Returns when no file has a picture that is to be removed.
    pub async fn removed(&self) {
        self.0.shared.all_removed().await;
    }

    pub fn status(&self) -> HistoryStatus {
        self.0.shared.lock().status.clone()
    }

    pub fn reader(&self) -> &HistoryReader {
        &self.0.reader
    }

    /// Writes what is new, within three seconds.
    pub async fn close(self) {
        self.0.shared.close();
        let mut ended = self.0.ended.clone();
        let ended = async { while ended.changed().await.is_ok() {} };
        if tokio::time::timeout(CLOSE_WITHIN, ended).await.is_err() {
            tracing::warn!(
                "the disk did not finish within 3 s of the stop; the last events of the history may be lost"
            );
        }
    }
}

impl Drop for HistoryHandle {
    fn drop(&mut self) {
        self.shared.close();
    }
}
