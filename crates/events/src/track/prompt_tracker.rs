//! One prompt of one camera: answers in, changes out.

use std::{sync::Arc, time::Duration};

use super::{
    believed_answer::BelievedAnswer,
    description::{DESCRIPTIONS_MAX, description_of, view_of_object},
    filter::Filter,
    hysteresis::Hysteresis,
    lifecycle::{LookContext, TrackLifecycle},
    line_counts::{LineCountRecord, LineCounts},
    outline::{OutlineMask, OutlinedTrack},
    question::{OpenQuestions, outline_question, question},
    rules::PromptRules,
    seen_part::SeenPart,
    track_set::{FollowedLook, IdAllocator, TrackSet},
    verification::{VERIFICATION_CHOICES, VerificationResult},
    zones::ZoneCounts,
};
use crate::record::{FoundLocations, LookRecorder, RecordChunk, RecordedLook};
use spotter_config::{CameraConfig, LineConfig, PromptConfig};
use spotter_core::{
    Answer, AnswerBody, CameraId, DetectionBody, EndReason, Event, EventStep, FrameInfo, LineId,
    Location, Mono, NormBox, Presence, Prompt, PromptId, PromptState, PromptView, Task, TrackId,
    WallTime, ZoneId,
};

/// What changed about a prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct PromptChange {
    pub camera: CameraId,
    pub prompt: PromptId,
    /// The states that have a new value; of a state that is in it twice, the later value is true.
    pub states: Vec<PromptState>,
    /// The messages of its events, in order.
    pub events: Vec<Event>,
    /// To be asked once, of the camera's next frame. Their answers go to [`Tracker::settled`](super::Tracker::settled) or
    /// [`Tracker::unanswered`](super::Tracker::unanswered); they may also get lost.
    pub questions: Vec<Arc<Prompt>>,
    /// Tracks that got an outline; the next message of each object has it too.
    pub outlines: Vec<OutlinedTrack>,
}

impl PromptChange {
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
            && self.events.is_empty()
            && self.questions.is_empty()
            && self.outlines.is_empty()
    }

    pub(super) fn then(mut self, later: Self) -> Self {
        self.states.extend(later.states);
        self.events.extend(later.events);
        self.questions.extend(later.questions);
        self.outlines.extend(later.outlines);
        self
    }
}

/// An answer after filters and tracking, and what it changed.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedAnswer {
    pub body: DetectionBody,
    pub change: PromptChange,
    /// To be asked of the same frame. Their answers go where those of [`PromptChange::questions`] go.
    pub follow_ups: Vec<Arc<Prompt>>,
}

/// What a question was about that is over.
enum SettledTracks {
    Verification(Vec<TrackId>),
    Description(Vec<TrackId>),
    Outline(Vec<TrackId>),
}

/// What is known of one prompt of one camera.
#[derive(Clone, Debug)]
pub(crate) struct PromptTracker {
    camera: CameraId,
    prompt: PromptConfig,
    filter: Filter,
    rules: Arc<PromptRules>,
    count: Hysteresis,
    zones: ZoneCounts,
    tracks: TrackSet,
    verifications: OpenQuestions,
    descriptions: OpenQuestions,
    outlines: OpenQuestions,
    mask: OutlineMask,
    answer: BelievedAnswer,
    view: PromptView,
    revision: u32,
    last_look: Option<Mono>,
    recorder: Option<LookRecorder>,
}

impl PromptTracker {
    /// All states are unknown.
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        Self {
            camera: camera.id.clone(),
            prompt: prompt.clone(),
            filter: Filter::new(camera, prompt),
            rules: Arc::new(PromptRules::new(camera, prompt)),
            count: Hysteresis::default(),
            zones: ZoneCounts::default(),
            tracks: TrackSet::default(),
            verifications: OpenQuestions::default(),
            descriptions: OpenQuestions::default(),
            outlines: OpenQuestions::default(),
            mask: OutlineMask::new(&camera.mask),
            answer: BelievedAnswer::default(),
            view: camera.view_of(prompt),
            revision: 1,
            last_look: None,
            recorder: None,
        }
    }

    /// Records its looks.
    #[must_use]
    pub fn recording(mut self) -> Self {
        let (camera, prompt) = (self.camera.clone(), self.prompt.id.clone());
        let rule = self.rules.quiet_rule();
        self.recorder = Some(LookRecorder::new(camera, prompt, rule));
        self
    }

    /// What was recorded, once.
    pub fn take_records(&mut self) -> Vec<RecordChunk> {
        let recorder = self.recorder.as_mut();
        recorder.map_or_else(Vec::new, LookRecorder::take_finished)
    }

    /// Processes an answer. `None` for an answer to a text that was changed since, and while the prompt is switched off.
    pub fn look(
        &mut self,
        frame: &FrameInfo,
        answer: &Answer,
        ids: &mut IdAllocator,
    ) -> Option<TrackedAnswer> {
        let asked = &answer.prompt;
        let other_words = asked.task != self.prompt.task || asked.adapter != self.prompt.adapter;
        let old = asked.revision < self.revision || asked.revision == self.revision && other_words;
        if old || !self.prompt.is_asked() {
            return None;
        }
        let (now, wall) = (frame.times.received, captured_or_received(frame));
        let mut change = self.expire(now, wall);
        if asked.revision > self.revision {
            // Results of the old words mean nothing for the new ones.
            change = change.then(self.lose(EndReason::PromptChanged, wall));
            self.revision = asked.revision;
            self.prompt.task = asked.task.clone();
            self.prompt.adapter = asked.adapter.clone();
        }
        self.last_look = Some(now);
        let mut body = None;
        let seen = self.changing(|own| {
            let (seen, events) = own.see(frame, answer, ids);
            body = Some(seen);
            events
        });
        let mut change = change.then(seen);
        let question = self.verify(now, wall, ids);
        let body = body?;
        self.record(frame, answer, body.objects().len(), question.is_some());
        self.record_starts(&change.events);
        change.questions.extend(question);
        change.questions.extend(self.describe(now, ids));
        let follow_ups = self.ask_outlines(answer, &body, now, ids);
        Some(TrackedAnswer {
            body,
            change,
            follow_ups,
        })
    }

    /// Records a look after what it led to.
    fn record(
        &mut self,
        frame: &FrameInfo,
        answer: &Answer,
        candidates: usize,
        has_question: bool,
    ) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let score_min = self.prompt.min_score.get();
        let Some(found) = FoundLocations::of(&answer.body, score_min) else {
            return;
        };
        let look = RecordedLook {
            received: frame.times.received,
            wall: captured_or_received(frame),
            camera_size: frame.camera_size,
            part: SeenPart::of(answer).map(SeenPart::area),
            found,
            has_question,
        };
        recorder.look(look, candidates, self.verifications.count() > 0);
    }

    fn record_starts(&mut self, events: &[Event]) {
        let Some(recorder) = &mut self.recorder else {
            return;
        };
        let started = events.iter().filter(|event| event.step == EventStep::New);
        started.for_each(|event| recorder.started(event));
    }

    /// What an answer shows, and the events that follow.
    fn see(
        &mut self,
        frame: &FrameInfo,
        answer: &Answer,
        ids: &mut IdAllocator,
    ) -> (DetectionBody, Vec<Event>) {
        let (now, rules) = (frame.times.received, Arc::clone(&self.rules));
        let foot_at = |location| self.tracks.foot_at(location, now);
        let mut candidates = match &answer.body {
            AnswerBody::Boxes(found) => self.filter.candidates(found, Location::Box, foot_at),
            AnswerBody::Points(found) => self.filter.candidates(found, Location::Point, foot_at),
            // Outlines are answers to questions about tracks.
            AnswerBody::Outline(_) => Vec::new(),
            AnswerBody::Text {
                text,
                score,
                source,
            } => {
                let choices = choices(&self.prompt.task);
                self.answer.look(text, choices, rules.hysteresis);
                let body = DetectionBody::Text {
                    text: text.clone(),
                    score: *score,
                    source: *source,
                };
                return (body, Vec::new());
            }
        };
        let part = SeenPart::of(answer);
        candidates.retain(|candidate| part.is_none_or(|part| !part.cuts(candidate.location)));
        let look = LookContext {
            camera: &frame.camera,
            prompt: &answer.prompt.id,
            revision: answer.prompt.revision,
            at: now,
            wall: captured_or_received(frame),
            camera_size: frame.camera_size,
            part,
            is_unchanged: answer.unchanged,
            rules: &rules,
        };
        let FollowedLook {
            objects,
            events,
            waiting,
        } = self.tracks.look(candidates, &look, ids);
        // What is elsewhere in the picture is still there.
        let count = u32::try_from(objects.len() + waiting.len()).unwrap_or(u32::MAX);
        self.count.look(count, now, rules.hysteresis);
        let seen = objects.iter().flat_map(|object| &object.zones);
        let occupied = seen.chain(waiting.iter().flatten());
        self.zones.look(occupied, now, &rules);
        (DetectionBody::Objects(objects), events)
    }

    /// What the end of a question that was asked once means; `answer`: `None` when the look was late or failed. `None` when the question is
    /// not one that is under way.
    pub fn settled(
        &mut self,
        question: &Prompt,
        answer: Option<&AnswerBody>,
        frame: &FrameInfo,
        ids: &mut IdAllocator,
    ) -> Option<PromptChange> {
        let at = frame.times.received;
        let settled = self.settle(question)?;
        let mut change = self.changing(|own| match &settled {
            SettledTracks::Verification(tracks) => {
                let result = answer.map_or(VerificationResult::NoAnswer, VerificationResult::of);
                if let Some(recorder) = &mut own.recorder {
                    recorder.verified(result.recorded(at));
                }
                own.verified(tracks, result, at)
            }
            SettledTracks::Description(tracks) => {
                own.described(tracks, answer.and_then(description_of), at)
            }
            SettledTracks::Outline(_) => Vec::new(),
        });
        if let (SettledTracks::Outline(tracks), Some(answer)) = (&settled, answer) {
            change.outlines = self.outlined(tracks, question, answer, frame);
        }
        self.record_starts(&change.events);
        change.questions = self.describe(at, ids);
        Some(change)
    }

    fn settle(&mut self, question: &Prompt) -> Option<SettledTracks> {
        if let Some(tracks) = self.verifications.settle(question) {
            return Some(SettledTracks::Verification(tracks));
        }
        if let Some(tracks) = self.descriptions.settle(question) {
            return Some(SettledTracks::Description(tracks));
        }
        let tracks = self.outlines.settle(question)?;
        Some(SettledTracks::Outline(tracks))
    }

    /// The tracks that have an outline with this answer, which is about `frame`.
    fn outlined(
        &mut self,
        tracks: &[TrackId],
        question: &Prompt,
        answer: &AnswerBody,
        frame: &FrameInfo,
    ) -> Vec<OutlinedTrack> {
        let (AnswerBody::Outline(drawn), Some(bounds)) = (answer, asked_box(&question.task)) else {
            return Vec::new();
        };
        let Some(outline) = self.mask.outside_of(drawn, frame.number) else {
            return Vec::new();
        };
        let at = frame.times.received;
        let outlined = |track| (self.tracks).outlined(track, outline.clone(), &bounds, at);
        tracks.iter().filter_map(outlined).collect()
    }

    /// The outlines to be asked of the frame of this answer. None while others are under way, which is until their look is over, and none of
    /// an unchanged picture, which the engine has not encoded: each object has its last outline again.
    fn ask_outlines(
        &mut self,
        answer: &Answer,
        body: &DetectionBody,
        now: Mono,
        ids: &mut IdAllocator,
    ) -> Vec<Arc<Prompt>> {
        let prompt = &answer.prompt;
        let limit = usize::from(prompt.outlines_max);
        if limit == 0 || answer.unchanged || self.outlines.count() > 0 {
            return Vec::new();
        }
        let tracks = self.tracks.choose_for_outlines(body.objects(), limit, now);
        let question = |(track, bounds): (TrackId, NormBox)| {
            let question = outline_question(ids.next_question("outline"), prompt, bounds);
            self.outlines.add(&question, vec![track], now);
            question
        };
        tracks.into_iter().map(question).collect()
    }

    /// The look at the frame that was received at `at` is over. Outlines that were asked of it and have no answer are asked again of the
    /// next look.
    pub fn look_ended(&mut self, at: Mono) {
        self.outlines.end_of_look(at);
    }

    /// The lifecycles of these tracks.
    fn of_tracks(&mut self, tracks: &[TrackId]) -> impl Iterator<Item = &mut TrackLifecycle> {
        let all = self.tracks.lifecycles_mut();
        all.filter(|lifecycle| tracks.contains(&lifecycle.event.track))
    }

    fn described(&mut self, tracks: &[TrackId], answer: Option<&str>, now: Mono) -> Vec<Event> {
        let described = |lifecycle: &mut TrackLifecycle| lifecycle.described(answer, now);
        self.of_tracks(tracks).filter_map(described).collect()
    }

    /// The events that start with the result of a verification question.
    fn verified(
        &mut self,
        tracks: &[TrackId],
        result: VerificationResult,
        now: Mono,
    ) -> Vec<Event> {
        let rules = Arc::clone(&self.rules);
        let verified = |lifecycle: &mut TrackLifecycle| lifecycle.verified(result, now, &rules);
        self.of_tracks(tracks).filter_map(verified).collect()
    }

    /// The questions about objects of open events to be asked now.
    fn describe(&mut self, now: Mono, ids: &mut IdAllocator) -> Vec<Arc<Prompt>> {
        let Some(text) = self.prompt.describe.clone() else {
            return Vec::new();
        };
        // A strip may have to wait for its frames.
        let strip = self.prompt.strip;
        let patience =
            self.rules.hysteresis.stale_after + strip.map_or(Duration::ZERO, |strip| strip.over);
        let lost = self.descriptions.give_up(now, patience);
        self.described(&lost, None, now);
        let mut asked = Vec::new();
        while self.descriptions.count() < DESCRIPTIONS_MAX {
            let is_asked = |track: &TrackId| self.descriptions.is_about(track);
            let Some((track, location)) = self.tracks.to_describe(is_asked) else {
                break;
            };
            let view = view_of_object(location, strip, &self.view);
            let question = Arc::new(Prompt {
                in_pieces: self.prompt.stream,
                adapter: self.prompt.adapter.clone(),
                ..question(ids.next_question("describe"), &text, Vec::new(), view)
            });
            self.descriptions.add(&question, vec![track], now);
            asked.push(question);
        }
        asked
    }

    /// The track whose description `question` asks for.
    pub fn track_to_describe(&self, question: &Prompt) -> Option<&TrackId> {
        self.descriptions.tracks_of(question)?.first()
    }

    /// The verification question to be asked now. One at a time: a track that is confirmed meanwhile waits for the next.
    fn verify(&mut self, now: Mono, wall: WallTime, ids: &mut IdAllocator) -> Option<Arc<Prompt>> {
        let text = self.prompt.verify.clone()?;
        let patience = self.rules.hysteresis.stale_after;
        let lost = self.verifications.give_up(now, patience);
        self.verified(&lost, VerificationResult::NoAnswer, now);
        let tracks = self.tracks.to_verify(now, wall);
        if tracks.is_empty() || self.verifications.count() > 0 {
            return None;
        }
        let choices = VERIFICATION_CHOICES.map(str::to_owned).to_vec();
        let question = Arc::new(Prompt {
            adapter: self.prompt.adapter.clone(),
            ..question(ids.next_question("verify"), &text, choices, self.view)
        });
        self.verifications.add(&question, tracks, now);
        Some(question)
    }

    /// Without a look for too long, all states become unknown.
    pub fn expire(&mut self, now: Mono, wall: WallTime) -> PromptChange {
        match self.last_look {
            Some(last) if now.since(last) > self.rules.hysteresis.stale_after => {
                self.lose(EndReason::CameraLost, wall)
            }
            _ => self.change(Vec::new(), Vec::new()),
        }
    }

    /// All states become unknown, and open events end with `reason`.
    pub fn lose(&mut self, reason: EndReason, wall: WallTime) -> PromptChange {
        self.changing(|own| {
            own.last_look = None;
            own.count.forget();
            own.zones.forget();
            own.answer.forget();
            own.verifications.forget();
            own.descriptions.forget();
            own.outlines.forget();
            if let Some(recorder) = &mut own.recorder {
                recorder.lost(reason, wall);
            }
            own.tracks.end(reason, wall)
        })
    }

    /// Replaces the configuration; keeps all that the new one does not change.
    pub fn configure(
        &mut self,
        camera: &CameraConfig,
        prompt: &PromptConfig,
        wall: WallTime,
    ) -> PromptChange {
        let is_other = prompt.task != self.prompt.task || prompt.adapter != self.prompt.adapter;
        let change = if is_other {
            self.lose(EndReason::PromptChanged, wall)
        } else if !prompt.is_asked() {
            self.lose(EndReason::Disabled, wall)
        } else {
            self.change(Vec::new(), Vec::new())
        };
        if prompt.verify != self.prompt.verify {
            self.verifications.forget();
            let tracks = self.tracks.lifecycles_mut();
            tracks.for_each(TrackLifecycle::verify_again);
        }
        change.then(self.changing(|own| own.replace(camera, prompt)))
    }

    fn replace(&mut self, camera: &CameraConfig, prompt: &PromptConfig) -> Vec<Event> {
        let rules = PromptRules::new(camera, prompt);
        let filter = Filter::new(camera, prompt);
        let is_zone_kept = |zone: &ZoneId| {
            rules.zones.contains(zone) && filter.zone(zone) == self.filter.zone(zone)
        };
        let is_line_kept = |id: &LineId| {
            let mut lines = self.rules.lines.iter();
            let old = lines.find(|line| line.id == *id);
            let is_same = |line: &LineConfig, old: &LineConfig| {
                (&line.id, &line.points, line.point) == (&old.id, &old.points, old.point)
            };
            old.is_some_and(|old| rules.lines.iter().any(|line| is_same(line, old)))
        };
        self.zones.retain(is_zone_kept);
        self.tracks.retain(is_zone_kept, is_line_kept);
        self.tracks.lines.retain(&rules.lines);
        let mask = OutlineMask::new(&camera.mask);
        if mask != self.mask {
            // They show what is masked now.
            self.outlines.forget();
            self.tracks.forget_outlines();
            self.mask = mask;
        }
        let view = camera.view_of(prompt);
        let is_same = rules == *self.rules
            && filter == self.filter
            && (view, &prompt.verify) == (self.view, &self.prompt.verify);
        if let Some(recorder) = &mut self.recorder
            && !is_same
        {
            recorder.change_rule(rules.quiet_rule());
        }
        self.rules = Arc::new(rules);
        self.filter = filter;
        self.prompt = prompt.clone();
        self.view = view;
        Vec::new()
    }

    /// Sets the counts at a line to 0.
    pub fn reset_line(&mut self, line: &LineId, wall: WallTime) -> PromptChange {
        self.change_lines(|lines, _| lines.reset(line, wall))
    }

    /// Sets the counts at the lines whose time came to 0.
    pub fn reset_due_lines(&mut self, wall: WallTime) -> PromptChange {
        self.change_lines(|lines, rules| lines.reset_due(wall, &rules.lines))
    }

    /// Continues with the counts of an earlier run.
    pub fn restore_lines(&mut self, records: &[LineCountRecord]) -> PromptChange {
        let (camera, prompt) = (self.camera.clone(), self.prompt.id.clone());
        let is_own =
            |record: &&LineCountRecord| (&record.camera, &record.prompt) == (&camera, &prompt);
        self.change_lines(|lines, _| {
            let records = records.iter().filter(is_own);
            records.for_each(|record| lines.restore(&record.line, &record.count));
        })
    }

    /// At the lines that are counted.
    fn change_lines(&mut self, change: impl FnOnce(&mut LineCounts, &PromptRules)) -> PromptChange {
        self.changing(|own| {
            change(&mut own.tracks.lines, &own.rules);
            own.tracks.lines.retain(&own.rules.lines);
            Vec::new()
        })
    }

    pub fn line_counts(&self) -> impl Iterator<Item = LineCountRecord> {
        self.tracks
            .lines
            .all()
            .map(|(line, count)| LineCountRecord {
                camera: self.camera.clone(),
                prompt: self.prompt.id.clone(),
                line: line.clone(),
                count: count.clone(),
            })
    }

    /// All states with their present values.
    pub fn all_states(&self) -> PromptChange {
        self.change(self.states(), Vec::new())
    }

    /// A snapshot of the track's object is being made: later messages of its event report it.
    pub fn mark_snapshot(&mut self, track: &TrackId) {
        for lifecycle in self.of_tracks(std::slice::from_ref(track)) {
            lifecycle.event.snapshot = true;
        }
    }

    /// The open events with the values of now.
    pub fn open_events(&self) -> impl Iterator<Item = &Event> {
        self.tracks.open_events()
    }

    fn states(&self) -> Vec<PromptState> {
        if !self.prompt.task.shape().has_objects() {
            return vec![PromptState::Answer(
                self.answer.believed().map(str::to_owned),
            )];
        }
        let zone = |zone: &ZoneId| PromptState::ZoneCount {
            zone: zone.clone(),
            count: self.zones.count(zone),
        };
        let all = [
            PromptState::Presence(self.count.presence()),
            PromptState::Count(self.count.count()),
        ];
        all.into_iter()
            .chain(self.rules.zones.iter().map(zone))
            .chain(self.dwell_states())
            .chain(self.tracks.lines.states(&self.rules.lines))
            .collect()
    }

    /// Of each zone with a time: whether an object with an event dwells there.
    fn dwell_states(&self) -> impl Iterator<Item = PromptState> {
        let dwells = |zone: &ZoneId| {
            let mut dwells = self.tracks.open_events().flat_map(|event| &event.dwell);
            dwells.any(|dwell| dwell.is_dwelling && dwell.zone == *zone)
        };
        self.prompt
            .dwell
            .keys()
            .map(move |zone| PromptState::Dwell {
                zone: zone.clone(),
                presence: match (self.count.presence(), dwells(zone)) {
                    (Presence::Unknown, _) => Presence::Unknown,
                    (_, true) => Presence::On,
                    (_, false) => Presence::Off,
                },
            })
    }

    /// What becomes of the states, with the events of `change`.
    fn changing(&mut self, change: impl FnOnce(&mut Self) -> Vec<Event>) -> PromptChange {
        let before = self.states();
        let events = change(self);
        let mut states = self.states();
        states.retain(|state| !before.contains(state));
        self.change(states, events)
    }

    fn change(&self, states: Vec<PromptState>, events: Vec<Event>) -> PromptChange {
        PromptChange {
            camera: self.camera.clone(),
            prompt: self.prompt.id.clone(),
            states,
            events,
            questions: Vec::new(),
            outlines: Vec::new(),
        }
    }
}

/// Where the object was whose outline is asked for.
fn asked_box(task: &Task) -> Option<NormBox> {
    let Task::Segment { places, .. } = task else {
        return None;
    };
    match places.first()?.location() {
        Location::Box(bounds) => Some(bounds),
        Location::Point(_) => None,
    }
}

fn choices(task: &Task) -> &[String] {
    match task {
        Task::Query { choices, .. } => choices,
        _ => &[],
    }
}

/// When the frame was captured, or received where the camera does not say.
fn captured_or_received(frame: &FrameInfo) -> WallTime {
    let times = &frame.times;
    times
        .capture
        .map_or(times.received_wall, |capture| capture.wall)
}
