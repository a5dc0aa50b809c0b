//! Counts at a line.

use super::*;
use crate::track::LineCount;
use spotter_config::LineConfig;
use spotter_core::{DirectionId, LineId, WeeklyTime};

fn door() -> LineId {
    LineId::new("door").unwrap()
}

/// An upright line in the middle, drawn upwards: the first direction is to the right of the picture.
fn with_door() -> CameraConfig {
    let mut site = camera();
    site.lines = vec![LineConfig {
        id: door(),
        points: vec![(0.5, 1.0), (0.5, 0.0)],
        directions: DirectionId::in_and_out(),
        point: ZonePoint::Bottom,
        reset: None,
    }];
    site.prompts[0].lines = vec![door()];
    site
}

/// Midnight in UTC, every day.
fn at_midnight() -> Option<WeeklyTime> {
    Some(WeeklyTime {
        days: [true; 7],
        minute: 0,
        zone: "UTC".into(),
    })
}

/// Three looks at a person who walks over the line to the right.
fn walk_in() -> [Vec<FoundObject<NormBox>>; 3] {
    [0.4, 0.45, 0.55].map(person_at)
}

/// The crossings in these events: direction and count.
fn crossings(published: &[(usize, Event)]) -> Vec<(String, u64)> {
    let crossings = published.iter().filter_map(|(_, event)| {
        let crossing = event.crossing.as_ref()?;
        Some((crossing.direction.to_string(), crossing.count))
    });
    crossings.collect()
}

/// The counts in these changes: in and out.
fn line_counts(changes: &[PromptChange]) -> Vec<(String, u64)> {
    let states = changes.iter().flat_map(|change| &change.states);
    let counts = states.filter_map(|state| match state {
        PromptState::LineCount {
            direction, count, ..
        } => Some((direction.to_string(), *count)),
        _ => None,
    });
    counts.collect()
}

fn counted(way: &str, count: u64) -> (String, u64) {
    (way.to_owned(), count)
}

#[test]
fn crossing_is_counted_and_published_with_its_track() {
    let mut tracker = tracker(with_door());
    let published = steps(&mut tracker, &walk_in());
    let [(1, new), (2, crossed)] = &published[..] else {
        panic!("{published:?}")
    };
    assert_eq!(crossed.step, EventStep::Update(UpdateReason::Crossed));
    assert_eq!(crossed.track, new.track);
    assert_eq!(crossings(&published), [counted("in", 1)]);
    let crossing = crossed.crossing.as_ref().unwrap();
    assert_eq!(crossing.line, door());
    assert!((crossing.at.seconds_since(at(1.5).1)).abs() < 1e-6);
    assert!((crossing.speed.unwrap() - 0.1).abs() < 1e-9);
    let all = line_counts(&tracker.all_states());
    assert_eq!(all, [counted("in", 1), counted("out", 0)]);
    // The other messages of the event do not repeat it.
    let back = see(&mut tracker, 3.0, person_at(0.45));
    assert_eq!(line_counts(&[back.change]), [counted("out", 1)]);
    let end = all_events(&tracker.suspend(&gate(), EndReason::Disabled, at(4.0).1));
    assert_eq!(end[0].crossing, None);
}

#[test]
fn crossing_before_the_confirmation_counts_later_or_never() {
    let mut tracker = tracker(with_door());
    let quick = [0.45, 0.55].map(person_at);
    assert_eq!(crossings(&steps(&mut tracker, &quick)), [counted("in", 1)]);
    let mut tracker = self::tracker(with_door());
    let mut once = vec![Vec::new(); 5];
    (once[0], once[4]) = (person_at(0.3), person_at(0.7));
    assert_eq!(crossings(&steps(&mut tracker, &once)), []);
}

#[test]
fn object_that_leaves_at_the_line_crosses_before_its_end() {
    let mut tracker = tracker(with_door());
    let mut looks: Vec<_> = [0.4, 0.45, 0.505].map(person_at).into();
    looks.extend([Vec::new(), Vec::new(), Vec::new()]);
    let published = steps(&mut tracker, &looks);
    let last: Vec<_> = kinds(&published).into_iter().rev().take(2).collect();
    let expected = [
        EventStep::End(EndReason::Left),
        EventStep::Update(UpdateReason::Crossed),
    ];
    assert_eq!(last, expected.map(|step| (5, step)));
    assert_eq!(crossings(&published), [counted("in", 1)]);
    // A camera that is lost says nothing about the side.
    let mut tracker = self::tracker(with_door());
    steps(&mut tracker, &looks[..3]);
    tracker.suspend(&gate(), EndReason::CameraLost, at(3.0).1);
    assert_eq!(line_counts(&tracker.all_states())[0], counted("in", 0));
}

#[test]
fn crossing_waits_for_the_second_look_with_the_event() {
    let mut site = with_door();
    site.prompts[0].verify = Some("Is it a person?".into());
    let mut tracker = tracker(site);
    let mut second = -1.0;
    let answers = walk_in().map(|boxes| {
        second += 1.0;
        see(&mut tracker, second, boxes)
    });
    assert_eq!(line_counts(&tracker.all_states())[0], counted("in", 0));
    let question = &answers[1].change.questions[0];
    let yes = hear(&mut tracker, 2.0, question, "Yes").unwrap();
    assert_eq!(yes.events.len(), 1);
    let next = see(&mut tracker, 3.0, person_at(0.6));
    assert_eq!(line_counts(&[next.change]), [counted("in", 1)]);
}

#[test]
fn counts_survive_a_restart_and_a_change_of_the_line() {
    let mut site = with_door();
    let mut before = tracker(site.clone());
    steps(&mut before, &walk_in());
    let records = before.line_counts();
    let mut after = tracker(site.clone());
    let changes = after.restore_line_counts(&records);
    assert_eq!(line_counts(&changes), [counted("in", 1)]);
    assert_eq!(after.line_counts(), records);
    // Swapped names keep their counts.
    site.lines[0].directions.reverse();
    after.configure(&site, at(9.0).1);
    let all = line_counts(&after.all_states());
    assert_eq!(all, [counted("out", 0), counted("in", 1)]);
    site.prompts[0].lines.clear();
    after.configure(&site, at(9.0).1);
    assert_eq!(line_counts(&after.all_states()), []);
}

#[test]
fn line_is_reset_by_command_and_once_by_its_time() {
    let day = 86_400.0;
    let mut site = with_door();
    site.lines[0].reset = at_midnight();
    let mut tracker = tracker(site);
    steps(&mut tracker, &walk_in());
    let reset = tracker.reset_line(&gate(), &door(), at(4.0).1);
    assert_eq!(line_counts(&reset), [counted("in", 0)]);
    assert_eq!(tracker.reset_line(&gate(), &door(), at(5.0).1), []);
    let again = see(&mut tracker, 6.0, person_at(0.45));
    assert_eq!(line_counts(&[again.change]), [counted("out", 1)]);
    assert_eq!(line_counts(&tick(&mut tracker, day - 1.0)), []);
    assert_eq!(line_counts(&tick(&mut tracker, day)), [counted("out", 0)]);
    assert_eq!(line_counts(&tick(&mut tracker, day + 1.0)), []);
    // Midnight passed while the daemon did not run.
    let mut records = tracker.line_counts();
    let seven = DirectionId::in_and_out().map(|way| (way, 7));
    records[0].count = LineCount::new(seven.into(), at(day).1);
    tracker.restore_line_counts(&records);
    let due = line_counts(&tick(&mut tracker, 3.0 * day));
    assert_eq!(due, [counted("in", 0), counted("out", 0)]);
}

#[test]
fn counts_outlive_a_boot_before_the_clock_is_set() {
    let (day, hour) = (86_400.0, 3600.0);
    let today = 20_000.0 * day;
    let mut site = with_door();
    site.lines[0].reset = at_midnight();
    let mut before = tracker(site.clone());
    steps(&mut before, &walk_in());
    let mut records = before.line_counts();
    let [way, _] = DirectionId::in_and_out();
    records[0].count = LineCount::new([(way, 1)].into(), at(today).1);
    let mut after = tracker(site);
    after.restore_line_counts(&records);
    // A box without a battery starts in 1970, until it has the time of the network.
    for second in [60.0, today + 15.0 * hour] {
        assert_eq!(line_counts(&tick(&mut after, second)), []);
    }
    assert_eq!(after.line_counts(), records);
    let midnight = tick(&mut after, today + day);
    assert_eq!(line_counts(&midnight), [counted("in", 0)]);
}
