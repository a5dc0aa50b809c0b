//! The time of an object in a zone.

use super::*;

/// Zones `left` (to 0.55) and `right` (from 0.45); an object dwells on the right after three seconds.
fn dwelling_right() -> CameraConfig {
    let mut site = zoned();
    site.prompts[0].dwell = [(right(), seconds(3.0))].into();
    site
}

fn right() -> ZoneId {
    ZoneId::new("right").unwrap()
}

fn time_right(event: &Event) -> f64 {
    let mut times = event.dwell.iter();
    let right = times.find(|dwell| dwell.zone == right()).unwrap();
    right.time.as_secs_f64()
}

/// What looks once a second published about dwelling on the right: messages with the time there, and states.
type Dwelling = (Vec<(usize, UpdateReason, f64)>, Vec<(usize, Presence)>);

fn dwelling(looks: &[Vec<FoundObject<NormBox>>]) -> Dwelling {
    let mut tracker = tracker(dwelling_right());
    let (mut messages, mut all) = (Vec::new(), Vec::new());
    for (second, boxes) in looks.iter().enumerate() {
        let change = see(&mut tracker, second as f64, boxes.clone()).change;
        for event in &change.events {
            let dwells = event.dwell.iter().any(|dwell| dwell.is_dwelling);
            assert!(!dwells || event.step != EventStep::New);
            if let EventStep::Update(reason @ (UpdateReason::Dwell | UpdateReason::DwellEnd)) =
                event.step
            {
                messages.push((second, reason, time_right(event)));
            }
        }
        for state in change.states {
            if let PromptState::Dwell { zone, presence } = state {
                assert_eq!(zone, right());
                all.push((second, presence));
            }
        }
    }
    (messages, all)
}

/// The object entered at 1.5 and left at 7.5. No look saw it there for three seconds at the second 10.
fn of_visit() -> Dwelling {
    let begin = (5, UpdateReason::Dwell, 3.5);
    let states = [(1, Presence::Off), (5, Presence::On), (10, Presence::Off)];
    (
        vec![begin, (10, UpdateReason::DwellEnd, 6.0)],
        states.into(),
    )
}

/// On the left at the seconds 0 and 1, on the right from 2 to 7, and then on the left.
fn visit() -> Vec<Vec<FoundObject<NormBox>>> {
    let places = [vec![0.42; 2], vec![0.52; 6], vec![0.42; 4]].concat();
    places.into_iter().map(person_at).collect()
}

#[test]
fn detection_has_the_times_in_its_zones() {
    let mut tracker = tracker(dwelling_right());
    for (second, boxes) in visit().into_iter().enumerate().take(6) {
        let answer = see(&mut tracker, second as f64, boxes);
        let [object] = answer.body.objects() else {
            panic!("{answer:?}")
        };
        let zones = object.dwell.iter().map(|dwell| &dwell.zone);
        assert!(zones.eq(&object.zones));
        let time = object.dwell[0].time.as_secs_f64();
        let expected = [0.0, 1.0, 0.5, 1.5, 2.5, 3.5][second];
        assert_eq!(time, expected, "{second}");
        assert_eq!(object.dwell[0].is_dwelling, second == 5);
    }
}

#[test]
fn dwelling_is_published_over_a_short_occlusion_or_a_box_outside() {
    assert_eq!(dwelling(&visit()), of_visit());
    for gap in [Vec::new(), person_at(0.42)] {
        let mut looks = visit();
        (looks[4], looks[6]) = (gap.clone(), gap.clone());
        assert_eq!(dwelling(&looks), of_visit(), "{gap:?}");
    }
    // Three seconds without the object end its track, so the next one begins with 0.
    let mut looks = visit();
    looks.splice(4..4, vec![Vec::new(); 4]);
    assert_eq!(dwelling(&looks).0[0], (11, UpdateReason::Dwell, 3.0));
}

#[test]
fn object_that_leaves_the_picture_ends_dwelling_with_its_event() {
    let mut looks = visit();
    looks.truncate(8);
    looks.extend(vec![Vec::new(); 4]);
    let (messages, states) = dwelling(&looks);
    assert_eq!(messages.len(), 1);
    assert_eq!(states.last(), Some(&(10, Presence::Off)));
    let published = steps(&mut tracker(dwelling_right()), &looks);
    let (second, last) = published.last().unwrap();
    assert_eq!((*second, last.step), (10, EventStep::End(EndReason::Left)));
    assert!((time_right(last) - 5.5).abs() < 1e-9);
}

#[test]
fn event_that_starts_late_reports_its_dwelling_afterwards() {
    let mut site = dwelling_right();
    site.prompts[0].verify = Some("Is it a person?".into());
    let mut tracker = tracker(site);
    let mut question = None;
    for second in 0..6 {
        let answer = see(&mut tracker, f64::from(second), person_at(0.52));
        question = question.or(answer.change.questions.first().cloned());
    }
    let started = hear(&mut tracker, 5.5, &question.unwrap(), "Yes").unwrap();
    assert_eq!(started.events[0].step, EventStep::New);
    let dwells = PromptState::Dwell {
        zone: right(),
        presence: Presence::On,
    };
    assert_eq!(started.states, [dwells]);
    let next = see(&mut tracker, 6.0, person_at(0.52)).change.events;
    assert_eq!(next[0].step, EventStep::Update(UpdateReason::Dwell));
}
