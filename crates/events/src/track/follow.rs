//! Things followed from look to look: which of the found ones is which of those that were there.
//!
//! All pairs are judged together (`assign`), each by how likely the one is to be where the other is expected (`motion`).
//! A found thing that nothing expected is a new one; a thing that nobody found stays expected until its life says that it
//! is gone (`life`), so that one that is missed for a moment keeps its name. Nothing depends on the order in which the
//! model names things.

use std::sync::Arc;

use super::{
    assign::{Costs, assign},
    doubt::Verdict,
    filter::Object,
    life::{Glance, Habits, Life, Sight, Turn},
    motion::Motion,
};
use spotter_core::{CameraId, EndReason, Event, Location, Mono, TrackId, WallTime, ZoneId};

/// A pair must be less surprising than that the one is missed and the other new, at the same look (natural logarithms):
/// each happens to one of about ten, and a new one may be anywhere in the picture.
const SURPRISE_MAX: f64 = 4.6;
/// Of boxes it must be less by this: the sizes of new ones are all within about a fifth of the picture, across and down.
const SURPRISE_OF_SIZES: f64 = 3.2;

/// Names for the things of one camera, and for questions about them.
#[derive(Clone, Debug)]
pub struct Names {
    boot: Arc<str>,
    camera: CameraId,
    given: u64,
    questions: u64,
}

impl Names {
    /// None given yet; `boot` names this run of the daemon.
    pub fn new(boot: Arc<str>, camera: CameraId) -> Self {
        Self {
            boot,
            camera,
            given: 0,
            questions: 0,
        }
    }

    /// A number for a question.
    pub fn next_question(&mut self) -> u64 {
        self.questions += 1;
        self.questions
    }

    fn next(&mut self) -> TrackId {
        self.given += 1;
        TrackId::new(&self.boot, &self.camera, self.given)
    }
}

/// The things of one prompt.
#[derive(Clone, Debug)]
pub struct Follower {
    habits: Habits,
    zones: Vec<ZoneId>,
    /// In the order of their names.
    things: Vec<Thing>,
}

#[derive(Clone, Debug)]
struct Thing {
    motion: Motion,
    life: Life,
}

impl Follower {
    /// Nothing is there. `zones` are the prompt's.
    pub fn new(zones: Vec<ZoneId>, habits: Habits) -> Self {
        Self {
            habits,
            zones,
            things: Vec::new(),
        }
    }

    /// A look found `objects`: gives each its name and age, and returns what there is to tell, by name.
    pub fn look(
        &mut self,
        objects: &mut [Object],
        glance: &Glance,
        names: &mut Names,
    ) -> Vec<Event> {
        let mut by_place: Vec<&mut Object> = objects.iter_mut().collect();
        by_place.sort_by(|a, b| {
            numbers(a.place())
                .partial_cmp(&numbers(b.place()))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        let expected: Vec<Motion> = self
            .things
            .iter()
            .map(|thing| thing.expected(glance.at))
            .collect();
        let pairs = pairs(&expected, &by_place);

        let mut events = Vec::new();
        let mut found = by_place.into_iter().map(Some).collect::<Vec<_>>();
        let mut gone = Vec::new();
        let mut pairs = pairs.into_iter().peekable();
        for (index, thing) in self.things.iter_mut().enumerate() {
            let pair = pairs.next_if(|&(row, _)| row == index);
            let object = pair.and_then(|(_, column)| found[column].take());
            let turn = match object {
                Some(object) => thing.seen(expected[index].clone(), object, glance),
                None => thing.unseen(glance),
            };
            let (event, over) = outcome(turn);
            events.extend(event);
            gone.push(over);
        }
        let mut gone = gone.into_iter();
        self.things.retain(|_| !gone.next().unwrap_or(false));
        for object in found.into_iter().flatten() {
            let (thing, turn) = Thing::new(object, glance, names.next(), &self.zones, self.habits);
            events.extend(outcome(turn).0);
            self.things.push(thing);
        }
        events
    }

    /// Nothing is followed any more: ends what is open.
    pub fn end(&mut self, reason: EndReason, wall: WallTime) -> Vec<Event> {
        let ends = self.things.drain(..);
        ends.filter_map(|thing| thing.life.end(reason, wall))
            .collect()
    }

    /// Whether a question is to be asked now; it is about those that are due.
    pub fn ask(&mut self, glance: &Glance) -> bool {
        let due = self
            .things
            .iter_mut()
            .filter_map(|thing| thing.life.ask(glance).then_some(()));
        due.count() > 0
    }

    /// What came of the question under way: the events that begin with it.
    pub fn hear(&mut self, verdict: Verdict, now: Mono) -> Vec<Event> {
        let things = self.things.iter_mut();
        things
            .filter_map(|thing| thing.life.hear(verdict, now))
            .collect()
    }

    /// Another question is asked from now on.
    pub fn doubt_anew(&mut self) {
        for thing in &mut self.things {
            thing.life.doubt_anew();
        }
    }

    /// A picture of one of them is published.
    pub fn pictured(&mut self, track: &TrackId) {
        let mut lives = self.things.iter_mut().map(|thing| &mut thing.life);
        if let Some(life) = lives.find(|life| life.track() == track) {
            life.pictured();
        }
    }

    /// The events that are open, as they stand.
    pub fn open(&self) -> impl Iterator<Item = &Event> {
        self.things.iter().filter_map(|thing| thing.life.open())
    }

    /// Other rules and zones from now on; what is known of zones that `kept` lets stay is kept.
    pub fn change(&mut self, zones: Vec<ZoneId>, habits: Habits, kept: impl Fn(&ZoneId) -> bool) {
        for thing in &mut self.things {
            thing.life.change(habits, &zones, &kept);
        }
        (self.zones, self.habits) = (zones, habits);
    }
}

impl Thing {
    fn new(
        object: &mut Object,
        glance: &Glance,
        name: TrackId,
        zones: &[ZoneId],
        habits: Habits,
    ) -> (Self, Turn) {
        let place = object.place();
        let mut thing = Self {
            motion: Motion::new(place, glance.at),
            life: Life::new(name, &sight(object), glance, zones, habits),
        };
        let turn = thing.tell(object, glance);
        (thing, turn)
    }

    fn expected(&self, now: Mono) -> Motion {
        if self.life.is_still() {
            self.motion.at_rest(now)
        } else {
            self.motion.expected(now)
        }
    }

    fn seen(&mut self, expected: Motion, object: &mut Object, glance: &Glance) -> Turn {
        self.motion = expected.seen(object.place());
        self.tell(object, glance)
    }

    fn unseen(&mut self, glance: &Glance) -> Turn {
        self.motion.missed();
        self.life.unseen(glance)
    }

    fn tell(&mut self, object: &mut Object, glance: &Glance) -> Turn {
        let turn = self.life.seen(&sight(object), glance);
        object.track = Some(self.life.track().clone());
        object.age = self.life.age(glance.at);
        turn
    }
}

/// Who is whom: (expected, object).
fn pairs(expected: &[Motion], objects: &[&mut Object]) -> Vec<(usize, usize)> {
    let limit = |place: Location| match place {
        Location::Point(_) => SURPRISE_MAX,
        Location::Box(_) => SURPRISE_MAX - SURPRISE_OF_SIZES,
    };
    // The answers to one prompt are all of one kind. Costs are told from their limit, so that they have one.
    let cost = |row: usize, column: usize| {
        let place = objects[column].place();
        let surprise = expected[row].surprise(place);
        surprise.map_or(f64::MAX, |surprise| surprise - limit(place))
    };
    assign(&Costs::new(expected.len(), objects.len(), cost), 0.0)
}

fn sight(object: &Object) -> Sight<'_> {
    Sight {
        place: object.place(),
        score: object.score,
        zones: &object.zones,
    }
}

/// What is to be told, and whether the thing is gone.
fn outcome(turn: Turn) -> (Option<Event>, bool) {
    match turn {
        Turn::Quiet => (None, false),
        Turn::Tell(event) => (Some(event), false),
        Turn::Forgotten => (None, true),
        Turn::Over(event) => (Some(event), true),
    }
}

/// What orders places.
fn numbers(place: Location) -> [f64; 4] {
    match place {
        Location::Box(b) => [b.x0, b.y0, b.x1, b.y1],
        Location::Point(p) => [p.x, p.y, 0.0, 0.0],
    }
}
