//! How a tracker names objects and reports their events, compared with a truth that knows each object.
//!
//! A *stay* begins when 2 of 3 looks show an object ([`Visibility::Present`]: at least a third of it is visible and it is not
//! tiny) and ends when no look has shown it for 3 s. An object *enters* with the first look of a stay that shows it. A perfect
//! tracker reports one event for each stay, and gives the object one track id from its beginning to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use spotter_core::{EventStep, Mono, Presence, TrackId, TrackedObject};
use spotter_events::track::{Hysteresis, HysteresisRules, TrackedAnswer};
use spotter_street::{
    scene::{Class, ObjectIdentity},
    truth::{SeenObject, Visibility},
};

/// Counts for the objects of a class, or for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StayTally {
    pub stays: usize,
    /// Events that were started.
    pub events: usize,
    /// Event messages: starts, changes and ends.
    pub messages: usize,
    /// Times that an object got another track id within a stay.
    pub switches: usize,
    /// Stays whose event was started by the first, second and third look from entering.
    pub reported_by: [usize; 3],
    /// Stays whose event was started no later than a perfect tracker starts it.
    pub in_time: usize,
}

impl StayTally {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            stays: self.stays + other.stays,
            events: self.events + other.events,
            messages: self.messages + other.messages,
            switches: self.switches + other.switches,
            reported_by: std::array::from_fn(|look| {
                self.reported_by[look] + other.reported_by[look]
            }),
            in_time: self.in_time + other.in_time,
        }
    }

    /// `part` per stay; `None` without stays.
    pub fn share(self, part: usize) -> Option<f64> {
        (self.stays > 0).then(|| part as f64 / self.stays as f64)
    }
}

/// A look at the street and what it shows.
#[derive(Clone, Copy, Debug)]
pub struct StreetLook<'a> {
    pub number: usize,
    pub at: Mono,
    /// Objects of all classes.
    pub seen: &'a [SeenObject],
}

/// Scores the looks of one camera, which has one prompt for each class.
#[derive(Clone, Debug, Default)]
pub struct Stays {
    objects: BTreeMap<ObjectIdentity, ScoredObject>,
    /// Tracks with an event.
    reported: BTreeSet<TrackId>,
    tallies: BTreeMap<Class, StayTally>,
}

impl Stays {
    /// Adds the tracker's answer to the prompt for `class`; `shows` gives the object that a box shows. Every look is added
    /// once for every class, looks in their order.
    pub fn add(
        &mut self,
        look: StreetLook,
        class: Class,
        answer: &TrackedAnswer,
        shows: impl Fn(&TrackedObject) -> Option<ObjectIdentity>,
    ) {
        let tally = self.tallies.entry(class).or_default();
        let of_class = || look.seen.iter().filter(|seen| seen.class == class);
        for seen in of_class() {
            let new = || ScoredObject::new(class);
            self.objects.entry(seen.identity).or_insert_with(new);
        }
        for event in &answer.change.events {
            tally.messages += 1;
            if event.step == EventStep::New {
                tally.events += 1;
                self.reported.insert(event.track.clone());
            }
        }
        let objects = self.objects.iter_mut();
        for (identity, object) in objects.filter(|(_, object)| object.class == class) {
            let boxes = answer.body.objects().iter();
            let own = boxes.filter(|place| shows(place) == Some(*identity));
            let tracks: Vec<TrackId> = own.map(|place| place.track.clone()).collect();
            let is_present = of_class()
                .any(|seen| seen.identity == *identity && seen.visibility == Visibility::Present);
            let shown = ShownObject { is_present, tracks };
            object.add(look, &shown, &self.reported, tally);
        }
    }

    /// The track id that an object had last in its current stay.
    pub fn track(&self, identity: ObjectIdentity) -> Option<&TrackId> {
        self.objects.get(&identity)?.stay.track.as_ref()
    }

    pub fn tallies(&self) -> &BTreeMap<Class, StayTally> {
        &self.tallies
    }

    /// The sum over the classes.
    pub fn all(&self) -> StayTally {
        let tallies = self.tallies.values().copied();
        tallies.fold(StayTally::default(), StayTally::and)
    }
}

/// An object over the whole run.
#[derive(Clone, Debug)]
struct ScoredObject {
    class: Class,
    /// Whether a perfect tracker reports it.
    truth: Hysteresis,
    stay: Stay,
}

/// The current stay of an object. Looks are given by their numbers.
#[derive(Clone, Debug, Default)]
struct Stay {
    entered: Option<usize>,
    /// The look at which a perfect tracker starts the event.
    due: Option<usize>,
    /// The look by which the tracker has started it.
    reported: Option<usize>,
    is_counted: bool,
    track: Option<TrackId>,
}

/// What one look shows of an object.
struct ShownObject {
    is_present: bool,
    /// Of the boxes that show it.
    tracks: Vec<TrackId>,
}

impl ScoredObject {
    fn new(class: Class) -> Self {
        Self {
            class,
            truth: Hysteresis::default(),
            stay: Stay::default(),
        }
    }

    fn add(
        &mut self,
        look: StreetLook,
        shown: &ShownObject,
        reported: &BTreeSet<TrackId>,
        tally: &mut StayTally,
    ) {
        if shown.is_present {
            self.stay.entered.get_or_insert(look.number);
        }
        let rules = HysteresisRules {
            confirm: (2, 3),
            end_after: Duration::from_secs(3),
            stale_after: Duration::from_secs(60),
        };
        self.truth.look(u32::from(shown.is_present), look.at, rules);
        self.stay.follow(&shown.tracks, tally);
        match self.truth.presence() {
            Presence::On if self.stay.due.is_none() => {
                self.stay.due = Some(look.number);
                tally.stays += 1;
            }
            Presence::Off => {
                self.stay = Stay::default();
                return;
            }
            _ => {}
        }
        let is_reported = |track: &TrackId| reported.contains(track);
        if self.stay.reported.is_none() && self.stay.track.as_ref().is_some_and(is_reported) {
            self.stay.reported = Some(look.number);
        }
        self.stay.count(tally);
    }
}

impl Stay {
    /// Another track id than before is a switch, once the stay has begun.
    fn follow(&mut self, tracks: &[TrackId], tally: &mut StayTally) {
        let [first, ..] = tracks else { return };
        let is_same = |track: &TrackId| tracks.contains(track);
        if !self.track.as_ref().is_some_and(is_same) {
            tally.switches += usize::from(self.track.is_some() && self.due.is_some());
            self.track = Some(first.clone());
        }
    }

    /// Counts the stay once, when both it and its event have begun.
    fn count(&mut self, tally: &mut StayTally) {
        if let (Some(entered), Some(due), Some(reported), false) =
            (self.entered, self.due, self.reported, self.is_counted)
        {
            self.is_counted = true;
            for (looks, reported_by) in tally.reported_by.iter_mut().enumerate() {
                *reported_by += usize::from(reported <= entered + looks);
            }
            tally.in_time += usize::from(reported <= due);
        }
    }
}

#[cfg(test)]
mod tests;
