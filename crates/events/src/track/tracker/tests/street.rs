//! Outlines of the drawn street, as a model draws them, through the tracker: what is known of them in zones is true.

use super::*;
use crate::track::outline::difference;
use spotter_core::{OUTLINE_POINTS_MAX, Outline, rings_area, simplified_rings};
use spotter_street::{random, testing::outlines};

type Rings = Vec<Vec<NormPoint>>;

/// Sides of a box in the numbers of the model's paths.
const VIEW_BOX: f64 = 960.0;
/// Smaller things, as shares of the picture, are less than the model's numbers can draw to the percent.
const AREA_MIN: f64 = 0.01;

fn bounds(rings: &Rings) -> NormBox {
    let side = |of: fn(&NormPoint) -> f64, better: fn(f64, f64) -> f64| {
        let all = rings.iter().flatten().map(of);
        all.reduce(better).unwrap()
    };
    let (x, y) = (|point: &NormPoint| point.x, |point: &NormPoint| point.y);
    let [x0, y0] = [side(x, f64::min), side(y, f64::min)];
    NormBox::from_corners(x0, y0, side(x, f64::max), side(y, f64::max))
}

/// In the whole numbers that a model writes, and with the points that the engine keeps.
fn as_drawn(rings: &Rings) -> Outline {
    let bounds = bounds(rings);
    let number = |share: f64| (share * VIEW_BOX).round() / VIEW_BOX;
    let drawn = |point: &NormPoint| {
        let share = bounds.point_inside(*point);
        bounds.point_in_picture(NormPoint::new(number(share.x), number(share.y)))
    };
    let polygons = rings.iter().map(|ring| ring.iter().map(drawn).collect());
    Outline {
        bounds: Some(bounds),
        path: "M 0 0 L 1 0 L 1 1 Z".into(),
        polygons: simplified_rings(polygons.collect(), OUTLINE_POINTS_MAX),
        parse_error: None,
        score: 0.5,
    }
}

fn ring(corners: &[(f64, f64)]) -> Rings {
    let points = corners.iter().map(|&(x, y)| NormPoint::new(x, y));
    vec![points.collect()]
}

/// The share of the picture that rings and an area have in common.
fn area_inside(rings: &Rings, area: &Rings) -> f64 {
    rings_area(rings) - rings_area(&difference(rings, area))
}

#[test]
fn areas_of_outlines_in_zones_are_true_to_the_percent() {
    let mask = vec![(0.0, 0.6), (0.35, 0.6), (0.5, 1.0), (0.0, 1.0)];
    let zone = ring(&[(0.2, 0.2), (0.8, 0.35), (0.7, 1.0), (0.1, 0.9)]);
    let mut site = camera();
    site.mask = vec![mask.clone()];
    let (mut known, mut truth) = (0.0, 0.0);
    for outline in (0..60).flat_map(|seed| outlines(&random(seed))) {
        if rings_area(&outline.rings) < AREA_MIN {
            continue;
        }
        let mut tracker = tracker(site.clone());
        let place = bounds(&outline.rings);
        let mut boxes = answer(
            1,
            AnswerBody::Boxes(vec![found(place.x0, place.y0, place.x1, place.y1, 0.9)]),
        );
        Arc::make_mut(&mut boxes.prompt).outlines_max = 1;
        look(&mut tracker, 0.0, &boxes);
        let asked = look(&mut tracker, 1.0, &boxes).follow_ups;
        let drawn = answer_to(&asked[0], AnswerBody::Outline(as_drawn(&outline.rings)));
        tracker.settled(&frame_at(&gate(), seconds(1.0)), &drawn);
        let seen = look(&mut tracker, 2.0, &boxes);
        let left = difference(&outline.rings, &ring(&mask));
        let expected = area_inside(&left, &zone);
        let rings = seen.body.objects()[0]
            .outline
            .as_ref()
            .map(|outline| outline.polygons.clone());
        let area = area_inside(&rings.unwrap_or_default(), &zone);
        if expected >= AREA_MIN {
            assert!((area / expected - 1.0).abs() < 0.01, "{:?}", outline.class);
        }
        (known, truth) = (known + area, truth + expected);
    }
    let all = known / truth - 1.0;
    assert!(truth > 0.0 && all.abs() < 0.002, "{known} {truth}");
}
