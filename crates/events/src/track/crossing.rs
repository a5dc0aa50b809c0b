//! Whether and in which direction an object crosses a line.
//!
//! The path of an object is the straight way from the point where one look saw it to the point where the next did. Where the path
//! meets the line, the object changes sides. A change counts when the object is **clear** of the line again: an ellipse around its
//! point, as wide and high as a part of its box, does not touch the line. Boxes are as uncertain as they are large, so a box that
//! trembles at the line is not clear of it, and what counts in the end is the difference of all changes: one crossing or none. A
//! track that ends near the line ends on the side where it was seen last.
//!
//! An object that is behind the line for less than the pause between two looks is not seen there, and counts nothing.

use std::collections::BTreeMap;

use spotter_config::LineConfig;
use spotter_core::{LineId, Location, Mono, NormPoint, Segment, WallTime};

use super::filter::anchor;

/// The half axes of the ellipse, as a share of the box: 2.5 standard deviations of a box's centre (`motion`).
const CLEAR_SHARE: f64 = 0.25;
/// The least half axis, shares of the picture: a few of the model's 1024 bins.
const CLEAR_MIN: f64 = 0.008;
/// The half axes for a point, which may be anywhere on its object: two standard deviations.
const CLEAR_OF_POINT: f64 = 0.03;

/// Of a track that has no event, this number of the newest crossings is kept until it has one.
const UNREPORTED_MAX: usize = 16;

/// The object is so far from the line that its side is certain.
fn is_clear_of(line: &LineConfig, seen: PathPoint) -> bool {
    let (across, down) = match seen.location {
        Location::Box(bounds) => {
            let half_axis = |size: f64| (CLEAR_SHARE * size).max(CLEAR_MIN);
            (
                half_axis(bounds.x1 - bounds.x0),
                half_axis(bounds.y1 - bounds.y0),
            )
        }
        Location::Point(_) => (CLEAR_OF_POINT, CLEAR_OF_POINT),
    };
    let at = anchor(seen.location, seen.foot, line.point);
    // In units of the ellipse.
    let scaled = |point: NormPoint| NormPoint {
        x: (point.x - at.x) / across,
        y: (point.y - at.y) / down,
    };
    pieces(line).all(|piece| {
        let piece = Segment {
            from: scaled(piece.from),
            to: scaled(piece.to),
        };
        piece.distance(NormPoint::default()) >= 1.0
    })
}

fn pieces(line: &LineConfig) -> impl Iterator<Item = Segment> {
    let point = |(x, y): (f64, f64)| NormPoint::new(x, y);
    line.points.windows(2).map(move |ends| Segment {
        from: point(ends[0]),
        to: point(ends[1]),
    })
}

/// From the left of a line to its right, seen along it from its first point, or back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossingDirection {
    ToRight,
    ToLeft,
}

/// A crossing that counts.
#[derive(Clone, Debug, PartialEq)]
pub struct Crossing {
    pub line: LineId,
    pub direction: CrossingDirection,
    /// When the object was on the line for the last time.
    pub at: WallTime,
    /// On the way over the line, picture widths a second; `None` if no time passed.
    pub speed: Option<f64>,
}

/// Where a look saw an object.
#[derive(Clone, Copy, Debug)]
pub struct PathPoint {
    pub location: Location,
    /// Its foot, if an outline shows it.
    pub foot: Option<NormPoint>,
    pub at: Mono,
    pub wall: WallTime,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
}

/// The path of one track at all lines of its prompt.
#[derive(Clone, Debug, Default)]
pub struct TrackPath {
    watches: BTreeMap<LineId, LineWatch>,
    /// The oldest first.
    unreported: Vec<Crossing>,
}

impl TrackPath {
    /// A look saw the object.
    pub fn look(&mut self, seen: PathPoint, lines: &[LineConfig]) {
        for line in lines {
            let watch = self.watches.entry(line.id.clone()).or_default();
            self.unreported.extend(watch.look(seen, line));
        }
        let beyond = self.unreported.len().saturating_sub(UNREPORTED_MAX);
        self.unreported.drain(..beyond);
    }

    /// The track has ended because its object was not seen any more: it stays on the side where it was seen last.
    pub fn end(&mut self) {
        let crossed = self.watches.iter_mut();
        let crossed = crossed.filter_map(|(line, watch)| watch.settle(line));
        self.unreported.extend(crossed);
    }

    /// The crossings since the last call.
    pub fn take(&mut self) -> Vec<Crossing> {
        std::mem::take(&mut self.unreported)
    }

    /// At another line, the object starts again.
    pub fn retain(&mut self, is_kept: impl Fn(&LineId) -> bool) {
        self.watches.retain(|line, _| is_kept(line));
    }
}

/// The path of one object at one line.
#[derive(Clone, Debug, Default)]
struct LineWatch {
    last: Option<PathPoint>,
    /// Changes to the right less those to the left, since the object was clear of the line.
    changes: i32,
    /// The last change.
    changed: Option<OnLine>,
}

/// When an object was on the line, and how fast.
#[derive(Clone, Copy, Debug)]
struct OnLine {
    at: WallTime,
    speed: Option<f64>,
}

impl LineWatch {
    fn look(&mut self, seen: PathPoint, line: &LineConfig) -> Option<Crossing> {
        if let Some(last) = self.last.replace(seen) {
            self.pass(last, seen, line);
        }
        match is_clear_of(line, seen) {
            true => self.settle(&line.id),
            false => None,
        }
    }

    fn pass(&mut self, from: PathPoint, to: PathPoint, line: &LineConfig) {
        // That a foot gets known, or is not known any more, is no movement.
        let have_feet = from.foot.is_some() && to.foot.is_some();
        let at = |end: PathPoint| anchor(end.location, end.foot.filter(|_| have_feet), line.point);
        let way = Segment {
            from: at(from),
            to: at(to),
        };
        let meetings = pieces(line).filter_map(|piece| meeting(way, piece));
        let mut last: Option<f64> = None;
        for (direction, share) in meetings {
            self.changes += match direction {
                CrossingDirection::ToRight => 1,
                CrossingDirection::ToLeft => -1,
            };
            last = Some(last.map_or(share, |other| other.max(share)));
        }
        if let Some(share) = last {
            // Monotonic: a step of the camera's clock changes no speed.
            let seconds = to.at.since(from.at).as_secs_f64();
            self.changed = Some(OnLine {
                at: to.wall.plus_seconds((share - 1.0) * seconds),
                speed: (seconds > 0.0).then(|| width_lengths(way, to.camera_size) / seconds),
            });
        }
    }

    /// One crossing or none. Around the end of a line the difference may be greater, without more of a crossing.
    fn settle(&mut self, line: &LineId) -> Option<Crossing> {
        let direction = match std::mem::take(&mut self.changes).signum() {
            1 => CrossingDirection::ToRight,
            -1 => CrossingDirection::ToLeft,
            _ => return None,
        };
        let OnLine { at, speed } = self.changed.take()?;
        Some(Crossing {
            line: line.clone(),
            direction,
            at,
            speed,
        })
    }
}

/// Where `way` meets a piece of a line, 0 to 1, and the direction. A point on a piece is to the right of it, and an end of a piece on the way is
/// to the right of the way, whichever way round the way is: so a way through a common point of two pieces meets one of them, and the way back
/// meets the same.
fn meeting(way: Segment, piece: Segment) -> Option<(CrossingDirection, f64)> {
    let (from, to) = (piece.side(way.from), piece.side(way.to));
    let direction = match (is_right(from), is_right(to)) {
        (false, true) => CrossingDirection::ToRight,
        (true, false) => CrossingDirection::ToLeft,
        _ => return None,
    };
    let left_to_right = match (way.from.x, way.from.y) <= (way.to.x, way.to.y) {
        true => way,
        false => Segment {
            from: way.to,
            to: way.from,
        },
    };
    let is_past =
        is_right(left_to_right.side(piece.from)) == is_right(left_to_right.side(piece.to));
    (!is_past).then(|| (direction, from / (from - to)))
}

/// The length of a way in widths of a picture of this size.
fn width_lengths(way: Segment, size: (u32, u32)) -> f64 {
    let (width, height) = size;
    let aspect = f64::from(height) / f64::from(width.max(1));
    (way.to.x - way.from.x).hypot((way.to.y - way.from.y) * aspect)
}

fn is_right(side: f64) -> bool {
    side >= 0.0
}

#[cfg(test)]
mod tests;
