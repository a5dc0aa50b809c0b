//! Invariants of the tracker for any sequence of looks.

use proptest::prelude::*;

use super::*;

/// Boxes anywhere, in any number: each is (left, top, width, height, score).
fn boxes() -> impl Strategy<Value = Vec<FoundObject<NormBox>>> {
    let (corner, side) = (0.0..0.9f64, 0.01..0.5f64);
    let one = (corner.clone(), corner, side.clone(), side, 0.0..1.0f64);
    let found = |(x, y, w, h, score)| found(x, y, x + w, y + h, score);
    prop::collection::vec(one.prop_map(found), 0..7)
}

/// Checks the invariants for these looks. Returns the tracker's answers.
fn checked(looks: &[(u64, Vec<FoundObject<NormBox>>)]) -> Vec<TrackedAnswer> {
    let mut tracker = tracker(camera());
    let mut now_ms = 0;
    let mut open = BTreeMap::<TrackId, Event>::new();
    let mut over = BTreeSet::new();
    let mut published = Vec::new();
    for (step_ms, boxes) in looks {
        now_ms += step_ms;
        let answer = see(&mut tracker, now_ms as f64 / 1e3, boxes.clone());
        let tracks = tracks(&answer);
        let distinct: BTreeSet<_> = tracks.iter().collect();
        assert_eq!(distinct.len(), tracks.len(), "two objects have one track");
        for event in answer.change.events.clone() {
            let before = open.remove(&event.track);
            assert!(!over.contains(&event.track), "after its end: {event:?}");
            match event.step {
                EventStep::New => assert_eq!(before, None),
                EventStep::Update(_) => assert!(before.is_some()),
                EventStep::End(_) => {
                    assert!(before.is_some() && event.ended >= Some(event.last_seen));
                    over.insert(event.track);
                    continue;
                }
            }
            assert!(tracks.contains(&event.track) || event.last_seen < at(now_ms as f64 / 1e3).1);
            open.insert(event.track.clone(), event);
        }
        assert_eq!(open_tracks(&tracker), open.keys().cloned().collect());
        published.push(answer);
    }
    let ends = tracker.shutdown(at(now_ms as f64 / 1e3).1);
    assert_eq!(ends.len(), open.len());
    published
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(64)))]

    #[test]
    fn events_are_complete_for_any_order_of_the_objects(
        looks in prop::collection::vec((1u64..4000, boxes(), any::<u64>()), 1..25),
    ) {
        let plain: Vec<_> = looks.iter().map(|(ms, boxes, _)| (*ms, boxes.clone())).collect();
        let turned: Vec<_> = looks.iter().map(|(ms, boxes, turn)| {
            let mut boxes = boxes.clone();
            boxes.sort_by_key(|found| found.place.x0.to_bits().rotate_left((turn % 64) as u32) ^ turn);
            (*ms, boxes)
        }).collect();
        for (a, b) in checked(&plain).into_iter().zip(checked(&turned)) {
            let named = |answer: &TrackedAnswer| {
                let mut named: Vec<_> = answer.body.objects().iter().map(|o| (o.track.clone(), format!("{o:?}"))).collect();
                named.sort();
                named
            };
            prop_assert_eq!(named(&a), named(&b));
            prop_assert_eq!(a.change, b.change);
        }
    }

    #[test]
    fn still_object_keeps_one_track_at_any_rate(
        steps_ms in prop::collection::vec(100u64..2000, 4..40),
        missed in prop::collection::vec(any::<bool>(), 40),
        jitter in prop::collection::vec(-1.0..1.0f64, 160),
        (x, y, w, h) in (0.0..0.8f64, 0.0..0.8f64, 0.03..0.2f64, 0.03..0.2f64),
    ) {
        let mut tracker = tracker(camera());
        let (mut now_ms, mut ids) = (0, BTreeSet::new());
        for (index, step_ms) in steps_ms.iter().enumerate() {
            now_ms += step_ms;
            // No two looks in a row miss the object.
            let seen = index < 3 || !missed[index] || missed[index - 1];
            let off = |side: usize, size: f64| 0.05 * size * jitter[4 * index + side];
            let place = found(x + off(0, w), y + off(1, h), x + w + off(2, w), y + h + off(3, h), 0.9);
            let boxes = if seen { vec![place] } else { vec![] };
            ids.extend(tracks(&see(&mut tracker, now_ms as f64 / 1e3, boxes)));
        }
        prop_assert_eq!(ids.len(), 1);
        prop_assert!(tracker.open_events().count() == 1);
    }
}
