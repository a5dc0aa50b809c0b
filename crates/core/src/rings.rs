//! Outlines as rings: closed polygons in shares of the picture, of which two that run in opposite directions enclose a hole.

use std::slice;

use simplify_polyline::{Point, simplify};

use super::{NormPoint, Segment};

/// Points of all rings of an outline: enough for a shape, and few enough for a message.
pub const OUTLINE_POINTS_MAX: usize = 64;
/// What an outline may lose in a simplification, in shares of the picture: at first less than a pixel, since a simplified outline of a small
/// object is smaller by what it loses.
const TOLERANCE: f64 = 1.0 / 16384.0;
const TOLERANCE_STEP: f64 = 1.2;
/// Sides of a simplified ring for those that it had.
const SCALE_MAX: f64 = 1.1;
/// What is so little above the lowest point, as a share of the height, belongs to the lowest edge: two feet are often not equally low, and
/// of something round the lowest point alone is as uncertain as its outline.
const FOOT_SHARE: f64 = 0.05;

/// Share of the picture inside of rings that do not cross.
pub fn rings_area(rings: &[Vec<NormPoint>]) -> f64 {
    signed_rings_area(rings).abs()
}

/// The same; negative when most of it is inside of rings that run counterclockwise, as seen in the picture.
pub fn signed_rings_area(rings: &[Vec<NormPoint>]) -> f64 {
    let doubled = |Segment { from, to }: Segment| from.x * to.y - to.x * from.y;
    edges(rings).map(doubled).sum::<f64>() / 2.0
}

/// The middle of the lowest edge, where the object touches the ground; `None` without points.
pub fn rings_foot(rings: &[Vec<NormPoint>]) -> Option<NormPoint> {
    let heights = || rings.iter().flatten().map(|point| point.y);
    let (top, bottom) = (heights().reduce(f64::min)?, heights().reduce(f64::max)?);
    let level = bottom - FOOT_SHARE * (bottom - top);
    let low = edges(rings).flat_map(|edge| low_part(edge, level));
    let (left, right) = low.fold((f64::MAX, f64::MIN), |(left, right), x| {
        (left.min(x), right.max(x))
    });
    Some(NormPoint {
        x: (left + right) / 2.0,
        y: bottom,
    })
}

/// Where the part of an edge that is not above `level` begins and ends, in shares of the width.
fn low_part(Segment { from, to }: Segment, level: f64) -> impl Iterator<Item = f64> {
    let crosses = (from.y < level) != (to.y < level);
    let crossing = crosses.then(|| from.x + (level - from.y) / (to.y - from.y) * (to.x - from.x));
    let ends = [from, to].into_iter().filter(move |end| end.y >= level);
    ends.map(|end| end.x).chain(crossing)
}

/// Rings with at most `limit` points together, by Douglas-Peucker: the tolerance rises until they are few enough. Chords of a round outline
/// are inside of it, so each ring is made larger until it has the area that it had. A ring that becomes a line is left out.
pub fn simplified_rings(rings: Vec<Vec<NormPoint>>, limit: usize) -> Vec<Vec<NormPoint>> {
    let points = |rings: &[Vec<NormPoint>]| rings.iter().map(Vec::len).sum::<usize>();
    if points(&rings) <= limit {
        return rings;
    }
    let areas = Vec::from_iter(rings.iter().map(|ring| rings_area(slice::from_ref(ring))));
    let (mut simpler, mut tolerance) = (rings, TOLERANCE);
    while points(&simpler) > limit {
        for ring in &mut simpler {
            *ring = simplified_ring(ring, tolerance);
        }
        tolerance *= TOLERANCE_STEP;
    }
    let simpler = simpler.into_iter().zip(areas);
    let simpler = simpler.filter(|(ring, _)| !ring.is_empty());
    simpler.map(|(ring, area)| of_area(ring, area)).collect()
}

/// Without points when it becomes a line.
fn simplified_ring(ring: &[NormPoint], tolerance: f64) -> Vec<NormPoint> {
    let points = ring.iter().map(|p| Point { vec: [p.x, p.y] });
    let points = simplify(&points.collect::<Vec<_>>(), tolerance, true);
    if points.len() < 3 {
        return Vec::new();
    }
    let point = |p: Point<2, f64>| NormPoint::new(p.vec[0], p.vec[1]);
    points.into_iter().map(point).collect()
}

/// The ring, larger or smaller around the middle of its points. One that would change much stays: what was crossed or folded has no area to
/// keep.
fn of_area(ring: Vec<NormPoint>, area: f64) -> Vec<NormPoint> {
    let scale = (area / rings_area(slice::from_ref(&ring))).sqrt();
    if !(1.0 / SCALE_MAX..=SCALE_MAX).contains(&scale) {
        return ring;
    }
    let middle = |of: fn(&NormPoint) -> f64| ring.iter().map(of).sum::<f64>() / ring.len() as f64;
    let (x, y) = (middle(|p| p.x), middle(|p| p.y));
    let scaled = |p: &NormPoint| NormPoint::new(x + (p.x - x) * scale, y + (p.y - y) * scale);
    ring.iter().map(scaled).collect()
}

fn edges(rings: &[Vec<NormPoint>]) -> impl Iterator<Item = Segment> {
    rings.iter().flat_map(|ring| {
        let ends = ring.iter().zip(ring.iter().cycle().skip(1));
        ends.map(|(&from, &to)| Segment { from, to })
    })
}

#[cfg(test)]
mod tests {
    use std::f64::consts::{PI, TAU};

    use proptest::prelude::*;

    use super::*;

    fn ring(points: &[(f64, f64)]) -> Vec<NormPoint> {
        let points = points.iter().map(|&(x, y)| NormPoint { x, y });
        points.collect()
    }

    fn circle(radius: f64, corners: usize) -> Vec<NormPoint> {
        let corner = |i: usize| {
            let angle = 0.3 + i as f64 / corners as f64 * TAU;
            (0.5 + radius * angle.cos(), 0.5 + radius * angle.sin())
        };
        ring(&Vec::from_iter((0..corners).map(corner)))
    }

    #[test]
    fn ring_in_the_opposite_direction_is_a_hole() {
        let around = circle(0.4, 500);
        let hole: Vec<_> = circle(0.2, 500).into_iter().rev().collect();
        let expected = PI * (0.4 * 0.4 - 0.2 * 0.2);
        assert!((rings_area(&[around, hole]) / expected - 1.0).abs() < 1e-3);
        assert_eq!(rings_area(&[]), 0.0);
    }

    #[test]
    fn simplified_ring_keeps_its_area() {
        let around = [
            circle(0.4, 500),
            circle(0.2, 300).into_iter().rev().collect(),
        ];
        let few = simplified_rings(around.to_vec(), 24);
        assert_eq!(few.iter().map(Vec::len).filter(|&len| len > 3).count(), 2);
        for (ring, all) in few.iter().zip(&around) {
            let [ring, all] = [ring, all].map(|ring| signed_rings_area(slice::from_ref(ring)));
            assert!((ring / all - 1.0).abs() < 1e-9, "{ring} {all}");
        }
    }

    #[test]
    fn foot_is_in_the_middle_of_all_that_is_low() {
        let foot = |rings: &[Vec<NormPoint>]| rings_foot(rings).map(|p| (p.x, p.y));
        let slanted = ring(&[(0.2, 0.2), (0.4, 0.2), (0.5, 0.8), (0.3, 0.8)]);
        let (x, y) = foot(&[slanted]).unwrap();
        assert!((x - 0.4).abs() < 0.005 && y == 0.8, "{x}");
        // A walker: the left foot is a little higher.
        let [left, right] = [[(0.1, 0.79), (0.2, 0.79)], [(0.3, 0.8), (0.4, 0.8)]];
        let legs = [
            &[(0.2, 0.2)][..],
            &left,
            &[(0.25, 0.5)],
            &right,
            &[(0.3, 0.2)],
        ]
        .concat();
        let (x, y) = foot(&[ring(&legs)]).unwrap();
        assert!((0.23..=0.26).contains(&x) && y == 0.8, "{x}");
        let (x, y) = foot(&[circle(0.3, 999)]).unwrap();
        assert!((x - 0.5).abs() < 1e-3 && (y - 0.8).abs() < 1e-3);
        assert_eq!(foot(&[]), None);
    }

    proptest! {
        #[test]
        fn foot_is_at_the_bottom_of_any_rings(
            rings in prop::collection::vec(prop::collection::vec((0.0..=1.0f64, 0.0..=1.0f64), 1..20), 1..4),
        ) {
            let rings: Vec<_> = rings.iter().map(|points| ring(points)).collect();
            let foot = rings_foot(&rings).unwrap();
            let points = || rings.iter().flatten();
            prop_assert!(points().all(|point| point.y <= foot.y));
            prop_assert!(points().any(|point| point.x <= foot.x) && points().any(|point| point.x >= foot.x));
        }

        #[test]
        fn simplified_rings_are_few_points_of_the_same(
            rings in prop::collection::vec(prop::collection::vec((0.0..=1.0f64, 0.0..=1.0f64), 3..100), 0..8),
        ) {
            let rings: Vec<_> = rings.iter().map(|points| ring(points)).collect();
            let few = simplified_rings(rings.clone(), OUTLINE_POINTS_MAX);
            prop_assert!(few.iter().map(Vec::len).sum::<usize>() <= OUTLINE_POINTS_MAX);
            prop_assert!(few.iter().all(|ring| ring.len() >= 3));
            let inside = |point: &NormPoint| (0.0..=1.0).contains(&point.x) && (0.0..=1.0).contains(&point.y);
            prop_assert!(few.iter().flatten().all(inside));
        }
    }
}
