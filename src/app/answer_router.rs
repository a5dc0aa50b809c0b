//! The way of an answer from the engine to the publisher: tracker, snapshots, status page, messages.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    camera_supervisor::CameraSwitch,
    snapshot::Mark,
    snapshots::{FinishedSnapshot, SnapshotCounters, Snapshots},
};
use spotter_cameras::sampler::Sampler;
use spotter_config::{CameraConfig, ConfigChange};
use spotter_core::{
    Answer, CameraId, Clock, Detection, EndReason, Event, Frame, FrameInfo, LineId, LogThrottle,
    LookFailure, LookNews, Outcome, Prompt, SkippedSinceLast,
};
use spotter_events::track::{LineCountRecord, PromptChange, TrackedAnswer, Tracker};
use spotter_mqtt::{Publisher, Update};
use spotter_page::Board;
use spotter_webhook::WebhookPicture;

/// Owns the tracker, and so all states of all prompts. No call waits.
pub struct AnswerRouter {
    tracker: Tracker,
    snapshots: Snapshots,
    /// The objects that looks have so far, by camera and frame, for snapshots of whole looks. Removed when the look's short
    /// answers are there or it ends, so that there are as many as looks in flight.
    found: BTreeMap<(CameraId, u64), Vec<Mark>>,
    failures: LogThrottle<CameraId>,
    model: Arc<str>,
    sampler: Arc<Sampler>,
    publisher: Publisher,
    board: Board,
    clock: Arc<dyn Clock>,
}

/// What an [`AnswerRouter`] is made of.
pub struct AnswerRouterParts<'a> {
    pub cameras: &'a [CameraConfig],
    /// Of an earlier run.
    pub line_counts: &'a [LineCountRecord],
    /// The broker retains the snapshots of events.
    pub retain_snapshots: bool,
    /// Name of the model that answers.
    pub model: Arc<str>,
    /// Identifies this run of the daemon in track ids.
    pub boot: Arc<str>,
    pub sampler: Arc<Sampler>,
    pub publisher: Publisher,
    pub board: Board,
    pub clock: Arc<dyn Clock>,
}

impl AnswerRouter {
    /// Publishes all states as unknown, and the counts at lines as they were.
    pub fn new(parts: AnswerRouterParts) -> Self {
        let cameras = parts.cameras;
        let mut tracker = Tracker::new(parts.boot, cameras);
        tracker.restore_line_counts(parts.line_counts);
        let router = Self {
            tracker,
            snapshots: Snapshots::new(cameras, parts.retain_snapshots),
            found: BTreeMap::new(),
            failures: LogThrottle::default(),
            model: parts.model,
            sampler: parts.sampler,
            publisher: parts.publisher,
            board: parts.board,
            clock: parts.clock,
        };
        router.publish(router.tracker.all_states());
        router
    }

    pub fn snapshot_counters(&self) -> SnapshotCounters {
        self.snapshots.counters()
    }

    /// A look has news: each answer is published at once.
    pub fn news(&mut self, news: LookNews) {
        match news {
            LookNews::Answer {
                frame,
                model_size,
                since_last,
                answer,
            } => {
                self.board.look(&frame);
                match self.tracker.settled(&frame, &answer) {
                    Some(change) => self.settled(&frame, change),
                    None => {
                        let marks = self.answer(&frame, model_size, since_last, &answer);
                        if !answer.prompt.task.is_free_text() {
                            self.found.entry(key(&frame)).or_default().extend(marks);
                        }
                    }
                }
            }
            LookNews::ShortAnswered(frame) => {
                let marks = self.found.remove(&key(&frame)).unwrap_or_default();
                self.snapshots.look(&frame, marks, self.clock.now());
            }
            // Looks of cameras are not in pieces.
            LookNews::Piece { .. } | LookNews::Ended(Outcome::Answered(_)) => {}
            // Counted by the sampler; a camera that is too slow for its budget would fill the log.
            LookNews::Ended(Outcome::Late(look)) => {
                self.found.remove(&key(&look.frame));
                let changes = self.tracker.unanswered(&look);
                self.publish(changes);
            }
            LookNews::Ended(Outcome::Failed(look, why)) => {
                self.found.remove(&key(&look.frame));
                let changes = self.tracker.unanswered(&look);
                self.publish(changes);
                let camera = &look.frame.camera;
                // Its end is logged once.
                if why == LookFailure::EngineStopped {
                    return;
                }
                if let Some(suppressed) = self.failures.admit(camera.clone(), self.clock.now()) {
                    let suppressed = (suppressed > 0).then_some(suppressed);
                    tracing::warn!(%camera, reason = %why, suppressed, "a look failed; its frame is dropped");
                }
            }
        }
    }

    /// The counts at all lines, to be kept over a restart.
    pub fn line_counts(&self) -> Vec<LineCountRecord> {
        self.tracker.line_counts()
    }

    /// Sets the counts at a line to 0.
    pub fn reset_line(&mut self, camera: &CameraId, line: &LineId) {
        let changes = self.tracker.reset_line(camera, line, self.clock.wall());
        self.publish(changes);
    }

    /// Time passed: states of prompts without a look for too long become unknown, and lines are reset as configured.
    pub fn tick(&mut self) {
        let changes = self.tracker.tick(self.clock.now(), self.clock.wall());
        self.publish(changes);
    }

    /// A camera was switched on or off. When it is off, its states are unknown and answers of looks in flight are ignored.
    pub fn switched(&mut self, switched: &CameraSwitch) {
        let changes = self.switch(switched);
        self.publish(changes);
    }

    fn switch(&mut self, switched: &CameraSwitch) -> Vec<PromptChange> {
        match switched {
            CameraSwitch::On(camera) => {
                self.tracker.resume(camera);
                Vec::new()
            }
            CameraSwitch::Off(camera) => {
                self.found.retain(|(of, _), _| of != camera);
                let wall = self.clock.wall();
                self.tracker.suspend(camera, EndReason::Disabled, wall)
            }
        }
    }

    /// The engine of these cameras is lost, with their looks in flight. Their events end, and their states are unknown until the next
    /// answer.
    pub fn engine_lost(&mut self, cameras: &[CameraId]) {
        let changes = self.lose(cameras);
        self.publish(changes);
    }

    fn lose(&mut self, cameras: &[CameraId]) -> Vec<PromptChange> {
        // The looks of a lost engine have no more news.
        self.found.retain(|(of, _), _| !cameras.contains(of));
        let wall = self.clock.wall();
        let lose = |camera| self.tracker.lose(camera, EndReason::EngineLost, wall);
        cameras.iter().flat_map(lose).collect()
    }

    /// Another node of the fleet is about to have the camera: its events end here. Its states stay as they are until that node knows better.
    pub fn hand_over(&mut self, camera: &CameraId) {
        self.found.retain(|(of, _), _| of != camera);
        let wall = self.clock.wall();
        let changes = self.tracker.suspend(camera, EndReason::Moved, wall);
        let events = changes.into_iter().flat_map(|change| change.events);
        for event in events {
            self.publisher.publish(Update::Event(Box::new(event)));
        }
    }

    /// Events of cameras and prompts that are gone end.
    pub fn apply(&mut self, change: &ConfigChange) {
        let wall = self.clock.wall();
        let mut changes = Vec::new();
        for removed in change.removed() {
            changes.extend(self.tracker.remove(removed, EndReason::Disabled, wall));
        }
        for camera in change.configured() {
            changes.extend(self.tracker.configure(camera, wall));
            for prompt in &camera.prompts {
                let (id, on) = (&prompt.id, prompt.enabled);
                changes.extend(self.tracker.enable(&camera.id, id, on, wall));
            }
        }
        self.snapshots.apply(change);
        self.publish(changes);
    }

    /// The daemon stops: open events end.
    pub fn shutdown(&mut self) {
        for event in self.tracker.shutdown(self.clock.wall()) {
            self.publisher.publish(Update::Event(Box::new(event)));
        }
    }

    /// Requests a snapshot of the camera's next look, with all its objects.
    pub fn snapshot_next(&mut self, camera: &CameraId) {
        self.snapshots.request(camera);
    }

    /// The next finished snapshot; never ready while none is being made. Dropping the future loses nothing.
    pub async fn next_snapshot(&mut self) -> FinishedSnapshot {
        self.snapshots.next().await
    }

    /// Publishes a snapshot, or logs why there is none. Returns it if it is that of an event.
    pub fn on_snapshot(&self, snapshot: FinishedSnapshot) -> Option<WebhookPicture> {
        let (update, track) = self.snapshots.update(snapshot)?;
        let picture = match (&update, track) {
            (Update::Snapshot { jpeg, .. }, Some(track)) => Some(WebhookPicture {
                track,
                jpeg: Arc::clone(jpeg),
            }),
            _ => None,
        };
        self.publisher.publish(update);
        picture
    }

    /// Publishes the detection of an answer and what it changed. Returns the marks of its objects for a snapshot.
    fn answer(
        &mut self,
        frame: &Frame,
        model_size: (u32, u32),
        since_last: SkippedSinceLast,
        answer: &Answer,
    ) -> Vec<Mark> {
        let Some(tracked) = self.tracker.update(frame, answer) else {
            return Vec::new();
        };
        let TrackedAnswer { body, mut change } = tracked;
        self.snapshots_of_events(frame, &mut change.events);
        let detection = Detection {
            frame: FrameInfo::from(frame),
            prompt: Arc::clone(&answer.prompt),
            region: answer.region,
            body,
            truncated: answer.truncated,
            unchanged: answer.unchanged,
            model: Arc::clone(&self.model),
            model_size,
            stages: answer.marks,
            since_last,
            finished: self.clock.now(),
        };
        self.board.answer(&detection);
        let marks = marks(&answer.prompt, &detection);
        self.publisher
            .publish(Update::Detection(Box::new(detection)));
        self.publish([change]);
        marks
    }

    /// A question about `frame` is settled: the events that waited for it start or say more.
    fn settled(&mut self, frame: &Frame, mut change: PromptChange) {
        let (camera, prompt, events) = (&change.camera, &change.prompt, change.events.len());
        tracing::debug!(%camera, %prompt, events, "question about objects answered");
        self.snapshots_of_events(frame, &mut change.events);
        self.publish([change]);
    }

    /// Begins the snapshots of events that are to have one, and marks these events.
    fn snapshots_of_events(&mut self, frame: &Frame, events: &mut [Event]) {
        for event in events {
            if self.snapshots.event(frame, event, self.clock.now()) {
                event.snapshot = true;
                self.tracker.mark_snapshot(event);
            }
        }
    }

    /// States first, then events. Questions are asked of the next frame.
    fn publish(&self, changes: impl IntoIterator<Item = PromptChange>) {
        for change in changes {
            for question in change.questions {
                self.sampler.ask_once(&change.camera, question);
            }
            self.board
                .states(&change.camera, &change.prompt, &change.states);
            for state in change.states {
                let (camera, prompt) = (change.camera.clone(), change.prompt.clone());
                self.publisher.publish(Update::State {
                    camera,
                    prompt,
                    state,
                });
            }
            for event in change.events {
                self.publisher.publish(Update::Event(Box::new(event)));
            }
        }
    }
}

fn key(frame: &Frame) -> (CameraId, u64) {
    (frame.camera.clone(), frame.number)
}

fn marks(prompt: &Prompt, detection: &Detection) -> Vec<Mark> {
    let objects = detection.body.objects().iter();
    objects
        .map(|o| Mark::of(o.location, prompt.task.text(), o.score))
        .collect()
}

#[cfg(test)]
mod tests;
