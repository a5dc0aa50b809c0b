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
    lifecycle::{LookContext, TrackLifecycle},
    line_counts::LineCounts,
    motion::MotionFilter,
    outline::{OutlinedTrack, TrackOutline},
    rules::PromptRules,
};
use spotter_core::{
    CameraId, EndReason, Event, EventStep, LineId, Location, Mono, NormBox, NormPoint,
    ObjectOutline, Presence, PromptId, TrackId, TrackedObject, UpdateReason, WallTime, ZoneId,
};

/// A pair must be less surprising than that one object is missed and another is new, at the same look (natural
/// logarithms): each happens to one of about ten, and a new one may be anywhere in the picture.
const SURPRISE_MAX: f64 = 4.6;
/// Of boxes it must be less by this: the sizes of new ones are all within about a fifth of the picture, across and down.
const SURPRISE_OF_SIZES: f64 = 3.2;
/// And by this for a track that waits: that it is missed is no surprise, because the look saw another part of the picture.
const SURPRISE_OF_A_MISS: f64 = SURPRISE_MAX / 2.0;

/// Gives the tracks of a run of the daemon, and the questions about them, their ids.
#[derive(Clone, Debug)]
pub struct IdAllocator {
    /// Identifies the run.
    boot: Arc<str>,
    tracks: u64,
    questions: u64,
}

impl IdAllocator {
    pub fn new(boot: Arc<str>) -> Self {
        Self {
            boot,
            tracks: 0,
            questions: 0,
        }
    }

    pub fn next_question(&mut self, kind: &'static str) -> PromptId {
        self.questions += 1;
        PromptId::numbered(kind, self.questions)
    }

    fn next_track(&mut self, camera: &CameraId) -> TrackId {
        self.tracks += 1;
        TrackId::new(&self.boot, camera, self.tracks)
    }
}

/// The tracks of one prompt.
#[derive(Clone, Debug, Default)]
pub struct TrackSet {
    pub lines: LineCounts,
    /// In the order of their ids.
    tracks: Vec<ActiveTrack>,
}

#[derive(Clone, Debug)]
struct ActiveTrack {
    motion: MotionFilter,
    lifecycle: TrackLifecycle,
    path: TrackPath,
    outline: TrackOutline,
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
                    objects.push((index, track.tracked(candidate, look)));
                    event
                }
                None if expected.waits => {
                    track.waited = true;
                    if track.lifecycle.presence() == Presence::On {
                        waiting.push(track.lifecycle.event.zones.clone());
                    }
                    track.lifecycle.wait(look)
                }
                None => {
                    track.waited = false;
                    track.motion.missed();
                    track.unseen(look)
                }
            };
            let is_end = track.lifecycle.presence() == Presence::Off;
            let crossings = track.crossings(&mut self.lines, look.rules);
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
            let mut track = ActiveTrack {
                motion: MotionFilter::new(candidate.location, look.at),
                lifecycle: TrackLifecycle::new(ids.next_track(look.camera), &candidate, look),
                path: TrackPath::default(),
                outline: TrackOutline::default(),
                waited: false,
            };
            events.extend(track.seen(&candidate, look));
            objects.push((index, track.tracked(candidate, look)));
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
    pub fn to_verify(&self, now: Mono, wall: WallTime) -> Vec<TrackId> {
        let lifecycles = self.tracks.iter().map(|track| &track.lifecycle);
        let due = lifecycles.filter(|lifecycle| lifecycle.is_to_be_verified(now, wall));
        due.map(|lifecycle| lifecycle.event.track.clone()).collect()
    }

    /// The next track that waits for its description, and where it is; `is_asked`: a question about it is under way.
    pub fn to_describe(&self, is_asked: impl Fn(&TrackId) -> bool) -> Option<(TrackId, Location)> {
        self.tracks.iter().find_map(|track| {
            let (location, id) = (track.lifecycle.to_describe()?, &track.lifecycle.event.track);
            (!is_asked(id)).then(|| (id.clone(), location))
        })
    }

    /// The foot of an object at `location`, by the outline of the track that is most likely there; `None`: that has no outline, or no track
    /// is.
    pub fn foot_at(&self, location: Location, now: Mono) -> Option<NormPoint> {
        let Location::Box(bounds) = location else {
            return None;
        };
        let likely = self.tracks.iter().filter_map(|track| {
            let surprise = track.motion_at(now, false).surprise(location)?;
            (surprise < SURPRISE_MAX - SURPRISE_OF_SIZES).then_some((surprise, track))
        });
        let (_, track) = likely.min_by(|(one, _), (other, _)| one.total_cmp(other))?;
        track.outline.foot_in(&bounds, now)
    }

    /// Of these objects of a look, the tracks that get an outline next, with their boxes: `limit` at most, those first whose turn is
    /// longest ago. An object that is not confirmed has to wait: false alarms are gone by then, and an outline takes hundreds of tokens.
    pub fn choose_for_outlines(
        &mut self,
        objects: &[TrackedObject],
        limit: usize,
        now: Mono,
    ) -> Vec<(TrackId, NormBox)> {
        let bounds_of = |track: &ActiveTrack| {
            let is_it = |object: &&TrackedObject| object.track == track.lifecycle.event.track;
            match objects.iter().find(is_it)?.location {
                Location::Box(bounds) => Some(bounds),
                Location::Point(_) => None,
            }
        };
        let confirmed = self.tracks.iter_mut();
        let confirmed = confirmed.filter(|track| track.lifecycle.presence() == Presence::On);
        let seen = confirmed.filter_map(|track| bounds_of(track).map(|bounds| (track, bounds)));
        let mut seen = Vec::from_iter(seen);
        seen.sort_by_key(|(track, _)| track.outline.asked_at());
        let asked = seen.into_iter().take(limit).map(|(track, bounds)| {
            track.outline.ask(now);
            (track.lifecycle.event.track.clone(), bounds)
        });
        asked.collect()
    }

    /// This track got an outline, on a frame that was received at `seen_at` and had its object in `bounds`. `None`: it has ended.
    pub fn outlined(
        &mut self,
        id: &TrackId,
        outline: ObjectOutline,
        bounds: &NormBox,
        seen_at: Mono,
    ) -> Option<OutlinedTrack> {
        let mut tracks = self.tracks.iter_mut();
        let track = tracks.find(|track| track.lifecycle.event.track == *id)?;
        let outline = track.outline.set(outline, bounds, seen_at);
        Some(OutlinedTrack {
            track: id.clone(),
            outline,
        })
    }

    /// Outlines are drawn again.
    pub fn forget_outlines(&mut self) {
        let outlines = self.tracks.iter_mut().map(|track| &mut track.outline);
        outlines.for_each(TrackOutline::forget);
    }

    pub fn lifecycles_mut(&mut self) -> impl Iterator<Item = &mut TrackLifecycle> {
        self.tracks.iter_mut().map(|track| &mut track.lifecycle)
    }

    /// The open events with the values of now.
    pub fn open_events(&self) -> impl Iterator<Item = &Event> {
        self.tracks
            .iter()
            .filter_map(|track| track.lifecycle.open())
    }

    /// Other zones and lines: those for which this is true keep what is known of them.
    pub fn retain(
        &mut self,
        is_zone_kept: impl Fn(&ZoneId) -> bool,
        is_line_kept: impl Fn(&LineId) -> bool,
    ) {
        for track in &mut self.tracks {
            track.lifecycle.zones.retain(&is_zone_kept);
            track.path.retain(&is_line_kept);
        }
    }
}

impl ActiveTrack {
    fn expected(&self, look: &LookContext) -> ExpectedTrack {
        let waits = self.lifecycle.waits(look);
        let motion = self.motion_at(look.at, waits);
        ExpectedTrack { motion, waits }
    }

    fn motion_at(&self, now: Mono, waits: bool) -> MotionFilter {
        match self.lifecycle.event.still || self.waited || waits {
            true => self.motion.at_rest(now),
            false => self.motion.expected(now),
        }
    }

    fn seen(&mut self, seen: &Candidate, look: &LookContext) -> Option<Event> {
        let point = PathPoint {
            location: seen.location,
            foot: seen.foot,
            at: look.at,
            wall: look.wall,
            camera_size: look.camera_size,
        };
        self.path.look(point, &look.rules.lines);
        self.lifecycle.seen(seen, look)
    }

    fn unseen(&mut self, look: &LookContext) -> Option<Event> {
        let event = self.lifecycle.unseen(look);
        if self.lifecycle.presence() == Presence::Off {
            self.path.end();
        }
        event
    }

    /// Counts the crossings of a track with an event, and makes their messages. Others wait until the track has an event.
    fn crossings(&mut self, counts: &mut LineCounts, rules: &PromptRules) -> Vec<Event> {
        let Some(event) = self.lifecycle.open() else {
            return Vec::new();
        };
        let counted = self.path.take().into_iter();
        let counted = counted.filter_map(|crossing| counts.add(crossing, &rules.lines));
        let message = |crossing| Event {
            step: EventStep::Update(UpdateReason::Crossed),
            crossing: Some(crossing),
            ..event.clone()
        };
        counted.map(message).collect()
    }

    fn tracked(&mut self, candidate: Candidate, look: &LookContext) -> TrackedObject {
        TrackedObject {
            location: candidate.location,
            score: candidate.score,
            score_source: candidate.score_source,
            sharpness: candidate.sharpness,
            track: self.lifecycle.event.track.clone(),
            age: self.lifecycle.age(look.at),
            dwell: self.lifecycle.times_in(&candidate.zones, look.rules),
            zones: candidate.zones,
            outline: self.outline.publish(look.is_unchanged, look.at),
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
