//! The log with what each receiver waits for.

mod measurement;

use std::{path::Path, time::Duration};

use super::*;
use crate::database::Database;
use spotter_core::{EndReason, Event, EventStep, UpdateReason, WallTime, testing::crossing};

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

fn event(number: u64, track: u64, step: EventStep) -> LoggedEvent {
    let event = Event {
        started: wall(0),
        last_seen: wall(1),
        ended: matches!(step, EventStep::End(_)).then(|| wall(2)),
        ..spotter_core::testing::event("gate", track, step)
    };
    LoggedEvent::new(format!("01K3W8C4N5{number:016}"), &event, None)
}

/// The start of a track, or its end.
fn new_event(number: u64, track: u64) -> LoggedEvent {
    let step = match number % 2 {
        0 => EventStep::New,
        _ => EventStep::End(EndReason::Left),
    };
    event(number, track, step)
}

pub(crate) fn ended(numbers: std::ops::RangeInclusive<u64>) -> Vec<LoggedEvent> {
    let end = EventStep::End(EndReason::Left);
    numbers.map(|number| event(number, number, end)).collect()
}

/// A run of a program with the database in this folder. Numbers begin at 1.
struct Run {
    database: Database,
    table: EventTable,
    found: FoundEvents,
}

impl Run {
    fn start(folder: &Path) -> Self {
        let database = Database::open(folder, wall(0)).unwrap();
        let (mut table, found) = EventTable::open(&database.connection).unwrap();
        table.number_from(1);
        Self {
            database,
            table,
            found,
        }
    }

    /// With a webhook that wants events for which `wants` is true.
    fn with_door(mut self, wants: fn(&LoggedEvent) -> bool) -> Self {
        let offer: OfferEvent = Arc::new(move |logged| wants(logged));
        self.table.set_webhooks(BTreeMap::from([(door(), offer)]));
        self
    }

    fn try_write(&mut self) -> rusqlite::Result<()> {
        let batch = self.table.take();
        let written = batch.write(&mut self.database.connection);
        self.table.finish(batch, written.is_ok());
        written
    }

    fn write(&mut self) {
        self.try_write().unwrap();
    }

    fn append(&mut self, events: impl IntoIterator<Item = LoggedEvent>) {
        for event in events {
            self.table.append(event, true);
            self.write();
        }
    }

    /// Each track has two of them, its start and its end.
    fn append_pairs(&mut self, numbers: std::ops::Range<u64>) {
        for number in numbers {
            self.table.append(new_event(number, number / 2), true);
        }
    }

    fn finish(&mut self, receiver: &EventReceiver, numbers: &[u64]) {
        self.table.done(receiver, numbers.iter().copied());
        self.write();
    }

    fn found_open(&self) -> Vec<u64> {
        let open = self.found.open.iter();
        open.map(|event| event.number).collect()
    }
}

pub(crate) fn waiting(found: &FoundEvents, receiver: &EventReceiver) -> Vec<u64> {
    let waiting = found.waiting_for(receiver);
    waiting.map(|found| found.logged.number).collect()
}

#[test]
fn each_receiver_waits_for_its_own_events_over_restarts() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path()).with_door(|_| true);
    run.append(ended(1..=6));
    // A broker acknowledges out of order.
    run.finish(&broker(), &[1, 3, 4, 6]);
    run.finish(&door(), &[1, 2]);
    for _ in 0..2 {
        drop(run);
        run = Run::start(folder.path());
        let found = &run.found;
        assert_eq!(waiting(found, &broker()), [2, 5]);
        assert_eq!(waiting(found, &door()), [3, 4, 5, 6]);
        assert_eq!(found.events.len(), 5, "the first event is not needed");
        assert_eq!(found.events[3].logged.id, ended(5..=5)[0].id);
        assert_eq!((run.table.next_number, run.found_open()), (7, Vec::new()));
    }
    // A receiver that was removed keeps none.
    run.table.set_webhooks(BTreeMap::new());
    run.finish(&broker(), &[2]);
    drop(run);
    let run = Run::start(folder.path());
    assert_eq!(waiting(&run.found, &broker()), [5]);
    assert_eq!(run.found.events.len(), 1);
}

#[test]
fn last_event_of_an_open_track_stays_until_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    run.append([
        event(1, 1, EventStep::New),
        event(2, 2, EventStep::New),
        event(3, 1, EventStep::Update(UpdateReason::Moved)),
        event(4, 2, EventStep::End(EndReason::Left)),
        LoggedEvent::new(String::new(), &crossing("gate", 1), None),
    ]);
    run.finish(&broker(), &[1, 2, 3, 4]);
    drop(run);
    let mut run = Run::start(folder.path());
    assert_eq!((run.found_open(), run.found.events.len()), (vec![3], 2));
    run.finish(&broker(), &[5]);
    assert_eq!(run.table.rows.len(), 1, "the crossing is not needed");
    let end = event(6, 1, EventStep::End(EndReason::Restart));
    run.table.append(end, false);
    run.write();
    drop(run);
    assert_eq!(Run::start(folder.path()).found.events.len(), 0);
}

/// A webhook without `end` among its steps waits for the start of a track whose end the broker has.
#[test]
fn ended_track_is_not_open_while_an_older_event_waits() {
    let folder = tempfile::tempdir().unwrap();
    let starts = |logged: &LoggedEvent| logged.kind == EventKind::New;
    let mut run = Run::start(folder.path()).with_door(starts);
    run.append([
        event(1, 1, EventStep::New),
        event(2, 1, EventStep::End(EndReason::Left)),
    ]);
    run.finish(&broker(), &[1, 2]);
    drop(run);
    let mut run = Run::start(folder.path());
    let waiting = waiting(&run.found, &door());
    assert_eq!((run.found_open(), waiting), (vec![], vec![1]));
    run.finish(&door(), &[1]);
    drop(run);
    assert_eq!(Run::start(folder.path()).found.events.len(), 0);
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
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    run.append(ended(1..=1));
    let jpeg: Arc<[u8]> = vec![0xff; 200_000].into();
    run.table.add_picture(1, Arc::clone(&jpeg));
    run.table.add_picture(2, jpeg);
    run.write();
    drop(run);
    let mut run = Run::start(folder.path());
    assert_eq!(run.found.events[0].picture_bytes, 200_000);
    let of = |run: &Run, number| picture(&run.database.connection, number).unwrap();
    assert_eq!(of(&run, 1).unwrap().len(), 200_000);
    assert_eq!(of(&run, 2), None, "its event is not in the table");
    run.finish(&broker(), &[1]);
    assert_eq!(of(&run, 1), None);
}

#[test]
fn unreadable_row_is_removed_and_hides_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path()).with_door(|_| true);
    run.append(ended(1..=3));
    let sql = "UPDATE event SET body = '{\"id\":7}' WHERE number = 2; INSERT INTO event VALUES (-1, '', '')";
    run.database.connection.execute_batch(sql).unwrap();
    drop(run);
    let run = Run::start(folder.path());
    assert_eq!(waiting(&run.found, &broker()), [1, 3]);
    let lost = BTreeMap::from([(broker(), 1), (door(), 1)]);
    assert_eq!(run.found.unreadable, lost);
    drop(run);
    let unreadable = Run::start(folder.path()).found.unreadable;
    assert_eq!(unreadable, BTreeMap::new());
}

// Faults: W8.
#[test]
fn unwritten_events_of_a_failing_disk_stay_few() {
    let mut table = EventTable::default();
    for number in 0..5000 {
        table.append(ended(number..=number).remove(0), true);
        table.add_picture(number, Arc::from([7; 10_000]));
        let batch = table.take();
        if number != 17 {
            table.done(&broker(), [number].into_iter());
        }
        table.finish(batch, false);
    }
    assert_eq!(table.unwritten, BTreeSet::from([17]));
    assert_eq!((table.rows.len(), table.pictures.len()), (1, 1));
    for number in 5000..6000 {
        table.append(ended(number..=number).remove(0), true);
        table.add_picture(number, Arc::from([7; 10_000]));
    }
    assert_eq!((table.rows.len(), table.pictures.len()), (1001, 800));
}
