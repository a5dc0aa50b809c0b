//! The life of one thing as it is told: confirmed, changed, over.
//!
//! Confirmed and gone are decided by the same hysteresis as presence, over the looks at this one thing: `m` of the last
//! `n` looks saw it, and later none of the last `m` looks nor any in the last `end_after` did. What was never confirmed
//! is never told. In between there is a message only when something changed that somebody may wait for, and once a
//! minute, so that a thing that stays for days is one event. Where the user wants a second look, what is confirmed waits
//! for its yes before it is told; what is over while it waits is never told.

use std::time::Duration;

use super::{
    doubt::{Doubt, Verdict},
    hysteresis::{Hysteresis, Presence, Rules},
    zones::Zones,
};
use spotter_core::{
    CameraId, EndReason, Event, EventStep, Location, Mono, PromptId, ScoreSource, TrackId,
    UpdateReason, WallTime, ZoneId,
};

/// An open event is told again after so long.
const TELL_EVERY: Duration = Duration::from_secs(60);
/// A score is worth a message when it is so much above the best that was told.
const BETTER_BY: f64 = 0.1;
/// A box that overlaps its old self less than this has moved.
const MOVED_IOU: f64 = 0.6;
/// A point that is farther from its old place than this has moved, shares of the picture on either axis.
const MOVED_DISTANCE: f64 = 0.03;

/// How much it takes to believe something of one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Habits {
    /// Confirmed, gone.
    pub rules: Rules,
    /// Unmoved for so long = still.
    pub still_after: Duration,
    /// A second look has to say yes before an event starts.
    pub verified: bool,
}

/// A look, as far as it concerns things.
#[derive(Clone, Copy, Debug)]
pub struct Glance<'a> {
    /// Whose frame.
    pub camera: &'a CameraId,
    /// What was asked.
    pub prompt: &'a PromptId,
    /// In which words.
    pub revision: u32,
    /// When the frame was received.
    pub at: Mono,
    /// When it was taken, as far as is known.
    pub wall: WallTime,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
}

/// What a look shows of one thing.
#[derive(Clone, Copy, Debug)]
pub struct Sight<'a> {
    /// Where.
    pub place: Location,
    /// How sure, 0..1.
    pub score: f64,
    /// The zones it is in.
    pub zones: &'a [ZoneId],
}

/// One thing from its first look on.
#[derive(Clone, Debug)]
pub struct Life {
    /// What there is to tell; `step` is the last that was told.
    event: Event,
    first_seen: Mono,
    habits: Habits,
    presence: Hysteresis,
    zones: Zones,
    rest: Rest,
    /// The highest score of its looks.
    best: f64,
    known: Known,
}

/// What the world knows of a thing.
#[derive(Clone, Debug)]
enum Known {
    /// Nothing; it is not confirmed.
    Nothing,
    /// Nothing yet; it is confirmed, and the second look has not said yes.
    Doubted(Doubt),
    /// This, the last time.
    Told(Told),
}

/// What was told.
#[derive(Clone, Debug)]
struct Told {
    at: Mono,
    zones: Vec<ZoneId>,
    still: bool,
    best: f64,
}

/// What happened to a thing with a look.
#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// Nothing that is worth a message.
    Quiet,
    /// This.
    Tell(Event),
    /// It is gone, and nobody knew of it.
    Forgotten,
    /// It is gone.
    Over(Event),
}

impl Life {
    /// It was just seen for the first time; [`Life::seen`] follows for the same look.
    pub fn new(
        track: TrackId,
        sight: &Sight,
        glance: &Glance,
        zones: &[ZoneId],
        habits: Habits,
    ) -> Self {
        let event = Event {
            track,
            camera: glance.camera.clone(),
            prompt: glance.prompt.clone(),
            revision: glance.revision,
            step: EventStep::New,
            started: glance.wall,
            last_seen: glance.wall,
            ended: None,
            place: sight.place,
            score: sight.score,
            top_score: sight.score,
            score_source: ScoreSource::TokenProb,
            looks: 0,
            zones: Vec::new(),
            entered_zones: Vec::new(),
            still: false,
            snapshot: false,
            camera_size: glance.camera_size,
        };
        Self {
            event,
            first_seen: glance.at,
            habits,
            presence: Hysteresis::new(habits.rules),
            zones: Zones::new(zones, habits.rules),
            rest: Rest::new(sight.place, glance.at),
            best: sight.score,
            known: Known::Nothing,
        }
    }

    /// Its name.
    pub fn track(&self) -> &TrackId {
        &self.event.track
    }

    /// How long ago it was seen first.
    pub fn age(&self, now: Mono) -> Duration {
        now.since(self.first_seen)
    }

    /// It has stood still for `still_after`.
    pub fn is_still(&self) -> bool {
        self.event.still
    }

    /// The event as it stands, when the world knows of it.
    pub fn open(&self) -> Option<&Event> {
        matches!(self.known, Known::Told(_)).then_some(&self.event)
    }

    /// A picture of it is being made; what is told from now on says so.
    pub fn pictured(&mut self) {
        self.event.snapshot = true;
    }

    /// A look saw it.
    pub fn seen(&mut self, sight: &Sight, glance: &Glance) -> Turn {
        let event = &mut self.event;
        event.revision = glance.revision;
        event.camera_size = glance.camera_size;
        event.last_seen = glance.wall;
        event.place = sight.place;
        self.best = self.best.max(sight.score);
        // That of a yes stays.
        if event.score_source == ScoreSource::TokenProb {
            (event.score, event.top_score) = (sight.score, self.best);
        }
        event.looks += 1;
        let (looks_to_believe, _) = self.habits.rules.confirm;
        self.rest.look(sight.place, glance.at, looks_to_believe);
        event.still = glance.at.since(self.rest.since) >= self.habits.still_after;
        self.zones.look(sight.zones.iter(), glance.at);
        event.zones = self.zones.occupied().cloned().collect();
        for zone in &event.zones {
            if !event.entered_zones.contains(zone) {
                event.entered_zones.push(zone.clone());
            }
        }
        self.presence.look(1, glance.at);
        self.turn(glance)
    }

    /// A look did not see it.
    pub fn unseen(&mut self, glance: &Glance) -> Turn {
        self.presence.look(0, glance.at);
        self.turn(glance)
    }

    /// It is over, whatever a look would show. `None` when nobody knew of it.
    pub fn end(self, reason: EndReason, wall: WallTime) -> Option<Event> {
        matches!(self.known, Known::Told(_)).then_some(Event {
            step: EventStep::End(reason),
            ended: Some(wall),
            ..self.event
        })
    }

    /// It waits for a second look, this look saw it, and its pause is over: the question that is asked now is about it too.
    /// False for all others.
    pub fn ask(&mut self, glance: &Glance) -> bool {
        let seen = self.event.last_seen == glance.wall;
        match &mut self.known {
            Known::Doubted(doubt) if seen && doubt.is_due(glance.at) => {
                doubt.ask();
                true
            }
            _ => false,
        }
    }

    /// What came of the question, if it was about this: a yes is the begin of its event.
    pub fn hear(&mut self, verdict: Verdict, now: Mono) -> Option<Event> {
        let Known::Doubted(doubt) = &mut self.known else {
            return None;
        };
        if !doubt.is_asked() {
            return None;
        }
        match verdict {
            Verdict::Yes(score) => {
                (self.event.score, self.event.top_score) = (score, score);
                self.event.score_source = ScoreSource::Verify;
                Some(self.tell(EventStep::New, now))
            }
            Verdict::No | Verdict::Silence => {
                doubt.stays(verdict == Verdict::No, now);
                None
            }
        }
    }

    /// Another question is asked from now on: what was said to the old one says nothing.
    pub fn doubt_anew(&mut self) {
        if let Known::Doubted(doubt) = &mut self.known {
            *doubt = Doubt::new(Mono::default());
        }
    }

    /// Other rules and zones from now on.
    pub fn change(&mut self, habits: Habits, zones: &[ZoneId], kept: impl Fn(&ZoneId) -> bool) {
        self.habits = habits;
        self.presence.obey(habits.rules);
        self.zones.change(zones, habits.rules, kept);
    }

    fn turn(&mut self, glance: &Glance) -> Turn {
        match (self.presence.presence(), &self.known) {
            (Presence::Unknown, _) => Turn::Quiet,
            (Presence::Off, Known::Told(_)) => Turn::Over(Event {
                step: EventStep::End(EndReason::Left),
                ended: Some(glance.wall),
                ..self.event.clone()
            }),
            (Presence::Off, _) => Turn::Forgotten,
            (Presence::On, Known::Told(told)) => match self.news(told, glance.at) {
                Some(reason) => Turn::Tell(self.tell(EventStep::Update(reason), glance.at)),
                None => Turn::Quiet,
            },
            (Presence::On, known) if self.habits.verified => {
                if let Known::Nothing = known {
                    self.known = Known::Doubted(Doubt::new(glance.at));
                }
                Turn::Quiet
            }
            (Presence::On, _) => Turn::Tell(self.tell(EventStep::New, glance.at)),
        }
    }

    /// The first of the reasons to tell it again: one message tells everything.
    fn news(&self, told: &Told, now: Mono) -> Option<UpdateReason> {
        let event = &self.event;
        let reasons = [
            (event.zones != told.zones, UpdateReason::Zones),
            (told.still && !event.still, UpdateReason::Moved),
            (!told.still && event.still, UpdateReason::Still),
            (self.best >= told.best + BETTER_BY, UpdateReason::Better),
            (now.since(told.at) >= TELL_EVERY, UpdateReason::Minute),
        ];
        reasons
            .into_iter()
            .find_map(|(is, reason)| is.then_some(reason))
    }

    fn tell(&mut self, step: EventStep, now: Mono) -> Event {
        self.event.step = step;
        self.known = Known::Told(Told {
            at: now,
            zones: self.event.zones.clone(),
            still: self.event.still,
            best: self.best,
        });
        self.event.clone()
    }
}

/// Where a thing stands, and since when.
#[derive(Clone, Copy, Debug)]
struct Rest {
    place: Location,
    since: Mono,
    /// Looks in a row that saw it elsewhere.
    away: u32,
}

impl Rest {
    fn new(place: Location, now: Mono) -> Self {
        Self {
            place,
            since: now,
            away: 0,
        }
    }

    /// One odd box is no movement: it takes `looks_to_believe` in a row.
    fn look(&mut self, place: Location, now: Mono, looks_to_believe: u32) {
        let here = match (self.place, place) {
            (Location::Box(old), Location::Box(new)) => old.iou(&new) >= MOVED_IOU,
            (Location::Point(old), Location::Point(new)) => {
                (old.x - new.x).abs() <= MOVED_DISTANCE && (old.y - new.y).abs() <= MOVED_DISTANCE
            }
            _ => false,
        };
        self.away = if here { 0 } else { self.away + 1 };
        if self.away >= looks_to_believe {
            *self = Self::new(place, now);
        }
    }
}
