//! Which found things are reported, and in which zones they are.

use std::{cmp::Ordering, collections::BTreeSet, time::Duration};

use spotter_core::{
    AnswerBody, FoundObject, Location, NormBox, NormPoint, Polygon, ScoreSource, TrackId, ZoneId,
    config::{CameraConfig, PromptConfig, ZonePoint},
};

/// Boxes that overlap more than this are one thing found twice. The model has no removal of doubles of its own, and a
/// decode that is stuck repeats one object until its limit.
const SAME_BOX_IOU: f64 = 0.9;
/// Points nearer than this (share of the picture, either axis) are one thing found twice: two steps of the model's
/// 1024 coordinate bins.
const SAME_POINT_DISTANCE: f64 = 2.0 / 1024.0;

/// A found thing as it is reported.
#[derive(Clone, Debug, PartialEq)]
pub struct Object {
    /// Its extents; `None` for an answer to `point`.
    pub bounds: Option<NormBox>,
    /// Its centre, or the point itself.
    pub point: NormPoint,
    /// 0..1.
    pub score: f64,
    /// What the score is.
    pub score_source: ScoreSource,
    /// How sure the model is of the place, 0..1.
    pub sharpness: f64,
    /// The camera's zones that it is in, in the order of the configuration.
    pub zones: Vec<ZoneId>,
    /// Which thing it is; `None` before it is followed.
    pub track: Option<TrackId>,
    /// How long ago that thing was seen first.
    pub age: Duration,
}

/// What one prompt of one camera reports.
#[derive(Clone, Debug)]
pub struct Filter {
    min_score: f64,
    min_area: f64,
    zones: Vec<Zone>,
    wanted: BTreeSet<ZoneId>,
}

#[derive(Clone, Debug, PartialEq)]
struct Zone {
    id: ZoneId,
    area: Polygon,
    point: ZonePoint,
}

impl Filter {
    /// The prompt's limits with the camera's zones.
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        let zone = |zone: &spotter_core::config::ZoneConfig| Zone {
            id: zone.id.clone(),
            area: Polygon::new(&zone.polygon),
            point: zone.point,
        };
        Self {
            min_score: prompt.min_score,
            min_area: prompt.min_area,
            zones: camera.zones.iter().map(zone).collect(),
            wanted: prompt.zones.iter().cloned().collect(),
        }
    }

    /// The things to report, in the model's order; `None` for a text.
    pub fn objects(&self, body: &AnswerBody) -> Option<Vec<Object>> {
        let found = match body {
            AnswerBody::Boxes(boxes) => distinct_boxes(boxes),
            AnswerBody::Points(points) => distinct_points(points),
            AnswerBody::Text { .. } => return None,
        };
        let zoned = found.into_iter().map(|object| self.with_zones(object));
        Some(zoned.filter(|object| self.passes(object)).collect())
    }

    /// True when the zone is where it was in `before`.
    pub fn keeps(&self, before: &Self, zone: &ZoneId) -> bool {
        let of = |filter: &Self| filter.zones.iter().find(|own| own.id == *zone).cloned();
        of(self) == of(before)
    }

    fn passes(&self, object: &Object) -> bool {
        let in_wanted = || object.zones.iter().any(|zone| self.wanted.contains(zone));
        object.score >= self.min_score
            && object.bounds.is_none_or(|b| b.area() >= self.min_area)
            && (self.wanted.is_empty() || in_wanted())
    }

    fn with_zones(&self, object: Object) -> Object {
        let inside = |zone: &&Zone| zone.area.contains(object.anchor(zone.point));
        let zones = self.zones.iter().filter(inside);
        Object {
            zones: zones.map(|zone| zone.id.clone()).collect(),
            ..object
        }
    }
}

impl Object {
    /// Where it is.
    pub fn place(&self) -> Location {
        self.bounds
            .map_or(Location::Point(self.point), Location::Box)
    }

    /// The point that decides about zones. A thing known by a point alone has no other.
    fn anchor(&self, point: ZonePoint) -> NormPoint {
        match (point, self.bounds) {
            (ZonePoint::Bottom, Some(bounds)) => NormPoint {
                x: self.point.x,
                y: bounds.y1,
            },
            (ZonePoint::Centre, _) | (_, None) => self.point,
        }
    }
}

/// Boxes with an area, each thing once.
fn distinct_boxes(found: &[FoundObject<NormBox>]) -> Vec<Object> {
    let solid: Vec<_> = found.iter().filter(|f| f.place.area() > 0.0).collect();
    let distinct = best_of_doubles(
        &solid,
        |a, b| a.iou(b) > SAME_BOX_IOU,
        |b| [b.x0, b.y0, b.x1, b.y1],
    );
    let object = |f: &FoundObject<NormBox>| Object {
        bounds: Some(f.place),
        point: f.place.centre(),
        score: f.score,
        score_source: f.source,
        sharpness: f.sharpness,
        zones: vec![],
        track: None,
        age: Duration::ZERO,
    };
    distinct.into_iter().map(object).collect()
}

/// Points, each thing once.
fn distinct_points(found: &[FoundObject<NormPoint>]) -> Vec<Object> {
    let all: Vec<_> = found.iter().collect();
    let same = |a: &NormPoint, b: &NormPoint| {
        (a.x - b.x).abs() <= SAME_POINT_DISTANCE && (a.y - b.y).abs() <= SAME_POINT_DISTANCE
    };
    let object = |f: &FoundObject<NormPoint>| Object {
        bounds: None,
        point: f.place,
        score: f.score,
        score_source: f.source,
        sharpness: f.sharpness,
        zones: vec![],
        track: None,
        age: Duration::ZERO,
    };
    best_of_doubles(&all, same, |p| [p.x, p.y])
        .into_iter()
        .map(object)
        .collect()
}

/// Of things that are the same, the one with the highest score; the order stays. Where scores are equal, `numbers` decide
/// by the places and not by the order, so that no order of the model changes what is reported.
fn best_of_doubles<'a, T, const N: usize>(
    found: &[&'a FoundObject<T>],
    same: impl Fn(&T, &T) -> bool,
    numbers: impl Fn(&T) -> [f64; N],
) -> Vec<&'a FoundObject<T>> {
    let mut best_first: Vec<usize> = (0..found.len()).collect();
    best_first.sort_by(|&a, &b| {
        let better = found[b].score.total_cmp(&found[a].score);
        let place = |index: usize| numbers(&found[index].place);
        better.then_with(|| place(a).partial_cmp(&place(b)).unwrap_or(Ordering::Equal))
    });
    let mut kept: Vec<usize> = Vec::new();
    for index in best_first {
        if !kept
            .iter()
            .any(|&k| same(&found[k].place, &found[index].place))
        {
            kept.push(index);
        }
    }
    kept.sort_unstable();
    kept.into_iter().map(|index| found[index]).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::track::tracker::tests::camera;
    use spotter_core::testing::prompt;

    pub(in crate::track) fn found(
        x0: f64,
        y0: f64,
        x1: f64,
        y1: f64,
        score: f64,
    ) -> FoundObject<NormBox> {
        FoundObject {
            place: NormBox::from_corners(x0, y0, x1, y1),
            score,
            source: ScoreSource::TokenProb,
            sharpness: 0.5,
        }
    }

    fn zone(
        id: &str,
        polygon: &[(f64, f64)],
        point: ZonePoint,
    ) -> spotter_core::config::ZoneConfig {
        spotter_core::config::ZoneConfig {
            id: ZoneId::new(id).unwrap(),
            polygon: polygon.to_vec(),
            point,
        }
    }

    fn scores(filter: &Filter, found: Vec<FoundObject<NormBox>>) -> Vec<f64> {
        let objects = filter.objects(&AnswerBody::Boxes(found)).unwrap();
        objects.iter().map(|o| o.score).collect()
    }

    #[test]
    fn doubles_and_empty_boxes_are_dropped_and_the_best_stays() {
        let filter = Filter::new(&camera(), &prompt("person"));
        let answer = vec![
            found(0.1, 0.1, 0.3, 0.5, 0.6),
            found(0.5, 0.5, 0.5, 0.9, 0.99),
            found(0.1, 0.1, 0.3, 0.501, 0.9),
            found(0.2, 0.1, 0.4, 0.5, 0.7),
        ];
        assert_eq!(scores(&filter, answer), [0.9, 0.7]);
    }

    #[test]
    fn a_stuck_decode_gives_one_point() {
        let filter = Filter::new(&camera(), &prompt("hook"));
        let stuck = FoundObject {
            place: NormPoint::new(0.5, 0.25),
            score: 0.5,
            source: ScoreSource::TokenProb,
            sharpness: 0.5,
        };
        let objects = filter
            .objects(&AnswerBody::Points(vec![stuck; 50]))
            .unwrap();
        assert_eq!(objects.len(), 1);
        assert_eq!((objects[0].bounds, objects[0].point), (None, stuck.place));
    }

    #[test]
    fn limits_of_score_and_area() {
        let mut wanted = prompt("person");
        (wanted.min_score, wanted.min_area) = (0.4, 0.02);
        let filter = Filter::new(&camera(), &wanted);
        let answer = vec![
            found(0.0, 0.0, 0.2, 0.2, 0.39),
            found(0.0, 0.5, 0.2, 0.7, 0.4),
            found(0.5, 0.5, 0.6, 0.6, 0.8),
        ];
        assert_eq!(scores(&filter, answer), [0.4]);
    }

    #[test]
    fn zones_by_foot_or_by_centre() {
        let lower = [(0.0, 0.5), (1.0, 0.5), (1.0, 1.0), (0.0, 1.0)];
        let mut site = camera();
        site.zones = vec![
            zone("drive", &lower, ZonePoint::Bottom),
            zone("deep", &lower, ZonePoint::Centre),
        ];
        let mut wanted = prompt("person");
        wanted.zones = vec![ZoneId::new("drive").unwrap()];
        let filter = Filter::new(&site, &wanted);
        let answer = AnswerBody::Boxes(vec![
            found(0.1, 0.2, 0.2, 0.6, 0.9),
            found(0.1, 0.1, 0.2, 0.4, 0.8),
            // It leaves the picture at the bottom, where the zone ends too.
            found(0.4, 0.4, 0.5, 1.0, 0.7),
        ]);
        let objects = filter.objects(&answer).unwrap();
        let seen: Vec<(f64, Vec<&str>)> = objects
            .iter()
            .map(|o| (o.score, o.zones.iter().map(ZoneId::as_str).collect()))
            .collect();
        assert_eq!(seen, [(0.9, vec!["drive"]), (0.7, vec!["drive", "deep"])]);
    }
}
