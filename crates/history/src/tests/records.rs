//! Recorded looks: what is stored of them, for how long, and how they are read.

use std::{
    env,
    io::{BufRead as _, BufReader},
    ops::ControlFlow,
    process::{Command, Stdio},
};

use rusqlite::Transaction;
use spotter_events::record::{RecordChunk, StartedEvent};

use super::*;
use crate::{RecordFilter, StoredRecord};

/// Bytes that a ZIP program cannot shorten.
fn noise(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..length).map(|_| random.u8(..)).collect()
}

/// A part of the record that began so long ago, with the starts of these events.
fn chunk(ago_ms: i64, number: u32, started: &[u64]) -> RecordChunk {
    let record = WallTime::from_unix_millis(NOW_MS - ago_ms);
    let started = started.iter().map(|number| StartedEvent {
        track: begun(*number, 0).track,
        first_look: record,
    });
    RecordChunk {
        camera: CameraId::new("gate").unwrap(),
        prompt: PromptId::new("person").unwrap(),
        record,
        number,
        is_last: false,
        until: WallTime::from_unix_millis(NOW_MS - ago_ms + 1000 * (i64::from(number) + 1)),
        started: started.collect(),
        bytes: noise(1000 + number as usize),
    }
}

fn last(chunk: RecordChunk) -> RecordChunk {
    RecordChunk {
        is_last: true,
        ..chunk
    }
}

fn read(rig: &Rig, filter: &RecordFilter) -> Vec<StoredRecord> {
    let mut records = Vec::new();
    let read = rig.history.reader().each_record(filter, |record| {
        records.push(record);
        ControlFlow::Continue(())
    });
    read.unwrap();
    records
}

/// How long ago each record began in hours, with its parts and the numbers of its events.
fn summary(records: &[StoredRecord]) -> Vec<(i64, usize, Vec<String>)> {
    let of = |record: &StoredRecord| {
        let started = record.started.iter();
        let numbers = started.map(|event| event.track.as_str().replace("b7c1-gate-", ""));
        let ago_h = (NOW_MS - record.record_ms) / HOUR_MS;
        (ago_h, record.chunks.len(), numbers.collect())
    };
    records.iter().map(of).collect()
}

fn all(rig: &Rig) -> Vec<(i64, usize, Vec<String>)> {
    summary(&read(rig, &RecordFilter::default()))
}

fn event(number: u64) -> HistorySelection {
    HistorySelection {
        id: Some(format!("b7c1-gate-{number}")),
        ..HistorySelection::default()
    }
}

fn deleted_times(rig: &Rig) -> i64 {
    let sql = "SELECT count(*) FROM history_deleted";
    let counted = |it: &Transaction<'_>| it.query_row(sql, [], |row| row.get(0));
    rig.store.execute(counted).unwrap()
}

// Faults: S19.
#[test]
fn records_with_an_event_are_stored_and_read_back() {
    let rig = Rig::new();
    (1..=3).for_each(|number| drop(rig.happened(number, HOUR_MS, |_| {})));
    rig.history.records(vec![
        last(chunk(9 * HOUR_MS, 0, &[1])),
        // The end of one that began before the history.
        last(chunk(8 * HOUR_MS, 3, &[])),
        chunk(7 * HOUR_MS, 0, &[]),
        last(chunk(7 * HOUR_MS, 1, &[])),
        chunk(6 * HOUR_MS, 0, &[]),
    ]);
    rig.until(|rig| all(rig).len() == 1);
    let has_end = |rig: &Rig| read(rig, &RecordFilter::default())[0].has_end;
    assert!(has_end(&rig));
    rig.history.records(vec![chunk(6 * HOUR_MS, 1, &[2, 3])]);
    rig.until(|rig| all(rig).len() == 2);
    assert!(!has_end(&rig));
    rig.history.records(vec![last(chunk(6 * HOUR_MS, 2, &[]))]);
    rig.until(has_end);
    let of = |numbers: &[&str]| Vec::from_iter(numbers.iter().map(|&number| number.to_owned()));
    rig.until(|rig| all(rig) == [(6, 3, of(&["2", "3"])), (9, 1, of(&["1"]))]);
    let newest = &read(&rig, &RecordFilter::default())[0];
    let began = WallTime::from_unix_millis(NOW_MS - 6 * HOUR_MS);
    assert_eq!(newest.chunks[1], noise(1001));
    assert_eq!(newest.started[1].first_look, began);
    assert_eq!(newest.until_ms, NOW_MS - 6 * HOUR_MS + 3000);
    let fitting = |filter: RecordFilter| summary(&read(&rig, &filter)).len();
    let none = RecordFilter::default;
    let camera = CameraId::new("yard").ok();
    assert_eq!(fitting(RecordFilter { camera, ..none() }), 0);
    let prompts = |names: &[&str]| {
        Some(
            names
                .iter()
                .map(|name| PromptId::new(name).unwrap())
                .collect(),
        )
    };
    for (prompts, records) in [(prompts(&["person", "dog"]), 2), (prompts(&["dog"]), 0)] {
        assert_eq!(fitting(RecordFilter { prompts, ..none() }), records);
    }
    let since_ms = Some(NOW_MS - 7 * HOUR_MS);
    assert_eq!(fitting(RecordFilter { since_ms, ..none() }), 1);
    let events = Some(of(&["b7c1-gate-1", "b7c1-gate-9"]));
    assert_eq!(fitting(RecordFilter { events, ..none() }), 1);
    // One that is damaged is left out.
    let damage = "UPDATE history_records SET body = x'ff' WHERE part = 1";
    rig.store.execute(|it| it.execute(damage, [])).unwrap();
    assert_eq!(all(&rig), [(9, 1, of(&["1"]))]);
}

/// Names the directory of the process that is killed.
const KILLED: &str = "SPOTTER_KILLED_HISTORY";

#[test]
#[ignore = "a process that another test kills"]
fn process_that_records_until_it_is_killed() {
    let Some(folder) = env::var_os(KILLED) else {
        return;
    };
    let clock = Arc::new(ManualClock::at(WallTime::from_unix_millis(NOW_MS)));
    let store = StateStore::open(Path::new(&folder), clock.clone()).unwrap();
    let history = History::start_with(&store, parts(1 << 30, 0, &clock), encode).unwrap();
    history.event(&message(&begun(1, NOW_MS), "", None));
    for number in 0..20_000 {
        let started: &[u64] = if number == 0 { &[1] } else { &[] };
        history.records(vec![chunk(HOUR_MS, number, started)]);
        let sql = "SELECT count(*) FROM history_records";
        let stored = store.execute(|it| it.query_row(sql, [], |row| row.get::<_, i64>(0)));
        match stored.unwrap() {
            0 => {}
            parts => println!("stored {parts}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("no part was stored within 20 s, or the other test did not kill this process");
}

// Faults: S19.
#[test]
fn kill_in_a_record_leaves_its_parts_up_to_then() {
    let folder = tempfile::tempdir().unwrap();
    let name = "tests::records::process_that_records_until_it_is_killed";
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", name])
        .env(KILLED, folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut said = said.map_while(Result::ok);
    let stored = said.find_map(|line| line.rsplit_once("stored ")?.1.parse::<usize>().ok());
    process.kill().unwrap();
    process.wait().unwrap();
    let stored = stored.expect("the process stores a part before it ends");
    let clock = Arc::new(ManualClock::at(WallTime::from_unix_millis(NOW_MS)));
    let rig = Rig::in_folder(folder, clock.clone(), parts(1 << 30, 0, &clock));
    rig.until(|rig| rig.list("")["events"][0]["end_ms"] == NOW_MS + 100);
    let [record] = &read(&rig, &RecordFilter::default())[..] else {
        panic!("one record");
    };
    assert!(record.chunks.len() >= stored && !record.has_end);
    assert_eq!(record.started.len(), 1);
    for (number, chunk) in record.chunks.iter().enumerate() {
        assert_eq!(*chunk, noise(1000 + number));
    }
}

#[tokio::test]
async fn looks_are_deleted_with_any_event_that_a_person_deletes() {
    let rig = Rig::new();
    (1..=5).for_each(|number| drop(rig.happened(number, HOUR_MS, |_| {})));
    rig.history.records(vec![
        last(chunk(9 * HOUR_MS, 0, &[1, 2])),
        chunk(8 * HOUR_MS, 0, &[3]),
    ]);
    rig.until(|rig| all(rig).len() == 2);
    rig.history.delete(event(1)).await.unwrap();
    assert_eq!(all(&rig).len(), 1);
    rig.until_totals_fit();
    delete_beside(rig.folder.path(), &event(3), NOW_MS).unwrap();
    assert_eq!(all(&rig), []);
    // The other event has none now.
    let sql = "SELECT count(*) FROM history WHERE id = 'b7c1-gate-2' AND record_ms IS NULL";
    let left: i64 = rig
        .store
        .execute(|it| it.query_row(sql, [], |row| row.get(0)))
        .unwrap();
    assert_eq!(left, 1);
    // What comes of a record whose looks were deleted is not stored, nor what waited while its event was.
    rig.history.delete(event(4)).await.unwrap();
    rig.history.records(vec![
        last(chunk(8 * HOUR_MS, 1, &[5])),
        last(chunk(7 * HOUR_MS, 0, &[4])),
    ]);
    rig.happened(6, 0, |_| {});
    rig.history.records(vec![
        last(chunk(6 * HOUR_MS, 0, &[6])),
        last(chunk(2 * HOUR_MS, 0, &[5])),
    ]);
    rig.until(|rig| !all(rig).is_empty());
    let left = [(2, 1, vec!["5".to_owned()]), (6, 1, vec!["6".to_owned()])];
    assert_eq!(all(&rig), left);
    // It went on while a later record began.
    rig.happened(7, 2 * HOUR_MS + 1, |_| {});
    rig.until(|rig| ids(&rig.list("")).contains(&"b7c1-gate-7".to_owned()));
    rig.history.delete(event(7)).await.unwrap();
    assert_eq!(all(&rig), left[1..]);
}

#[tokio::test]
async fn looks_that_wait_without_an_event_are_deleted_too() {
    let rig = Rig::new();
    for number in 1..=6 {
        rig.happened(number, HOUR_MS, |_| {});
    }
    rig.until_stored(6);
    let range = |from_h: i64, to_h: i64| HistorySelection {
        from_ms: Some(NOW_MS - from_h * HOUR_MS),
        to_ms: Some(NOW_MS - to_h * HOUR_MS),
        ..HistorySelection::default()
    };
    // They began while none of the events did, and go on until now.
    let parts = [(5, 1), (4, 2), (3, 3)].map(|(ago_h, number)| {
        let until = WallTime::from_unix_millis(NOW_MS);
        let first = chunk(ago_h * HOUR_MS, 0, &[]);
        let next = chunk(ago_h * HOUR_MS, 1, &[number]);
        (first, last(RecordChunk { until, ..next }))
    });
    for (first, next) in parts {
        rig.history.records(vec![first]);
        match next.started[0].track.as_str() {
            "b7c1-gate-1" => drop(rig.history.delete(event(6)).await.unwrap()),
            // No event began then.
            "b7c1-gate-2" => drop(rig.history.delete(range(4, 3)).await.unwrap()),
            _ => drop(delete_beside(rig.folder.path(), &range(3, 2), NOW_MS).unwrap()),
        }
        rig.history.records(vec![next]);
    }
    // What was not of a deleted time is stored, and goes with a deletion of its time.
    rig.history.records(vec![
        last(chunk(0, 0, &[4])),
        last(chunk(9 * HOUR_MS, 0, &[5])),
    ]);
    rig.until(|rig| all(rig).len() == 2);
    assert_eq!(
        all(&rig),
        [(0, 1, vec!["4".to_owned()]), (9, 1, vec!["5".to_owned()])]
    );
    let deleted = rig.history.delete(range(10, 8)).await.unwrap();
    assert!(deleted.events == 0 && deleted.bytes > 1000, "{deleted:?}");
    assert_eq!(all(&rig).len(), 1);
    rig.until_totals_fit();
    let before = deleted_times(&rig);
    let ahead = HistorySelection {
        from_ms: Some(NOW_MS + 1),
        ..HistorySelection::default()
    };
    rig.history.delete(ahead).await.unwrap();
    assert_eq!(deleted_times(&rig), before);
    // After a day, nothing says what was deleted.
    rig.clock.advance(Duration::from_hours(26));
    rig.happened(7, 0, |_| {});
    rig.until(|rig| deleted_times(rig) == 0);
}

#[tokio::test]
async fn large_deletion_is_done_in_parts_after_its_time() {
    let rig = Rig::new();
    for number in 1..=3 {
        rig.happened(number, HOUR_MS, |_| {});
    }
    rig.until_stored(3);
    let fill = "WITH RECURSIVE record (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM record WHERE number < 1100)
        INSERT INTO history_records (camera, prompt, record_ms, part, is_last, until_ms, started, bytes, body)
        SELECT 'gate', 'dog', ?1 - number, 0, 1, ?1, '[]', 300, x'' FROM record";
    rig.store
        .execute(move |it| it.execute(fill, [NOW_MS]))
        .unwrap();
    let gate = HistorySelection {
        camera: Some("gate".into()),
        ..HistorySelection::default()
    };
    let first = gate.clone();
    let deleted = rig.store.execute(move |it| first.delete_some(it, NOW_MS));
    assert_eq!(deleted.unwrap().look_bytes, 500 * 300);
    // The times of the three events are in that of the camera.
    assert_eq!(deleted_times(&rig), 1);
    let deleted = rig.history.delete(gate).await.unwrap();
    assert_eq!(deleted.bytes, 600 * 300);
    assert_eq!(deleted_times(&rig), 1);
}

#[test]
fn looks_stay_while_an_event_has_them_that_limits_left() {
    let rig = Rig::new();
    rig.happened(1, 6 * 24 * HOUR_MS, |_| {});
    rig.happened(2, HOUR_MS, |_| {});
    rig.history.records(vec![last(chunk(HOUR_MS, 0, &[1, 2]))]);
    rig.until(|rig| all(rig).len() == 1);
    rig.until_stored(2);
    rig.clock.advance(Duration::from_hours(25));
    rig.happened(3, 0, |_| {});
    rig.until(|rig| ids(&rig.list("")) == ["b7c1-gate-3", "b7c1-gate-2"]);
    assert_eq!(all(&rig), [(1, 1, vec!["1".to_owned(), "2".to_owned()])]);
}

#[tokio::test]
async fn recorded_looks_count_in_the_size_and_make_room() {
    let rig = Rig::new();
    for number in 1..=4 {
        let ago_ms = number as i64 * HOUR_MS;
        rig.happened(number, ago_ms, |_| {});
        let looks = RecordChunk {
            bytes: noise(60_000),
            ..chunk(ago_ms, 0, &[number])
        };
        rig.history.records(vec![last(looks)]);
    }
    rig.until(|rig| all(rig).len() == 4);
    let bytes = |rig: &Rig| rig.history.status().totals.unjudged();
    rig.until(|rig| (320_000..340_000).contains(&bytes(rig)));
    let written = rig.list("")["reach"]["bytes_a_day"].as_u64().unwrap();
    assert!((560_000..640_000).contains(&written), "{written}");
    // The same after a restart, with a limit for two: the looks go with their events.
    let rig = rig.restart(200_000).await;
    rig.happened(5, 0, |_| {});
    rig.until(|rig| all(rig).len() == 2);
    let ago_h = Vec::from_iter(all(&rig).iter().map(|record| record.0));
    assert_eq!(ago_h, [1, 2]);
    rig.until(|rig| (180_000..200_000).contains(&bytes(rig)));
    let judge = "UPDATE history SET mark = 'right'";
    rig.store.execute(|it| it.execute(judge, [])).unwrap();
    rig.clock.advance(Duration::from_secs(61));
    rig.happened(6, 0, |_| {});
    rig.until(|rig| rig.history.status().totals.judged > 160_000);
}
