//! What the daemon recorded and the writer has not written yet, shared by their threads.

use std::{
    collections::HashMap,
    mem,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::civil::Date;
use spotter_core::{
    CameraId, Clock, EventKind, Frame, LogThrottle, Mono, Picture, TrackId, TrackedObject,
};
use spotter_events::record::RecordChunk;
use tokio::sync::{oneshot, watch};

use crate::{
    deletion::{DeletedEvents, HistorySelection},
    frame_queue::{FrameOrder, FrameQueue, SeenTrack},
    limits::{HistoryLimits, StoredKind, StoredTotals},
    looks::{LookSpacing, StoredLook},
    marks::{JudgingChange, JudgingError, QueuedJudging},
    masks::{CameraMasks, MaskAreas},
    message::HistoryMessage,
    near::{NearCounts, NearPrompt},
    records::RecordQueue,
    row::HistoryRow,
    time_zone::day,
};

/// Of pictures that are encoded and not written.
const JPEGS_MAX_BYTES: usize = 16 << 20;
/// Events in memory: those that are open, and while the disk fails those that ended. Beyond, the oldest that ended are dropped.
const EVENTS_MAX: usize = 5000;
/// Changes that follow a write within this time are written together.
const GROUP_WITHIN: Duration = Duration::from_secs(1);
/// How often the age of events is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(60);
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Makes a JPEG of a picture; blocks.
pub type EncodePicture = fn(&Picture) -> anyhow::Result<Vec<u8>>;

/// What a history begins with.
#[derive(Clone)]
pub(crate) struct WriterParts {
    pub limits: HistoryLimits,
    /// Of the disk.
    pub free_min_bytes: u64,
    pub clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
pub(crate) struct HistoryShared {
    state: Mutex<RecorderState>,
    changed: Condvar,
    /// The camera of each removal that is asked for and not done.
    unremoved: watch::Sender<Vec<CameraId>>,
}

/// What is known of the disk.
#[derive(Clone, Debug, Default)]
pub struct HistoryStatus {
    /// Why pictures are not written.
    pub pictures_stopped: Option<String>,
    /// Why rows are not written; they wait in memory.
    pub rows_stopped: Option<String>,
    /// Pictures of events that were not stored: no encoder was free, or the disk was full.
    pub pictures_dropped: u64,
    /// Events that were not stored.
    pub events_dropped: u64,
    /// Records whose looks were not stored, or not all: too many waited for an event or for the disk.
    pub records_dropped: u64,
    /// Pictures that were deleted and whose files cannot be removed.
    pub pictures_left: u64,
    /// Marks that were stored since the start.
    pub marks: u64,
    pub(crate) totals: StoredTotals,
}

#[derive(Debug, Default)]
pub(crate) struct RecorderState {
    events: HashMap<TrackId, RecordedEvent>,
    frames: FrameQueue,
    pub records: RecordQueue,
    jpegs: Vec<EncodedPicture>,
    deletions: Vec<QueuedDeletion>,
    judging: Vec<QueuedJudging>,
    pub masks: CameraMasks,
    removals: Vec<PictureRemoval>,
    /// Pictures of frames before this have less painted over than they should.
    masked_from: HashMap<CameraId, Mono>,
    pub near: NearCounts,
    /// Events below `min_score` whose objects have an alarm now.
    withdrawn: Vec<WithdrawnEvent>,
    pub status: HistoryStatus,
    is_closing: bool,
    has_encoder: bool,
    /// The writer has ended: no request gets a reply.
    has_ended: bool,
}

/// An event below `min_score` whose row goes, unless a person has judged it.
#[derive(Clone, Debug)]
pub(crate) struct WithdrawnEvent {
    pub track: TrackId,
    prompt: NearPrompt,
    day: Date,
}

/// The picture of an event. Events of one frame share the JPEG.
#[derive(Debug)]
pub(crate) struct EncodedPicture {
    pub jpeg: Arc<[u8]>,
    pub seen: SeenTrack,
    /// Of the frame.
    camera: CameraId,
    received: Mono,
}

#[derive(Debug)]
pub(crate) struct QueuedDeletion {
    pub selection: HistorySelection,
    pub reply: oneshot::Sender<Result<DeletedEvents, String>>,
}

/// All pictures of a camera, which came before these areas were masked.
#[derive(Clone, Debug)]
pub(crate) struct PictureRemoval {
    pub camera: CameraId,
    pub areas: MaskAreas,
    /// Files that could not be removed yet.
    pub left: Vec<String>,
}

/// An event that is open, or not written as it is.
#[derive(Debug)]
struct RecordedEvent {
    row: HistoryRow,
    /// Rises with each change.
    version: u64,
    stored_version: u64,
    is_stored: bool,
    is_judged: bool,
    stored_bytes: u64,
    spacing: LookSpacing,
    unwritten_looks: Vec<u8>,
    next_part: u32,
    /// Pictures that wait or are encoded.
    pending_pictures: u32,
}

/// A row on its way to the disk.
#[derive(Debug)]
pub(crate) struct EventWrite {
    pub row: HistoryRow,
    pub is_new: bool,
    pub looks: Vec<u8>,
    pub part: u32,
    version: u64,
}

/// What the writer has to do.
#[derive(Debug)]
pub(crate) struct WriterTurn {
    pub jpegs: Vec<EncodedPicture>,
    pub deletions: Vec<QueuedDeletion>,
    pub judging: Vec<QueuedJudging>,
    pub removals: Vec<PictureRemoval>,
    pub is_closing: bool,
}

impl RecordedEvent {
    fn new(message: &HistoryMessage<'_>) -> Self {
        Self {
            row: HistoryRow::new(message),
            version: 1,
            stored_version: 0,
            is_stored: false,
            is_judged: false,
            stored_bytes: 0,
            spacing: LookSpacing::default(),
            unwritten_looks: Vec::new(),
            next_part: 0,
            pending_pictures: 0,
        }
    }

    fn look(&mut self, object: &TrackedObject) {
        let offset_ms = u32::try_from(object.age.as_millis()).unwrap_or(u32::MAX);
        if self.spacing.admit(offset_ms) {
            let look = StoredLook {
                offset_ms,
                score: object.score as f32,
                location: object.location,
            };
            look.append_to(&mut self.unwritten_looks);
        }
    }

    fn is_written(&self) -> bool {
        self.stored_version == self.version && self.pending_pictures == 0
    }

    /// Its picture is what a person judged, so no other one replaces it, also when it was removed because more is masked.
    fn keeps_picture(&self) -> bool {
        self.is_judged && self.row.picture > 0
    }

    fn is_needed(&self) -> bool {
        self.row.end_ms.is_none() || !self.is_written()
    }
}

impl RecorderState {
    /// False: nothing is stored of the track.
    fn record(&mut self, message: &HistoryMessage<'_>) -> bool {
        let event = message.event;
        let kind = event.step.kind();
        if kind == EventKind::Crossing {
            return false;
        }
        if let Some(known) = self.events.get_mut(&event.track) {
            known.row.update(event);
            known.version += 1;
            return true;
        }
        // One that was deleted while it was open does not begin again.
        if kind != EventKind::New {
            return false;
        }
        let recorded = RecordedEvent::new(message);
        let day = day(recorded.row.start_ms);
        if message.is_near && !self.near.admit(recorded.row.prompt_key(), day) {
            return false;
        }
        self.events.insert(event.track.clone(), recorded);
        self.drop_oldest();
        true
    }

    fn drop_oldest(&mut self) {
        if self.events.len() <= EVENTS_MAX {
            return;
        }
        let ended = self
            .events
            .values()
            .filter(|event| event.row.end_ms.is_some());
        let oldest = ended.min_by_key(|event| event.row.start_ms);
        if let Some(id) = oldest.map(|event| event.row.id.clone()) {
            self.events.remove(&id);
            self.status.events_dropped += 1;
        }
    }

    fn remove_pictures(&mut self, removal: PictureRemoval, now: Mono) {
        let camera = &removal.camera;
        self.masked_from.insert(camera.clone(), now);
        let mut dropped = self.frames.remove(camera);
        let is_of_camera = |picture: &mut EncodedPicture| picture.camera == *camera;
        let jpegs = self.jpegs.extract_if(.., is_of_camera);
        dropped.extend(jpegs.map(|picture| picture.seen.track));
        dropped.iter().for_each(|track| self.drop_picture(track));
        self.removals.push(removal);
    }

    fn shows_masked(&self, camera: &CameraId, received: Mono) -> bool {
        let from = self.masked_from.get(camera);
        from.is_some_and(|from| received < *from)
    }

    /// Rows have no pictures of the camera any more. Returns the events in memory that had one, with its number.
    pub fn unpictured(&mut self, camera: &CameraId) -> Vec<(TrackId, u64)> {
        let events = self.events.values_mut();
        let pictured = events
            .filter(|event| event.row.camera == *camera && event.row.picture_bytes > 0)
            .map(|event| {
                let bytes = mem::take(&mut event.row.picture_bytes);
                event.stored_bytes = event.stored_bytes.saturating_sub(bytes);
                event.version += 1;
                (event.row.id.clone(), event.row.picture)
            });
        pictured.collect()
    }

    /// Files of them that could not be removed.
    pub fn left(&self) -> usize {
        self.removals.iter().map(|removal| removal.left.len()).sum()
    }

    /// The disk failed.
    pub fn return_removals(&mut self, removals: Vec<PictureRemoval>) {
        self.removals.extend(removals);
    }

    fn order_picture(&mut self, frame: &Frame, message: &HistoryMessage<'_>) {
        let HistoryMessage { event, objects, .. } = *message;
        if self.shows_masked(&frame.camera, frame.times.received) {
            self.status.pictures_dropped += 1;
            return;
        }
        let others = objects.iter().filter(|object| object.track != event.track);
        let mut seen = SeenTrack {
            track: event.track.clone(),
            location: event.location,
            score: event.score,
            is_near: message.is_near,
            others: others.map(|object| object.location).collect(),
        };
        if let Some(known) = self.events.get_mut(&event.track) {
            if known.keeps_picture() {
                return;
            }
            known.pending_pictures += 1;
            seen.is_near = known.row.is_near;
        }
        for track in self.frames.push(frame, seen) {
            self.drop_picture(&track);
        }
    }

    fn picture_ended(&mut self, track: &TrackId) {
        if let Some(known) = self.events.get_mut(track) {
            known.pending_pictures = known.pending_pictures.saturating_sub(1);
            if !known.is_needed() {
                self.events.remove(track);
            }
        }
    }

    /// The event does not get this picture.
    pub fn drop_picture(&mut self, track: &TrackId) {
        self.picture_ended(track);
        self.status.pictures_dropped += 1;
    }

    /// Takes pictures that could not be written. While the disk fails, the newest wait; those from before a mask do not.
    pub fn return_jpegs(&mut self, jpegs: Vec<EncodedPicture>) {
        let is_masked =
            |picture: &EncodedPicture| self.shows_masked(&picture.camera, picture.received);
        let (masked, mut jpegs): (Vec<_>, Vec<_>) = jpegs.into_iter().partition(is_masked);
        for picture in masked {
            self.drop_picture(&picture.seen.track);
        }
        jpegs.append(&mut self.jpegs);
        self.jpegs = jpegs;
        self.bound_jpegs();
    }

    fn bound_jpegs(&mut self) {
        let lengths = self.jpegs.iter().map(|picture| picture.jpeg.len());
        let mut bytes: usize = lengths.sum();
        while bytes > JPEGS_MAX_BYTES {
            let oldest = self.jpegs.remove(0);
            bytes -= oldest.jpeg.len();
            self.drop_picture(&oldest.seen.track);
        }
    }

    /// The file of a picture is written.
    pub fn pictured(&mut self, seen: &SeenTrack, bytes: usize) {
        if let Some(known) = self.events.get_mut(&seen.track) {
            let row = &mut known.row;
            row.picture += 1;
            row.picture_bytes = bytes as u64;
            row.written += bytes as u64;
            (row.location, row.score) = (seen.location, seen.score);
            row.others.clone_from(&seen.others);
            known.version += 1;
            known.pending_pictures = known.pending_pictures.saturating_sub(1);
        }
    }

    /// The number of the last picture of an event; `None`: it gets no other one, because it was deleted or judged.
    pub fn picture_number(&mut self, track: &TrackId) -> Option<u64> {
        let known = self.events.get(track)?;
        if known.keeps_picture() {
            self.picture_ended(track);
            return None;
        }
        Some(known.row.picture)
    }

    /// The row has the mark, or has it no more.
    pub fn marked(&mut self, track: &TrackId, is_judged: bool) {
        self.status.marks += 1;
        if let Some(known) = self.events.get_mut(track) {
            known.is_judged = is_judged;
        }
    }

    /// Rows that differ from the disk. [`stored`](Self::stored) follows when they are there.
    pub fn changed_events(&self) -> Vec<EventWrite> {
        let changed = self.events.values();
        let changed = changed.filter(|event| event.version > event.stored_version);
        let writes = changed.map(|event| {
            let looks = event.unwritten_looks.clone();
            EventWrite {
                row: event.row.written_with(looks.len()),
                is_new: !event.is_stored,
                looks,
                part: event.next_part,
                version: event.version,
            }
        });
        // In the order in which they began, which decides about places.
        let mut writes: Vec<_> = writes.collect();
        writes.sort_by(|a, b| (a.row.start_ms, &a.row.id).cmp(&(b.row.start_ms, &b.row.id)));
        writes
    }

    /// What rows grow by when they are written.
    pub fn unwritten_bytes(&self) -> u64 {
        let growth = self.events.values().map(|event| {
            let bytes = event.row.bytes() + event.unwritten_looks.len() as u64;
            bytes.saturating_sub(event.stored_bytes)
        });
        growth.sum()
    }

    pub fn stored(&mut self, write: &EventWrite) {
        let Some(event) = self.events.get_mut(&write.row.id) else {
            return;
        };
        let bytes = write.row.bytes();
        let totals = &mut self.status.totals;
        totals.events += u64::from(!event.is_stored && !event.row.is_near);
        let kind = StoredKind::new(event.row.is_near, event.is_judged);
        totals.add(bytes, kind);
        totals.subtract(event.stored_bytes, kind);
        event.stored_bytes = bytes;
        (event.row.look_bytes, event.row.written) = (write.row.look_bytes, write.row.written);
        event.is_stored = true;
        event.stored_version = write.version;
        event.unwritten_looks.drain(..write.looks.len());
        event.next_part += u32::from(!write.looks.is_empty());
        if !event.is_needed() {
            self.events.remove(&write.row.id);
        }
    }

    fn withdraw(&mut self, track: &TrackId) {
        let Some(known) = self.events.get(track) else {
            return;
        };
        self.withdrawn.push(WithdrawnEvent {
            track: track.clone(),
            prompt: known.row.prompt_key(),
            day: day(known.row.start_ms),
        });
    }

    /// The row is deleted: its prompt may have another one of the day.
    pub fn withdrew(&mut self, event: &WithdrawnEvent) {
        self.near.withdraw(&event.prompt, event.day);
    }

    pub fn take_withdrawn(&mut self) -> Vec<WithdrawnEvent> {
        mem::take(&mut self.withdrawn)
    }

    /// The disk failed.
    pub fn return_withdrawn(&mut self, withdrawn: Vec<WithdrawnEvent>) {
        self.withdrawn.extend(withdrawn);
    }

    /// Rows that are on no disk any more are not written again.
    pub fn forget(&mut self, track: &TrackId) {
        self.events.remove(track);
    }

    fn has_changes(&self) -> bool {
        let is_changed = |event: &RecordedEvent| event.version > event.stored_version;
        let has_writes =
            !self.jpegs.is_empty() || !self.withdrawn.is_empty() || self.records.has_ready();
        has_writes || self.events.values().any(is_changed)
    }

    fn is_urgent(&self) -> bool {
        self.is_asked() || !self.removals.is_empty() || self.is_ending()
    }

    /// Someone waits for a reply, also one that says that the disk fails.
    fn is_asked(&self) -> bool {
        !self.deletions.is_empty() || !self.judging.is_empty()
    }

    /// The last pictures are encoded.
    fn is_ending(&self) -> bool {
        self.is_closing && !self.has_encoder
    }
}

impl HistoryShared {
    /// [`encode_all`](Self::encode_all) follows.
    pub fn with_encoder(masks: CameraMasks, near: NearCounts) -> Self {
        let shared = Self::default();
        let mut state = shared.lock();
        (state.has_encoder, state.masks, state.near) = (true, masks, near);
        drop(state);
        shared
    }

    pub fn event(&self, message: &HistoryMessage<'_>) {
        let begins_picture = message.event.step.begins_picture();
        self.change(|state| {
            if state.record(message)
                && let Some(frame) = message.frame.filter(|_| begins_picture)
            {
                state.order_picture(frame, message);
            }
        });
    }

    pub fn withdraw(&self, track: &TrackId) {
        self.change(|state| state.withdraw(track));
    }

    pub fn looks(&self, objects: &[TrackedObject]) {
        if objects.is_empty() {
            return;
        }
        let mut state = self.lock();
        for object in objects {
            if let Some(event) = state.events.get_mut(&object.track) {
                event.look(object);
            }
        }
    }

    pub fn records(&self, chunks: Vec<RecordChunk>) {
        if chunks.is_empty() {
            return;
        }
        self.change(|state| {
            let discarded = chunks.into_iter().map(|chunk| state.records.push(chunk));
            state.status.records_dropped += discarded.sum::<u64>();
        });
    }

    /// The reply follows, unless the writer has ended.
    pub fn delete(
        &self,
        selection: HistorySelection,
    ) -> oneshot::Receiver<Result<DeletedEvents, String>> {
        let (reply, replied) = oneshot::channel();
        let deletion = QueuedDeletion { selection, reply };
        self.request(|state| state.deletions.push(deletion));
        replied
    }

    /// The reply follows, unless the writer has ended.
    pub fn judge(&self, change: JudgingChange) -> oneshot::Receiver<Result<usize, JudgingError>> {
        let (reply, replied) = oneshot::channel();
        let queued = QueuedJudging { change, reply };
        self.request(|state| state.judging.push(queued));
        replied
    }

    pub fn mask(&self, camera: &CameraId, areas: &[Vec<(f64, f64)>], now: Mono) {
        let removal = PictureRemoval {
            camera: camera.clone(),
            areas: areas.to_vec(),
            left: Vec::new(),
        };
        self.change(|state| {
            if !state.masks.set(camera, &removal.areas) {
                self.unremoved
                    .send_modify(|cameras| cameras.push(camera.clone()));
                state.remove_pictures(removal, now);
            }
        });
    }

    pub fn is_removing(&self) -> bool {
        !self.unremoved.borrow().is_empty()
    }

    pub fn is_removing_of(&self, camera: &str) -> bool {
        let unremoved = self.unremoved.borrow();
        unremoved.iter().any(|id| id.as_str() == camera)
    }

    /// Returns when all removals are done.
    pub async fn all_removed(&self) {
        let mut unremoved = self.unremoved.subscribe();
        // The sender is this one's.
        _ = unremoved.wait_for(Vec::is_empty).await;
    }

    /// The writer ends when all is written.
    pub fn close(&self) {
        self.change(|state| state.is_closing = true);
    }

    pub fn lock(&self) -> MutexGuard<'_, RecorderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A removal of this camera is done.
    pub fn removed(&self, camera: &CameraId) {
        self.unremoved.send_modify(|unremoved| {
            let done = unremoved.iter().position(|id| id == camera);
            done.map(|index| unremoved.swap_remove(index));
        });
    }

    /// Drops it where no writer replies.
    fn request(&self, push: impl FnOnce(&mut RecorderState)) {
        self.change(|state| {
            if !state.has_ended {
                push(state);
            }
        });
    }

    /// The writer has ended: drops the requests that it did not take.
    pub fn end(&self) {
        self.change(|state| {
            state.has_ended = true;
            state.deletions.clear();
            state.judging.clear();
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut RecorderState) -> T) -> T {
        let mut state = self.lock();
        let changed = change(&mut state);
        self.changed.notify_all();
        changed
    }

    fn wait_while(
        &self,
        time: Duration,
        mut is_quiet: impl FnMut(&RecorderState) -> bool,
    ) -> MutexGuard<'_, RecorderState> {
        let state = self.lock();
        let waited = self
            .changed
            .wait_timeout_while(state, time, |state| is_quiet(state));
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits for what the writer has to do.
    pub fn next_turn(&self, is_failing: bool) -> WriterTurn {
        let pause = if is_failing {
            RETRY_AFTER
        } else {
            GROUP_WITHIN
        };
        // What failed is not urgent.
        drop(self.wait_while(pause, |state| {
            let waits = is_failing && !state.is_asked() && !state.is_ending();
            waits || !state.is_urgent()
        }));
        let is_quiet = |state: &RecorderState| !state.is_urgent() && !state.has_changes();
        let mut state = self.wait_while(LOOK_EVERY, is_quiet);
        WriterTurn {
            jpegs: mem::take(&mut state.jpegs),
            deletions: mem::take(&mut state.deletions),
            judging: mem::take(&mut state.judging),
            removals: mem::take(&mut state.removals),
            is_closing: state.is_ending(),
        }
    }

    /// The encoder's thread: ends when the history closes and no frame waits.
    pub fn encode_all(&self, encode: EncodePicture, clock: &dyn Clock) {
        let mut failures = LogThrottle::default();
        while let Some(order) = self.next_frame() {
            let jpeg = encode(&order.picture).inspect_err(|error| {
                if let Some(suppressed) = failures.admit((), clock.now()) {
                    tracing::warn!(suppressed, "no picture for the history: {error:#}");
                }
            });
            let FrameOrder {
                camera,
                received,
                tracks,
                ..
            } = order;
            self.change(|state| match jpeg {
                Ok(jpeg) if !state.shows_masked(&camera, received) => {
                    let jpeg: Arc<[u8]> = jpeg.into();
                    let jpegs = tracks.into_iter().map(|seen| EncodedPicture {
                        jpeg: Arc::clone(&jpeg),
                        seen,
                        camera: camera.clone(),
                        received,
                    });
                    state.jpegs.extend(jpegs);
                    state.bound_jpegs();
                }
                _ => tracks
                    .iter()
                    .for_each(|seen| state.drop_picture(&seen.track)),
            });
        }
        self.change(|state| state.has_encoder = false);
    }

    fn next_frame(&self) -> Option<FrameOrder> {
        let is_quiet = |state: &RecorderState| state.frames.is_empty() && !state.is_closing;
        loop {
            let mut state = self.wait_while(LOOK_EVERY, is_quiet);
            let next = state.frames.pop();
            if next.is_some() || state.is_closing {
                return next;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use spotter_core::{
        EventStep,
        testing::{event, frame_at},
    };

    use super::*;
    use crate::testing::message;

    #[test]
    fn picture_before_a_mask_is_not_written_after_a_failure() {
        let shared = HistoryShared::with_encoder(CameraMasks::default(), NearCounts::default());
        let begun = event("gate", 1, EventStep::New);
        let frame = frame_at(&begun.camera, Duration::from_secs(1));
        shared.event(&message(&begun, "car", Some(&frame)));
        let order = shared.next_frame().unwrap();
        let jpeg = |received| EncodedPicture {
            jpeg: [0; 10].into(),
            seen: order.tracks[0].clone(),
            camera: begun.camera.clone(),
            received,
        };
        // The writer has it, and fails.
        let written = [
            jpeg(frame.times.received),
            jpeg(frame.times.received.after(Duration::from_secs(9))),
        ];
        let now = frame.times.received.after(Duration::from_secs(5));
        shared.mask(
            &begun.camera,
            &[vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0)]],
            now,
        );
        shared.lock().return_jpegs(written.into());
        let left = shared.next_turn(false).jpegs;
        assert_eq!((left.len(), left[0].received > now), (1, true));
        assert_eq!(shared.lock().status.pictures_dropped, 1);
    }
}
