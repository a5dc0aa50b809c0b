//! The handle: what is in memory, what waits for the disk, and a disk that fails.

use std::fs;

use super::*;
use crate::event_table::tests::{broker, ended, waiting};
use crate::{EventLog, EventReceiver, ExecutedBeside, OpenedEvents, execute_beside, open_reader};
use spotter_core::{ManualClock, WallTime};

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(WallTime::from_unix_millis(
        1_787_393_730_000,
    )))
}

fn open(folder: &Path) -> StateStore {
    StateStore::open(folder, clock()).unwrap()
}

/// A second later.
fn open_later(folder: &Path) -> StateStore {
    let later = WallTime::from_unix_millis(clock().wall().unix_millis() + 1000);
    StateStore::open(folder, Arc::new(ManualClock::at(later))).unwrap()
}

async fn put(store: &StateStore, document: Document, text: &str) {
    store.put(document, text.into());
    store.pending().finished().await;
}

async fn mended(store: &StateStore) {
    let mended = async {
        while !store.troubles().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let limit = Duration::from_secs(60);
    tokio::time::timeout(limit, mended).await.unwrap();
}

#[tokio::test]
async fn stored_value_survives_a_restart_and_removed_value_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/state");
    let store = open(&path);
    assert_eq!(store.get(Document::Overrides), None);
    store.put(Document::Fleet, "2".into());
    // The same value needs no write.
    for _ in 0..2 {
        put(&store, Document::Overrides, "1").await;
        assert_eq!(store.get(Document::Overrides).as_deref(), Some("1"));
    }
    // Another process reads it while the daemon runs.
    assert_eq!(read_only(&path)[&Document::Overrides], "1");
    // What no caller waits for is written by the end, also without `close`.
    store.put(Document::Overrides, "3".into());
    store.remove(Document::Fleet);
    drop(store);
    let store = open(&path);
    assert_eq!(store.get(Document::Overrides).as_deref(), Some("3"));
    assert_eq!(store.get(Document::Fleet), None);
    assert!(store.troubles().is_empty());
    store.close().await;
}

// Faults: S4.
#[tokio::test]
async fn second_daemon_of_a_folder_reads_and_reports_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    put(&first, Document::Overrides, "1").await;
    let second = open(folder.path());
    assert_eq!(second.get(Document::Overrides).as_deref(), Some("1"));
    put(&second, Document::Overrides, "2").await;
    let troubles = second.troubles();
    assert!(
        troubles[0].contains("another process uses it; give each its own node.state_dir"),
        "{troubles:?}"
    );
    assert_eq!(read_only(folder.path())[&Document::Overrides], "1");
    second.close().await;
    first.close().await;
}

// Faults: S12.
#[tokio::test]
async fn unusable_folder_is_tried_again_until_it_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "a file in the way").unwrap();
    let store = open(&path);
    put(&store, Document::Overrides, "1").await;
    assert!(
        store.troubles()[0].contains("cannot keep settings in"),
        "{:?}",
        store.troubles()
    );
    assert_eq!(store.get(Document::Overrides).as_deref(), Some("1"));
    fs::remove_file(&path).unwrap();
    mended(&store).await;
    store.close().await;
    assert_eq!(open(&path).get(Document::Overrides).as_deref(), Some("1"));
}

// Faults: S5.
#[tokio::test]
async fn damage_is_a_trouble_until_the_file_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("state.db"), "no database".repeat(100)).unwrap();
    let store = open(folder.path());
    let troubles = store.troubles();
    assert!(troubles[0].contains("state.db was damaged"), "{troubles:?}");
    fs::remove_file(folder.path().join("state.db.damaged-20260822T101530Z")).unwrap();
    put(&store, Document::Overrides, "1").await;
    assert!(store.troubles().is_empty());
}

// Faults: S7.
#[test]
fn newer_file_ends_the_start() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    let database = Database::open(folder.path(), clock().wall()).unwrap();
    database
        .connection
        .pragma_update(None, "user_version", 9)
        .unwrap();
    drop(database);
    let error = StateStore::open(folder.path(), clock()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("state.db: written by a newer version of Spotter (its tables have version 9, this program knows 4)"), "{text}");
}

/// Ends of tracks.
fn append(log: &EventLog, numbers: std::ops::RangeInclusive<u64>) -> Vec<u64> {
    let appended = ended(numbers).into_iter().map(|end| log.append(end));
    appended.map(|logged| logged.number).collect()
}

#[tokio::test]
async fn next_run_finds_events_with_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let log = OpenedEvents::of(&store).log;
    log.set_webhooks(BTreeMap::new());
    let numbers = append(&log, 1..=3);
    log.written().await;
    log.add_picture(numbers[1], Arc::from([7]));
    assert_eq!(log.picture(numbers[1]).await, Some(vec![7]));
    assert_eq!(log.picture(numbers[2]).await, None);
    // Those that no caller waits for are written by the end.
    log.done(&broker(), [numbers[0]]);
    let last = append(&log, 4..=4);
    store.close().await;
    let found = OpenedEvents::of(&open(folder.path())).found;
    let expected = [&numbers[1..], &last].concat();
    assert_eq!(waiting(&found, &broker()), expected);
    assert_eq!(found.events[2].logged.id, ended(4..=4)[0].id);
}

// Faults: B10.
#[tokio::test]
async fn events_of_a_failing_disk_are_written_when_it_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let store = open(&path);
    append(&OpenedEvents::of(&store).log, 1..=1);
    store.close().await;
    // A damaged folder: nothing of the earlier run can be read.
    let aside = folder.path().join("aside");
    fs::rename(&path, &aside).unwrap();
    fs::write(&path, "a file in the way").unwrap();
    let store = open_later(&path);
    let OpenedEvents { log, found } = OpenedEvents::of(&store);
    assert_eq!(found.events.len(), 0);
    append(&log, 2..=4);
    assert!(store.troubles()[1].contains("cannot keep events in"));
    fs::remove_file(&path).unwrap();
    fs::rename(&aside, &path).unwrap();
    mended(&store).await;
    store.close().await;
    let found = OpenedEvents::of(&open(&path)).found.events.into_iter();
    let expected = ended(1..=4).into_iter().map(|event| event.id);
    assert!(found.map(|found| found.logged.id.clone()).eq(expected));
}

#[test]
fn damage_while_running_loses_nothing_that_is_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.db");
    let shared = Arc::new(StoreShared::default());
    let mut writer = Writer::new(folder.path(), Arc::clone(&shared), clock());
    let put = |document, text: &str| {
        let mut state = shared.lock();
        state.documents.insert(document, text.into());
        state.unwritten.insert(document);
    };
    put(Document::Overrides, "1");
    let event = ended(1..=1).remove(0);
    shared.lock().events.append(event, true);
    writer.turn().unwrap();
    let connection = &writer.database.as_ref().unwrap().connection;
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(sql, [], |_| Ok(())).unwrap();
    connection.release_memory().unwrap();
    let mut damaged = fs::read(&path).unwrap();
    damaged[1024..].fill(0xa5);
    fs::write(&path, damaged).unwrap();
    put(Document::Fleet, "2");
    writer.turn().unwrap_err();
    writer.turn().unwrap();
    drop(writer);
    let store = open(folder.path());
    assert_eq!(store.get(Document::Overrides).as_deref(), Some("1"));
    assert_eq!(store.get(Document::Fleet).as_deref(), Some("2"));
    assert!(store.troubles()[0].contains("state.db was damaged"));
    assert_eq!(store.take_found().events.len(), 1);
}

const PUT_WORDS: &str = "INSERT INTO document (name, body) VALUES ('words', '\"a secret garden\"')";

fn bytes_with_words(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let with_words = entries.filter(|entry| {
        let bytes = fs::read(entry.path()).unwrap();
        bytes.windows(13).any(|part| part == b"secret garden")
    });
    let names = with_words.map(|entry| entry.file_name().into_string().unwrap());
    names.collect()
}

#[test]
fn deleted_rows_leave_no_text_in_any_file() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let log = OpenedEvents::of(&store).log;
    log.set_webhooks(BTreeMap::new());
    let mut end = ended(1..=1).remove(0);
    end.json = end.json.replace("end_ms", "a secret garden");
    let number = log.append(end).number;
    store.execute(|it| it.execute(PUT_WORDS, [])).unwrap();
    assert!(!bytes_with_words(folder.path()).is_empty());
    log.done(&EventReceiver::broker(), [number]);
    let sql = "DELETE FROM document WHERE name = 'words'";
    assert_eq!(store.execute(move |it| it.execute(sql, [])).unwrap(), 1);
    store.remove_deleted().unwrap();
    assert_eq!(bytes_with_words(folder.path()), [""; 0]);
    // Another process beside it.
    store.execute(|it| it.execute(PUT_WORDS, [])).unwrap();
    let deleted = execute_beside(folder.path(), |it| it.execute(sql, [])).unwrap();
    let executed = |value, is_log_cut| ExecutedBeside { value, is_log_cut };
    assert_eq!(deleted, Some(executed(1, true)));
    assert_eq!(bytes_with_words(folder.path()), [""; 0]);
    // What was executed is known also while a third one reads.
    store.execute(|it| it.execute(PUT_WORDS, [])).unwrap();
    let reader = open_reader(folder.path()).unwrap().unwrap();
    let reading = reader.unchecked_transaction().unwrap();
    let count = "SELECT count(*) FROM document";
    let _: u32 = reading.query_row(count, [], |row| row.get(0)).unwrap();
    let deleted = execute_beside(folder.path(), |it| it.execute(sql, [])).unwrap();
    assert_eq!(deleted, Some(executed(1, false)));
}

#[test]
fn failed_statements_leave_nothing_and_the_next_ones_work() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let wrong = store.execute(|it| {
        it.execute(PUT_WORDS, [])?;
        it.execute("INSERT INTO no_table VALUES (1)", [])
    });
    let text = wrong.unwrap_err().to_string();
    assert!(text.contains("no such table: no_table"), "{text}");
    let reader = open_reader(folder.path()).unwrap().unwrap();
    let count = "SELECT count(*) FROM document";
    let documents = || -> u32 { reader.query_row(count, [], |row| row.get(0)).unwrap() };
    assert_eq!(documents(), 0);
    reader.execute(PUT_WORDS, []).unwrap_err();
    store.execute(|it| it.execute(PUT_WORDS, [])).unwrap();
    assert_eq!(documents(), 1);
    let nothing = folder.path().join("nothing");
    assert!(open_reader(&nothing).unwrap().is_none());
}

#[test]
fn statements_of_a_closed_or_unusable_database_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "a file in the way").unwrap();
    let store = open(&path);
    let refused = store.execute(|it| it.execute(PUT_WORDS, [])).unwrap_err();
    assert!(matches!(refused, StatementsError::Database(_)), "{refused}");
    store.0.shared.close();
    let closed = store.execute(|it| it.execute(PUT_WORDS, [])).unwrap_err();
    assert!(matches!(closed, StatementsError::Closed), "{closed}");
}
