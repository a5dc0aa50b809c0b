//! All prompts of all cameras: answers in, sightings out.
//!
//! # When a camera is lost
//!
//! A camera that is away for a moment changes nothing: its things keep their names and its events stay open. When nobody
//! has looked for three of the longest expected pauses between two looks, and at least 30 s, nothing is known any more:
//! presence, counts and answers become unknown, and in that moment open events end with `camera_lost`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    doubt::Verdict,
    follow::Names,
    watch::{News, Sighting, Watch},
};
use spotter_core::{
    Answer, CameraId, EndReason, Event, Frame, Look, Mono, Prompt, PromptId, WallTime,
    config::CameraConfig,
};

/// What changed about a prompt without an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Where.
    pub camera: CameraId,
    /// Of what.
    pub prompt: PromptId,
    /// What.
    pub news: Vec<News>,
}

/// What is known of every prompt.
#[derive(Clone, Debug)]
pub struct Tracker {
    boot: Arc<str>,
    watches: BTreeMap<(CameraId, PromptId), Watch>,
    /// Also of cameras that were there once: no name is given twice.
    names: BTreeMap<CameraId, Names>,
    /// Cameras that are not watched.
    off: BTreeSet<CameraId>,
}

impl Tracker {
    /// Knows nothing of any prompt of these cameras yet. `boot` names this run of the daemon, in the names of tracks.
    pub fn new(boot: Arc<str>, cameras: &[CameraConfig]) -> Self {
        let mut tracker = Self {
            boot,
            watches: BTreeMap::new(),
            names: BTreeMap::new(),
            off: BTreeSet::new(),
        };
        for camera in cameras {
            // Nothing was there that could end at any time.
            tracker.configure(camera, WallTime::default());
        }
        tracker
    }

    /// An answer to a look at `frame` came. Frames of one camera must come in the order of their reception. `None` for a
    /// prompt that is not ours, for an answer to words that were changed since, and for one that was under way when its
    /// camera or prompt was switched off.
    pub fn update(&mut self, frame: &Frame, answer: &Answer) -> Option<Sighting> {
        let camera = &frame.camera;
        if self.off.contains(camera) {
            return None;
        }
        let names = self.names.get_mut(camera)?;
        let key = (camera.clone(), answer.prompt.id.clone());
        self.watches.get_mut(&key)?.look(frame, answer, names)
    }

    /// The answer to a question that a [`Sighting`] brought along: the events that begin with it, none when it was a no.
    /// `None` for every other answer, and for one to a question that is over, because of a change or because it was lost.
    pub fn verdict(&mut self, frame: &Frame, answer: &Answer) -> Option<Change> {
        let (prompt, verdict) = (&*answer.prompt, Verdict::of(&answer.body));
        self.hear(&frame.camera, prompt, verdict, frame.times.received)
    }

    /// A look ended without answers. What was a question in it is asked again later.
    pub fn unanswered(&mut self, look: &Look) {
        let (camera, now) = (&look.frame.camera, look.frame.times.received);
        for prompt in &look.prompts {
            self.hear(camera, prompt, Verdict::Silence, now);
        }
    }

    /// Time passed: what nobody has looked at for too long is unknown. Call it every few seconds.
    pub fn tick(&mut self, now: Mono, wall: WallTime) -> Vec<Change> {
        self.changes(|_, watch| watch.expire(now, wall))
    }

    /// The camera is disabled, outside of its schedule or over: what it saw is no longer known, until
    /// [`looks_again`](Self::looks_again). One that is lost and comes back is not switched off: it is waited for until
    /// [`tick`](Self::tick) finds its answers too old.
    pub fn stopped_looking(
        &mut self,
        camera: &CameraId,
        reason: EndReason,
        wall: WallTime,
    ) -> Vec<Change> {
        self.off.insert(camera.clone());
        self.changes(|(of, _), watch| match of == camera {
            true => watch.lose(reason, wall),
            false => Vec::new(),
        })
    }

    /// The camera is switched on again.
    pub fn looks_again(&mut self, camera: &CameraId) {
        self.off.remove(camera);
    }

    /// Switches one prompt on or off. Off, its events end as disabled and nothing is known of it.
    pub fn enable(
        &mut self,
        camera: &CameraId,
        prompt: &PromptId,
        on: bool,
        wall: WallTime,
    ) -> Vec<Change> {
        self.changes(|key, watch| match (&key.0, &key.1) == (camera, prompt) {
            true => watch.enable(on, wall),
            false => Vec::new(),
        })
    }

    /// The camera is new or its configuration another one. A prompt whose words stay keeps its tracks, whatever else of it
    /// changes. Events of one whose words change or that is gone end as `prompt_changed`, and nothing is known of it. What
    /// is new begins unknown, and that is news. Revisions are told by answers: those to the words of before are dropped.
    pub fn configure(&mut self, camera: &CameraConfig, wall: WallTime) -> Vec<Change> {
        let id = &camera.id;
        let names = || Names::new(Arc::clone(&self.boot), id.clone());
        self.names.entry(id.clone()).or_insert_with(names);
        let is_gone = |key: &(CameraId, PromptId)| {
            key.0 == *id && camera.prompts.iter().all(|prompt| prompt.id != key.1)
        };
        let mut changes = self.changes(|key, watch| match is_gone(key) {
            true => watch.lose(EndReason::PromptChanged, wall),
            false => Vec::new(),
        });
        self.watches.retain(|key, _| !is_gone(key));
        for prompt in &camera.prompts {
            let key = (id.clone(), prompt.id.clone());
            let news = match self.watches.get_mut(&key) {
                Some(watch) => watch.configure(camera, prompt, wall),
                None => {
                    let watch = self.watches.entry(key.clone());
                    watch
                        .or_insert_with(|| Watch::new(camera, prompt))
                        .beliefs()
                }
            };
            changes.extend(change(&key, news));
        }
        changes
    }

    /// The camera is not in the configuration any more: ends what is open, and forgets it.
    pub fn remove(&mut self, camera: &CameraId, reason: EndReason, wall: WallTime) -> Vec<Change> {
        let changes = self.stopped_looking(camera, reason, wall);
        self.watches.retain(|(of, _), _| of != camera);
        self.off.remove(camera);
        changes
    }

    /// The daemon stops: ends all events.
    pub fn shutdown(&mut self, wall: WallTime) -> Vec<Event> {
        let ends = self.changes(|_, watch| watch.lose(EndReason::Shutdown, wall));
        let news = ends.into_iter().flat_map(|change| change.news);
        let event = |news| match news {
            News::Event(event) => Some(*event),
            _ => None,
        };
        news.filter_map(event).collect()
    }

    /// A picture of an event's thing is published: later messages of the event say so.
    pub fn pictured(&mut self, event: &Event) {
        let key = (event.camera.clone(), event.prompt.clone());
        if let Some(watch) = self.watches.get_mut(&key) {
            watch.pictured(&event.track);
        }
    }

    /// Everything that is believed of every prompt, without events.
    pub fn beliefs(&self) -> Vec<Change> {
        let known = |(key, watch): (&_, &Watch)| change(key, watch.beliefs());
        self.watches.iter().filter_map(known).collect()
    }

    /// The events that are open, as they stand: each with the step that was told last.
    pub fn open(&self) -> impl Iterator<Item = &Event> {
        self.watches.values().flat_map(Watch::open)
    }

    fn hear(
        &mut self,
        camera: &CameraId,
        question: &Prompt,
        verdict: Verdict,
        now: Mono,
    ) -> Option<Change> {
        if question.revision != Prompt::ONCE {
            return None;
        }
        let of_camera = self.watches.iter_mut().filter(|(key, _)| key.0 == *camera);
        let mut heard = of_camera.filter_map(|((_, prompt), watch)| {
            let news = watch.hear(question, verdict, now)?;
            Some(Change {
                camera: camera.clone(),
                prompt: prompt.clone(),
                news,
            })
        });
        heard.next()
    }

    fn changes(
        &mut self,
        mut news: impl FnMut(&(CameraId, PromptId), &mut Watch) -> Vec<News>,
    ) -> Vec<Change> {
        let of = |(key, watch): (&_, &mut _)| change(key, news(key, watch));
        self.watches.iter_mut().filter_map(of).collect()
    }
}

fn change((camera, prompt): &(CameraId, PromptId), news: Vec<News>) -> Option<Change> {
    (!news.is_empty()).then(|| Change {
        camera: camera.clone(),
        prompt: prompt.clone(),
        news,
    })
}

#[cfg(test)]
pub(super) mod tests;
