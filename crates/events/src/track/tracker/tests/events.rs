//! The events of objects, and their zones.

use super::*;

#[test]
fn an_event_begins_when_confirmed_and_ends_when_unseen() {
    let mut tracker = tracker(camera());
    let walks = |i: usize| {
        let x0 = 0.1 + 0.08 * i as f64;
        vec![found(x0, 0.3, x0 + 0.06, 0.6, 0.9)]
    };
    let mut looks: Vec<_> = (0..6).map(walks).collect();
    looks[3].clear();
    looks.extend(vec![vec![]; 5]);
    let published = steps(&mut tracker, &looks);
    let left = EventStep::End(EndReason::Left);
    assert_eq!(kinds(&published), [(1, EventStep::New), (8, left)]);
    let (new, end) = (&published[0].1, &published[1].1);
    assert_eq!(new.track, TrackId::new("b7c1", &gate(), 1));
    assert_eq!(new.track, end.track);
    assert_eq!((new.looks, new.started, new.ended), (2, at(0.0).1, None));
    let ended = Some(at(8.0).1);
    assert_eq!((end.looks, end.last_seen, end.ended), (5, at(5.0).1, ended));
    assert_eq!(end.location, Location::Box(looks[5][0].place));
}

/// A parked car is one event: one update says that it is still, and one follows each minute.
#[test]
fn a_still_thing_is_one_event() {
    let mut tracker = tracker(camera());
    let parked = vec![found(0.4, 0.4, 0.6, 0.6, 0.9)];
    let mut looks = vec![parked; 200];
    for missed in [7, 50, 51, 120] {
        looks[missed].clear();
    }
    // A person walks past the car and hides half of it for one look.
    looks[80] = vec![found(0.5, 0.4, 0.6, 0.6, 0.7)];
    let published = steps(&mut tracker, &looks);
    let minute = EventStep::Update(UpdateReason::Minute);
    let expected = [
        (1, EventStep::New),
        (30, EventStep::Update(UpdateReason::Still)),
        (90, minute),
        (150, minute),
    ];
    assert_eq!(kinds(&published), expected);
    let first = &published[0].1.track;
    assert!(published.iter().all(|(_, event)| event.track == *first));
    assert!(published[1].1.still);
}

#[test]
fn stationary_object_that_moves_is_published_with_the_same_track() {
    let mut tracker = tracker(camera());
    let car = |x: f64| vec![found(x, 0.4, x + 0.2, 0.6, 0.9)];
    let mut looks = vec![car(0.4); 40];
    looks.extend([0.43, 0.5, 0.6, 0.7].map(car));
    let published = steps(&mut tracker, &looks);
    let moved = EventStep::Update(UpdateReason::Moved);
    assert_eq!(kinds(&published)[2], (42, moved));
    assert_eq!(published[2].1.track, published[0].1.track);
    assert!(!published[2].1.still);
    assert_eq!(published.len(), 3);
}

#[test]
fn better_score_is_published_only_beyond_a_margin() {
    let mut tracker = tracker(camera());
    let scores = [0.5, 0.5, 0.55, 0.59, 0.6, 0.65, 0.71, 0.4];
    let looks = scores.map(|score| vec![found(0.4, 0.4, 0.6, 0.6, score)]);
    let published = steps(&mut tracker, &looks);
    let better = EventStep::Update(UpdateReason::Better);
    let expected = [(1, EventStep::New), (4, better), (6, better)];
    assert_eq!(kinds(&published), expected);
    let last = &published[2].1;
    assert_eq!((last.score, last.top_score), (0.71, 0.71));
}

#[test]
fn zones_are_published_in_the_order_of_entry() {
    let mut tracker = tracker(zoned());
    let (mut counts, mut published) = (Vec::new(), Vec::new());
    for second in 0..20 {
        let x = (0.13 + 0.05 * second as f64).min(0.88);
        let change = see(&mut tracker, second as f64, person_at(x)).change;
        counts.extend(change.states.iter().filter_map(|state| match state {
            PromptState::ZoneCount { zone, count } => Some((second, zone.to_string(), *count)),
            _ => None,
        }));
        published.extend(change.events);
    }
    let expected = [
        (1, "left", Some(1)),
        (2, "right", Some(0)),
        (8, "right", Some(1)),
        (11, "left", Some(0)),
    ];
    let expected = expected.map(|(second, zone, count)| (second, zone.to_owned(), count));
    assert_eq!(counts, expected);
    let zones = published.iter().map(|event| event.zones.len());
    assert!(zones.eq([1, 2, 1]));
    let last = published.last().unwrap();
    assert_eq!(last.step, EventStep::Update(UpdateReason::Zones));
    let entered = last.entered_zones.iter().map(ZoneId::as_str);
    assert!(entered.eq(["left", "right"]) && last.zones[0].as_str() == "right");
    // Without looks, the counts of the zones are unknown too.
    let lost = tick(&mut tracker, 60.0);
    let is_unknown =
        |state: &&PromptState| matches!(state, PromptState::ZoneCount { count: None, .. });
    assert_eq!(lost[0].states.iter().filter(is_unknown).count(), 2);
}

#[test]
fn only_zones_of_the_prompt_are_counted() {
    let mut site = zoned();
    site.prompts[0].zones = vec![ZoneId::new("left").unwrap()];
    let mut tracker = tracker(site);
    let zones = tracker.all_states().into_iter().map(|change| {
        let is_of_zone = |state: &&PromptState| matches!(state, PromptState::ZoneCount { .. });
        change.states.iter().filter(is_of_zone).count()
    });
    assert_eq!(zones.collect::<Vec<_>>(), [2, 1], "dog, person");
    assert_eq!(see(&mut tracker, 0.0, person_at(0.75)).body.objects(), []);
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
