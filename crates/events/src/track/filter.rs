//! Which found objects are reported, and in which zones they are.

use std::{cmp::Ordering, collections::BTreeSet};

use spotter_config::{CameraConfig, PromptConfig, ZoneConfig, ZonePoint};
use spotter_core::{FoundObject, Location, NormPoint, Polygon, ScoreSource, ZoneId};

/// Boxes that overlap more than this are one object found twice. The model does not suppress duplicates, and a decode
/// that is stuck repeats one object until its limit.
const SAME_BOX_IOU: f64 = 0.9;
/// Points nearer than this (share of the picture, either axis) are one object found twice: two steps of the model's
/// 1024 coordinate bins.
const SAME_POINT_DISTANCE: f64 = 2.0 / 1024.0;

/// A found object that passed the filter and has no track yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub location: Location,
    /// Score of the object, 0..1.
    pub score: f64,
    pub score_source: ScoreSource,
    /// How sure the model is of the location, 0..1.
    pub sharpness: f64,
    /// The foot of the object, if an outline shows it.
    pub foot: Option<NormPoint>,
    /// The camera's zones that the object is in, in the order of the configuration.
    pub zones: Vec<ZoneId>,
}

/// What one prompt of one camera reports.
#[derive(Clone, Debug, PartialEq)]
pub struct Filter {
    min_score: f64,
    min_area: f64,
    zones: Vec<(ZoneConfig, Polygon)>,
    wanted: BTreeSet<ZoneId>,
}

impl Filter {
    /// The prompt's limits with the camera's zones.
    pub fn new(camera: &CameraConfig, prompt: &PromptConfig) -> Self {
        let zone = |zone: &ZoneConfig| (zone.clone(), Polygon::new(&zone.polygon));
        Self {
            min_score: prompt.min_score.get(),
            min_area: prompt.min_area,
            zones: camera.zones.iter().map(zone).collect(),
            wanted: prompt.zones.iter().cloned().collect(),
        }
    }

    /// The objects that pass, in the model's order. `foot_at`: the foot of an object at this location, if an outline shows it.
    pub fn candidates<T: Copy>(
        &self,
        found: &[FoundObject<T>],
        location_of: fn(T) -> Location,
        foot_at: impl Fn(Location) -> Option<NormPoint>,
    ) -> Vec<Candidate> {
        let candidate = |found: &FoundObject<T>| {
            let location = location_of(found.place);
            let foot = foot_at(location);
            Candidate {
                location,
                score: found.score,
                score_source: found.source,
                sharpness: found.sharpness,
                foot,
                zones: self.zones_at(location, foot),
            }
        };
        let mut candidates = best_of_duplicates(found.iter().map(candidate).collect());
        candidates.retain(|candidate| self.passes(candidate));
        candidates
    }

    pub fn zone(&self, id: &ZoneId) -> Option<&ZoneConfig> {
        let mut zones = self.zones.iter().map(|(zone, _)| zone);
        zones.find(|zone| zone.id == *id)
    }

    fn passes(&self, candidate: &Candidate) -> bool {
        let in_wanted = || candidate.zones.iter().any(|z| self.wanted.contains(z));
        let large_enough = match candidate.location {
            Location::Box(bounds) => bounds.area() > 0.0 && bounds.area() >= self.min_area,
            Location::Point(_) => true,
        };
        candidate.score >= self.min_score && large_enough && (self.wanted.is_empty() || in_wanted())
    }

    fn zones_at(&self, location: Location, foot: Option<NormPoint>) -> Vec<ZoneId> {
        let inside = |(zone, area): &&(ZoneConfig, Polygon)| {
            area.contains(anchor(location, foot, zone.point))
        };
        let zones = self.zones.iter().filter(inside);
        zones.map(|(zone, _)| zone.id.clone()).collect()
    }
}

/// The point that decides about zones: a point is its own anchor, and the foot of an outline is the bottom of its object.
pub(super) fn anchor(location: Location, foot: Option<NormPoint>, point: ZonePoint) -> NormPoint {
    match (location, point) {
        (Location::Point(at), _) => at,
        (Location::Box(bounds), ZonePoint::Centre) => bounds.centre(),
        (Location::Box(bounds), ZonePoint::Bottom) => foot.unwrap_or(NormPoint {
            x: bounds.centre().x,
            y: bounds.y1,
        }),
    }
}

/// Of duplicates, the object with the highest score; the order stays. Where scores are equal, the locations decide and not the order, so that
/// the order of the model's answer changes nothing.
fn best_of_duplicates(found: Vec<Candidate>) -> Vec<Candidate> {
    let mut best_first: Vec<&Candidate> = found.iter().collect();
    best_first.sort_by(|a, b| {
        let better = b.score.total_cmp(&a.score);
        better.then_with(|| compare_locations(a.location, b.location))
    });
    let mut kept: Vec<&Candidate> = Vec::new();
    for candidate in best_first {
        let is_same = |other: &&Candidate| is_same_object(other.location, candidate.location);
        if !kept.iter().any(is_same) {
            kept.push(candidate);
        }
    }
    let is_kept = |candidate: &&Candidate| kept.iter().any(|kept| std::ptr::eq(*kept, *candidate));
    found.iter().filter(is_kept).cloned().collect()
}

fn is_same_object(one: Location, other: Location) -> bool {
    match (one, other) {
        (Location::Box(a), Location::Box(b)) => a.iou(&b) > SAME_BOX_IOU,
        (Location::Point(a), Location::Point(b)) => {
            (a.x - b.x).abs() <= SAME_POINT_DISTANCE && (a.y - b.y).abs() <= SAME_POINT_DISTANCE
        }
        _ => false,
    }
}

/// An order of locations of one kind.
pub(super) fn compare_locations(one: Location, other: Location) -> Ordering {
    let numbers = |location| match location {
        Location::Box(b) => [b.x0, b.y0, b.x1, b.y1],
        Location::Point(p) => [p.x, p.y, 0.0, 0.0],
    };
    let order = numbers(one).partial_cmp(&numbers(other));
    order.unwrap_or(Ordering::Equal)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::track::tracker::tests::camera;
    use spotter_config::testing::prompt;
    use spotter_core::{NormBox, testing::share};

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

    fn scores(filter: &Filter, found: Vec<FoundObject<NormBox>>) -> Vec<f64> {
        let candidates = filter
            .candidates(&found, Location::Box, |_| None)
            .into_iter();
        candidates.map(|candidate| candidate.score).collect()
    }

    #[test]
    fn duplicate_and_empty_boxes_are_dropped_and_the_best_stays() {
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
    fn repeated_points_of_a_stuck_decode_become_one() {
        let filter = Filter::new(&camera(), &prompt("hook"));
        let stuck = FoundObject {
            place: NormPoint::new(0.5, 0.25),
            score: 0.5,
            source: ScoreSource::TokenProb,
            sharpness: 0.5,
        };
        let candidates = filter.candidates(&vec![stuck; 50], Location::Point, |_| None);
        assert_eq!(candidates.len(), 1);
        assert_eq!(candidates[0].location, Location::Point(stuck.place));
    }

    #[test]
    fn objects_below_score_or_area_limit_are_dropped() {
        let mut wanted = prompt("person");
        (wanted.min_score, wanted.min_area) = (share(0.4), 0.02);
        let filter = Filter::new(&camera(), &wanted);
        let answer = vec![
            found(0.0, 0.0, 0.2, 0.2, 0.39),
            found(0.0, 0.5, 0.2, 0.7, 0.4),
            found(0.5, 0.5, 0.6, 0.6, 0.8),
        ];
        assert_eq!(scores(&filter, answer), [0.4]);
    }

    #[test]
    fn zone_membership_uses_bottom_or_centre_as_configured() {
        let lower = |id: &str, point| ZoneConfig {
            id: ZoneId::new(id).unwrap(),
            polygon: vec![(0.0, 0.5), (1.0, 0.5), (1.0, 1.0), (0.0, 1.0)],
            point,
        };
        let mut site = camera();
        site.zones = vec![
            lower("drive", ZonePoint::Bottom),
            lower("deep", ZonePoint::Centre),
        ];
        let mut wanted = prompt("person");
        wanted.zones = vec![ZoneId::new("drive").unwrap()];
        let filter = Filter::new(&site, &wanted);
        let answer = vec![
            found(0.1, 0.2, 0.2, 0.6, 0.9),
            found(0.1, 0.1, 0.2, 0.4, 0.8),
            // The object reaches over the lower edge of the picture, which is the end of the zone too.
            found(0.4, 0.4, 0.5, 1.0, 0.7),
        ];
        let candidates = filter.candidates(&answer, Location::Box, |_| None);
        let zones = |of: &Candidate| of.zones.iter().map(ZoneId::to_string).collect::<Vec<_>>();
        assert_eq!(zones(&candidates[0]), ["drive"]);
        assert_eq!(zones(&candidates[1]), ["drive", "deep"]);
        assert_eq!((candidates[0].score, candidates[1].score), (0.9, 0.7));
        assert_eq!(candidates.len(), 2);
    }
}
