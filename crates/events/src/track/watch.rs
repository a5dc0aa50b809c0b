//! One prompt of one camera: answers in, news out.

use std::{sync::Arc, time::Duration};

use super::{
    doubt::{Inquiry, Verdict},
    filter::{Filter, Object},
    follow::{Follower, Names},
    hysteresis::{Hysteresis, Presence, Rules},
    life::{Glance, Habits},
    said::Said,
    zones::Zones,
};
use spotter_core::{
    Answer, AnswerBody, EndReason, Event, Frame, Mono, Prompt, Task, TrackId, WallTime, ZoneId,
    config::{CameraConfig, PromptConfig},
};

/// Nobody has looked for so many of the longest expected pauses between two looks: nothing is known any more.
const STALE_PAUSES: u32 = 3;
/// But short interruptions, such as one reconnect of a camera, are waited out.
const STALE_MIN: Duration = Duration::from_secs(30);

/// Something about a prompt is different from now on.
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// Whether its things are there.
    Present(Presence),
    /// How many there are; `None` = unknown.
    Count(Option<u32>),
    /// How many there are in a zone.
    Zone {
        /// Where.
        zone: ZoneId,
        /// `None` = unknown.
        count: Option<u32>,
    },
    /// The believed answer to a question; `None` = unknown.
    Answer(Option<String>),
    /// Of one of its things.
    Event(Box<Event>),
}

impl News {
    /// The event, if it is one.
    pub fn event_mut(&mut self) -> Option<&mut Event> {
        match self {
            Self::Event(event) => Some(event),
            _ => None,
        }
    }
}

/// What one answer says about now.
#[derive(Clone, Debug, PartialEq)]
pub struct Sighting {
    /// The things to report, in the model's order, each with its track; empty for a text.
    pub objects: Vec<Object>,
    /// What changed with this answer: states first, then events.
    pub news: Vec<News>,
    /// To be asked once, of the camera's next frame, before things that are there have their events. What comes of it goes
    /// to [`Tracker::verdict`](super::Tracker::verdict) or [`Tracker::unanswered`](super::Tracker::unanswered); it may also
    /// get lost.
    pub question: Option<Arc<Prompt>>,
}

/// What is known of the prompt.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    prompt: PromptConfig,
    filter: Filter,
    stale_after: Duration,
    count: Hysteresis,
    zones: Zones,
    things: Follower,
    inquiry: Inquiry,
    said: Said,
    revision: u32,
    enabled: bool,
    last_look: Option<Mono>,
}

impl Watch {
    /// Nothing is known yet.
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        let habits = habits(camera, prompt);
        let filter = Filter::new(camera, prompt);
        let zones = camera.zones_counted(prompt);
        Self {
            prompt: prompt.clone(),
            filter,
            stale_after: habits.rules.stale_after,
            count: Hysteresis::new(habits.rules),
            zones: Zones::new(&zones, habits.rules),
            things: Follower::new(zones, habits),
            inquiry: Inquiry::default(),
            said: Said::new(habits.rules),
            revision: 1,
            enabled: true,
            last_look: None,
        }
    }

    /// An answer came. `None` for one to words that were changed since, and while the prompt is switched off.
    pub fn look(&mut self, frame: &Frame, answer: &Answer, names: &mut Names) -> Option<Sighting> {
        let asked = &answer.prompt;
        let other_words = asked.task != self.prompt.task;
        let old = asked.revision < self.revision || asked.revision == self.revision && other_words;
        if old || !self.enabled {
            return None;
        }
        let (now, wall) = (frame.times.received, taken(frame));
        let mut news = self.expire(now, wall);
        if asked.revision > self.revision {
            // What was seen with the old words says nothing.
            news.extend(self.lose(EndReason::PromptChanged, wall));
            self.revision = asked.revision;
            self.prompt.task = asked.task.clone();
        }
        self.last_look = Some(now);
        let before = self.beliefs();
        let mut objects = self.filter.objects(&answer.body).unwrap_or_default();
        let (mut events, mut question) = (Vec::new(), None);
        if let AnswerBody::Text { text, .. } = &answer.body {
            self.said.look(text, choices(&self.prompt.task));
        } else {
            self.count
                .look(u32::try_from(objects.len()).unwrap_or(u32::MAX), now);
            self.zones
                .look(objects.iter().flat_map(|object| &object.zones), now);
            let glance = Glance {
                camera: &frame.camera,
                prompt: &asked.id,
                revision: asked.revision,
                at: now,
                wall,
                camera_size: frame.camera_size,
            };
            events = self.things.look(&mut objects, &glance, names);
            question = self.ask(&glance, names);
        }
        news.extend(changed(&before, self.beliefs()));
        news.extend(told(events));
        Some(Sighting {
            objects,
            news,
            question,
        })
    }

    /// What came of a question, told by a frame that was received `now`. `None` when it is not the one under way.
    pub fn hear(&mut self, question: &Prompt, verdict: Verdict, now: Mono) -> Option<Vec<News>> {
        let is_ours = self.inquiry.settle(question);
        is_ours.then(|| told(self.things.hear(verdict, now)).collect())
    }

    /// The question to be asked now. One at a time: who is confirmed meanwhile waits for the next.
    fn ask(&mut self, glance: &Glance, names: &mut Names) -> Option<Arc<Prompt>> {
        let question = self.prompt.verify.as_deref()?;
        if self.inquiry.give_up(glance.at, self.stale_after) {
            self.things.hear(Verdict::Silence, glance.at);
        }
        let ask = self.inquiry.is_free() && self.things.ask(glance);
        ask.then(|| self.inquiry.ask(question, names.next_question(), glance.at))?
    }

    /// Ends what nobody has looked at for too long: nothing is known of it any more.
    pub fn expire(&mut self, now: Mono, wall: WallTime) -> Vec<News> {
        match self.last_look {
            Some(last) if now.since(last) > self.stale_after => {
                self.lose(EndReason::CameraLost, wall)
            }
            _ => Vec::new(),
        }
    }

    /// Nothing is known any more, for that reason.
    pub fn lose(&mut self, reason: EndReason, wall: WallTime) -> Vec<News> {
        let before = self.beliefs();
        self.last_look = None;
        self.count.forget();
        self.zones.forget();
        self.said.forget();
        self.inquiry.forget();
        let mut news = changed(&before, self.beliefs());
        news.extend(told(self.things.end(reason, wall)));
        news
    }

    /// Switches it on or off.
    pub fn enable(&mut self, on: bool, wall: WallTime) -> Vec<News> {
        self.enabled = on;
        if on {
            Vec::new()
        } else {
            self.lose(EndReason::Disabled, wall)
        }
    }

    /// The configuration is another one: keeps what it says nothing new about.
    pub fn configure(
        &mut self,
        camera: &CameraConfig,
        prompt: &PromptConfig,
        wall: WallTime,
    ) -> Vec<News> {
        let mut news = Vec::new();
        if prompt.task != self.prompt.task {
            news = self.lose(EndReason::PromptChanged, wall);
        }
        if prompt.verify != self.prompt.verify {
            self.inquiry.forget();
            self.things.doubt_anew();
        }
        let before = self.beliefs();
        let (habits, filter) = (habits(camera, prompt), Filter::new(camera, prompt));
        let zones = camera.zones_counted(prompt);
        let kept = |zone: &ZoneId| filter.keeps(&self.filter, zone);
        self.count.obey(habits.rules);
        self.zones.change(&zones, habits.rules, kept);
        self.said.obey(habits.rules);
        self.things.change(zones, habits, kept);
        self.stale_after = habits.rules.stale_after;
        self.filter = filter;
        self.prompt = prompt.clone();
        let after = self.beliefs();
        news.extend(left_behind(&before, &after));
        news.extend(changed(&before, after));
        news
    }

    /// Everything that is believed, without events.
    pub fn beliefs(&self) -> Vec<News> {
        if let Task::Query { .. } | Task::Caption { .. } = self.prompt.task {
            return vec![News::Answer(self.said.believed().map(str::to_owned))];
        }
        let zone = |(zone, count): (&ZoneId, Option<u32>)| News::Zone {
            zone: zone.clone(),
            count,
        };
        let all = [
            News::Present(self.count.presence()),
            News::Count(self.count.count()),
        ];
        all.into_iter()
            .chain(self.zones.counts().map(zone))
            .collect()
    }

    /// A picture of one of its things is published.
    pub fn pictured(&mut self, track: &TrackId) {
        self.things.pictured(track);
    }

    /// The events that are open, as they stand.
    pub fn open(&self) -> impl Iterator<Item = &Event> {
        self.things.open()
    }
}

fn changed(before: &[News], after: Vec<News>) -> Vec<News> {
    let mut after = after;
    after.retain(|belief| !before.contains(belief));
    after
}

/// Nothing is known of zones that are in `before` alone.
fn left_behind(before: &[News], after: &[News]) -> Vec<News> {
    let stays = |zone: &ZoneId| {
        let is = |news: &News| matches!(news, News::Zone { zone: other, .. } if other == zone);
        after.iter().any(is)
    };
    let unknown = |news: &News| match news {
        News::Zone {
            zone,
            count: Some(_),
        } if !stays(zone) => Some(News::Zone {
            zone: zone.clone(),
            count: None,
        }),
        _ => None,
    };
    before.iter().filter_map(unknown).collect()
}

fn told(events: Vec<Event>) -> impl Iterator<Item = News> {
    events.into_iter().map(|event| News::Event(Box::new(event)))
}

fn choices(task: &Task) -> &[String] {
    match task {
        Task::Query { choices, .. } => choices,
        _ => &[],
    }
}

/// When the frame was taken, or, where the camera does not say, when it was received.
fn taken(frame: &Frame) -> WallTime {
    let times = &frame.times;
    times
        .capture
        .map_or(times.received_wall, |capture| capture.wall)
}

fn habits(camera: &CameraConfig, prompt: &PromptConfig) -> Habits {
    let events = prompt.events;
    Habits {
        rules: Rules {
            confirm: events.confirm,
            end_after: events.end_after,
            stale_after: stale_after(camera, prompt),
        },
        still_after: events.still_after,
        verified: prompt.verify.is_some(),
    }
}

/// How long without a look until nothing is known: some of the pauses that the prompt's pace and the motion gate make,
/// so that a gate that is closed over a quiet scene keeps what is known.
fn stale_after(camera: &CameraConfig, prompt: &PromptConfig) -> Duration {
    let pace = Duration::from_secs_f64(1.0 / prompt.rate_hz.min(camera.rate_hz));
    let gate = if camera.motion.on {
        camera.motion.at_least_every
    } else {
        Duration::ZERO
    };
    ((pace + gate) * STALE_PAUSES).max(STALE_MIN)
}
