//! Objects of detections: points, times in zones, parts of the picture.

use super::*;
use spotter_core::{PromptRegion, RegionBox};

#[test]
fn detection_has_the_times_in_its_zones() {
    let mut site = zoned();
    let right = ZoneId::new("right").unwrap();
    site.prompts[0].dwell = [(right, seconds(3.0))].into();
    let mut tracker = tracker(site);
    let xs = [0.42, 0.42, 0.52, 0.52, 0.52, 0.52];
    let expected_s = [0.0, 1.0, 0.5, 1.5, 2.5, 3.5];
    for (second, (x, expected_s)) in xs.into_iter().zip(expected_s).enumerate() {
        let answer = see(&mut tracker, second as f64, person_at(x));
        let [object] = answer.body.objects() else {
            panic!("{answer:?}")
        };
        let zones = object.dwell.iter().map(|dwell| &dwell.zone);
        assert!(zones.eq(&object.zones));
        let ZoneDwell {
            time, is_dwelling, ..
        } = object.dwell[0];
        assert_eq!((time, is_dwelling), (seconds(expected_s), second == 5));
    }
}

/// The left of the picture.
const PART: NormBox = NormBox {
    x0: 0.0,
    y0: 0.0,
    x1: 0.4,
    y1: 1.0,
};

/// The track ids of boxes in an answer about this part of the picture, and the events that follow.
fn seen_in(
    tracker: &mut Tracker,
    second: f64,
    (region, part): (PromptRegion, Option<NormBox>),
    boxes: Vec<FoundObject<NormBox>>,
) -> (Vec<TrackId>, Vec<Event>) {
    let mut answer = answer(1, AnswerBody::Boxes(boxes));
    Arc::make_mut(&mut answer.prompt).view.region = region;
    answer.region = part;
    let answer = look(tracker, second, &answer);
    (tracks(&answer), answer.change.events)
}

fn with_region(region: PromptRegion) -> Tracker {
    let mut site = camera();
    site.prompts[0].region = region;
    tracker(site)
}

#[test]
fn object_cut_by_moving_region_is_dropped() {
    let motion = PromptRegion::Motion;
    let mut tracker = with_region(motion);
    let whole = (motion, None);
    let (first, _) = seen_in(&mut tracker, 0.0, whole, person_at(0.4));
    // Its right half is beyond the region, so the model sees a narrow box.
    let half = vec![found(0.35, 0.4, 0.4, 0.8, 0.9)];
    let (cut, _) = seen_in(&mut tracker, 1.0, (motion, Some(PART)), half);
    assert_eq!(cut, []);
    let (again, _) = seen_in(&mut tracker, 2.0, whole, person_at(0.4));
    assert_eq!((again.len(), again), (1, first));
}

#[test]
fn leaving_a_region_that_stays_is_leaving() {
    let region = PromptRegion::Fixed(RegionBox::new(PART));
    let mut tracker = with_region(region);
    let mut events = Vec::new();
    for (second, boxes) in [vec![person_at(0.3); 2], vec![Vec::new(); 5]]
        .concat()
        .into_iter()
        .enumerate()
    {
        let seen = seen_in(&mut tracker, second as f64, (region, Some(PART)), boxes);
        events.extend(seen.1);
    }
    assert_end(&events[1..], EndReason::Left);
}

#[test]
fn points_are_followed() {
    let mut tracker = tracker(camera());
    let point = |x: f64| FoundObject {
        place: NormPoint::new(x, 0.5),
        score: 0.8,
        source: ScoreSource::TokenProb,
        sharpness: 0.5,
    };
    let mut seen = Vec::new();
    for second in 0..10 {
        // Two objects move towards each other and pass.
        let way = 0.08 * f64::from(second);
        let body = AnswerBody::Points(vec![point(0.1 + way), point(0.85 - way)]);
        let answer = look(&mut tracker, f64::from(second), &answer(1, body));
        for event in &answer.change.events {
            assert!(matches!(event.location, Location::Point(_)), "{event:?}");
        }
        seen.push(tracks(&answer));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    assert_eq!(tracker.open_events().count(), 2);
}
