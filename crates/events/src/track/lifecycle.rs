//! One track: confirmed, changed, ended; and which of it is published as an event.
//!
//! The same hysteresis as for presence decides, over the looks at this one object: the track is confirmed when `m` of the
//! last `n` looks saw the object, and over when none of the last `m` looks nor any in the last `end_after` did. An
//! unconfirmed track is never published. An open event is published again when something changed that a consumer may wait
//! for, and once a minute, so that an object that stays for days is one event. With `verify`, a confirmed track waits for
//! the yes of the verification question; a track that ends before has no event. With `describe`, an open event waits for the answer to a question
//! about the part of the picture around its object, and is published again with it.

use std::time::Duration;

use super::{
    description::ATTEMPTS_MAX,
    dwell::TrackDwell,
    filter::Candidate,
    hysteresis::Hysteresis,
    rules::PromptRules,
    seen_part::SeenPart,
    verification::{PendingVerification, VerificationResult},
    zones::ZoneCounts,
};
use spotter_core::{
    CameraId, EndReason, Event, EventStep, Location, Mono, Presence, PromptId, TrackId,
    UpdateReason, WallTime, ZoneDwell, ZoneId,
};

/// An open event is published again after this time.
const PUBLISH_EVERY: Duration = Duration::from_secs(60);
/// A score is worth a message when it is this much above the best that was published.
const BETTER_BY: f64 = 0.1;
/// An object whose box overlaps its earlier box less than this has moved.
const MOVED_IOU: f64 = 0.6;
/// A point farther than this from its earlier location has moved, shares of the picture on either axis.
const MOVED_DISTANCE: f64 = 0.03;

/// The look that an answer belongs to.
#[derive(Clone, Copy, Debug)]
pub struct LookContext<'a> {
    pub camera: &'a CameraId,
    pub prompt: &'a PromptId,
    /// Revision of the prompt.
    pub revision: u32,
    /// When the frame was received.
    pub at: Mono,
    /// When the frame was captured, or received where the camera does not say.
    pub wall: WallTime,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
    /// The part of the picture that the look saw; `None`: everything that the prompt ever sees.
    pub part: Option<SeenPart>,
    /// The picture is the one of the last look.
    pub is_unchanged: bool,
    pub rules: &'a PromptRules,
}

impl LookContext<'_> {
    /// True when the look saw the part of the picture where this is.
    fn covers(&self, location: Location) -> bool {
        self.part.is_none_or(|part| part.covers(location))
    }
}

/// One track from its first look on.
#[derive(Clone, Debug)]
pub struct TrackLifecycle {
    /// The event with the values of now; `step` is the last that was published.
    pub event: Event,
    first_seen: Mono,
    /// The last look that saw the part of the picture where the object was.
    looked_at: Mono,
    presence: Hysteresis,
    pub zones: ZoneCounts,
    dwell: TrackDwell,
    resting: RestingLocation,
    /// The highest score of its looks.
    best: f64,
    stage: PublishStage,
    /// Questions about the object that may still be asked.
    descriptions_left: u32,
}

/// How far a track's event has come.
#[derive(Clone, Debug)]
enum PublishStage {
    /// Not enough looks saw the object; no message yet.
    Unconfirmed,
    /// Confirmed; the event waits for the answer of the verification question.
    Unverified(PendingVerification),
    /// The event is open; these values were published last.
    Published(PublishedValues),
}

#[derive(Clone, Debug)]
struct PublishedValues {
    at: Mono,
    zones: Vec<ZoneId>,
    dwelling: Vec<ZoneId>,
    still: bool,
    best: f64,
}

impl TrackLifecycle {
    /// A track that begins with this look; [`TrackLifecycle::seen`] follows for the same look.
    pub fn new(id: TrackId, seen: &Candidate, look: &LookContext) -> Self {
        let event = Event {
            track: id,
            camera: look.camera.clone(),
            prompt: look.prompt.clone(),
            revision: look.revision,
            step: EventStep::New,
            started: look.wall,
            last_seen: look.wall,
            ended: None,
            location: seen.location,
            score: seen.score,
            top_score: seen.score,
            score_source: seen.score_source,
            looks: 0,
            zones: Vec::new(),
            entered_zones: Vec::new(),
            dwell: Vec::new(),
            still: false,
            snapshot: false,
            description: None,
            crossing: None,
            camera_size: look.camera_size,
        };
        Self {
            event,
            first_seen: look.at,
            looked_at: look.at,
            presence: Hysteresis::default(),
            zones: ZoneCounts::default(),
            dwell: TrackDwell::default(),
            resting: RestingLocation::new(seen.location, look.at),
            best: seen.score,
            stage: PublishStage::Unconfirmed,
            descriptions_left: 0,
        }
    }

    /// Time since the first look that saw the object.
    pub fn age(&self, now: Mono) -> Duration {
        now.since(self.first_seen)
    }

    /// Off: the last looks did not see the object any more.
    pub fn presence(&self) -> Presence {
        self.presence.presence()
    }

    /// The event, when it is open.
    pub fn open(&self) -> Option<&Event> {
        matches!(self.stage, PublishStage::Published(_)).then_some(&self.event)
    }

    /// A look saw the object. Returns the message of the event, if there is one.
    pub fn seen(&mut self, seen: &Candidate, look: &LookContext) -> Option<Event> {
        let event = &mut self.event;
        event.revision = look.revision;
        event.camera_size = look.camera_size;
        event.last_seen = look.wall;
        event.location = seen.location;
        self.best = self.best.max(seen.score);
        // The score of a yes stays.
        if !event.score_source.is_of_verification() {
            (event.score, event.top_score) = (seen.score, self.best);
            event.score_source = seen.score_source;
        }
        event.looks += 1;
        self.looked_at = look.at;
        let rules = look.rules;
        let (looks_to_confirm, _) = rules.hysteresis.confirm;
        self.resting.look(seen.location, look.at, looks_to_confirm);
        event.still = look.at.since(self.resting.since) >= rules.still_after;
        self.zones.look(seen.zones.iter(), look.at, rules);
        let is_occupied = |zone: &&ZoneId| self.zones.count(zone).is_some_and(|count| count > 0);
        event.zones = rules.zones.iter().filter(is_occupied).cloned().collect();
        for zone in &event.zones {
            if !event.entered_zones.contains(zone) {
                event.entered_zones.push(zone.clone());
            }
        }
        self.dwell.look(&seen.zones, look.at, rules.hysteresis);
        self.event.dwell = self.times_in(&self.event.entered_zones, rules);
        self.presence.look(1, look.at, rules.hysteresis);
        self.step(look)
    }

    /// True while the look saw another part of the picture than the one where the object was. Its track waits then, but not
    /// longer than states stay known without a look.
    pub fn waits(&self, look: &LookContext) -> bool {
        let stale_after = look.rules.hysteresis.stale_after;
        !look.covers(self.event.location) && look.at.since(self.looked_at) <= stale_after
    }

    /// The look saw another part of the picture than the one where the object is, and it waits there. Returns the message that it dwells in
    /// a zone now, if it does.
    pub fn wait(&mut self, look: &LookContext) -> Option<Event> {
        self.dwell.wait(look.at);
        self.event.dwell = self.times_in(&self.event.entered_zones, look.rules);
        let PublishStage::Published(published) = &self.stage else {
            return None;
        };
        let reason = self.dwell_reason(published)?;
        Some(self.publish(EventStep::Update(reason), look.at))
    }

    /// The times in these zones, in which a look saw the object.
    pub fn times_in(&self, zones: &[ZoneId], rules: &PromptRules) -> Vec<ZoneDwell> {
        self.dwell.times(zones, &self.event.zones, &rules.dwell)
    }

    /// A look did not see the object. Returns the message of the event, if there is one.
    pub fn unseen(&mut self, look: &LookContext) -> Option<Event> {
        if look.covers(self.event.location) {
            self.looked_at = look.at;
        }
        self.presence.look(0, look.at, look.rules.hysteresis);
        self.step(look)
    }

    /// Ends the track for a reason other than a look. `None` when it had no event.
    pub fn end(self, reason: EndReason, wall: WallTime) -> Option<Event> {
        matches!(self.stage, PublishStage::Published(_)).then_some(Event {
            step: EventStep::End(reason),
            ended: Some(wall),
            ..self.event
        })
    }

    /// True when a question that is asked now is about this track too: it waits for verification, this look saw the object, and its pause is
    /// over.
    pub fn is_to_be_verified(&self, now: Mono, wall: WallTime) -> bool {
        let PublishStage::Unverified(pending) = &self.stage else {
            return false;
        };
        self.event.last_seen == wall && pending.is_due(now)
    }

    /// The result of a question about this track. A yes starts its event.
    pub fn verified(
        &mut self,
        result: VerificationResult,
        now: Mono,
        rules: &PromptRules,
    ) -> Option<Event> {
        let PublishStage::Unverified(pending) = &mut self.stage else {
            return None;
        };
        match result {
            VerificationResult::Yes { score, source } => {
                (self.event.score, self.event.top_score) = (score, score);
                self.event.score_source = source;
                Some(self.start(now, rules))
            }
            VerificationResult::No | VerificationResult::NoAnswer => {
                pending.postpone(result == VerificationResult::No, now);
                None
            }
        }
    }

    /// The question of the configuration changed: results of the old one do not count.
    pub fn verify_again(&mut self) {
        if let PublishStage::Unverified(pending) = &mut self.stage {
            *pending = PendingVerification::new(Mono::default());
        }
    }

    /// Where the object is, when a question about it may be asked.
    pub fn to_describe(&self) -> Option<Location> {
        (self.descriptions_left > 0).then_some(self.event.location)
    }

    /// The answer to a question about this track, `None` if there was none. Returns the message of the event, if it says more now.
    pub fn described(&mut self, answer: Option<&str>, now: Mono) -> Option<Event> {
        let Some(text) = answer else {
            self.descriptions_left = self.descriptions_left.saturating_sub(1);
            return None;
        };
        self.descriptions_left = 0;
        self.event.description = Some(text.to_owned());
        Some(self.publish(EventStep::Update(UpdateReason::Described), now))
    }

    fn step(&mut self, look: &LookContext) -> Option<Event> {
        let step = match (self.presence.presence(), &self.stage) {
            (Presence::Off, PublishStage::Published(_)) => {
                return Some(Event {
                    step: EventStep::End(EndReason::Left),
                    ended: Some(look.wall),
                    ..self.event.clone()
                });
            }
            (Presence::Unknown | Presence::Off, _) => return None,
            (Presence::On, PublishStage::Published(published)) => {
                EventStep::Update(self.update_reason(published, look.at)?)
            }
            (Presence::On, PublishStage::Unconfirmed) if look.rules.verify => {
                self.stage = PublishStage::Unverified(PendingVerification::new(look.at));
                return None;
            }
            (Presence::On, PublishStage::Unverified(_)) if look.rules.verify => return None,
            (Presence::On, _) => return Some(self.start(look.at, look.rules)),
        };
        Some(self.publish(step, look.at))
    }

    fn start(&mut self, now: Mono, rules: &PromptRules) -> Event {
        self.descriptions_left = if rules.describe { ATTEMPTS_MAX } else { 0 };
        self.publish(EventStep::New, now)
    }

    /// The first of the reasons to publish the event again; one message reports all changes.
    fn update_reason(&self, published: &PublishedValues, now: Mono) -> Option<UpdateReason> {
        let event = &self.event;
        if let Some(reason) = self.dwell_reason(published) {
            return Some(reason);
        }
        let reasons = [
            (event.zones != published.zones, UpdateReason::Zones),
            (published.still && !event.still, UpdateReason::Moved),
            (!published.still && event.still, UpdateReason::Still),
            (
                self.best >= published.best + BETTER_BY,
                UpdateReason::Better,
            ),
            (
                now.since(published.at) >= PUBLISH_EVERY,
                UpdateReason::Minute,
            ),
        ];
        reasons
            .into_iter()
            .find_map(|(is, reason)| is.then_some(reason))
    }

    /// The object dwells in a zone since the last message, or does not any more.
    fn dwell_reason(&self, published: &PublishedValues) -> Option<UpdateReason> {
        let dwelling = dwelling(&self.event);
        let is_new = |zone: &ZoneId| !published.dwelling.contains(zone);
        let has_ended = |zone: &ZoneId| !dwelling.contains(zone);
        if dwelling.iter().any(is_new) {
            return Some(UpdateReason::Dwell);
        }
        let ended = published.dwelling.iter().any(has_ended);
        ended.then_some(UpdateReason::DwellEnd)
    }

    fn publish(&mut self, step: EventStep, now: Mono) -> Event {
        self.event.step = step;
        // An object that dwells when its event starts is reported with a message of its own.
        let dwelling = match step {
            EventStep::New => Vec::new(),
            _ => dwelling(&self.event),
        };
        self.stage = PublishStage::Published(PublishedValues {
            at: now,
            zones: self.event.zones.clone(),
            dwelling,
            still: self.event.still,
            best: self.best,
        });
        self.event.clone()
    }
}

/// The zones in which the object dwells.
fn dwelling(event: &Event) -> Vec<ZoneId> {
    let dwelling = event.dwell.iter().filter(|dwell| dwell.is_dwelling);
    dwelling.map(|dwell| dwell.zone.clone()).collect()
}

/// Where an object is at rest, and since when.
#[derive(Clone, Copy, Debug)]
struct RestingLocation {
    location: Location,
    since: Mono,
    /// Looks in a row that saw it elsewhere.
    away: u32,
}

impl RestingLocation {
    fn new(location: Location, now: Mono) -> Self {
        Self {
            location,
            since: now,
            away: 0,
        }
    }

    /// One odd box is no movement: an object moved when `looks_to_confirm` looks in a row saw it elsewhere.
    fn look(&mut self, location: Location, now: Mono, looks_to_confirm: u32) {
        let here = match (self.location, location) {
            (Location::Box(old), Location::Box(new)) => old.iou(&new) >= MOVED_IOU,
            (Location::Point(old), Location::Point(new)) => {
                (old.x - new.x).abs() <= MOVED_DISTANCE && (old.y - new.y).abs() <= MOVED_DISTANCE
            }
            _ => false,
        };
        self.away = if here { 0 } else { self.away + 1 };
        if self.away >= looks_to_confirm {
            *self = Self::new(location, now);
        }
    }
}
