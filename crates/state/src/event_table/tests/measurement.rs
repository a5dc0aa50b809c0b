//! What docs/state.md says about the event log: bytes written, time, `kill -9`, lost power, a full disk.
//!
//! `cargo test -p spotter-state --lib event_table -- --include-ignored --nocapture --test-threads=1`
//!
//! Faults: B10.

use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::*;
use crate::database::Database;

const EVENTS: u64 = 10_000;

/// Bytes that this process gave to the disk's page cache, by the kernel's count.
fn write_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    line.unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement: 10,000 events for each row of the table"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn bytes_and_time_of_an_event() {
    // A transaction of so many events, with the marks of those before.
    for size in [1, 10] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::start(folder.path());
        let mut times = Vec::new();
        let before = write_bytes();
        for first in (1..=EVENTS).step_by(size) {
            let last = first + size as u64;
            for number in first..last {
                run.table.append(new_event(number, number / 2), true);
            }
            let start = Instant::now();
            run.write();
            times.push(start.elapsed());
            run.table.done(&broker(), first..last);
        }
        drop(run);
        let bytes = write_bytes() - before;
        times.sort_unstable();
        let at = |share: usize| times[times.len() * share / 100].as_micros();
        println!(
            "{size} events: {} bytes each; a transaction: median {} us, 95 % {} us, 99 % {} us",
            bytes / EVENTS,
            at(50),
            at(95),
            at(99)
        );
    }
}

const CHILD_FOLDER: &str = "SPOTTER_STATE_CHILD";

/// The child of [`kill_at_any_point_loses_nothing_confirmed`]: writes until it is killed, and prints what is confirmed.
#[test]
#[ignore = "the child of a test"]
fn child_that_is_killed() {
    let Some(folder) = env::var_os(CHILD_FOLDER) else {
        return;
    };
    let mut run = Run::start(Path::new(&folder));
    let mut number = run.table.next_number;
    loop {
        let last = number + u64::from(fastrand::u8(1..4));
        for number in number..last {
            run.table.append(new_event(number, number / 2), true);
        }
        let is_delivered = number > 1 && fastrand::bool();
        if is_delivered {
            run.table.done(&broker(), [number - 1].into_iter());
            println!("done {}", number - 1);
        }
        run.write();
        println!("kept {number} {last}");
        number = last;
    }
}

fn kill_children(times: usize) {
    let folder = tempfile::tempdir().unwrap();
    let (mut kept, mut done) = (BTreeSet::new(), BTreeSet::new());
    for life in 0..times {
        let mut child = Command::new(env::current_exe().unwrap())
            .args([
                "--exact",
                "event_table::tests::measurement::child_that_is_killed",
            ])
            .args(["--ignored", "--nocapture"])
            .env(CHILD_FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let mut note = |line: String| {
            let words: Vec<&str> = line.split(' ').collect();
            // The harness prints on the same pipe.
            match words[..] {
                ["kept", first, last] => {
                    let range = first.parse().unwrap()..last.parse().unwrap();
                    kept.extend::<std::ops::Range<u64>>(range);
                }
                ["done", number] => drop(done.insert(number.parse().unwrap())),
                _ => return false,
            }
            true
        };
        while lines.next().is_some_and(|line| !note(line)) {}
        thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // A line that is cut was not confirmed; it cannot be cut within a pipe's atomic length.
        for line in lines {
            note(line);
        }
        let Run { table, found, .. } = Run::start(folder.path());
        let waiting: BTreeSet<u64> = waiting(&found, &broker()).into_iter().collect();
        for number in &kept {
            // A mark that was on its way may be on the disk or not.
            assert!(
                waiting.contains(number) || done.contains(number),
                "life {life}: event {number} is lost"
            );
        }
        let newest = kept.last().copied().unwrap_or(0);
        assert!(table.next_number > newest, "no number is used twice");
        for found in &found.events {
            let number = found.logged.number;
            assert_eq!(found.logged.id, new_event(number, number / 2).id);
        }
        kept.retain(|number| waiting.contains(number));
        done.retain(|number| kept.contains(number));
    }
}

// Faults: S1.
#[test]
fn kill_at_any_point_loses_nothing_confirmed() {
    kill_children(10);
}

#[test]
#[ignore = "a thousand processes"]
fn kill_at_a_thousand_points_loses_nothing_confirmed() {
    kill_children(1000);
}

/// The file and its log, as on a disk.
#[derive(Clone)]
struct DiskImage {
    file: Vec<u8>,
    log: Vec<u8>,
}

impl DiskImage {
    fn of(folder: &Path) -> Self {
        let read = |name| fs::read(folder.join(name)).unwrap_or_default();
        Self {
            file: read("state.db"),
            log: read("state.db-wal"),
        }
    }

    /// What a run finds on it, as waiting for the broker.
    fn waiting(&self, scene: &str) -> Vec<u64> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("state.db"), &self.file).unwrap();
        fs::write(folder.path().join("state.db-wal"), &self.log).unwrap();
        let found = Run::start(folder.path()).found;
        let damaged = crate::database::damaged_files(folder.path());
        assert!(damaged.is_empty(), "{scene}: damaged");
        waiting(&found, &broker())
    }
}

/// Of each block, the new or the old content, as where power was lost during a write.
fn torn(old: &[u8], new: &[u8], block: usize, mut is_new: impl FnMut(usize) -> bool) -> Vec<u8> {
    let mut torn = new.to_vec();
    for start in (0..new.len()).step_by(block) {
        if is_new(start) {
            continue;
        }
        let end = (start + block).min(new.len());
        let old = old.get(start..).unwrap_or_default();
        for (index, byte) in torn[start..end].iter_mut().enumerate() {
            *byte = old.get(index).copied().unwrap_or(0);
        }
    }
    torn
}

const LOG_HEADER_BYTES: usize = 32;

/// Between two commits, the disk has the bytes of the first, which were synced, and any part of those that the second one writes: a
/// prefix of any length, or any sectors. A checkpoint writes the file while the log is whole.
fn lose_power(commits: u64, tries: usize) {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    // Short, so that the log begins again several times.
    run.database
        .connection
        .pragma_update(None, "wal_autocheckpoint", 12)
        .unwrap();
    let (mut before, mut confirmed) = (DiskImage::of(folder.path()), Vec::new());
    let mut checkpoints = 0;
    for number in 1..=commits {
        run.table.append(new_event(number, number), true);
        if number % 3 == 0 {
            run.table.done(&broker(), [number - 2].into_iter());
        }
        run.write();
        let after = DiskImage::of(folder.path());
        let is_checkpointed = before.file != after.file;
        checkpoints += usize::from(is_checkpointed);
        for _ in 0..tries {
            let log_cut = fastrand::usize(..=after.log.len());
            let header_cut = fastrand::usize(..=LOG_HEADER_BYTES);
            let sectors = fastrand::u64(..);
            let in_order = |cut| torn(&before.log, &after.log, 1, |byte| byte < cut);
            let mut any_sectors = torn(&before.log, &after.log, 512, |start| {
                sectors >> ((start / 512) % 64) & 1 == 1
            });
            // A new header is synced before the frames that follow it.
            let header = LOG_HEADER_BYTES.min(any_sectors.len());
            any_sectors[..header].copy_from_slice(&after.log[..header]);
            for (scene, log) in [
                ("in order", in_order(log_cut)),
                ("header", in_order(header_cut)),
                ("any sectors", any_sectors),
            ] {
                let file = before.file.clone();
                let found = DiskImage { file, log }.waiting(scene);
                assert!(
                    confirmed
                        .iter()
                        .all(|number| found.contains(number) || number % 3 == 1),
                    "before {number}: {confirmed:?} {found:?}"
                );
            }
            if is_checkpointed {
                let file = torn(&before.file, &after.file, 512, |start| {
                    sectors >> ((start / 512) % 64) & 1 == 1
                });
                let log = after.log.clone();
                let found = DiskImage { file, log }.waiting("checkpoint");
                assert!(found.contains(&number));
            }
        }
        confirmed.push(number);
        let found = after.waiting("whole");
        assert!(found.contains(&number));
        confirmed.retain(|number| found.contains(number));
        before = after;
    }
    assert!(checkpoints > 2, "{checkpoints}");
    println!(
        "{commits} commits with {checkpoints} checkpoints, {tries} losses of power after each, in four ways"
    );
}

// Faults: S2.
#[test]
fn lost_power_at_any_sync_loses_nothing_confirmed() {
    lose_power(40, 2);
}

#[test]
#[ignore = "a measurement"]
fn lost_power_at_many_points_loses_nothing_confirmed() {
    lose_power(400, 10);
}

// Faults: S3.
#[test]
fn full_disk_loses_nothing_that_was_written_and_mends() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    run.database
        .connection
        .pragma_update(None, "max_page_count", 40)
        .unwrap();
    let number = (1..).find(|number| {
        run.table.append(new_event(*number, *number), true);
        let written = run.try_write().map_err(|error| error.sqlite_error_code());
        written.is_err_and(|code| {
            assert_eq!(code, Some(rusqlite::ErrorCode::DiskFull));
            true
        })
    });
    let number = number.unwrap();
    let Run {
        database, table, ..
    } = run;
    drop(database);
    let mut run = Run::start(folder.path());
    let found = waiting(&run.found, &broker());
    assert_eq!(found, (1..number).collect::<Vec<_>>());
    run.table = table;
    run.write();
    drop(run);
    let found = waiting(&Run::start(folder.path()).found, &broker());
    assert_eq!(found, (1..=number).collect::<Vec<_>>());
}

// Faults: S4.
#[test]
fn second_process_is_refused_and_a_user_may_write() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    let second = Database::open(folder.path(), wall(0)).unwrap_err();
    assert!(matches!(second, crate::OpenError::InUse), "{second}");
    // As sqlite3 does it, while the daemon writes.
    let user = Connection::open(folder.path().join("state.db")).unwrap();
    user.busy_timeout(Duration::from_secs(5)).unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 1..200 {
                run.table.append(new_event(number, number), true);
                run.write();
            }
        });
        for _ in 0..100 {
            let sql = "INSERT OR REPLACE INTO document (name, body) VALUES ('a user', '1')";
            user.execute(sql, []).unwrap();
        }
        writer.join().unwrap();
    });
    drop((user, run));
    let found = Run::start(folder.path()).found;
    assert_eq!(waiting(&found, &broker()).len(), 199);
}
