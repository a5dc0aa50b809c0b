//! Places in a picture, as shares of its width and height: 0..1, origin top left (docs/mqtt.md section 1).

use serde::{Deserialize, Serialize};

/// Boxes of one place overlap by this share, as intersection over union.
const SAME_PLACE_IOU: f64 = 0.5;
/// Points of one place are as near as this on both axes.
const SAME_PLACE_DISTANCE: f64 = 0.03;

/// A point, x to the right and y down, shares of the full camera picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NormPoint {
    /// Share of the width, 0..1.
    pub x: f64,
    /// Share of the height, 0..1.
    pub y: f64,
}

/// A number as payloads have it.
pub fn rounded(value: f64, decimals: i32) -> f64 {
    let scale = 10f64.powi(decimals);
    (value * scale).round() / scale
}

impl NormPoint {
    /// As payloads have it.
    pub fn rounded(self) -> [f64; 2] {
        [self.x, self.y].map(|share| rounded(share, 4))
    }

    /// Clamped to the picture.
    pub fn new(x: f64, y: f64) -> Self {
        Self {
            x: x.clamp(0.0, 1.0),
            y: y.clamp(0.0, 1.0),
        }
    }
}

/// The straight way between two points.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Segment {
    pub from: NormPoint,
    pub to: NormPoint,
}

impl Segment {
    /// Positive to the right, zero on it, negative to the left, as the picture shows it: y points down.
    pub fn side(self, point: NormPoint) -> f64 {
        let Self { from, to } = self;
        (to.x - from.x) * (point.y - from.y) - (to.y - from.y) * (point.x - from.x)
    }

    /// From the nearest point of the segment to `point`.
    pub fn distance(self, point: NormPoint) -> f64 {
        let Self { from, to } = self;
        let (dx, dy) = (to.x - from.x, to.y - from.y);
        let length_squared = dx * dx + dy * dy;
        let along = match length_squared > 0.0 {
            true => ((point.x - from.x) * dx + (point.y - from.y) * dy) / length_squared,
            false => 0.0,
        };
        let along = along.clamp(0.0, 1.0);
        (point.x - from.x - along * dx).hypot(point.y - from.y - along * dy)
    }
}

/// A box with `x0 <= x1` and `y0 <= y1`, shares of the full camera picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NormBox {
    pub x0: f64,
    pub y0: f64,
    pub x1: f64,
    pub y1: f64,
}

impl NormBox {
    /// As payloads have it.
    pub fn rounded(&self) -> [f64; 4] {
        [self.x0, self.y0, self.x1, self.y1].map(|share| rounded(share, 4))
    }

    /// From two corners in any order, clamped to the picture.
    pub fn from_corners(x0: f64, y0: f64, x1: f64, y1: f64) -> Self {
        let [x0, x1] = [x0.min(x1), x0.max(x1)].map(|x| x.clamp(0.0, 1.0));
        let [y0, y1] = [y0.min(y1), y0.max(y1)].map(|y| y.clamp(0.0, 1.0));
        Self { x0, y0, x1, y1 }
    }

    /// From centre and size, clamped to the picture (docs/moondream.md, section 8).
    pub fn from_centre(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self::from_corners(
            x - width / 2.0,
            y - height / 2.0,
            x + width / 2.0,
            y + height / 2.0,
        )
    }

    /// Share of the picture's area.
    pub fn area(&self) -> f64 {
        (self.x1 - self.x0) * (self.y1 - self.y0)
    }

    pub fn centre(&self) -> NormPoint {
        NormPoint {
            x: (self.x0 + self.x1) / 2.0,
            y: (self.y0 + self.y1) / 2.0,
        }
    }

    /// A box inside of this one, given in shares of this one, in shares of the picture.
    pub fn box_in_picture(&self, inner: &Self) -> Self {
        let [from, to] = [(inner.x0, inner.y0), (inner.x1, inner.y1)]
            .map(|(x, y)| self.point_in_picture(NormPoint { x, y }));
        Self::from_corners(from.x, from.y, to.x, to.y)
    }

    /// The same for a point.
    pub fn point_in_picture(&self, inner: NormPoint) -> NormPoint {
        NormPoint::new(
            self.x0 + inner.x * (self.x1 - self.x0),
            self.y0 + inner.y * (self.y1 - self.y0),
        )
    }

    /// A point of the picture in shares of this box; of one outside, the nearest point inside. The reverse of
    /// [`Self::point_in_picture`].
    pub fn point_inside(&self, point: NormPoint) -> NormPoint {
        let share = |at: f64, from: f64, to: f64| match to > from {
            true => (at - from) / (to - from),
            false => 0.0,
        };
        NormPoint::new(
            share(point.x, self.x0, self.x1),
            share(point.y, self.y0, self.y1),
        )
    }

    /// The same for a box.
    pub fn box_inside(&self, other: &Self) -> Self {
        let [from, to] = [(other.x0, other.y0), (other.x1, other.y1)]
            .map(|(x, y)| self.point_inside(NormPoint { x, y }));
        Self::from_corners(from.x, from.y, to.x, to.y)
    }

    /// True when all of `other` is inside, edges included.
    pub fn covers(&self, other: &Self) -> bool {
        let corners = [(other.x0, other.y0), (other.x1, other.y1)];
        let inside = |(x, y)| self.contains(NormPoint { x, y });
        corners.into_iter().all(inside)
    }

    /// True when `point` is inside or on the edge.
    pub fn contains(&self, point: NormPoint) -> bool {
        (self.x0..=self.x1).contains(&point.x) && (self.y0..=self.y1).contains(&point.y)
    }

    /// The area that both have, as a share of the picture.
    pub fn intersection(&self, other: &Self) -> f64 {
        let width = (self.x1.min(other.x1) - self.x0.max(other.x0)).max(0.0);
        let height = (self.y1.min(other.y1) - self.y0.max(other.y0)).max(0.0);
        width * height
    }

    /// Intersection over union, 0..1; 0 for two empty boxes.
    pub fn iou(&self, other: &Self) -> f64 {
        let shared = self.intersection(other);
        let union = self.area() + other.area() - shared;
        if union > 0.0 { shared / union } else { 0.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Location {
    /// From a `detect` prompt.
    Box(NormBox),
    /// A point on the object, from a `point` prompt.
    Point(NormPoint),
}

impl Location {
    /// Whether objects of two times are taken for one. Boxes that overlap by half are, and points within 0.03 of the picture on both axes: no farther
    /// than a still point moves for the tracker, and as far as a box of a tenth of the width moves until it overlaps by half. With more,
    /// neighbours in a row of cars would be one.
    pub fn is_same_place(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Box(one), Self::Box(other)) => one.iou(other) >= SAME_PLACE_IOU,
            (Self::Point(one), Self::Point(other)) => {
                let (x, y) = (one.x - other.x, one.y - other.y);
                x.abs().max(y.abs()) <= SAME_PLACE_DISTANCE
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_clamped_scaled_and_compared() {
        let at = NormBox::from_corners;
        let clamped = NormBox::from_centre(0.95, 0.5, 0.2, 0.5);
        assert_eq!((clamped.x1, clamped.y0, clamped.y1), (1.0, 0.25, 0.75));
        let (part, expected) = (at(0.5, 0.25, 1.0, 0.5), at(0.5, 0.375, 0.75, 0.5));
        assert_eq!(part.box_in_picture(&at(0.0, 0.5, 0.5, 1.0)), expected);
        let middle = part.point_in_picture(NormPoint::new(0.25, 0.5));
        assert_eq!(part.point_inside(middle), NormPoint::new(0.25, 0.5));
        assert_eq!(part.box_inside(&expected), at(0.0, 0.5, 0.5, 1.0));
        let outside = part.box_inside(&at(0.0, 0.375, 0.75, 1.0));
        assert_eq!(outside, at(0.0, 0.5, 0.5, 1.0), "as far as it is inside");
        assert!(part.covers(&expected) && !expected.covers(&part));
        let half = at(0.0, 0.0, 0.5, 1.0);
        assert!((half.iou(&at(0.25, 0.0, 0.75, 1.0)) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(half.iou(&at(0.6, 0.0, 0.7, 1.0)), 0.0);
    }
    #[test]
    fn boxes_that_overlap_and_near_points_are_one_place() {
        let boxed = |x0| Location::Box(NormBox::from_corners(x0, 0.2, x0 + 0.3, 0.6));
        let point = |x, y| Location::Point(NormPoint::new(x, y));
        for (one, other, is_same) in [
            (boxed(0.1), boxed(0.19), true),
            (boxed(0.1), boxed(0.21), false),
            (point(0.2, 0.4), point(0.229, 0.429), true),
            (point(0.2, 0.4), point(0.24, 0.4), false),
            (boxed(0.1), point(0.25, 0.4), false),
        ] {
            assert_eq!(one.is_same_place(&other), is_same, "{one:?} {other:?}");
            assert_eq!(other.is_same_place(&one), is_same);
        }
    }
}
