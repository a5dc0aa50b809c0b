//! Who was who, and what was told of whom: a tracker against a truth that knows everybody by name.
//!
//! A *stay* is what a tracker would tell that knew everybody by name: it begins when 2 of 3 looks show somebody
//! ([`Standing::Present`]: a third or more of it can be seen, and it is not tiny) and ends when for 3 s none did. *Entering*
//! is the first look of a stay that shows it. So of every stay there should be one event, and one name from its beginning
//! to its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use spotter_core::{EventStep, Mono, Presence, TrackId, TrackedObject};
use spotter_events::track::{Hysteresis, HysteresisRules, TrackedAnswer};
use spotter_street::{
    scene::{Class, Identity},
    truth::{Seen, Standing},
};

/// What became of the things of a class, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StayTally {
    /// How often somebody was there.
    pub stays: usize,
    /// Events that were told.
    pub events: usize,
    /// Of all events.
    pub messages: usize,
    /// Times that somebody got another name within a stay.
    pub switches: usize,
    /// Stays that were told by the first, second and third look from entering.
    pub told_by: [usize; 3],
    /// ... no later than by a tracker that knows everybody by name.
    pub in_time: usize,
}

impl StayTally {
    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            stays: self.stays + other.stays,
            events: self.events + other.events,
            messages: self.messages + other.messages,
            switches: self.switches + other.switches,
            told_by: std::array::from_fn(|look| self.told_by[look] + other.told_by[look]),
            in_time: self.in_time + other.in_time,
        }
    }

    /// `part` for each stay; `None` without any.
    pub fn share(self, part: usize) -> Option<f64> {
        (self.stays > 0).then(|| part as f64 / self.stays as f64)
    }
}

/// Keeps the score over the looks of one camera, which asks for each class in a prompt of its own.
#[derive(Clone, Debug, Default)]
pub struct Stays {
    everybody: BTreeMap<Identity, Somebody>,
    /// Tracks of which there was an event.
    told: BTreeSet<TrackId>,
    tallies: BTreeMap<Class, StayTally>,
}

impl Stays {
    /// Look number `look`, at `now`, with the prompt for `class`: what it shows of everything, what the tracker made of
    /// it, and whom one of its objects shows. Every class is told of every look, in their order.
    pub fn look(
        &mut self,
        (look, now): (usize, Mono),
        class: Class,
        seen: &[Seen],
        answer: &TrackedAnswer,
        who: impl Fn(&TrackedObject) -> Option<Identity>,
    ) {
        let tally = self.tallies.entry(class).or_default();
        let of_class = || seen.iter().filter(|seen| seen.class == class);
        for seen in of_class() {
            let new = || Somebody::new(class);
            self.everybody.entry(seen.identity).or_insert_with(new);
        }
        for event in &answer.change.events {
            tally.messages += 1;
            if event.step == EventStep::New {
                tally.events += 1;
                self.told.insert(event.track.clone());
            }
        }
        let everybody = self.everybody.iter_mut();
        for (identity, somebody) in everybody.filter(|(_, somebody)| somebody.class == class) {
            let objects = answer.body.objects().iter();
            let own = objects.filter(|object| who(object) == Some(*identity));
            let tracks: Vec<TrackId> = own.map(|object| object.track.clone()).collect();
            let present = of_class()
                .any(|seen| seen.identity == *identity && seen.standing == Standing::Present);
            somebody.look((look, now), present, &tracks, &self.told, tally);
        }
    }

    /// The name that somebody had last in this stay.
    pub fn name(&self, identity: Identity) -> Option<&TrackId> {
        self.everybody.get(&identity)?.track.as_ref()
    }

    /// What became of each class that was asked for.
    pub fn tallies(&self) -> &BTreeMap<Class, StayTally> {
        &self.tallies
    }

    /// What became of all.
    pub fn all(&self) -> StayTally {
        let tallies = self.tallies.values().copied();
        tallies.fold(StayTally::default(), StayTally::and)
    }
}

/// One person or thing over the whole time.
#[derive(Clone, Debug)]
struct Somebody {
    class: Class,
    oracle: Hysteresis,
    /// The look at which it entered, at which it had to be told, and at which it was.
    entered: Option<usize>,
    due: Option<usize>,
    told: Option<usize>,
    counted: bool,
    track: Option<TrackId>,
}

impl Somebody {
    fn new(class: Class) -> Self {
        let oracle = Hysteresis::new(HysteresisRules {
            confirm: (2, 3),
            end_after: Duration::from_secs(3),
            stale_after: Duration::from_secs(60),
        });
        Self {
            class,
            oracle,
            entered: None,
            due: None,
            told: None,
            counted: false,
            track: None,
        }
    }

    /// One look: whether it is present, the tracks that its boxes got, and which tracks have been told.
    fn look(
        &mut self,
        (look, now): (usize, Mono),
        present: bool,
        tracks: &[TrackId],
        told: &BTreeSet<TrackId>,
        tally: &mut StayTally,
    ) {
        if present {
            self.entered.get_or_insert(look);
        }
        self.oracle.look(u32::from(present), now);
        self.call_by(tracks, tally);
        match self.oracle.presence() {
            Presence::On if self.due.is_none() => {
                self.due = Some(look);
                tally.stays += 1;
            }
            Presence::Off => {
                let (class, oracle) = (self.class, self.oracle.clone());
                *self = Self {
                    oracle,
                    ..Self::new(class)
                };
                return;
            }
            _ => {}
        }
        let is_told = |track: &TrackId| told.contains(track);
        if self.told.is_none() && self.track.as_ref().is_some_and(is_told) {
            self.told = Some(look);
        }
        self.count(tally);
    }

    /// Another name than before is a switch, once the stay is one.
    fn call_by(&mut self, tracks: &[TrackId], tally: &mut StayTally) {
        let [first, ..] = tracks else { return };
        let as_before = |track: &TrackId| tracks.contains(track);
        if !self.track.as_ref().is_some_and(as_before) {
            tally.switches += usize::from(self.track.is_some() && self.due.is_some());
            self.track = Some(first.clone());
        }
    }

    /// Once for each stay, when both it and its event are there.
    fn count(&mut self, tally: &mut StayTally) {
        if let (Some(entered), Some(due), Some(told), false) =
            (self.entered, self.due, self.told, self.counted)
        {
            self.counted = true;
            for (looks, told_by) in tally.told_by.iter_mut().enumerate() {
                *told_by += usize::from(told <= entered + looks);
            }
            tally.in_time += usize::from(told <= due);
        }
    }
}

#[cfg(test)]
mod tests;
