//! Counts at a line over restarts.

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
fn line_is_reset_for_a_midnight_without_the_daemon() {
    let day = 86_400.0;
    let mut site = with_door();
    site.lines[0].reset = at_midnight();
    let mut before = tracker(site.clone());
    steps(&mut before, &walk_in());
    let mut records = before.line_counts();
    let seven = DirectionId::in_and_out().map(|way| (way, 7));
    records[0].count = LineCount::new(seven.into(), at(day).1);
    let mut after = tracker(site);
    after.restore_line_counts(&records);
    let due = line_counts(&tick(&mut after, 3.0 * day));
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
