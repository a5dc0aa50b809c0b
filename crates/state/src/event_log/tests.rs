//! The log with its cursors.

mod measurement;

use std::path::Path;

use super::*;
use crate::database::Database;
use spotter_core::{CameraId, EndReason, Location, NormBox, PromptId, ScoreSource, UpdateReason};

pub(crate) fn broker() -> EventReceiver {
    EventReceiver::new("mqtt")
}

fn door() -> EventReceiver {
    EventReceiver::new("webhook/door")
}

/// Seconds after a moment.
pub(crate) fn wall(seconds: i64) -> WallTime {
    WallTime::from_unix_millis(1_787_393_730_000 + seconds * 1000)
}

fn event(number: u64, track: u64, step: EventStep) -> Arc<LoggedEvent> {
    let camera = CameraId::new("gate").unwrap();
    let event = Event {
        track: TrackId::new("b7c1", &camera, track),
        camera,
        prompt: PromptId::new("person").unwrap(),
        revision: 1,
        step,
        started: wall(0),
        last_seen: wall(1),
        ended: matches!(step, EventStep::End(_)).then(|| wall(2)),
        location: Location::Box(NormBox {
            x0: 0.412,
            y0: 0.205,
            x1: 0.488,
            y1: 0.731,
        }),
        score: 0.83,
        top_score: 0.83,
        score_source: ScoreSource::TokenProb,
        looks: 4,
        zones: Vec::new(),
        entered_zones: Vec::new(),
        dwell: Vec::new(),
        still: false,
        snapshot: false,
        description: None,
        crossing: None,
        camera_size: (2560, 1440),
    };
    Arc::new(LoggedEvent {
        number,
        id: format!("01K3W8C4N5{number:016}"),
        event,
        epoch: None,
        uncertain: false,
    })
}

/// Two events of each track: its start and its end.
pub(crate) fn new_event(number: u64, track: u64) -> Arc<LoggedEvent> {
    let step = match number % 2 {
        0 => EventStep::New,
        _ => EventStep::End(EndReason::Left),
    };
    event(number, track, step)
}

pub(super) fn log_in(folder: &Path) -> (Database, EventLog, FoundLog) {
    log_of(folder, &[broker()], 20_000_000)
}

fn log_of(
    folder: &Path,
    receivers: &[EventReceiver],
    bytes: u64,
) -> (Database, EventLog, FoundLog) {
    let mut database = Database::open(folder, wall(0)).unwrap();
    let limits = LogLimits { bytes };
    let (log, found) = EventLog::open(&mut database.connection, receivers, limits).unwrap();
    (database, log, found)
}

fn append(log: &mut EventLog, database: &mut Database, events: &[Arc<LoggedEvent>]) -> LostEvents {
    let mut changes = EventChanges::default();
    for event in events {
        let receivers = log.cursors.keys().cloned().collect();
        changes.append(Arc::clone(event), wall(60), receivers);
    }
    log.write(&mut database.connection, &changes, wall(0))
        .unwrap()
}

fn finish(log: &mut EventLog, database: &mut Database, receiver: &EventReceiver, numbers: &[u64]) {
    let mut changes = EventChanges::default();
    numbers
        .iter()
        .for_each(|number| changes.done(receiver, *number));
    log.write(&mut database.connection, &changes, wall(0))
        .unwrap();
}

fn ended(numbers: std::ops::RangeInclusive<u64>) -> Vec<Arc<LoggedEvent>> {
    let end = EventStep::End(EndReason::Left);
    numbers.map(|number| event(number, number, end)).collect()
}

#[test]
fn each_receiver_has_its_own_cursor_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let receivers = [broker(), door()];
    let (mut database, mut log, found) = log_of(folder.path(), &receivers, 20_000_000);
    assert_eq!(found.first_number, 1);
    append(&mut log, &mut database, &ended(1..=6));
    // A broker acknowledges out of order.
    finish(&mut log, &mut database, &broker(), &[1, 3, 4, 6]);
    finish(&mut log, &mut database, &door(), &[1, 2]);
    for _ in 0..2 {
        drop(database);
        let found;
        (database, log, found) = log_of(folder.path(), &receivers, 20_000_000);
        assert_eq!(found.waiting[&broker()], [2, 5]);
        assert_eq!(found.waiting[&door()], [3, 4, 5, 6]);
        let numbers: Vec<u64> = found.events.keys().copied().collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6], "the first event is not needed");
        assert_eq!(found.events[&5], ended(5..=5)[0], "its id is the same");
        assert_eq!((found.first_number, found.open), (7, Vec::new()));
    }
    finish(&mut log, &mut database, &broker(), &[2, 5]);
    finish(&mut log, &mut database, &door(), &[3, 4, 5, 6]);
    assert_eq!(log.bytes, 0);
    drop(database);
    // A number is not used again, although no event is left.
    let found = log_of(folder.path(), &receivers, 20_000_000).2;
    assert_eq!((found.first_number, found.events.len()), (7, 0));
}

#[test]
fn new_receiver_gets_later_events_and_removed_receiver_holds_none() {
    let folder = tempfile::tempdir().unwrap();
    let (mut database, mut log, _) = log_in(folder.path());
    append(&mut log, &mut database, &ended(1..=2));
    drop(database);
    let both = [broker(), door()];
    let (mut database, mut log, found) = log_of(folder.path(), &both, 20_000_000);
    assert!(found.waiting[&door()].is_empty());
    append(&mut log, &mut database, &ended(3..=3));
    finish(&mut log, &mut database, &broker(), &[1, 2, 3]);
    drop(database);
    let (database, _, found) = log_of(folder.path(), &both, 20_000_000);
    assert_eq!(found.waiting[&door()], [3]);
    drop(database);
    let (_, log, found) = log_in(folder.path());
    assert_eq!((found.events.len(), log.bytes), (0, 0));
}

#[test]
fn unwanted_event_never_waits_for_a_receiver() {
    let folder = tempfile::tempdir().unwrap();
    let receivers = [broker(), door()];
    let (mut database, mut log, _) = log_of(folder.path(), &receivers, 20_000_000);
    let mut changes = EventChanges::default();
    changes.append(ended(1..=1).remove(0), wall(60), [broker()].into());
    log.write(&mut database.connection, &changes, wall(0))
        .unwrap();
    drop(database);
    let (_, _, found) = log_of(folder.path(), &receivers, 20_000_000);
    assert_eq!(
        (found.waiting[&broker()].len(), found.waiting[&door()].len()),
        (1, 0)
    );
}

#[test]
fn last_event_of_an_open_track_stays_until_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let (mut database, mut log, _) = log_in(folder.path());
    let moved = EventStep::Update(UpdateReason::Moved);
    let all = [
        event(1, 1, EventStep::New),
        event(2, 2, EventStep::New),
        event(3, 1, moved),
        event(4, 2, EventStep::End(EndReason::Left)),
    ];
    append(&mut log, &mut database, &all);
    finish(&mut log, &mut database, &broker(), &[1, 2, 3, 4]);
    drop(database);
    let (mut database, mut log, found) = log_in(folder.path());
    assert_eq!((found.open, found.waiting[&broker()].len()), (vec![3], 0));
    let end = event(5, 1, EventStep::End(EndReason::Restart));
    append(&mut log, &mut database, &[end]);
    finish(&mut log, &mut database, &broker(), &[5]);
    drop(database);
    assert_eq!(log_in(folder.path()).2.events.len(), 0);
}

#[test]
fn oldest_events_beyond_bytes_and_age_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let receivers = [broker(), door()];
    let (mut database, mut log, _) = log_of(folder.path(), &receivers, 20_000_000);
    append(&mut log, &mut database, &ended(1..=1));
    let four = 4 * log.bytes;
    drop(database);
    let (mut database, mut log, _) = log_of(folder.path(), &receivers, four);
    finish(&mut log, &mut database, &door(), &[1]);
    let lost = append(&mut log, &mut database, &ended(2..=6));
    assert_eq!(lost.over_bound[&broker()], [1, 2]);
    assert_eq!(lost.over_bound[&door()], [2]);
    assert!(log.bytes <= four);
    let nothing = EventChanges::default();
    let lost = log
        .write(&mut database.connection, &nothing, wall(60))
        .unwrap();
    assert_eq!(lost.too_old[&door()], [3, 4, 5, 6]);
    assert_eq!(log.bytes, 0);
}

#[test]
fn picture_is_read_with_its_event_and_leaves_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut database, mut log, _) = log_in(folder.path());
    append(&mut log, &mut database, &ended(1..=1));
    let mut changes = EventChanges::default();
    let jpeg: Arc<[u8]> = vec![0xff; 200_000].into();
    changes.add_picture(1, Arc::clone(&jpeg));
    changes.add_picture(2, jpeg);
    log.write(&mut database.connection, &changes, wall(0))
        .unwrap();
    let (event, picture) = log.read(&database.connection, 1).unwrap().unwrap();
    assert_eq!(
        (&event, picture.unwrap().len()),
        (&*ended(1..=1)[0], 200_000)
    );
    finish(&mut log, &mut database, &broker(), &[1]);
    assert!(log.read(&database.connection, 1).unwrap().is_none());
    let sql = "SELECT count(*) FROM event_picture";
    let pictures: i64 = database
        .connection
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert_eq!(pictures, 0);
}

#[test]
fn unreadable_row_is_removed_and_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (mut database, mut log, _) = log_in(folder.path());
    append(&mut log, &mut database, &ended(1..=3));
    let sql = "UPDATE event SET body = '{\"id\":7}' WHERE number = 2; INSERT INTO event VALUES (-1, 0, '')";
    database.connection.execute_batch(sql).unwrap();
    drop(database);
    let (database, _, found) = log_in(folder.path());
    assert_eq!(
        (found.unreadable, &found.waiting[&broker()][..]),
        (2, &[1, 3][..])
    );
    drop(database);
    assert_eq!(log_in(folder.path()).2.unreadable, 0);
}

#[test]
fn cursor_text_survives_and_ranges_of_a_stranger_are_bounded() {
    let entry = |number: u64| {
        let track = event(number, number, EventStep::New).event.track.clone();
        let (expires_ms, bytes) = (0, 0);
        (
            number,
            LoggedEntry {
                track,
                expires_ms,
                bytes,
            },
        )
    };
    let known: BTreeMap<u64, LoggedEntry> = (1..=20).map(entry).collect();
    let mut cursor = ReceiverCursor::default();
    [1, 2, 4, 7, 8, 9, 12]
        .iter()
        .for_each(|number| cursor.finish(*number));
    cursor.advance(&known);
    assert_eq!((cursor.done_to, &*cursor.beyond_text()), (2, "4,7-9,12"));
    assert_eq!(ReceiverCursor::from_text(2, "4,7-9,12", &known), cursor);
    let hostile = ReceiverCursor::from_text(0, "x,9-3,-,5-18446744073709551615", &known);
    assert_eq!(hostile.done_beyond.len(), 16);
}

#[test]
fn unwritten_events_of_a_failing_disk_stay_few() {
    let mut unwritten = EventChanges::default();
    for number in 0..5000 {
        let mut changes = EventChanges::default();
        changes.append(new_event(number, number), wall(60), [broker()].into());
        if number != 17 {
            changes.done(&broker(), number);
        }
        unwritten.merge(changes);
    }
    assert_eq!(unwritten.appended.len(), 1024 + 1);
    assert!(unwritten.appended.contains_key(&17));
    assert_eq!(unwritten.done[&broker()].len(), 1024);
}
