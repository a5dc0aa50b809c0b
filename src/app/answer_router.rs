//! The way of an answer from the engine to the publisher: tracker, snapshots, status page, messages.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    line_counts,
    near_events::{AlarmLook, NearEvents},
    notice::StageNotice,
    snapshot::Mark,
    snapshots::{FinishedSnapshot, Snapshots},
    stage::{Handles, Stage, StageContext, StageFuture},
    text_parts::TextParts,
};
use spotter_config::ConfigChange;
use spotter_control::ConfigStore;
use spotter_core::{
    Answer, CameraId, Detection, EndReason, Event, EventStep, FollowUp, Frame, FrameInfo,
    LogThrottle, Look, LookFailure, LookNews, Outcome, Prompt, SkippedSinceLast, TextPart,
    TrackedObject,
};
use spotter_events::track::{PromptChange, TrackedAnswer, Tracker};
use spotter_history::{History, HistoryMessage};
use spotter_mqtt::Update;
use spotter_quality::{AnsweringModel, Series};

/// Owns the tracker, and so all states of all prompts. No call waits.
pub struct AnswerRouter {
    tracker: Tracker,
    near: NearEvents,
    /// Counts at lines survive a restart. In a fleet another node may have counted meanwhile.
    stores_line_counts: bool,
    snapshots: Snapshots,
    /// The objects that looks have so far, by camera and frame, for snapshots of whole looks. Removed when the look's short
    /// answers are there or it ends, so that there are as many as looks in flight.
    found: BTreeMap<(CameraId, u64), Vec<Mark>>,
    texts: TextParts,
    failures: LogThrottle<CameraId>,
    model: AnsweringModel,
    handles: Handles,
}

/// What a message of an event is about.
#[derive(Clone, Copy)]
struct SeenLook<'a> {
    frame: &'a Frame,
    /// All objects of the prompt there. Empty: not known.
    objects: &'a [TrackedObject],
}

impl AnswerRouter {
    /// Publishes all states as unknown, and the counts at lines as they were. `model` answers; `boot` identifies this run of the daemon in
    /// track ids.
    pub fn new(
        config: &ConfigStore,
        model: AnsweringModel,
        boot: Arc<str>,
        handles: Handles,
    ) -> Self {
        let (cameras, file) = (config.cameras(), config.file());
        let stores_near = file
            .history
            .as_ref()
            .is_some_and(|history| history.near > 0);
        let history = handles.history.clone().filter(|_| stores_near);
        let near = NearEvents::new(&boot, cameras, model.clone(), history);
        let mut tracker = match handles.history {
            Some(_) => Tracker::recording(boot, cameras),
            None => Tracker::new(boot, cameras),
        };
        let stores_line_counts = file.fleet.is_none();
        if stores_line_counts {
            tracker.restore_line_counts(&line_counts::read(&handles.state));
        }
        let router = Self {
            tracker,
            near,
            stores_line_counts,
            snapshots: Snapshots::new(cameras, file.mqtt.retain_snapshots),
            found: BTreeMap::new(),
            texts: TextParts::default(),
            failures: LogThrottle::default(),
            model,
            handles,
        };
        router.publish(None, router.tracker.all_states());
        router
    }

    /// A look has news: each answer is published at once.
    fn news(&mut self, news: &LookNews) {
        match news {
            LookNews::Answer {
                frame,
                model_size,
                since_last,
                answer,
                follow_up,
            } => {
                self.handles.board.look(frame);
                let last = self.texts.end(&frame.id(), &answer.prompt.id);
                self.publish_parts(last);
                match self.tracker.settled(frame, answer) {
                    Some(change) => self.settled(frame, change),
                    None => {
                        let PublishedAnswer { marks, follow_ups } =
                            self.answer(frame, *model_size, *since_last, answer);
                        self.follow_up(frame, follow_up.as_ref(), follow_ups);
                        if !answer.prompt.task.is_free_text() {
                            self.found.entry(key(frame)).or_default().extend(marks);
                        }
                    }
                }
            }
            LookNews::ShortAnswered(frame) => {
                let marks = self.found.remove(&key(frame)).unwrap_or_default();
                self.snapshots.look(frame, marks, self.handles.clock.now());
            }
            LookNews::Piece {
                frame,
                prompt,
                piece,
            } => {
                let described = || self.tracker.track_to_describe(&frame.camera, prompt);
                let part = self.texts.add(frame, prompt, piece, described);
                self.publish_parts(part);
            }
            LookNews::Ended(Outcome::Answered(frame)) => self.tracker.look_ended(frame),
            // Counted by the sampler; a camera that is too slow for its budget would fill the log.
            LookNews::Ended(Outcome::Late(look)) => self.unanswered(look),
            LookNews::Ended(Outcome::Failed(look, why)) => {
                self.unanswered(look);
                let camera = &look.frame.camera;
                // Its end is logged once.
                if *why == LookFailure::EngineStopped {
                    return;
                }
                if let Some(suppressed) = self
                    .failures
                    .admit(camera.clone(), self.handles.clock.now())
                {
                    tracing::warn!(%camera, reason = %why, suppressed, "a look failed; its frame is dropped");
                }
            }
        }
    }

    fn unanswered(&mut self, look: &Look) {
        self.found.remove(&key(&look.frame));
        let last = self.texts.end_all(&look.frame.id(), &look.prompts);
        self.publish_parts(last);
        let changes = self.tracker.unanswered(&look.frame, &look.prompts);
        self.publish(None, changes);
        self.tracker.look_ended(&look.frame);
    }

    fn store_line_counts(&self) {
        if self.stores_line_counts {
            line_counts::store(&self.handles.state, self.tracker.line_counts());
        }
    }

    /// When a camera is off, its states are unknown and answers of looks in flight are ignored.
    fn switch(&mut self, camera: &CameraId, is_on: bool) -> Vec<PromptChange> {
        if is_on {
            self.tracker.resume(camera);
            self.near.resume(camera);
            return Vec::new();
        }
        self.found.retain(|(of, _), _| of != camera);
        let wall = self.handles.clock.wall();
        self.near.suspend(camera, EndReason::Disabled, wall);
        self.tracker.suspend(camera, EndReason::Disabled, wall)
    }

    /// The engine of these cameras is lost, with their looks in flight. Their events end, and their states are unknown until the next
    /// answer.
    fn lose(&mut self, cameras: &[CameraId]) -> Vec<PromptChange> {
        // The looks of a lost engine have no more news.
        self.found.retain(|(of, _), _| !cameras.contains(of));
        let last = self.texts.lose(|camera| cameras.contains(camera));
        self.publish_parts(last);
        let wall = self.handles.clock.wall();
        let lose = |camera| {
            self.near.lose(camera, EndReason::EngineLost, wall);
            self.tracker.lose(camera, EndReason::EngineLost, wall)
        };
        cameras.iter().flat_map(lose).collect()
    }

    /// Another node of the fleet is about to have the camera: its events end here. Its states stay as they are until that node knows better.
    fn hand_over(&mut self, camera: &CameraId) {
        self.found.retain(|(of, _), _| of != camera);
        let last = self.texts.close(camera);
        self.publish_parts(last);
        let wall = self.handles.clock.wall();
        self.near.suspend(camera, EndReason::Moved, wall);
        let changes = self.tracker.suspend(camera, EndReason::Moved, wall);
        let events = changes.into_iter().flat_map(|change| change.events);
        self.publish_events(None, events);
    }

    /// Events of cameras and prompts that are gone end.
    fn configure(&mut self, change: &ConfigChange) -> Vec<PromptChange> {
        let wall = self.handles.clock.wall();
        self.near.configure(change, wall);
        let mut changes = Vec::new();
        for removed in change.removed() {
            changes.extend(self.tracker.remove(removed, EndReason::Disabled, wall));
        }
        for camera in change.configured() {
            changes.extend(self.tracker.configure(camera, wall));
        }
        changes
    }

    /// Publishes a snapshot, or logs why there is none. Returns a notice of it if it is that of an event.
    fn publish_snapshot(&self, snapshot: FinishedSnapshot) -> Option<StageNotice> {
        let (update, of_event) = self.snapshots.update(snapshot)?;
        self.handles.publisher.publish(update);
        of_event.map(|(track, jpeg)| StageNotice::PictureTaken(track, jpeg))
    }

    /// Asks for outlines. Without the right to, they have no answer.
    fn follow_up(&mut self, frame: &Frame, right: Option<&FollowUp>, prompts: Vec<Arc<Prompt>>) {
        match right {
            Some(right) => right.clone().ask(prompts),
            None => {
                let changes = self.tracker.unanswered(frame, &prompts);
                self.publish(None, changes);
            }
        }
    }

    /// Publishes the detection of an answer and what it changed.
    fn answer(
        &mut self,
        frame: &Frame,
        model_size: (u32, u32),
        since_last: SkippedSinceLast,
        answer: &Answer,
    ) -> PublishedAnswer {
        let Some(tracked) = self.tracker.update(frame, answer) else {
            return PublishedAnswer::default();
        };
        self.near_look(frame, answer, tracked.body.objects());
        let TrackedAnswer {
            body,
            mut change,
            follow_ups,
        } = tracked;
        let gets_outlines = !follow_ups.is_empty();
        self.snapshots_of_events(frame, &mut change.events, gets_outlines);
        let detection = Detection {
            frame: FrameInfo::from(frame),
            prompt: Arc::clone(&answer.prompt),
            region: answer.region,
            body,
            reasoning: answer.reasoning.clone(),
            truncated: answer.truncated,
            unchanged: answer.unchanged,
            model: Arc::clone(&self.model.name),
            model_size,
            stages: answer.marks,
            since_last,
            finished: self.handles.clock.now(),
        };
        self.handles.board.answer(&detection);
        let marks = marks(&answer.prompt, &detection);
        let detection = Arc::new(detection);
        let update = Update::Detection(Arc::clone(&detection));
        self.handles.publisher.publish(update);
        let objects = detection.body.objects();
        self.publish(Some(SeenLook { frame, objects }), [change]);
        self.record_looks(&detection);
        PublishedAnswer { marks, follow_ups }
    }

    /// Objects below `min_score` go to the history alone. `seen`: those of the tracker, which decides about them.
    fn near_look(&mut self, frame: &Frame, answer: &Answer, seen: &[TrackedObject]) {
        let (camera, id) = (&frame.camera, &answer.prompt.id);
        let Some(prompt) = self.snapshots.prompt(camera, id) else {
            return;
        };
        let open = self.tracker.open_events();
        let open = open.filter(|event| (&event.camera, &event.prompt) == (camera, id));
        // The question of `verify` decides about an object that is not below `min_score`.
        let questioned = seen.iter().filter(|_| prompt.verify.is_some());
        let alarms = open.map(|event| event.location);
        let alarms = alarms.chain(questioned.map(|object| object.location));
        let alarms = alarms.collect();
        self.near.look(&AlarmLook {
            frame,
            answer,
            prompt,
            alarms,
        });
    }

    /// A question about `frame` is settled: the events that waited for it start or say more.
    fn settled(&mut self, frame: &Frame, mut change: PromptChange) {
        let (camera, prompt, events) = (&change.camera, &change.prompt, change.events.len());
        tracing::debug!(%camera, %prompt, events, "question about objects answered");
        self.snapshots_of_events(frame, &mut change.events, false);
        for outlined in &change.outlines {
            let board = &self.handles.board;
            board.outlined(&change.camera, &outlined.track, &outlined.outline);
            self.snapshots
                .outlined(&change.camera, &change.prompt, outlined);
        }
        let seen = SeenLook {
            frame,
            objects: &[],
        };
        self.publish(Some(seen), [change]);
    }

    /// Begins the snapshots of events that are to have one, and marks these events. With `gets_outlines`, objects may get an outline on this
    /// frame, and a snapshot is made again with it.
    fn snapshots_of_events(&mut self, frame: &Frame, events: &mut [Event], gets_outlines: bool) {
        for event in events {
            let now = self.handles.clock.now();
            if self.snapshots.event(frame, event, gets_outlines, now) {
                event.snapshot = true;
                self.tracker.mark_snapshot(event);
            }
        }
    }

    /// States first, then events, which are about what was `seen`. Questions are asked of the next frame.
    fn publish(&self, seen: Option<SeenLook<'_>>, changes: impl IntoIterator<Item = PromptChange>) {
        for change in changes {
            for question in change.questions {
                self.handles.sampler.ask_once(&change.camera, question);
            }
            self.handles
                .board
                .states(&change.camera, &change.prompt, &change.states);
            for state in change.states {
                let (camera, prompt) = (change.camera.clone(), change.prompt.clone());
                self.handles.publisher.publish(Update::State {
                    camera,
                    prompt,
                    state,
                });
            }
            self.publish_events(seen, change.events);
        }
    }

    fn publish_parts(&self, parts: impl IntoIterator<Item = TextPart>) {
        let publisher = &self.handles.publisher;
        for part in parts {
            publisher.publish(Update::Part(part));
        }
    }

    /// To the history first, which stores them also while the broker is away.
    fn publish_events(&self, seen: Option<SeenLook<'_>>, events: impl IntoIterator<Item = Event>) {
        for event in events {
            if event.step == EventStep::New {
                self.near.alarm_started(&event);
            }
            if let Some(history) = &self.handles.history {
                self.store_event(history, &event, seen);
            }
            let update = Update::Event(Box::new(event));
            self.handles.publisher.publish(update);
        }
    }

    fn store_event(&self, history: &History, event: &Event, seen: Option<SeenLook<'_>>) {
        let prompt = self.snapshots.prompt(&event.camera, &event.prompt);
        let series = prompt.map(|prompt| Series::new(prompt, &self.model));
        history.event(&HistoryMessage {
            event,
            words: prompt.map_or("", |prompt| prompt.task.text()),
            series: series.as_ref().map_or("", Series::as_str),
            frame: seen.map(|seen| seen.frame),
            objects: seen.map_or(&[], |seen| seen.objects),
            is_near: false,
        });
    }

    /// After its events: a look is stored with the event that it began.
    fn record_looks(&self, detection: &Detection) {
        if let Some(history) = &self.handles.history {
            history.looks(detection.body.objects());
        }
    }

    /// After the events that started in them.
    fn store_records(&mut self) {
        let records = self.tracker.take_records();
        if let Some(history) = &self.handles.history {
            history.records(records);
        }
    }
}

impl Stage for AnswerRouter {
    /// A snapshot is made.
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        Box::pin(async {
            let snapshot = self.snapshots.next().await;
            self.publish_snapshot(snapshot).into_iter().collect()
        })
    }

    fn hear(&mut self, notice: &mut StageNotice, _context: &mut StageContext<'_>) {
        let changes = match notice {
            StageNotice::Looks(news) => return news.iter().for_each(|news| self.news(news)),
            StageNotice::SnapshotAsked(camera) => return self.snapshots.request(camera),
            StageNotice::HandingOver(camera) => return self.hand_over(camera),
            // With the last one the run ends, and so do all events.
            StageNotice::EngineLost(loss) if !loss.is_last => self.lose(&loss.cameras),
            StageNotice::CameraSwitched { camera, is_on } => self.switch(camera, *is_on),
            StageNotice::LineReset(camera, line) => {
                self.tracker
                    .reset_line(camera, line, self.handles.clock.wall())
            }
            _ => return,
        };
        self.publish(None, changes);
    }

    fn apply(&mut self, change: &ConfigChange, _context: &mut StageContext<'_>) {
        let changes = self.configure(change);
        self.snapshots.apply(change);
        self.publish(None, changes);
    }

    /// States of prompts without a look for too long become unknown, and lines are reset as configured.
    fn tick(&mut self, context: &mut StageContext<'_>) {
        self.near.tick(context.now, context.wall);
        let changes = self.tracker.tick(context.now, context.wall);
        self.publish(None, changes);
        self.store_line_counts();
        self.store_records();
        context.status.node.snapshots = self.snapshots.counters().by_outcome().to_vec();
    }

    /// Open events end.
    fn finish(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        let wall = self.handles.clock.wall();
        self.near.shutdown(wall);
        let ended = self.tracker.shutdown(wall);
        self.publish_events(None, ended);
        let last = self.texts.lose(|_| true);
        self.publish_parts(last);
        self.store_line_counts();
        self.store_records();
        Box::pin(async { Vec::new() })
    }
}

/// What follows when an answer is published.
#[derive(Default)]
struct PublishedAnswer {
    /// Of its objects, for a snapshot.
    marks: Vec<Mark>,
    /// To be asked of its frame.
    follow_ups: Vec<Arc<Prompt>>,
}

fn key(frame: &Frame) -> (CameraId, u64) {
    (frame.camera.clone(), frame.number)
}

fn marks(prompt: &Prompt, detection: &Detection) -> Vec<Mark> {
    let objects = detection.body.objects().iter();
    objects
        .map(|object| Mark {
            // One of another frame does not fit.
            outline: object.outline.clone().filter(|_| detection.unchanged),
            ..Mark::of(object.location, prompt.task.text(), object.score)
        })
        .collect()
}

#[cfg(test)]
mod tests;
