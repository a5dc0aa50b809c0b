//! Objects followed from look to look: which found object continues which track.
//!
//! All pairs are judged together (`assign`), each by how likely the object is to be where the track is expected
//! (`motion`). A found object that matches no track starts one; a track without an object stays expected until its
//! lifecycle ends it (`lifecycle`), so that an object that is missed for a moment keeps its track id. The order of the
//! model's answer changes nothing.

use std::sync::Arc;

use super::{
    assign::assign,
    crossing::{PathPoint, TrackPath},
    filter::{Candidate, compare_locations},
    lifecycle::{CountedPlaces, LookContext, TrackLifecycle},
    line_counts::LineCounts,
    motion::MotionFilter,
    verification::VerificationResult,
};
use spotter_core::{
    CameraId, EndReason, Event, EventStep, Location, Mono, TrackId, TrackedObject, UpdateReason,
    WallTime, ZoneId,
};

/// A pair must be less surprising than that one object is missed and another is new, at the same look (natural
/// logarithms): each happens to one of about ten, and a new one may be anywhere in the picture.
const SURPRISE_MAX: f64 = 4.6;
/// Of boxes it must be less by this: the sizes of new ones are all within about a fifth of the picture, across and down.
const SURPRISE_OF_SIZES: f64 = 3.2;
/// And by this for a track that waits: that it is missed is no surprise, because the look saw another part of the picture.
const SURPRISE_OF_A_MISS: f64 = SURPRISE_MAX / 2.0;

/// Gives the tracks of one camera, and the questions about them, their ids.
#[derive(Clone, Debug)]
pub struct IdAllocator {
    boot: Arc<str>,
    camera: CameraId,
    tracks: u64,
    questions: u64,
}

impl IdAllocator {
    /// `boot` identifies this run of the daemon.
    pub fn new(boot: Arc<str>, camera: CameraId) -> Self {
        Self {
            boot,
            camera,
            tracks: 0,
            questions: 0,
        }
    }

    pub fn next_question(&mut self) -> u64 {
        self.questions += 1;
        self.questions
    }

    fn next_track(&mut self) -> TrackId {
        self.tracks += 1;
        TrackId::new(&self.boot, &self.camera, self.tracks)
    }
}

/// The tracks of one prompt.
#[derive(Clone, Debug)]
pub struct TrackSet {
    places: CountedPlaces,
    pub lines: LineCounts,
    /// In the order of their ids.
    tracks: Vec<ActiveTrack>,
}

#[derive(Clone, Debug)]
struct ActiveTrack {
    motion: MotionFilter,
    lifecycle: TrackLifecycle,
    path: TrackPath,
    /// The last look saw another part of the picture: the one where something moved. So this object did not.
    waited: bool,
}

/// What a look means for a prompt's tracks.
#[derive(Clone, Debug)]
pub struct FollowedLook {
    /// One for each candidate, in their order.
    pub objects: Vec<TrackedObject>,
    /// In the order of the track ids.
    pub events: Vec<Event>,
    /// The zones of each confirmed track that waits, because the look saw another part of the picture.
    pub waiting: Vec<Vec<ZoneId>>,
}

impl TrackSet {
    /// No tracks yet.
    pub fn new(places: CountedPlaces, lines: LineCounts) -> Self {
        Self {
            places,
            lines,
            tracks: Vec::new(),
        }
    }

    /// A look found `candidates`. Every candidate continues a track or starts one.
    pub fn look(
        &mut self,
        candidates: Vec<Candidate>,
        look: &LookContext,
        ids: &mut IdAllocator,
    ) -> FollowedLook {
        let mut by_location: Vec<(usize, Candidate)> = candidates.into_iter().enumerate().collect();
        by_location.sort_by(|(_, a), (_, b)| compare_locations(a.location, b.location));
        let expected = self.tracks.iter().map(|track| track.expected(look));
        let expected: Vec<ExpectedTrack> = expected.collect();
        let mut pairs = pairs(&expected, &by_location).into_iter().peekable();

        let mut unmatched: Vec<_> = by_location.into_iter().map(Some).collect();
        let (mut objects, mut events) = (Vec::with_capacity(unmatched.len()), Vec::new());
        let mut waiting = Vec::new();
        let mut kept = Vec::with_capacity(self.tracks.len() + unmatched.len());
        let before = std::mem::take(&mut self.tracks).into_iter().zip(expected);
        for (row, (mut track, expected)) in before.enumerate() {
            let pair = pairs.next_if(|&(of, _)| of == row);
            let event = match pair.and_then(|(_, column)| unmatched[column].take()) {
                Some((index, candidate)) => {
                    track.waited = false;
                    track.motion = expected.motion.seen(candidate.location);
                    let event = track.seen(&candidate, look);
                    objects.push((index, track.tracked(candidate, look.at)));
                    event
                }
                None if expected.waits => {
                    track.waited = true;
                    if track.lifecycle.is_present() {
                        waiting.push(track.lifecycle.occupied_zones().to_vec());
                    }
                    track.lifecycle.wait(look)
                }
                None => {
                    track.waited = false;
                    track.motion.missed();
                    track.unseen(look)
                }
            };
            let is_end = track.lifecycle.is_over();
            let crossings = track.crossings(&mut self.lines);
            // The end of an event is its last message.
            match is_end {
                true => events.extend(crossings.into_iter().chain(event)),
                false => events.extend(event.into_iter().chain(crossings)),
            }
            if !is_end {
                kept.push(track);
            }
        }
        self.tracks = kept;
        for (index, candidate) in unmatched.into_iter().flatten() {
            let mut track = self.start(&candidate, look, ids);
            events.extend(track.seen(&candidate, look));
            objects.push((index, track.tracked(candidate, look.at)));
            self.tracks.push(track);
        }
        objects.sort_unstable_by_key(|(index, _)| *index);
        FollowedLook {
            objects: objects.into_iter().map(|(_, object)| object).collect(),
            events,
            waiting,
        }
    }

    /// Ends all tracks, and the events that are open.
    pub fn end(&mut self, reason: EndReason, wall: WallTime) -> Vec<Event> {
        let ends = self.tracks.drain(..);
        ends.filter_map(|track| track.lifecycle.end(reason, wall))
            .collect()
    }

    /// The tracks that a verification question is about that is asked now.
    pub fn to_verify(&self, look: &LookContext) -> Vec<TrackId> {
        let lifecycles = self.tracks.iter().map(|track| &track.lifecycle);
        let due = lifecycles.filter(|lifecycle| lifecycle.is_to_be_verified(look));
        due.map(|lifecycle| lifecycle.track().clone()).collect()
    }

    /// The result of a verification question about these tracks: the events that start with it.
    pub fn verified(
        &mut self,
        asked: &[TrackId],
        result: VerificationResult,
        now: Mono,
    ) -> Vec<Event> {
        let tracks = self.tracks.iter_mut().map(|track| &mut track.lifecycle);
        let asked = tracks.filter(|lifecycle| asked.contains(lifecycle.track()));
        asked
            .filter_map(|lifecycle| lifecycle.verified(result, now))
            .collect()
    }

    /// The next track that waits for its description, and where it is; `is_asked`: a question about it is under way.
    pub fn to_describe(&self, is_asked: impl Fn(&TrackId) -> bool) -> Option<(TrackId, Location)> {
        let mut lifecycles = self.tracks.iter().map(|track| &track.lifecycle);
        lifecycles.find_map(|lifecycle| {
            let location = lifecycle.to_describe()?;
            (!is_asked(lifecycle.track())).then(|| (lifecycle.track().clone(), location))
        })
    }

    pub fn lifecycle_mut(&mut self, track: &TrackId) -> Option<&mut TrackLifecycle> {
        let mut lifecycles = self.tracks.iter_mut().map(|track| &mut track.lifecycle);
        lifecycles.find(|lifecycle| lifecycle.track() == track)
    }

    /// The question of the configuration changed.
    pub fn verify_again(&mut self) {
        for track in &mut self.tracks {
            track.lifecycle.verify_again();
        }
    }

    /// The open events with the values of now.
    pub fn open_events(&self) -> impl Iterator<Item = &Event> {
        self.tracks
            .iter()
            .filter_map(|track| track.lifecycle.open())
    }

    /// Replaces where the prompt counts, after its lines; zones for which `kept` is true keep their counts.
    pub fn change(&mut self, places: CountedPlaces, kept: impl Fn(&ZoneId) -> bool) {
        for track in &mut self.tracks {
            track.lifecycle.change(&places, &kept);
            track.path.change(self.lines.lines());
        }
        self.places = places;
    }

    /// A track that begins with this look.
    fn start(&self, first: &Candidate, look: &LookContext, ids: &mut IdAllocator) -> ActiveTrack {
        ActiveTrack {
            motion: MotionFilter::new(first.location, look.at),
            lifecycle: TrackLifecycle::new(ids.next_track(), first, &self.places, look),
            path: TrackPath::new(self.lines.lines()),
            waited: false,
        }
    }
}

impl ActiveTrack {
    fn expected(&self, look: &LookContext) -> ExpectedTrack {
        let waits = self.lifecycle.waits(look);
        let motion = if self.lifecycle.is_still() || self.waited || waits {
            self.motion.at_rest(look.at)
        } else {
            self.motion.expected(look.at)
        };
        ExpectedTrack { motion, waits }
    }

    fn seen(&mut self, seen: &Candidate, look: &LookContext) -> Option<Event> {
        self.path.look(PathPoint {
            location: seen.location,
            at: look.at,
            wall: look.wall,
            camera_size: look.camera_size,
        });
        self.lifecycle.seen(seen, look)
    }

    fn unseen(&mut self, look: &LookContext) -> Option<Event> {
        let event = self.lifecycle.unseen(look);
        if self.lifecycle.is_over() {
            self.path.end();
        }
        event
    }

    /// Counts the crossings of a track with an event, and makes their messages. Others wait until the track has an event.
    fn crossings(&mut self, counts: &mut LineCounts) -> Vec<Event> {
        let Some(event) = self.lifecycle.open() else {
            return Vec::new();
        };
        let counted = self.path.take().into_iter();
        let counted = counted.filter_map(|crossing| counts.add(crossing));
        let message = |crossing| Event {
            step: EventStep::Update(UpdateReason::Crossed),
            crossing: Some(crossing),
            ..event.clone()
        };
        counted.map(message).collect()
    }

    fn tracked(&self, candidate: Candidate, now: Mono) -> TrackedObject {
        TrackedObject {
            location: candidate.location,
            score: candidate.score,
            score_source: candidate.score_source,
            sharpness: candidate.sharpness,
            track: self.lifecycle.track().clone(),
            age: self.lifecycle.age(now),
            dwell: self.lifecycle.times_in(&candidate.zones),
            zones: candidate.zones,
        }
    }
}

/// A track before its look.
#[derive(Clone)]
struct ExpectedTrack {
    motion: MotionFilter,
    /// The look did not see the part of the picture where the object was.
    waits: bool,
}

/// The matches of this look: (index in `expected`, index in `candidates`), in the order of the former.
fn pairs(expected: &[ExpectedTrack], candidates: &[(usize, Candidate)]) -> Vec<(usize, usize)> {
    // The answers to one prompt are all of one kind. Costs are relative to their limit, so that one limit serves all.
    let cost = |track: &ExpectedTrack, location: Location| {
        let limit = match location {
            Location::Point(_) => SURPRISE_MAX,
            Location::Box(_) => SURPRISE_MAX - SURPRISE_OF_SIZES,
        };
        let limit = match track.waits {
            true => limit - SURPRISE_OF_A_MISS,
            false => limit,
        };
        let surprise = track.motion.surprise(location);
        surprise.map_or(f64::MAX, |surprise| surprise - limit)
    };
    let costs_of = |track: &ExpectedTrack| {
        let costs = candidates
            .iter()
            .map(|(_, seen)| cost(track, seen.location));
        costs.collect()
    };
    let costs: Vec<Vec<f64>> = expected.iter().map(costs_of).collect();
    assign(&costs)
}
