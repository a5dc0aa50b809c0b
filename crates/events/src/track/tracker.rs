//! All prompts of all cameras: answers in, tracked answers and changes out.
//!
//! # When a camera is lost
//!
//! A short interruption changes nothing: objects keep their track ids and events stay open. After three of the longest
//! expected pauses between two looks without a look, and at least 30 s, presence, counts and answers become unknown, and
//! open events end with `camera_lost`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    line_counts::LineCountRecord,
    prompt_tracker::{PromptChange, PromptTracker, TrackedAnswer},
    track_set::IdAllocator,
};
use crate::record::RecordChunk;
use spotter_config::CameraConfig;
use spotter_core::{
    Answer, AnswerBody, CameraId, EndReason, Event, Frame, FrameInfo, LineId, Mono, Prompt,
    PromptId, TrackId, WallTime,
};

/// What is known of every prompt of every camera.
#[derive(Clone, Debug)]
pub struct Tracker {
    prompts: BTreeMap<(CameraId, PromptId), PromptTracker>,
    ids: IdAllocator,
    /// Cameras whose answers are ignored.
    suspended: BTreeSet<CameraId>,
    records_looks: bool,
    /// Recorded looks of prompts that were removed.
    records: Vec<RecordChunk>,
}

impl Tracker {
    /// All states of these cameras are unknown. `boot` identifies this run of the daemon in track ids.
    pub fn new(boot: Arc<str>, cameras: &[CameraConfig]) -> Self {
        Self::with(boot, cameras, false)
    }

    /// The same, and looks are recorded ([`Tracker::take_records`]).
    pub fn recording(boot: Arc<str>, cameras: &[CameraConfig]) -> Self {
        Self::with(boot, cameras, true)
    }

    fn with(boot: Arc<str>, cameras: &[CameraConfig], records_looks: bool) -> Self {
        let mut tracker = Self {
            prompts: BTreeMap::new(),
            ids: IdAllocator::new(boot),
            suspended: BTreeSet::new(),
            records_looks,
            records: Vec::new(),
        };
        for camera in cameras {
            // No event is open, so the time of its end does not matter.
            tracker.configure(camera, WallTime::default());
        }
        tracker
    }

    /// The recorded looks that are complete, once.
    pub fn take_records(&mut self) -> Vec<RecordChunk> {
        let mut records = std::mem::take(&mut self.records);
        let prompts = self.prompts.values_mut();
        records.extend(prompts.flat_map(PromptTracker::take_records));
        records
    }

    /// An answer to a look at `frame` came. Frames of one camera must come in the order of their reception. `None` for an
    /// unknown prompt, for an answer to words that were changed since, and while the camera or the prompt is switched off.
    pub fn update(&mut self, frame: &Frame, answer: &Answer) -> Option<TrackedAnswer> {
        let camera = &frame.camera;
        if self.suspended.contains(camera) {
            return None;
        }
        let key = (camera.clone(), answer.prompt.id.clone());
        let prompt = self.prompts.get_mut(&key)?;
        prompt.look(&FrameInfo::from(frame), answer, &mut self.ids)
    }

    /// The answer to a question of a [`PromptChange`]: the events that start or change with it, none after a no. `None` for every other
    /// answer, and for a question that is over because of a change or because its answer was late.
    pub fn settled(&mut self, frame: &Frame, answer: &Answer) -> Option<PromptChange> {
        self.settle(frame, &answer.prompt, Some(&answer.body))
    }

    /// A look at `frame` ended without answers to these prompts. Questions among them are asked again later, some of them now.
    pub fn unanswered(&mut self, frame: &Frame, prompts: &[Arc<Prompt>]) -> Vec<PromptChange> {
        let questions = prompts.iter();
        questions
            .filter_map(|question| self.settle(frame, question, None))
            .collect()
    }

    /// The look at `frame` is over, so outlines that were asked of it come no more: the engine may have given up waiting for what
    /// follows its answers.
    pub fn look_ended(&mut self, frame: &Frame) {
        let prompts = self.prompts.iter_mut();
        for (_, prompt) in prompts.filter(|((camera, _), _)| *camera == frame.camera) {
            prompt.look_ended(frame.times.received);
        }
    }

    /// The prompt and the track whose description `question` asks for; `None` also when the track has ended.
    pub fn track_to_describe(
        &self,
        camera: &CameraId,
        question: &Prompt,
    ) -> Option<(&PromptId, &TrackId)> {
        let mut prompts = self.prompts.iter().filter(|((of, _), _)| of == camera);
        prompts.find_map(|((_, id), prompt)| Some((id, prompt.track_to_describe(question)?)))
    }

    /// Time passed: the states of prompts without a look for too long become unknown, and lines are reset as configured. To be
    /// called every few seconds.
    pub fn tick(&mut self, now: Mono, wall: WallTime) -> Vec<PromptChange> {
        self.changes(|_, prompt| {
            let reset = prompt.reset_due_lines(wall);
            Some(prompt.expire(now, wall).then(reset))
        })
    }

    /// Sets all counts at a line to 0.
    pub fn reset_line(
        &mut self,
        camera: &CameraId,
        line: &LineId,
        wall: WallTime,
    ) -> Vec<PromptChange> {
        self.changes(|key, prompt| (key.0 == *camera).then(|| prompt.reset_line(line, wall)))
    }

    /// Continues with the counts of an earlier run. Those of lines that are not counted any more are ignored.
    pub fn restore_line_counts(&mut self, records: &[LineCountRecord]) -> Vec<PromptChange> {
        self.changes(|_, prompt| Some(prompt.restore_lines(records)))
    }

    /// The counts at all lines, which survive a restart.
    pub fn line_counts(&self) -> Vec<LineCountRecord> {
        let prompts = self.prompts.values();
        prompts.flat_map(PromptTracker::line_counts).collect()
    }

    /// The camera is disabled, outside of its schedule or at its end: its states are unknown and its answers are ignored
    /// until [`resume`](Self::resume). A camera that reconnects is not suspended; [`tick`](Self::tick) ends what gets too
    /// old.
    pub fn suspend(
        &mut self,
        camera: &CameraId,
        reason: EndReason,
        wall: WallTime,
    ) -> Vec<PromptChange> {
        self.suspended.insert(camera.clone());
        self.lose(camera, reason, wall)
    }

    /// The looks in flight are lost, and others follow: open events end, and states are unknown until the next answer.
    pub fn lose(
        &mut self,
        camera: &CameraId,
        reason: EndReason,
        wall: WallTime,
    ) -> Vec<PromptChange> {
        self.changes(|(of, _), prompt| (of == camera).then(|| prompt.lose(reason, wall)))
    }

    /// The camera is switched on again.
    pub fn resume(&mut self, camera: &CameraId) {
        self.suspended.remove(camera);
    }

    /// The camera is new or its configuration changed. A prompt whose words stay keeps its tracks. When the words of a prompt
    /// change or the prompt is removed, its events end as `prompt_changed` and its states are unknown; when it is switched off, as
    /// `disabled`. The states of a new prompt are reported as unknown. Answers carry the revision of the words: those to the old words are
    /// ignored.
    pub fn configure(&mut self, camera: &CameraConfig, wall: WallTime) -> Vec<PromptChange> {
        let id = &camera.id;
        let is_removed = |key: &(CameraId, PromptId)| {
            key.0 == *id && camera.prompts.iter().all(|prompt| prompt.id != key.1)
        };
        let mut changes = self.changes(|key, prompt| {
            is_removed(key).then(|| prompt.lose(EndReason::PromptChanged, wall))
        });
        self.remove_prompts(is_removed);
        for prompt in &camera.prompts {
            let key = (id.clone(), prompt.id.clone());
            let change = match self.prompts.get_mut(&key) {
                Some(known) => known.configure(camera, prompt, wall),
                None => {
                    let new = PromptTracker::new(camera, prompt);
                    let new = match self.records_looks {
                        true => new.recording(),
                        false => new,
                    };
                    self.prompts.entry(key).or_insert(new).all_states()
                }
            };
            changes.extend(Some(change).filter(|change| !change.is_empty()));
        }
        changes
    }

    /// The camera is not in the configuration any more: ends its open events and removes it.
    pub fn remove(
        &mut self,
        camera: &CameraId,
        reason: EndReason,
        wall: WallTime,
    ) -> Vec<PromptChange> {
        let changes = self.suspend(camera, reason, wall);
        self.remove_prompts(|(of, _)| of == camera);
        self.suspended.remove(camera);
        changes
    }

    /// The daemon stops: ends all events.
    pub fn shutdown(&mut self, wall: WallTime) -> Vec<Event> {
        let ends = self.changes(|_, prompt| Some(prompt.lose(EndReason::Shutdown, wall)));
        ends.into_iter().flat_map(|change| change.events).collect()
    }

    /// A snapshot of the event's object is being made: later messages of the event report it.
    pub fn mark_snapshot(&mut self, event: &Event) {
        let key = (event.camera.clone(), event.prompt.clone());
        if let Some(prompt) = self.prompts.get_mut(&key) {
            prompt.mark_snapshot(&event.track);
        }
    }

    /// All states of every prompt with their present values, without events.
    pub fn all_states(&self) -> Vec<PromptChange> {
        self.prompts
            .values()
            .map(PromptTracker::all_states)
            .collect()
    }

    /// The open events with the values of now; `step` is the last that was published.
    pub fn open_events(&self) -> impl Iterator<Item = &Event> {
        self.prompts.values().flat_map(PromptTracker::open_events)
    }

    fn settle(
        &mut self,
        frame: &Frame,
        question: &Prompt,
        answer: Option<&AnswerBody>,
    ) -> Option<PromptChange> {
        if question.revision != Prompt::ONCE {
            return None;
        }
        let (ids, frame) = (&mut self.ids, FrameInfo::from(frame));
        let mut prompts = self.prompts.iter_mut();
        prompts.find_map(|((camera, _), prompt)| match *camera == frame.camera {
            true => prompt.settled(question, answer, &frame, ids),
            false => None,
        })
    }

    fn remove_prompts(&mut self, is_removed: impl Fn(&(CameraId, PromptId)) -> bool) {
        let removed = self.prompts.extract_if(.., |key, _| is_removed(key));
        let records = removed.flat_map(|(_, mut prompt)| prompt.take_records());
        self.records.extend(records);
    }

    fn changes(
        &mut self,
        mut change: impl FnMut(&(CameraId, PromptId), &mut PromptTracker) -> Option<PromptChange>,
    ) -> Vec<PromptChange> {
        let changes = self
            .prompts
            .iter_mut()
            .filter_map(|(key, p)| change(key, p));
        changes.filter(|change| !change.is_empty()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
