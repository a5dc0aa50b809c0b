//! One prompt of one camera: answers in, changes out.

use std::{sync::Arc, time::Duration};

use super::{
    believed_answer::BelievedAnswer,
    description::{DESCRIPTIONS_MAX, description_of, view_of_object},
    filter::Filter,
    hysteresis::{Hysteresis, HysteresisRules},
    lifecycle::{CountedPlaces, LookContext, TrackRules},
    line_counts::{LineCountRecord, LineCounts},
    question::{NewQuestion, OpenQuestions},
    seen_part::SeenPart,
    track_set::{FollowedLook, IdAllocator, TrackSet},
    verification::{VERIFICATION_CHOICES, VerificationResult},
    zones::ZoneCounts,
};
use spotter_config::{CameraConfig, PromptConfig};
use spotter_core::{
    Answer, AnswerBody, CameraId, DetectionBody, EndReason, Event, Frame, LineId, Mono, Presence,
    Prompt, PromptId, PromptRegion, PromptState, PromptView, Task, TrackId, WallTime, ZoneId,
};

/// After this many of the longest expected pauses without a look, all states are unknown.
const STALE_PAUSES: u32 = 3;
/// The shortest time until then: short interruptions, such as one reconnect of a camera, change nothing.
const STALE_MIN: Duration = Duration::from_secs(30);

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
}

impl PromptChange {
    pub fn is_empty(&self) -> bool {
        self.states.is_empty() && self.events.is_empty() && self.questions.is_empty()
    }

    pub(super) fn then(mut self, later: Self) -> Self {
        self.states.extend(later.states);
        self.events.extend(later.events);
        self.questions.extend(later.questions);
        self
    }
}

/// The end of a question that was asked once.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettledPrompt<'a> {
    pub question: &'a Prompt,
    /// `None`: the look was late or failed.
    pub answer: Option<&'a AnswerBody>,
    /// When the frame that it was asked about was received.
    pub at: Mono,
}

/// An answer after filters and tracking, and what it changed.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedAnswer {
    pub body: DetectionBody,
    pub change: PromptChange,
}

/// What is known of one prompt of one camera.
#[derive(Clone, Debug)]
pub(super) struct PromptTracker {
    camera: CameraId,
    prompt: PromptConfig,
    filter: Filter,
    stale_after: Duration,
    count: Hysteresis,
    zones: ZoneCounts,
    tracks: TrackSet,
    verifications: OpenQuestions,
    descriptions: OpenQuestions,
    answer: BelievedAnswer,
    view: PromptView,
    revision: u32,
    last_look: Option<Mono>,
}

impl PromptTracker {
    /// All states are unknown.
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        let places = places(camera, prompt);
        let rules = places.rules.hysteresis;
        Self {
            camera: camera.id.clone(),
            prompt: prompt.clone(),
            filter: Filter::new(camera, prompt),
            stale_after: rules.stale_after,
            count: Hysteresis::new(rules),
            zones: ZoneCounts::new(&places.zones, rules),
            tracks: TrackSet::new(places, LineCounts::new(camera, prompt)),
            verifications: OpenQuestions::default(),
            descriptions: OpenQuestions::default(),
            answer: BelievedAnswer::new(rules),
            view: camera.view_of(prompt),
            revision: 1,
            last_look: None,
        }
    }

    /// Processes an answer. `None` for an answer to a text that was changed since, and while the prompt is switched off.
    pub fn look(
        &mut self,
        frame: &Frame,
        answer: &Answer,
        ids: &mut IdAllocator,
    ) -> Option<TrackedAnswer> {
        let asked = &answer.prompt;
        let other_words = asked.task != self.prompt.task;
        let old = asked.revision < self.revision || asked.revision == self.revision && other_words;
        if old || !self.prompt.enabled {
            return None;
        }
        let (now, wall) = (frame.times.received, captured_or_received(frame));
        let mut change = self.expire(now, wall);
        if asked.revision > self.revision {
            // Results of the old words mean nothing for the new ones.
            change = change.then(self.lose(EndReason::PromptChanged, wall));
            self.revision = asked.revision;
            self.prompt.task = asked.task.clone();
        }
        self.last_look = Some(now);
        let before = self.states();
        let mut candidates = match &answer.body {
            AnswerBody::Boxes(found) => self.filter.boxes(found),
            AnswerBody::Points(found) => self.filter.points(found),
            // No prompt of a camera asks for outlines.
            AnswerBody::Outline(_) => Vec::new(),
            AnswerBody::Text {
                text,
                score,
                source,
            } => {
                self.answer.look(text, choices(&self.prompt.task));
                let (text, score, source) = (text.clone(), *score, *source);
                let changed = self.change(changed(&before, self.states()), Vec::new());
                return Some(TrackedAnswer {
                    body: DetectionBody::Text {
                        text,
                        score,
                        source,
                    },
                    change: change.then(changed),
                });
            }
        };
        let part = SeenPart::of(answer);
        candidates.retain(|candidate| part.is_none_or(|part| !part.cuts(candidate.location)));
        let look = LookContext {
            camera: &frame.camera,
            prompt: &asked.id,
            revision: asked.revision,
            at: now,
            wall,
            camera_size: frame.camera_size,
            part,
        };
        let FollowedLook {
            objects,
            events,
            waiting,
        } = self.tracks.look(candidates, &look, ids);
        // What is elsewhere in the picture is still there.
        let count = u32::try_from(objects.len() + waiting.len()).unwrap_or(u32::MAX);
        self.count.look(count, now);
        let seen = objects.iter().flat_map(|object| &object.zones);
        self.zones.look(seen.chain(waiting.iter().flatten()), now);
        let question = self.verify(&look, ids);
        let mut changed = self.change(changed(&before, self.states()), events);
        changed.questions.extend(question);
        changed.questions.extend(self.describe(now, ids));
        Some(TrackedAnswer {
            body: DetectionBody::Objects(objects),
            change: change.then(changed),
        })
    }

    /// What the end of a question means. `None` when the question is not one that is under way.
    pub fn settled(
        &mut self,
        settled: SettledPrompt<'_>,
        ids: &mut IdAllocator,
    ) -> Option<PromptChange> {
        let SettledPrompt {
            question,
            answer,
            at,
        } = settled;
        let before = self.states();
        let events = if let Some(tracks) = self.verifications.settle(question) {
            let result = answer.map_or(VerificationResult::NoAnswer, VerificationResult::of);
            self.tracks.verified(&tracks, result, at)
        } else {
            let tracks = self.descriptions.settle(question)?;
            self.described(&tracks, answer.and_then(description_of), at)
        };
        let mut change = self.change(changed(&before, self.states()), events);
        change.questions = self.describe(at, ids);
        Some(change)
    }

    fn described(&mut self, tracks: &[TrackId], answer: Option<&str>, now: Mono) -> Vec<Event> {
        let described = |track| self.tracks.lifecycle_mut(track)?.described(answer, now);
        tracks.iter().filter_map(described).collect()
    }

    /// The questions about objects of open events to be asked now.
    fn describe(&mut self, now: Mono, ids: &mut IdAllocator) -> Vec<Arc<Prompt>> {
        let Some(text) = self.prompt.describe.clone() else {
            return Vec::new();
        };
        // A strip may have to wait for its frames.
        let strip = self.prompt.strip;
        let patience = self.stale_after + strip.map_or(Duration::ZERO, |strip| strip.over);
        let lost = self.descriptions.give_up(now, patience);
        self.described(&lost, None, now);
        let mut asked = Vec::new();
        while self.descriptions.count() < DESCRIPTIONS_MAX {
            let is_asked = |track: &TrackId| self.descriptions.is_about(track);
            let Some((track, location)) = self.tracks.to_describe(is_asked) else {
                break;
            };
            let new = NewQuestion {
                id: format!("describe-{}", ids.next_question()),
                text: &text,
                choices: Vec::new(),
                view: view_of_object(location, strip, &self.view),
                tracks: vec![track],
            };
            asked.extend(self.descriptions.ask(new, now));
        }
        asked
    }

    /// The verification question to be asked now. One at a time: a track that is confirmed meanwhile waits for the next.
    fn verify(&mut self, look: &LookContext, ids: &mut IdAllocator) -> Option<Arc<Prompt>> {
        let question = self.prompt.verify.as_deref()?;
        let lost = self.verifications.give_up(look.at, self.stale_after);
        self.tracks
            .verified(&lost, VerificationResult::NoAnswer, look.at);
        let tracks = self.tracks.to_verify(look);
        if tracks.is_empty() || self.verifications.count() > 0 {
            return None;
        }
        let new = NewQuestion {
            id: format!("verify-{}", ids.next_question()),
            text: question,
            choices: VERIFICATION_CHOICES.map(str::to_owned).to_vec(),
            view: self.view,
            tracks,
        };
        self.verifications.ask(new, look.at)
    }

    /// Without a look for too long, all states become unknown.
    pub fn expire(&mut self, now: Mono, wall: WallTime) -> PromptChange {
        match self.last_look {
            Some(last) if now.since(last) > self.stale_after => {
                self.lose(EndReason::CameraLost, wall)
            }
            _ => self.change(Vec::new(), Vec::new()),
        }
    }

    /// All states become unknown, and open events end with `reason`.
    pub fn lose(&mut self, reason: EndReason, wall: WallTime) -> PromptChange {
        let before = self.states();
        self.last_look = None;
        self.count.forget();
        self.zones.forget();
        self.answer.forget();
        self.verifications.forget();
        self.descriptions.forget();
        let events = self.tracks.end(reason, wall);
        self.change(changed(&before, self.states()), events)
    }

    /// Replaces the configuration; keeps all that the new one does not change.
    pub fn configure(
        &mut self,
        camera: &CameraConfig,
        prompt: &PromptConfig,
        wall: WallTime,
    ) -> PromptChange {
        let change = if prompt.task != self.prompt.task {
            self.lose(EndReason::PromptChanged, wall)
        } else if !prompt.enabled {
            self.lose(EndReason::Disabled, wall)
        } else {
            self.change(Vec::new(), Vec::new())
        };
        if prompt.verify != self.prompt.verify {
            self.verifications.forget();
            self.tracks.verify_again();
        }
        let before = self.states();
        let (places, filter) = (places(camera, prompt), Filter::new(camera, prompt));
        let rules = places.rules.hysteresis;
        let kept = |zone: &ZoneId| filter.keeps(&self.filter, zone);
        self.count.set_rules(rules);
        self.zones.change(&places.zones, rules, kept);
        self.answer.set_rules(rules);
        self.tracks.lines.change(camera, prompt);
        self.tracks.change(places, kept);
        self.stale_after = rules.stale_after;
        self.filter = filter;
        self.prompt = prompt.clone();
        self.view = camera.view_of(prompt);
        let states = changed(&before, self.states());
        change.then(self.change(states, Vec::new()))
    }

    /// Sets the counts at a line to 0.
    pub fn reset_line(&mut self, line: &LineId, wall: WallTime) -> PromptChange {
        self.change_lines(|lines| lines.reset(line, wall))
    }

    /// Sets the counts at the lines whose time came to 0.
    pub fn reset_due_lines(&mut self, wall: WallTime) -> PromptChange {
        self.change_lines(|lines| lines.reset_due(wall))
    }

    /// Continues with the counts of an earlier run.
    pub fn restore_line(&mut self, record: &LineCountRecord) -> PromptChange {
        self.change_lines(|lines| lines.restore(record))
    }

    pub fn line_counts(&self) -> impl Iterator<Item = LineCountRecord> {
        self.tracks.lines.records(&self.camera, &self.prompt.id)
    }

    fn change_lines(&mut self, change: impl FnOnce(&mut LineCounts)) -> PromptChange {
        let before: Vec<PromptState> = self.tracks.lines.states().collect();
        change(&mut self.tracks.lines);
        let after = self.tracks.lines.states().collect();
        self.change(changed(&before, after), Vec::new())
    }

    /// All states with their present values.
    pub fn all_states(&self) -> PromptChange {
        self.change(self.states(), Vec::new())
    }

    /// A snapshot of the track's object is being made.
    pub fn mark_snapshot(&mut self, track: &TrackId) {
        if let Some(lifecycle) = self.tracks.lifecycle_mut(track) {
            lifecycle.mark_snapshot();
        }
    }

    /// The open events with the values of now.
    pub fn open_events(&self) -> impl Iterator<Item = &Event> {
        self.tracks.open_events()
    }

    fn states(&self) -> Vec<PromptState> {
        if let Task::Query { .. } | Task::Caption { .. } = self.prompt.task {
            return vec![PromptState::Answer(
                self.answer.believed().map(str::to_owned),
            )];
        }
        let zone = |(zone, count): (&ZoneId, Option<u32>)| PromptState::ZoneCount {
            zone: zone.clone(),
            count,
        };
        let all = [
            PromptState::Presence(self.count.presence()),
            PromptState::Count(self.count.count()),
        ];
        all.into_iter()
            .chain(self.zones.counts().map(zone))
            .chain(self.dwell_states())
            .chain(self.tracks.lines.states())
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

    fn change(&self, states: Vec<PromptState>, events: Vec<Event>) -> PromptChange {
        PromptChange {
            camera: self.camera.clone(),
            prompt: self.prompt.id.clone(),
            states,
            events,
            questions: Vec::new(),
        }
    }
}

/// The states of `after` that `before` does not have with this value.
fn changed(before: &[PromptState], mut after: Vec<PromptState>) -> Vec<PromptState> {
    after.retain(|state| !before.contains(state));
    after
}

fn choices(task: &Task) -> &[String] {
    match task {
        Task::Query { choices, .. } => choices,
        _ => &[],
    }
}

/// When the frame was captured, or received where the camera does not say.
fn captured_or_received(frame: &Frame) -> WallTime {
    let times = &frame.times;
    times
        .capture
        .map_or(times.received_wall, |capture| capture.wall)
}

fn places(camera: &CameraConfig, prompt: &PromptConfig) -> CountedPlaces {
    CountedPlaces {
        zones: camera.zones_counted(prompt),
        dwell: Arc::new(prompt.dwell.clone()),
        rules: track_rules(camera, prompt),
    }
}

fn track_rules(camera: &CameraConfig, prompt: &PromptConfig) -> TrackRules {
    let events = prompt.events;
    TrackRules {
        hysteresis: HysteresisRules {
            confirm: events.confirm,
            end_after: events.end_after,
            stale_after: stale_after(camera, prompt),
        },
        still_after: events.still_after,
        verify: prompt.verify.is_some(),
        describe: prompt.describe.is_some(),
    }
}

/// Time without a look until all states are unknown: some of the pauses that the prompt's rate and the motion gate make,
/// so that a gate that is closed over a quiet scene keeps the states.
fn stale_after(camera: &CameraConfig, prompt: &PromptConfig) -> Duration {
    let period = prompt.rate.min(camera.rate).period();
    let gate = if camera.motion.on || prompt.region == PromptRegion::Motion {
        camera.motion.at_least_every
    } else {
        Duration::ZERO
    };
    ((period + gate) * STALE_PAUSES).max(STALE_MIN)
}
