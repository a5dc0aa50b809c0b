//! What docs/state.md says about the event log: bytes written, time, `kill -9`, lost power, a full disk.
//!
//! `SPOTTER_CASES_FACTOR=100 cargo test -p spotter-state --lib measurement -- --include-ignored --nocapture --test-threads=1`
//!
//! Faults: B10.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    process::{Command, Stdio},
    thread,
    time::Instant,
};

use super::*;
use spotter_core::testing::cases;

const EVENTS: u64 = 10_000;

/// Bytes that this process gave to the disk's page cache, by the kernel's count.
fn write_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/io").unwrap();
    let (_, rest) = text.split_once("\nwrite_bytes: ").unwrap();
    rest.lines().next().unwrap().parse().unwrap()
}

#[test]
#[ignore = "a measurement: 10,000 events for each row of the table"]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn bytes_and_time_of_an_event() {
    // A transaction of so many events, with the marks of those before.
    for size in [1, 10] {
        let folder = tempfile::tempdir().unwrap();
        let mut run = Run::start(folder.path());
        let mut times_us = Vec::new();
        let before = write_bytes();
        for first in (1..=EVENTS).step_by(size) {
            let numbers = first..first + size as u64;
            run.append_pairs(numbers.clone());
            let start = Instant::now();
            run.write();
            times_us.push(start.elapsed().as_micros());
            run.table.done(&broker(), numbers);
        }
        drop(run);
        let bytes = (write_bytes() - before) / EVENTS;
        times_us.sort_unstable();
        let [median, most] = [50, 99].map(|share| times_us[times_us.len() * share / 100]);
        println!(
            "{size} events: {bytes} bytes each; a transaction: median {median} us, 99 % {most} us"
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
    loop {
        let first = run.table.next_number;
        let numbers = first..first + u64::from(fastrand::u8(1..4));
        run.append_pairs(numbers.clone());
        if fastrand::bool() {
            run.table.done(&broker(), [first - 1].into_iter());
            println!("done {}", first - 1);
        }
        run.write();
        numbers.for_each(|number| println!("kept {number}"));
    }
}

// Faults: S1.
#[test]
fn kill_at_any_point_loses_nothing_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let (mut kept, mut done) = (BTreeSet::new(), BTreeSet::new());
    for life in 0..cases(10) {
        let child = "event_table::tests::measurement::child_that_is_killed";
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", child, "--ignored", "--nocapture"])
            .env(CHILD_FOLDER, folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        // The harness prints on the same pipe.
        let mut note = |line: String| match line.split_once(' ') {
            Some(("kept", number)) => kept.insert(number.parse().unwrap()),
            Some(("done", number)) => done.insert(number.parse().unwrap()),
            _ => false,
        };
        while lines.next().is_some_and(|line| !note(line)) {}
        thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // A line that is cut was not confirmed; it cannot be cut within a pipe's atomic length.
        lines.for_each(|line| _ = note(line));
        let Run { table, found, .. } = Run::start(folder.path());
        let waiting: BTreeSet<u64> = waiting(&found, &broker()).into_iter().collect();
        // A mark that was on its way may be on the disk or not.
        let is_lost = |number: &u64| !waiting.contains(number) && !done.contains(number);
        assert_eq!(kept.iter().copied().find(is_lost), None, "life {life}");
        let newest = kept.last().copied().unwrap_or(0);
        assert!(table.next_number > newest, "no number is used twice");
        for FoundEvent { logged, .. } in &found.events {
            assert_eq!(logged.id, new_event(logged.number, 1).id);
        }
        kept.retain(|number| waiting.contains(number));
        done.retain(|number| kept.contains(number));
    }
}

/// The file and its log, as on a disk.
struct DiskImage {
    file: Vec<u8>,
    log: Vec<u8>,
}

impl DiskImage {
    fn of(folder: &Path) -> Self {
        let [file, log] = ["state.db", "state.db-wal"].map(|name| fs::read(folder.join(name)));
        Self {
            file: file.unwrap(),
            log: log.unwrap_or_default(),
        }
    }

    /// What a run finds on it, as waiting for the broker.
    fn waiting(&self) -> Vec<u64> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("state.db"), &self.file).unwrap();
        fs::write(folder.path().join("state.db-wal"), &self.log).unwrap();
        let found = Run::start(folder.path()).found;
        assert!(crate::database::damaged_files(folder.path()).is_empty());
        waiting(&found, &broker())
    }
}

/// Of each block, the new or the old content, as where power was lost during a write.
fn torn(old: &[u8], new: &[u8], block: usize, is_new: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut torn = old.to_vec();
    torn.resize(new.len(), 0);
    for (index, bytes) in new.chunks(block).enumerate() {
        if is_new(index) {
            torn[index * block..][..bytes.len()].copy_from_slice(bytes);
        }
    }
    torn
}

const LOG_HEADER_BYTES: usize = 32;

// Faults: S2.
/// Between two commits, the disk has the bytes of the first, which were synced, and any part of those that the second one writes: a
/// prefix of any length, or any sectors. A checkpoint writes the file while the log is whole.
#[test]
fn lost_power_at_any_sync_loses_nothing_confirmed() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    // Short, so that the log begins again several times.
    let connection = &run.database.connection;
    let set = connection.pragma_update(None, "wal_autocheckpoint", 12);
    set.unwrap();
    let (mut before, mut confirmed) = (DiskImage::of(folder.path()), Vec::new());
    let mut checkpoints = 0;
    for number in 1..=40 {
        run.table.append(new_event(number, number), true);
        if number % 3 == 0 {
            run.table.done(&broker(), [number - 2].into_iter());
        }
        run.write();
        let after = DiskImage::of(folder.path());
        let is_checkpointed = before.file != after.file;
        checkpoints += usize::from(is_checkpointed);
        for _ in 0..cases(2) {
            let sectors = fastrand::u64(..);
            let is_new = |sector: usize| sectors >> (sector % 64) & 1 == 1;
            let up_to = |most: usize| {
                let cut = fastrand::usize(..=most);
                torn(&before.log, &after.log, 1, |byte| byte < cut)
            };
            let mut any_sectors = torn(&before.log, &after.log, 512, is_new);
            // A new header is synced before the frames that follow it.
            let header = LOG_HEADER_BYTES.min(any_sectors.len());
            any_sectors[..header].copy_from_slice(&after.log[..header]);
            for log in [up_to(after.log.len()), up_to(LOG_HEADER_BYTES), any_sectors] {
                let file = before.file.clone();
                let found = DiskImage { file, log }.waiting();
                // Every third is delivered.
                let is_there = |kept: &u64| found.contains(kept) || kept % 3 == 1;
                assert!(confirmed.iter().all(is_there), "{number}: {found:?}");
            }
            if is_checkpointed {
                let file = torn(&before.file, &after.file, 512, is_new);
                let log = after.log.clone();
                assert!(DiskImage { file, log }.waiting().contains(&number));
            }
        }
        confirmed.push(number);
        let found = after.waiting();
        assert!(found.contains(&number));
        confirmed.retain(|number| found.contains(number));
        before = after;
    }
    assert!(checkpoints > 2, "{checkpoints}");
}

// Faults: S3.
#[test]
fn full_disk_loses_nothing_that_was_written_and_mends() {
    let folder = tempfile::tempdir().unwrap();
    let mut run = Run::start(folder.path());
    let connection = &run.database.connection;
    let set = connection.pragma_update(None, "max_page_count", 40);
    set.unwrap();
    let mut append = |number: &u64| {
        run.table.append(new_event(*number, *number), true);
        run.try_write().err()
    };
    let failed = (1..).find_map(|number| Some((number, append(&number)?)));
    let (number, error) = failed.unwrap();
    let code = Some(rusqlite::ErrorCode::DiskFull);
    assert_eq!(error.sqlite_error_code(), code);
    let table = std::mem::take(&mut run.table);
    drop(run);
    let mut run = Run::start(folder.path());
    assert!(waiting(&run.found, &broker()).into_iter().eq(1..number));
    run.table = table;
    run.write();
    drop(run);
    let found = Run::start(folder.path()).found;
    assert!(waiting(&found, &broker()).into_iter().eq(1..=number));
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
