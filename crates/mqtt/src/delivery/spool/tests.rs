//! The journal on a disk that tears writes, gets full or is read-only.

use std::sync::Arc;

use proptest::prelude::*;

use super::{
    journal::{FoundEvents, Journal},
    memory::MemoryDisk,
    record::{self, SpoolRecord},
    *,
};
use crate::contract::event::tests::event;
use spotter_core::{EndReason, Event, EventStep, Mono, UpdateReason, WallTime};

const MEGABYTE: u64 = 1_000_000;

fn kept(number: u64, thing: u64, step: EventStep) -> Arc<SpooledEvent> {
    let id = format!("id-{number}");
    let event = event("gate", thing, step);
    Arc::new(SpooledEvent {
        number,
        id,
        event,
        epoch: None,
    })
}

fn wall() -> WallTime {
    WallTime::from_unix_millis(1_787_393_730_000)
}

fn open(disk: &MemoryDisk) -> (Journal<MemoryDisk>, FoundEvents) {
    Journal::open(disk.clone(), MEGABYTE).unwrap()
}

/// Events with these numbers, each of its own track.
fn new(numbers: impl IntoIterator<Item = u64>) -> Batch {
    let mut batch = Batch::default();
    for number in numbers {
        let expires = Mono::default().after(Duration::from_secs(60));
        batch.keep(kept(number, number, EventStep::New), expires);
    }
    batch
}

fn done(numbers: impl IntoIterator<Item = u64>) -> Batch {
    let mut batch = Batch::default();
    numbers.into_iter().for_each(|number| batch.done(number));
    batch
}

fn write(journal: &mut Journal<MemoryDisk>, batch: &Batch) -> std::io::Result<()> {
    journal.write(batch, Mono::default(), wall())
}

fn waiting(found: &FoundEvents) -> Vec<u64> {
    found.waiting.iter().map(|(kept, _)| kept.number).collect()
}

fn open_tracks(found: &FoundEvents) -> Vec<&str> {
    found
        .open
        .iter()
        .map(|kept| kept.event.track.as_str())
        .collect()
}

/// Adds an event and its delivery.
fn deliver(batch: &mut Batch, event: Arc<SpooledEvent>) {
    batch.done(event.number);
    batch.keep(event, Mono::default());
}

#[test]
fn a_record_of_today_is_read_for_ever() {
    // A newer version reads the spool of an older one: never change this text, and give new keys a default.
    let body = r#"{"keep":{"kept":{"number":4294967297,"id":"01K37Q","event":{"track":"b7c1-gate-37","camera":"gate","prompt":"person","revision":3,"step":"New","started":1787393729900000000,"last_seen":1787393730123000000,"ended":null,"place":{"Box":{"x0":0.412,"y0":0.205,"x1":0.488,"y1":0.731}},"score":0.83,"top_score":0.8304,"looks":4,"zones":["drive"],"entered_zones":["drive"],"still":false,"snapshot":true,"camera_size":[2560,1440]}},"expires_ms":7}}"#;
    let record: SpoolRecord = serde_json::from_str(body).unwrap();
    let number = 1 << 32 | 1;
    let kept = SpooledEvent {
        number,
        id: "01K37Q".into(),
        event: Event {
            dwell: Vec::new(),
            ..event("gate", 37, EventStep::New)
        },
        epoch: None,
    };
    let expected = SpoolRecord::Keep {
        kept: Arc::new(kept),
        expires_ms: 7,
        superseded: false,
    };
    assert_eq!(record, expected);
    assert_eq!(serde_json::to_string(&record).unwrap(), body);
}

#[test]
fn torn_records_are_cut_and_unknown_versions_skipped() {
    let mut bytes = Vec::new();
    SpoolRecord::Done(vec![1]).write(&mut bytes);
    let first = bytes.len();
    SpoolRecord::Done(vec![2, 3]).write(&mut bytes);
    for length in 0..=bytes.len() {
        let read = record::read(&bytes[..length]);
        let whole = usize::from(length >= first) + usize::from(length == bytes.len());
        assert_eq!(read.records.len(), whole);
        assert_eq!(read.torn, ![0, first, bytes.len()].contains(&length));
    }
    for at in 0..first {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        let read = record::read(&damaged);
        assert!(read.torn && read.records.is_empty(), "flipped bit at {at}");
    }
    let zeros = [&bytes[..], &[0; 100]].concat();
    assert_eq!(record::read(&zeros).records.len(), 2);

    let mut other = Vec::new();
    let body = br#"{"moved":9}"#;
    other.extend_from_slice(&(body.len() as u32).to_le_bytes());
    other.extend_from_slice(&xxhash_rust::xxh3::xxh3_64(body).to_le_bytes());
    other.extend_from_slice(body);
    other.extend_from_slice(&bytes);
    let read = record::read(&other);
    assert_eq!((read.records.len(), read.unknown, read.torn), (2, 1, false));
}

#[test]
fn waiting_and_open_events_are_found_after_a_restart() {
    let disk = MemoryDisk::default();
    let (mut journal, found) = open(&disk);
    assert!(found.waiting.is_empty() && found.open.is_empty());
    let first = found.first_number;
    let step = |offset, thing, step| {
        let mut batch = Batch::default();
        let expires = Mono::default().after(Duration::from_secs(60 + offset));
        batch.keep(kept(first + offset, thing, step), expires);
        batch
    };
    // Track 1 started, changed and ended. Track 2 started and is delivered. Track 3 started and changed and is not delivered.
    let (moved, left) = (UpdateReason::Moved, EndReason::Left);
    for batch in [
        step(0, 1, EventStep::New),
        step(1, 2, EventStep::New),
        step(2, 3, EventStep::New),
        step(3, 1, EventStep::Update(moved)),
        step(4, 3, EventStep::Update(moved)),
        step(5, 1, EventStep::End(left)),
        done([first, first + 1, first + 2, first + 3]),
    ] {
        write(&mut journal, &batch).unwrap();
    }
    drop(journal);
    for _ in 0..2 {
        let (_, found) = open(&disk);
        assert_eq!(waiting(&found), [first + 4, first + 5]);
        let expires_ms = found.waiting[0].1;
        assert_eq!(expires_ms, wall().unix_millis() + 64_000);
        assert_eq!(open_tracks(&found), ["b7c1-gate-2", "b7c1-gate-3"]);
        assert!(found.first_number > first + 5 && found.torn == 0);
    }
}

#[test]
fn time_on_disk_counts_after_the_clock_is_set() {
    let hour = Duration::from_secs(3600);
    let expires_ms = wall().unix_millis() + 600_000;
    for (passed_ms, left_s) in [(0, 600), (599_000, 1), (600_001, 0), (-86_400_000, 3600)] {
        let now = WallTime::from_unix_millis(wall().unix_millis() + passed_ms);
        let left = time_left(expires_ms, now, hour);
        assert_eq!(left, Duration::from_secs(left_s), "{passed_ms}");
    }
}

#[test]
fn a_full_disk_loses_nothing_that_was_written_and_mends() {
    let disk = MemoryDisk::default();
    let (mut journal, found) = open(&disk);
    let first = found.first_number;
    write(&mut journal, &new([first])).unwrap();
    disk.medium().room = Some(700);
    let mut unwritten = new(first + 1..first + 5);
    assert!(write(&mut journal, &unwritten).is_err());
    assert_eq!(waiting(&open(&disk.clone()).1), [first]);
    // Another event arrives, one is dropped, and then the disk has room again.
    let mut later = new([first + 5]);
    later.done(first + 1);
    later.put_back(unwritten);
    unwritten = later;
    disk.medium().room = None;
    write(&mut journal, &unwritten).unwrap();
    let (_, found) = open(&disk);
    assert_eq!(waiting(&found), [0, 2, 3, 4, 5].map(|n| first + n));
    assert_eq!(found.torn, 0);
}

#[test]
fn read_only_spool_is_read_and_each_write_fails_visibly() {
    let disk = MemoryDisk::default();
    let (mut journal, found) = open(&disk);
    let first = found.first_number;
    write(&mut journal, &new([first, first + 1])).unwrap();
    disk.medium().read_only = true;
    let (mut journal, found) = open(&disk);
    assert_eq!(waiting(&found), [first, first + 1]);
    for _ in 0..3 {
        let refused = write(&mut journal, &done([first])).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    }
    disk.medium().read_only = false;
    write(&mut journal, &done([first])).unwrap();
    assert_eq!(waiting(&open(&disk).1), [first + 1]);
}

#[test]
fn while_a_disk_fails_for_ever_the_unwritten_stay_few() {
    let mut unwritten = Batch::default();
    for number in 0..5000 {
        let mut batch = new([number]);
        if number != 17 {
            batch.done(number);
        }
        batch.put_back(unwritten);
        unwritten = batch;
    }
    assert_eq!(unwritten.keep.len(), 1024 + 1);
    assert!(unwritten.keep.contains_key(&17) && unwritten.done.len() == 1024);
}

#[test]
fn only_waiting_events_are_synced_and_empty_spools_are_removed() {
    let disk = MemoryDisk::default();
    let (mut journal, found) = open(&disk);
    let first = found.first_number;
    let mut batch = Batch::default();
    deliver(&mut batch, kept(first, 1, EventStep::End(EndReason::Left)));
    write(&mut journal, &batch).unwrap();
    journal.sync().unwrap();
    assert_eq!(disk.medium().syncs, 0, "a delivered event needs no sync");
    write(&mut journal, &new([first + 1])).unwrap();
    journal.sync().unwrap();
    journal.sync().unwrap();
    assert_eq!(disk.medium().syncs, 1);
    let mut batch = done([first + 1]);
    let end = EventStep::End(EndReason::Shutdown);
    deliver(&mut batch, kept(first + 2, first + 1, end));
    write(&mut journal, &batch).unwrap();
    journal.close().unwrap();
    assert!(disk.medium().files.is_empty());
}

#[test]
fn a_thing_that_stays_for_days_holds_no_disk_back() {
    let disk = MemoryDisk::default();
    let (mut journal, found) = open(&disk);
    let first = found.first_number;
    write(&mut journal, &new([first])).unwrap();
    write(&mut journal, &done([first])).unwrap();
    let mut most = 0;
    for number in first + 1..first + 6000 {
        let mut batch = Batch::default();
        let end = EventStep::End(EndReason::Left);
        deliver(&mut batch, kept(number, number, end));
        write(&mut journal, &batch).unwrap();
        most = most.max(journal.bytes());
    }
    assert!(most < MEGABYTE, "{most} bytes");
    assert!(disk.medium().files.len() <= 32);
    let (journal, found) = open(&disk);
    assert_eq!(open_tracks(&found), [format!("b7c1-gate-{first}")]);
    assert!(waiting(&found).is_empty());
    let medium = disk.medium();
    let on_disk: usize = medium.files.values().map(Vec::len).sum();
    assert_eq!(journal.bytes(), on_disk as u64);
}

#[derive(Clone, Debug)]
enum DiskAction {
    Come(u64),
    Change(u64),
    Go(u64),
    Deliver(usize),
    /// Kills the process after `bytes` of the next write, which has this number of events.
    Kill(usize, u64),
    Restart,
}

fn deed() -> impl Strategy<Value = DiskAction> {
    prop_oneof![
        4 => (0u64..12).prop_map(DiskAction::Come),
        3 => (0u64..12).prop_map(DiskAction::Change),
        3 => (0u64..12).prop_map(DiskAction::Go),
        6 => (0usize..8).prop_map(DiskAction::Deliver),
        1 => (0usize..3000, 1u64..6).prop_map(|(bytes, things)| DiskAction::Kill(bytes, things)),
        1 => Just(DiskAction::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(spotter_core::testing::cases(48)))]

    /// A journal that is opened again has every waiting event and every open track whose write succeeded.
    #[test]
    fn journal_cut_at_any_byte_recovers_all_complete_records(deeds in prop::collection::vec(deed(), 1..120)) {
        let disk = MemoryDisk::default();
        let (mut journal, found) = Journal::open(disk.clone(), 100_000).unwrap();
        let mut next = found.first_number;
        let mut expected_waiting = Vec::<u64>::new();
        let mut expected_open = std::collections::BTreeMap::<u64, u64>::new();
        for (steps, deed) in deeds.into_iter().rev().enumerate().rev() {
            let mut batch = Batch::default();
            match deed {
                DiskAction::Come(thing) | DiskAction::Change(thing) | DiskAction::Go(thing) => {
                    let step = match deed {
                        DiskAction::Come(_) => EventStep::New,
                        DiskAction::Change(_) => EventStep::Update(UpdateReason::Moved),
                        _ => EventStep::End(EndReason::Left),
                    };
                    let number = say(&mut next, thing, step, &mut batch);
                    write(&mut journal, &batch).unwrap();
                    expected_waiting.push(number);
                    match step {
                        EventStep::End(_) => expected_open.remove(&thing),
                        _ => expected_open.insert(thing, number),
                    };
                }
                DiskAction::Deliver(count) => {
                    let count = count.min(expected_waiting.len());
                    expected_waiting.drain(..count).for_each(|number| batch.done(number));
                    write(&mut journal, &batch).unwrap();
                }
                DiskAction::Kill(bytes, things) => {
                    // The tracks are new, so that the test does not take a torn event for a written one.
                    let things: Vec<u64> = (0..things).map(|thing| next + 100 + thing).collect();
                    for thing in &things {
                        say(&mut next, *thing, EventStep::New, &mut batch);
                    }
                    disk.medium().dies_after = Some(bytes);
                    prop_assert!(write(&mut journal, &batch).is_err());
                    disk.medium().read_only = false;
                    let found = Journal::open(disk.clone(), 100_000).unwrap();
                    let survived: Vec<u64> = waiting(&found.1).into_iter()
                        .filter(|number| !expected_waiting.contains(number)).collect();
                    // The first events of an interrupted write may be on the disk.
                    let written: Vec<u64> = batch.keep.keys().copied().take(survived.len()).collect();
                    prop_assert_eq!(&survived, &written);
                    for (number, thing) in survived.iter().zip(&things) {
                        expected_waiting.push(*number);
                        expected_open.insert(*thing, *number);
                    }
                    journal = found.0;
                    next = next.max(found.1.first_number);
                }
                DiskAction::Restart => {
                    let found = open_small(&disk);
                    journal = found.0;
                    next = next.max(found.1.first_number);
                }
            }
            if steps % 8 != 0 {
                continue; // Reading the journal after each step takes long and finds no more faults.
            }
            let (_, found) = open_small(&disk);
            prop_assert_eq!(waiting(&found), expected_waiting.clone());
            let mut open: Vec<u64> = expected_open.keys().copied().collect();
            open.sort_by_key(|thing| expected_open[thing]);
            let tracks: Vec<String> = open.iter().map(|thing| format!("b7c1-gate-{thing}")).collect();
            prop_assert_eq!(open_tracks(&found), tracks);
        }
        prop_assert!(journal.bytes() < 400_000);
    }
}

/// Adds an event of this track and returns its number.
fn say(next: &mut u64, thing: u64, step: EventStep, batch: &mut Batch) -> u64 {
    batch.keep(kept(*next, thing, step), Mono::default());
    *next += 1;
    *next - 1
}

fn open_small(disk: &MemoryDisk) -> (Journal<MemoryDisk>, FoundEvents) {
    Journal::open(disk.clone(), 100_000).unwrap()
}

/// Beside those of the event log in docs/state.md:
/// `cargo test -p spotter-mqtt --lib bytes_and_time_of_an_event -- --ignored --nocapture`
#[test]
#[ignore = "a measurement: 10,000 events for each row of the table"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn bytes_and_time_of_an_event() {
    const EVENTS: u64 = 10_000;
    let write_bytes = || -> u64 {
        let text = std::fs::read_to_string("/proc/self/io").unwrap();
        let mut lines = text.lines();
        let bytes = lines.find_map(|line| line.strip_prefix("write_bytes: "));
        bytes.unwrap().parse().unwrap()
    };
    for (size, is_synced) in [(1, true), (10, true), (1, false), (10, false)] {
        let folder = tempfile::tempdir().unwrap();
        let disk = Folder::open(&folder.path().join("spool")).unwrap();
        let (mut journal, found) = Journal::open(disk, 20 * MEGABYTE).unwrap();
        let (before, mut times) = (write_bytes(), Vec::new());
        for first in (0..EVENTS).step_by(size as usize) {
            let mut batch =
                done((first.saturating_sub(size)..first).map(|n| found.first_number + n));
            for number in first..first + size {
                let step = match number % 2 {
                    0 => EventStep::New,
                    _ => EventStep::End(EndReason::Left),
                };
                let event = kept(found.first_number + number, number / 2, step);
                batch.keep(event, Mono::default());
            }
            let start = std::time::Instant::now();
            journal.write(&batch, Mono::default(), wall()).unwrap();
            if is_synced {
                journal.sync().unwrap();
            }
            times.push(start.elapsed());
        }
        journal.close().unwrap();
        times.sort_unstable();
        let bytes = (write_bytes() - before) / EVENTS;
        let (median, late) = (times[times.len() / 2], times[times.len() * 99 / 100]);
        println!(
            "{size} at once, synced {is_synced}: {bytes} bytes an event, {median:?}, 99 % {late:?}"
        );
    }
}
