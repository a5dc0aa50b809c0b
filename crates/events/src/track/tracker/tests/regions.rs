//! A prompt that looks where something moved, and one whose region stays.

use super::*;
use spotter_core::{PromptRegion, RegionBox, TrackedObject};

const LEFT: NormBox = NormBox {
    x0: 0.0,
    y0: 0.0,
    x1: 0.4,
    y1: 1.0,
};
const RIGHT: NormBox = NormBox {
    x0: 0.5,
    x1: 0.9,
    ..LEFT
};

/// Camera gate with one prompt and a zone `left` over the left half of the picture, in which a person dwells after ten seconds.
fn with_region(region: PromptRegion) -> Tracker {
    let mut person = prompt("person");
    person.region = region;
    person.dwell = [(ZoneId::new("left").unwrap(), seconds(10.0))].into();
    let mut gate = spotter_config::testing::camera("gate", vec![person]);
    gate.zones = vec![zone("left", 0.0, 0.45)];
    tracker(gate)
}

/// People at these places, those on the right farther away, in an answer about this part of the picture.
fn seen_in(
    tracker: &mut Tracker,
    second: f64,
    region: PromptRegion,
    part: Option<NormBox>,
    xs: &[f64],
) -> TrackedAnswer {
    let person = |&x: &f64| match x < 0.5 {
        true => found(x, 0.4, x + 0.1, 0.8, 0.9),
        false => found(x, 0.3, x + 0.06, 0.55, 0.9),
    };
    let boxes = xs.iter().map(person).collect();
    look(tracker, second, &about(region, part, boxes))
}

/// Boxes in an answer about this part of the picture.
fn about(region: PromptRegion, part: Option<NormBox>, boxes: Vec<FoundObject<NormBox>>) -> Answer {
    let mut answer = answer(1, AnswerBody::Boxes(boxes));
    Arc::make_mut(&mut answer.prompt).view.region = region;
    answer.region = part;
    answer
}

fn objects(answer: &TrackedAnswer) -> &[TrackedObject] {
    answer.body.objects()
}

#[test]
fn region_that_moves_keeps_tracks_presence_and_zones() {
    let motion = PromptRegion::Motion;
    let mut tracker = with_region(motion);
    let mut at = |second, part, xs: &[f64]| seen_in(&mut tracker, second, motion, part, xs);
    let first = at(0.0, Some(LEFT), &[0.2]);
    let track = objects(&first)[0].track.clone();
    assert_eq!(objects(&first)[0].zones.len(), 1);
    at(1.0, Some(LEFT), &[0.2]);
    // Something moves elsewhere for twenty seconds, where another person is found.
    for second in 2..22 {
        let other = at(f64::from(second), Some(RIGHT), &[0.6]);
        let (events, states) = (&other.change.events, &other.change.states);
        let ends = |event: &Event| matches!(event.step, EventStep::End(_));
        assert!(!events.iter().any(ends), "{second}");
        assert_ne!(objects(&other)[0].track, track);
        let left =
            |state: &PromptState| matches!(state, PromptState::ZoneCount { count: Some(0), .. });
        assert!(!states.iter().any(left), "{second}");
        // An object that waits is still there.
        let dwells = |event: &Event| event.step == EventStep::Update(UpdateReason::Dwell);
        assert_eq!(events.iter().any(dwells), second == 10, "{second}");
        // One is seen, one waits.
        let both = (second == 3).then_some(Some(2));
        assert_eq!(count(&other.change), both, "{second}");
    }
    let back = at(22.0, Some(LEFT), &[0.2]);
    assert_eq!(objects(&back)[0].track, track);
    // Now it leaves: looks at its place do not find it, and the other one waits.
    let gone = (23..30).map(|second| at(f64::from(second), Some(LEFT), &[]));
    let ended = gone.flat_map(|answer| answer.change.events);
    assert!(ended.map(|event| event.track).eq([track]));
}

#[test]
fn track_outside_of_the_region_does_not_wait_for_ever() {
    let motion = PromptRegion::Motion;
    let mut tracker = with_region(motion);
    for second in [0.0, 1.0] {
        seen_in(&mut tracker, second, motion, Some(LEFT), &[0.2]);
    }
    let ends = (2..200).find(|&second| {
        let answer = seen_in(&mut tracker, f64::from(second), motion, Some(RIGHT), &[]);
        let ended = |event: &Event| event.step == EventStep::End(EndReason::Left);
        answer.change.events.iter().any(ended)
    });
    // Three pauses of a second and of thirty seconds between looks at the whole picture, and the looks that confirm it.
    assert!((94..100).contains(&ends.unwrap()), "{ends:?}");
}

#[test]
fn object_cut_by_moving_region_is_dropped() {
    let motion = PromptRegion::Motion;
    let mut tracker = with_region(motion);
    let whole = seen_in(&mut tracker, 0.0, motion, None, &[0.35]);
    let track = objects(&whole)[0].track.clone();
    // Its right half is beyond the region, so the model sees a narrow box.
    let cut = found(0.35, 0.4, 0.4, 0.8, 0.9);
    let half = about(motion, Some(LEFT), vec![cut]);
    assert_eq!(objects(&look(&mut tracker, 1.0, &half)), []);
    let again = seen_in(&mut tracker, 2.0, motion, None, &[0.35]);
    assert_eq!(objects(&again)[0].track, track);
}

#[test]
fn leaving_a_region_that_stays_is_leaving() {
    let region = PromptRegion::Fixed(RegionBox::new(LEFT));
    let mut tracker = with_region(region);
    for second in [0.0, 1.0] {
        seen_in(&mut tracker, second, region, Some(LEFT), &[0.3]);
    }
    let looks = (2..7).map(|s| seen_in(&mut tracker, f64::from(s), region, Some(LEFT), &[]));
    let events: Vec<Event> = looks.flat_map(|seen| seen.change.events).collect();
    assert_end(&events, EndReason::Left);
}
