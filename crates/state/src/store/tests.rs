//! The handle: what is in memory, what waits for the disk, and a disk that fails.

use std::fs;

use super::*;
use crate::event_log::tests::{broker, new_event, wall};
use spotter_core::{ManualClock, WallTime};

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(WallTime::from_unix_millis(
        1_787_393_730_000,
    )))
}

fn open(folder: &Path) -> StateStore {
    StateStore::open(folder, clock()).unwrap()
}

async fn put(store: &StateStore, document: Document, text: &str) {
    store.put(document, text.into());
    store.pending().finished().await;
}

#[tokio::test]
async fn stored_value_survives_a_restart_and_removed_value_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/state");
    let store = open(&path);
    assert_eq!(store.get(Document::Overrides), None);
    store.put(Document::Overrides, "1".into());
    store.put(Document::Fleet, "2".into());
    assert_eq!(store.get(Document::Overrides).as_deref(), Some("1"));
    store.pending().finished().await;
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

#[tokio::test]
async fn value_is_on_the_disk_when_its_write_has_finished() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    put(&store, Document::Overrides, "1").await;
    // Another process reads it while the daemon runs.
    assert_eq!(read_only(folder.path())[&Document::Overrides], "1");
    // The same value needs no write.
    store.put(Document::Overrides, "1".into());
    assert!(store.pending().0.is_none());
}

#[test]
fn batch_that_is_being_written_is_still_pending() {
    let folder = tempfile::tempdir().unwrap();
    let shared = Arc::new(StoreShared::default());
    let mut writer = Writer::new(folder.path(), Arc::clone(&shared), clock());
    let ended = watch::channel(false).1;
    let store = StateStore(Arc::new(StoreHandle {
        shared: Arc::clone(&shared),
        ended,
    }));
    store.put(Document::Overrides, "1".into());
    let batch = shared.lock().take_batch();
    assert!(store.pending().0.is_some());
    writer.turn(batch).unwrap();
    assert!(store.pending().0.is_none());
}

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
    let mended = async {
        while !store.troubles().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), mended)
        .await
        .unwrap();
    store.close().await;
    assert_eq!(open(&path).get(Document::Overrides).as_deref(), Some("1"));
}

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
    assert!(
        matches!(error, OpenError::Newer { found: 9, .. }),
        "{error}"
    );
}

const LIMITS: LogLimits = LogLimits { bytes: 1_000_000 };

/// Ends of tracks.
fn appended(numbers: std::ops::Range<u64>) -> EventChanges {
    let mut changes = EventChanges::default();
    for number in numbers {
        changes.append(
            new_event(2 * number + 1, number),
            wall(60),
            [broker()].into(),
        );
    }
    changes
}

#[tokio::test]
async fn next_run_finds_events_with_their_ids() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let found = store.open_events(vec![broker()], LIMITS).await.unwrap();
    assert_eq!((found.first_number, found.events.len()), (1, 0));
    store.write_events(appended(0..3));
    store.pending().finished().await;
    let (event, picture) = store.read_event(3).await.unwrap();
    assert_eq!((&event, picture), (&*new_event(3, 1), None));
    assert_eq!(store.read_event(4).await, None);
    // Those that no caller waits for are written by the end.
    let mut done = EventChanges::default();
    done.done(&broker(), 1);
    store.write_events(done);
    store.write_events(appended(3..4));
    store.close().await;
    let store = open(folder.path());
    let found = store.open_events(vec![broker()], LIMITS).await.unwrap();
    assert_eq!(found.waiting[&broker()], [3, 5, 7]);
    assert_eq!(found.events[&7], new_event(7, 3));
    assert_eq!(found.first_number, 8);
}

#[tokio::test]
async fn events_of_a_failing_disk_are_written_when_it_works() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    fs::write(&path, "a file in the way").unwrap();
    let store = open(&path);
    assert!(store.open_events(vec![broker()], LIMITS).await.is_none());
    store.write_events(appended(0..3));
    assert!(!store.troubles().is_empty());
    fs::remove_file(&path).unwrap();
    let opened = async {
        loop {
            if let Some(found) = store.open_events(vec![broker()], LIMITS).await {
                return found;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), opened)
        .await
        .unwrap();
    store.close().await;
    let store = open(&path);
    let found = store.open_events(vec![broker()], LIMITS).await.unwrap();
    assert_eq!(found.waiting[&broker()], [1, 3, 5]);
}

#[tokio::test]
async fn events_beyond_the_limit_are_reported_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let limits = LogLimits { bytes: 1 };
    store.open_events(vec![broker()], limits).await.unwrap();
    store.write_events(appended(0..2));
    store.pending().finished().await;
    assert_eq!(store.take_lost_events().over_bound[&broker()], [1, 3]);
    assert_eq!(store.take_lost_events(), LostEvents::default());
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
        state.take_batch()
    };
    writer.turn(put(Document::Overrides, "1")).unwrap();
    let connection = &writer.database.as_ref().unwrap().connection;
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection.query_row(sql, [], |_| Ok(())).unwrap();
    connection.release_memory().unwrap();
    let mut damaged = fs::read(&path).unwrap();
    damaged[1024..].fill(0xa5);
    fs::write(&path, damaged).unwrap();
    writer.turn(put(Document::Fleet, "2")).unwrap_err();
    let batch = shared.lock().take_batch();
    writer.turn(batch).unwrap();
    drop(writer);
    let store = open(folder.path());
    assert_eq!(store.get(Document::Overrides).as_deref(), Some("1"));
    assert_eq!(store.get(Document::Fleet).as_deref(), Some("2"));
    assert!(store.troubles()[0].contains("state.db was damaged"));
}
