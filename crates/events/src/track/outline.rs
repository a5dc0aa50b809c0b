//! Outlines: with `segment`, some of the found objects get an outline after each look.
//!
//! ```text
//!   look ──▶ objects ──▶ to be asked ──Task::Segment with the box──▶ answer ──masks──▶ outline of the track
//!                         │ the longest without one first; none while others are under way
//!   next look ──▶ the object's message has it, once; its foot decides about zones and lines
//! ```
//!
//! A question is about the look's own picture, so an outline is one or more looks old when it is published, and has the number of its frame.

use std::{slice, sync::Arc, time::Duration};

use i_overlay::{
    core::{fill_rule::FillRule, overlay_rule::OverlayRule},
    float::single::SingleFloatOverlay,
};
use spotter_core::{
    Mono, NormBox, NormPoint, OUTLINE_POINTS_MAX, ObjectOutline, Outline, TrackId, rings_area,
    rings_foot, rounded, signed_rings_area, simplified_rings,
};

/// The foot of an outline counts for so long. Within some seconds an object turns, sits down or comes out from behind another one; three
/// outlines a look renew those of a small crowd in time.
const FOOT_MAX_AGE: Duration = Duration::from_secs(10);
/// What is less of the picture is not what masks cut off but the inexactness of the cut.
const AREA_MIN: f64 = 1e-6;

/// A track got an outline.
#[derive(Clone, Debug, PartialEq)]
pub struct OutlinedTrack {
    pub track: TrackId,
    pub outline: Arc<ObjectOutline>,
}

/// What is known of the outline of one track.
#[derive(Clone, Debug, Default)]
pub struct TrackOutline {
    /// The look after which the model was asked last.
    asked_at: Option<Mono>,
    last: Option<LastOutline>,
}

#[derive(Clone, Debug)]
struct LastOutline {
    outline: Arc<ObjectOutline>,
    /// In shares of the box that the tracker had on the frame.
    foot: NormPoint,
    /// The last look that showed it like this.
    seen_at: Mono,
    is_published: bool,
}

impl TrackOutline {
    pub fn asked_at(&self) -> Option<Mono> {
        self.asked_at
    }

    pub fn ask(&mut self, now: Mono) {
        self.asked_at = Some(now);
    }

    /// The model drew it on a frame that was received at `seen_at` and had the object in `bounds`.
    pub fn set(
        &mut self,
        outline: ObjectOutline,
        bounds: &NormBox,
        seen_at: Mono,
    ) -> Arc<ObjectOutline> {
        let outline = Arc::new(outline);
        let foot = rings_foot(&outline.polygons).unwrap_or_else(|| bounds.centre());
        self.last = Some(LastOutline {
            foot: bounds.point_inside(foot),
            outline: Arc::clone(&outline),
            seen_at,
            is_published: false,
        });
        outline
    }

    pub fn forget(&mut self) {
        self.last = None;
    }

    /// The foot of the object when it is in `bounds`; `None`: it is not known any more.
    pub fn foot_in(&self, bounds: &NormBox, now: Mono) -> Option<NormPoint> {
        let known = self.last.as_ref();
        let last = known.filter(|last| now.since(last.seen_at) <= FOOT_MAX_AGE)?;
        Some(bounds.point_in_picture(last.foot))
    }

    /// What the message of a look has: an outline that is new, or the last one again because the picture has not changed.
    pub fn publish(&mut self, is_unchanged: bool, now: Mono) -> Option<Arc<ObjectOutline>> {
        let last = self.last.as_mut()?;
        if is_unchanged {
            last.seen_at = now;
        }
        let was_published = std::mem::replace(&mut last.is_published, true);
        (is_unchanged || !was_published).then(|| Arc::clone(&last.outline))
    }
}

/// Areas in which outlines show nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OutlineMask(Vec<Vec<NormPoint>>);

impl OutlineMask {
    /// From the corners of polygons, which may overlap.
    pub fn new(polygons: &[Vec<(f64, f64)>]) -> Self {
        let ring = |corners: &Vec<(f64, f64)>| {
            let points = corners.iter().map(|&(x, y)| NormPoint::new(x, y));
            let mut ring = Vec::from_iter(points);
            // All run in the same direction, so that none is a hole in another one.
            if signed_rings_area(slice::from_ref(&ring)) > 0.0 {
                ring.reverse();
            }
            ring
        };
        Self(polygons.iter().map(ring).collect())
    }

    /// What is outside of the mask; `None` when nothing is, or when the model drew nothing that can be read.
    pub fn outside_of(&self, drawn: &Outline, frame: u64) -> Option<ObjectOutline> {
        let bounds = drawn.bounds?;
        let left = difference(&drawn.polygons, &self.0);
        let area = rings_area(&left);
        if area < AREA_MIN {
            return None;
        }
        let whole_area = || rings_area(&difference(&drawn.polygons, &[]));
        let is_cut = !self.0.is_empty() && whole_area() - area >= AREA_MIN;
        let polygons = simplified_rings(left, OUTLINE_POINTS_MAX);
        Some(ObjectOutline {
            frame,
            bounds,
            path: match is_cut || drawn.path.is_empty() {
                true => path(&polygons, &bounds),
                false => drawn.path.clone(),
            },
            polygons,
            area,
            score: drawn.score,
        })
    }
}

/// What is inside of `rings` and outside of all `holes`, as rings that do not cross. Where rings cross each other or themselves, the
/// directions decide, as in the path of an SVG.
pub fn difference(rings: &[Vec<NormPoint>], holes: &[Vec<NormPoint>]) -> Vec<Vec<NormPoint>> {
    let points = |rings: &[Vec<NormPoint>]| -> Vec<Vec<[f64; 2]>> {
        let points = |ring: &Vec<NormPoint>| ring.iter().map(|p| [p.x, p.y]).collect();
        rings.iter().map(points).collect()
    };
    let shapes = points(rings).overlay(&points(holes), OverlayRule::Difference, FillRule::NonZero);
    let ring = |ring: Vec<[f64; 2]>| ring.into_iter().map(|[x, y]| NormPoint::new(x, y));
    let rings = shapes.into_iter().flatten();
    rings.map(|points| ring(points).collect()).collect()
}

/// As an SVG path in shares of `bounds`, with the three decimals of the model's own.
fn path(rings: &[Vec<NormPoint>], bounds: &NormBox) -> String {
    let command = |(index, point): (usize, &NormPoint)| {
        let NormPoint { x, y } = bounds.point_inside(*point);
        let letter = if index == 0 { 'M' } else { 'L' };
        format!("{letter} {} {} ", rounded(x, 3), rounded(y, 3))
    };
    let ring = |ring: &Vec<NormPoint>| ring.iter().enumerate().map(command).collect::<String>();
    let rings = rings.iter().map(|points| ring(points) + "Z");
    rings.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use spotter_core::{Polygon, Segment, testing::cases};

    use super::*;

    fn ring(corners: &[(f64, f64)]) -> Vec<NormPoint> {
        let corners = corners.iter().map(|&(x, y)| NormPoint::new(x, y));
        corners.collect()
    }

    fn drawn(polygons: Vec<Vec<NormPoint>>) -> Outline {
        Outline {
            bounds: Some(NormBox::from_corners(0.2, 0.2, 0.6, 0.6)),
            path: "M 0 0 L 1 0 L 1 1 L 0 1 Z".into(),
            polygons,
            parse_error: None,
            score: 0.5,
        }
    }

    fn square() -> Vec<NormPoint> {
        ring(&[(0.2, 0.2), (0.6, 0.2), (0.6, 0.6), (0.2, 0.6)])
    }

    #[test]
    fn path_is_made_again_only_where_a_mask_cuts() {
        let corner = vec![(0.5, 0.0), (0.9, 0.0), (0.9, 0.3), (0.5, 0.3)];
        let elsewhere = corner.iter().map(|(x, y)| (*x, y + 0.7)).collect();
        let whole = OutlineMask::new(&[elsewhere]).outside_of(&drawn(vec![square()]), 7);
        let whole = whole.unwrap();
        assert_eq!(
            (whole.path.as_str(), whole.frame),
            ("M 0 0 L 1 0 L 1 1 L 0 1 Z", 7)
        );
        assert!((whole.area - 0.16).abs() < 1e-6);
        // The same corner twice, in both directions.
        let back = corner.iter().rev().copied().collect();
        let mask = OutlineMask::new(&[corner, back]);
        let cut = mask.outside_of(&drawn(vec![square()]), 7).unwrap();
        assert!((cut.area - 0.15).abs() < 1e-6);
        assert_eq!(
            cut.path,
            "M 0 1 L 0 0 L 0.75 0 L 0.75 0.25 L 1 0.25 L 1 1 Z"
        );
    }

    #[test]
    fn outline_without_an_area_is_none() {
        let mask = OutlineMask::default();
        let line = ring(&[(0.2, 0.2), (0.6, 0.6), (0.2, 0.2)]);
        assert_eq!(mask.outside_of(&drawn(vec![line]), 1), None);
        assert_eq!(mask.outside_of(&drawn(Vec::new()), 1), None);
        let all = OutlineMask::new(&[vec![(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]]);
        assert_eq!(all.outside_of(&drawn(vec![square()]), 1), None);
        // A ring that crosses itself has two halves of the same area in opposite directions.
        let eight = ring(&[(0.2, 0.2), (0.6, 0.6), (0.6, 0.2), (0.2, 0.6)]);
        let area = mask.outside_of(&drawn(vec![eight]), 1).unwrap().area;
        assert!((area - 0.08).abs() < 1e-6, "{area}");
    }

    fn edges(ring: &[NormPoint]) -> impl Iterator<Item = Segment> {
        let ends = ring.iter().zip(ring.iter().cycle().skip(1));
        ends.map(|(&from, &to)| Segment { from, to })
    }

    /// How often rings run around a point.
    fn winding(rings: &[Vec<NormPoint>], point: NormPoint) -> i32 {
        let turn = |edge: Segment| match (edge.from.y <= point.y, edge.to.y <= point.y) {
            (true, false) if edge.side(point) > 0.0 => 1,
            (false, true) if edge.side(point) < 0.0 => -1,
            _ => 0,
        };
        rings.iter().flat_map(|ring| edges(ring)).map(turn).sum()
    }

    fn rings(corners: usize, count: usize) -> impl Strategy<Value = Vec<Vec<(f64, f64)>>> {
        let corner = (0.0..=1.0f64, 0.0..=1.0f64);
        prop::collection::vec(prop::collection::vec(corner, 3..corners), 0..count)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(64)))]

        #[test]
        fn cut_outline_is_inside_itself_and_outside_of_masks(
            outline in rings(40, 4), mask in rings(4, 4),
            points in prop::collection::vec((0.0..1.0f64, 0.0..1.0f64), 50),
        ) {
            let outline = Vec::from_iter(outline.iter().map(|corners| ring(corners)));
            let left = difference(&outline, &OutlineMask::new(&mask).0);
            let areas = Vec::from_iter(mask.iter().map(|corners| Polygon::new(corners)));
            for (x, y) in points {
                let point = NormPoint { x, y };
                let masks = mask.iter().map(|corners| ring(corners));
                let all = Vec::from_iter(outline.iter().cloned().chain(masks));
                let mut edges = all.iter().flat_map(|ring| edges(ring));
                if edges.any(|edge| edge.distance(point) < 1e-4) {
                    continue;
                }
                let is_masked = areas.iter().any(|area| area.contains(point));
                let expected = winding(&outline, point) != 0 && !is_masked;
                prop_assert_eq!(winding(&left, point) != 0, expected, "{:?}", point);
            }
            let outline = OutlineMask::new(&mask).outside_of(&drawn(outline), 1);
            if let Some(outline) = outline {
                prop_assert!(outline.area > 0.0 && outline.area <= 1.0 + 1e-9);
                prop_assert!(outline.polygons.iter().map(Vec::len).sum::<usize>() <= OUTLINE_POINTS_MAX);
            }
        }
    }
}
