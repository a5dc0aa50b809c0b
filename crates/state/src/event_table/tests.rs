//! The log with its cursors.

mod measurement;

use std::path::Path;

use super::*;
use crate::database::Database;
use spotter_core::{EndReason, UpdateReason};

pub(crate) fn broker() -> EventReceiver {
    EventReceiver::broker()
}

fn door() -> EventReceiver {
    EventReceiver::webhook(&WebhookId::new("door").unwrap())
}

/// Seconds after a moment.
pub(crate) fn wall(seconds: i64) -> WallTime {
    WallTime::from_unix_millis(1_787_393_730_000 + seconds * 1000)
}

fn event(number: u64, track: u64, step: EventStep) -> Arc<LoggedEvent> {
    let event = Event {
        started: wall(0),
        last_seen: wall(1),
        ended: matches!(step, EventStep::End(_)).then(|| wall(2)),
        ..spotter_core::testing::event("gate", track, step)
    };
    Arc::new(LoggedEvent {
        number,
        bytes: 0,
        id: format!("01K3W8C4N5{number:016}"),
        event,
        epoch: None,
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

pub(super) fn table_in(folder: &Path) -> (Database, EventTable, FoundEvents) {
    let database = Database::open(folder, wall(0)).unwrap();
    let (table, found) = EventTable::open(&database.connection).unwrap();
    (database, table, found)
}

pub(crate) fn appended(
    event: Arc<LoggedEvent>,
    waiting: impl IntoIterator<Item = EventReceiver>,
) -> EventChanges {
    let appended = Appended {
        body: serde_json::to_string(&event).unwrap(),
        waiting: waiting.into_iter().collect(),
        logged: event,
    };
    EventChanges {
        appended: BTreeMap::from([(appended.logged.number, appended)]),
        ..EventChanges::default()
    }
}

pub(crate) fn done(receiver: &EventReceiver, numbers: &[u64]) -> EventChanges {
    let done = |number: &u64| (*number, BTreeSet::from([receiver.clone()]));
    EventChanges {
        done: numbers.iter().map(done).collect(),
        ..EventChanges::default()
    }
}

/// A table whose runs follow each other.
struct Runs {
    folder: tempfile::TempDir,
    database: Database,
    table: EventTable,
}

impl Runs {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (database, table, _) = table_in(folder.path());
        Self {
            folder,
            database,
            table,
        }
    }

    fn write(&mut self, changes: &EventChanges) {
        let connection = &mut self.database.connection;
        self.table.write(connection, changes).unwrap();
    }

    /// For the broker and the webhook.
    fn append(&mut self, events: impl IntoIterator<Item = Arc<LoggedEvent>>) {
        for event in events {
            self.write(&appended(event, [broker(), door()]));
        }
    }

    fn finish(&mut self, receiver: &EventReceiver, numbers: &[u64]) {
        self.write(&done(receiver, numbers));
    }

    fn restart(self) -> (Self, FoundEvents) {
        let Self {
            folder, database, ..
        } = self;
        drop(database);
        let (database, table, found) = table_in(folder.path());
        let runs = Self {
            folder,
            database,
            table,
        };
        (runs, found)
    }
}

pub(crate) fn waiting(found: &FoundEvents, receiver: &EventReceiver) -> Vec<u64> {
    let waiting = found.waiting_for(receiver);
    waiting.map(|found| found.logged.number).collect()
}

fn open(found: &FoundEvents) -> Vec<u64> {
    found.open.iter().map(|event| event.number).collect()
}

pub(crate) fn ended(numbers: std::ops::RangeInclusive<u64>) -> Vec<Arc<LoggedEvent>> {
    let end = EventStep::End(EndReason::Left);
    numbers.map(|number| event(number, number, end)).collect()
}

#[test]
fn each_receiver_waits_for_its_own_events_over_restarts() {
    let mut runs = Runs::new();
    runs.append(ended(1..=6));
    // A broker acknowledges out of order.
    runs.finish(&broker(), &[1, 3, 4, 6]);
    runs.finish(&door(), &[1, 2]);
    for _ in 0..2 {
        let found;
        (runs, found) = runs.restart();
        assert_eq!(waiting(&found, &broker()), [2, 5]);
        assert_eq!(waiting(&found, &door()), [3, 4, 5, 6]);
        assert_eq!(found.events.len(), 5, "the first event is not needed");
        assert_eq!(found.events[3].logged.id, ended(5..=5)[0].id);
        assert_eq!((found.next_number, open(&found)), (7, Vec::new()));
    }
    runs.finish(&broker(), &[2, 5]);
    runs.finish(&door(), &[3, 4, 5, 6]);
    assert_eq!(runs.restart().1.events.len(), 0);
}

#[test]
fn removed_receiver_keeps_no_event() {
    let mut runs = Runs::new();
    runs.append(ended(1..=2));
    let (mut runs, _) = runs.restart();
    runs.write(&EventChanges {
        receivers: Some(BTreeSet::from([broker()])),
        ..EventChanges::default()
    });
    runs.finish(&broker(), &[1]);
    let (_, found) = runs.restart();
    let of_each = [broker(), door()].map(|receiver| waiting(&found, &receiver));
    assert_eq!(of_each, [vec![2], vec![]]);
}

#[test]
fn last_event_of_an_open_track_stays_until_its_end() {
    let mut runs = Runs::new();
    let moved = EventStep::Update(UpdateReason::Moved);
    runs.append([
        event(1, 1, EventStep::New),
        event(2, 2, EventStep::New),
        event(3, 1, moved),
        event(4, 2, EventStep::End(EndReason::Left)),
    ]);
    for receiver in [broker(), door()] {
        runs.finish(&receiver, &[1, 2, 3, 4]);
    }
    let (mut runs, found) = runs.restart();
    assert_eq!((open(&found), found.events.len()), (vec![3], 1));
    let end = event(5, 1, EventStep::End(EndReason::Restart));
    runs.write(&appended(end, []));
    assert_eq!(runs.restart().1.events.len(), 0);
}

/// A webhook without `end` among its steps waits for the start of a track whose end the broker has.
#[test]
fn ended_track_is_not_open_while_an_older_event_waits() {
    let mut runs = Runs::new();
    runs.append([event(1, 1, EventStep::New)]);
    let end = event(2, 1, EventStep::End(EndReason::Left));
    runs.write(&appended(end, [broker()]));
    runs.finish(&broker(), &[1, 2]);
    let (mut runs, found) = runs.restart();
    assert_eq!((open(&found), waiting(&found, &door())), (vec![], vec![1]));
    runs.finish(&door(), &[1]);
    assert_eq!(runs.restart().1.events.len(), 0);
}

#[test]
fn time_on_disk_counts_after_the_clock_is_set() {
    let (event, hour) = (event(1, 1, EventStep::New), Duration::from_secs(3600));
    for (passed_s, left_s) in [(0, 3600), (599, 3001), (3601, 0), (-86_400, 3600)] {
        let left = event.time_left(hour, wall(1 + passed_s));
        assert_eq!(left, Duration::from_secs(left_s), "{passed_s}");
    }
}

#[test]
fn picture_is_stored_with_its_event_and_leaves_with_it() {
    let mut runs = Runs::new();
    runs.append(ended(1..=1));
    let jpeg: Arc<[u8]> = vec![0xff; 200_000].into();
    runs.write(&EventChanges {
        pictures: BTreeMap::from([(1, Arc::clone(&jpeg)), (2, jpeg)]),
        ..EventChanges::default()
    });
    let (mut runs, found) = runs.restart();
    assert_eq!(found.events[0].picture_bytes, 200_000);
    let of = |runs: &Runs, number| picture(&runs.database.connection, number).unwrap();
    assert_eq!(of(&runs, 1).unwrap().len(), 200_000);
    assert_eq!(of(&runs, 2), None, "its event had left the table");
    for receiver in [broker(), door()] {
        runs.finish(&receiver, &[1]);
    }
    assert_eq!(of(&runs, 1), None);
}

#[test]
fn unreadable_row_is_removed_and_hides_no_other() {
    let mut runs = Runs::new();
    runs.append(ended(1..=3));
    let sql = "UPDATE event SET body = '{\"id\":7}' WHERE number = 2; INSERT INTO event VALUES (-1, '', '')";
    runs.database.connection.execute_batch(sql).unwrap();
    let (runs, found) = runs.restart();
    assert_eq!(waiting(&found, &broker()), [1, 3]);
    assert_eq!(
        found.unreadable,
        BTreeMap::from([(broker(), 1), (door(), 1)])
    );
    assert_eq!(runs.restart().1.unreadable, BTreeMap::new());
}

// Faults: W8.
#[test]
fn unwritten_events_of_a_failing_disk_stay_few() {
    let mut unwritten = EventChanges::default();
    for number in 0..5000 {
        unwritten.merge(appended(new_event(number, number), [broker()]));
        if number != 17 {
            unwritten.merge(done(&broker(), &[number]));
        }
        unwritten.merge(EventChanges {
            pictures: BTreeMap::from([(number, Arc::from([7; 10_000]))]),
            ..EventChanges::default()
        });
    }
    assert_eq!(unwritten.appended.len(), 1024 + 1);
    assert!(unwritten.appended.contains_key(&17));
    assert_eq!((unwritten.done.len(), unwritten.pictures.len()), (0, 800));
}
