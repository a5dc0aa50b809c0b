//! The file under damage, versions, other file systems, readers and crashes.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use super::*;
use crate::{
    Document,
    event_table::{self, EventTable},
};

const TEXT: &str = r#"{"v":1}"#;

fn wall() -> WallTime {
    WallTime::from_unix_millis(1_787_393_730_000)
}

fn open(folder: &Path) -> Database {
    Database::open(folder, wall()).unwrap()
}

/// With an overrides document, in the file and not in its log.
fn folder_with_settings() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let database = open(folder.path());
    write(&database, Document::Overrides, TEXT);
    folder
}

fn write(database: &Database, document: Document, text: &str) {
    document.write(&database.connection, Some(text)).unwrap();
}

fn settings(folder: &Path) -> Option<String> {
    open(folder).documents.get(&Document::Overrides).cloned()
}

// Faults: S5.
#[test]
fn damaged_file_is_renamed_and_readable_settings_are_copied() {
    let folder = folder_with_settings();
    let long = format!("\"{}\"", "x".repeat(9000));
    write(&open(folder.path()), Document::Fleet, &long);
    let path = folder.path().join(FILE);
    let whole = fs::read(&path).unwrap();
    let page = PAGE_BYTES as usize;
    // The root page of another table, the last pages cut, no database at all, nothing but zeros.
    let mut one_page = whole.clone();
    let roots = open(folder.path()).connection;
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'event'";
    let root: usize = roots
        .query_row(sql, [], |row| row.get::<_, i64>(0))
        .unwrap() as usize;
    drop(roots);
    one_page[(root - 1) * page..root * page].fill(0xa5);
    let cut = whole[..whole.len() - page * 3 / 2].to_vec();
    for (number, (damaged, kept)) in [
        (one_page, Some(TEXT)),
        (cut, Some(TEXT)),
        (
            b"no database, but a text that is long enough".repeat(90),
            None,
        ),
        (vec![0; whole.len()], None),
    ]
    .into_iter()
    .enumerate()
    {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), &damaged).unwrap();
        assert_eq!(settings(folder.path()).as_deref(), kept, "{number}");
        let aside = damaged_files(folder.path());
        assert_eq!(aside, ["state.db.damaged-20260822T101530Z"], "{number}");
        assert_eq!(fs::read(folder.path().join(&aside[0])).unwrap(), damaged);
        // The next start finds a whole file.
        assert_eq!(settings(folder.path()).as_deref(), kept);
        assert_eq!(damaged_files(folder.path()).len(), 1);
    }
}

#[test]
fn of_damaged_files_the_two_newest_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    for second in 0..4 {
        fs::write(folder.path().join(FILE), "no database".repeat(100)).unwrap();
        fs::write(folder.path().join("state.db-journal"), "beside it").unwrap();
        let wall = WallTime::from_unix_millis(wall().unix_millis() + 1000 * second);
        Database::open(folder.path(), wall).unwrap();
    }
    let entries = fs::read_dir(folder.path()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    let left: Vec<String> = names.filter(|name| name.starts_with(DAMAGED)).collect();
    let mut aside = damaged_files(folder.path());
    aside.sort();
    let newest = [
        "state.db.damaged-20260822T101532Z",
        "state.db.damaged-20260822T101533Z",
    ];
    assert_eq!(aside, newest);
    assert!(left.len() <= 4, "{left:?}");
}

// Faults: S6.
/// SQLite does not notice it: the page is read with zeros at its end.
#[test]
fn torn_last_page_loses_no_document_but_its_own() {
    let folder = folder_with_settings();
    let long = format!("\"{}\"", "x".repeat(9000));
    write(&open(folder.path()), Document::Fleet, &long);
    let file = File::options()
        .write(true)
        .open(folder.path().join(FILE))
        .unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - u64::from(PAGE_BYTES) / 2).unwrap();
    let found = open(folder.path()).documents;
    assert_eq!(
        found.get(&Document::Overrides).map(String::as_str),
        Some(TEXT)
    );
    assert_eq!(found.get(&Document::Fleet), None);
}

#[test]
fn tables_are_updated_in_one_transaction_after_a_copy() {
    let folder = folder_with_settings();
    let mut database = open(folder.path());
    let path = folder.path().join(FILE);
    let failing = [
        schema::STEPS[0],
        schema::STEPS[1],
        "ALTER TABLE document ADD COLUMN extra TEXT; SELECT nonsense",
    ];
    update(&mut database.connection, &database.folder, &path, &failing).unwrap_err();
    assert_eq!(schema::version(&database.connection).unwrap(), 2);
    let steps = [
        schema::STEPS[0],
        schema::STEPS[1],
        "ALTER TABLE document ADD COLUMN extra TEXT",
        "UPDATE document SET extra = body",
    ];
    update(&mut database.connection, &database.folder, &path, &steps).unwrap();
    let sql = "SELECT extra FROM document";
    let extra: String = database
        .connection
        .query_row(sql, [], |row| row.get(0))
        .unwrap();
    assert_eq!(
        (
            extra.as_str(),
            schema::version(&database.connection).unwrap()
        ),
        (TEXT, 4)
    );
    let copy = Connection::open(folder.path().join("state.db.version-2")).unwrap();
    assert_eq!(schema::version(&copy).unwrap(), 2);
    assert_eq!(document::read_all(&copy)[&Document::Overrides], TEXT);
}

// Faults: S11.
#[test]
fn owner_alone_may_read_the_files_and_links_are_refused() {
    let folder = folder_with_settings();
    let path = folder.path().join(FILE);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    let database = open(folder.path());
    write(&database, Document::Fleet, TEXT);
    for end in ["", "-wal", "-shm"] {
        let mode = fs::metadata(beside(&path, end))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600, "{end}");
    }
    drop(database);
    let other = folder.path().join("other");
    fs::rename(&path, &other).unwrap();
    symlink(&other, &path).unwrap();
    let error = Database::open(folder.path(), wall()).unwrap_err();
    assert!(error.to_string().contains("it is a link"), "{error}");
    // A link to the folder is root's, as systemd's of a state directory.
    fs::remove_file(&path).unwrap();
    fs::rename(&other, &path).unwrap();
    let outer = tempfile::tempdir().unwrap();
    let linked = outer.path().join("spotter");
    symlink(folder.path(), &linked).unwrap();
    assert_eq!(settings(&linked).as_deref(), Some(TEXT));
}

fn journal(database: &Database) -> String {
    let sql = "PRAGMA journal_mode";
    let mode = database.connection.query_row(sql, [], |row| row.get(0));
    mode.unwrap()
}

// Faults: S8.
#[test]
fn without_shared_memory_the_file_has_a_rollback_journal() {
    let folder = tempfile::tempdir().unwrap();
    // As a copy of a running daemon's folder, with a log.
    let source = tempfile::tempdir().unwrap();
    let running = open(source.path());
    write(&running, Document::Overrides, TEXT);
    for name in [FILE, "state.db-wal"] {
        fs::copy(source.path().join(name), folder.path().join(name)).unwrap();
    }
    fs::create_dir(folder.path().join("state.db-shm")).unwrap();
    let mut database = open(folder.path());
    assert_eq!(journal(&database), "truncate");
    assert_eq!(database.documents[&Document::Overrides], TEXT);
    write(&database, Document::Fleet, TEXT);
    database.limit_log().unwrap();
    // Readers are not locked out.
    let reader = open_file(&folder.path().join(FILE), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    assert_eq!(document::read_all(&reader).len(), 2);
    drop((reader, database));
    fs::remove_dir(folder.path().join("state.db-shm")).unwrap();
    let mut database = open(folder.path());
    assert_eq!((&*journal(&database), database.documents.len()), ("wal", 2));
    // As on NFS.
    database.connection = Connection::open_in_memory().unwrap();
    database.connection = open_checked(&database.folder, &database.path, true).unwrap();
    assert_eq!(journal(&database), "truncate");
}

#[test]
fn documents_of_a_disk_that_cannot_be_written_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join("a?b#c%20");
    write(&open(&odd), Document::Overrides, TEXT);
    // As there, the log has no shared memory.
    fs::create_dir(odd.join("state.db-shm")).unwrap();
    assert_eq!(read_only(&odd)[&Document::Overrides], TEXT);
    assert!(read_only(&folder.path().join("none")).is_empty());
}

/// `alone` had a mode and two overrides, `box` was in a fleet. Both are of the release before the database.
fn fixture(name: &str) -> tempfile::TempDir {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures/0.1.0")
        .join(name);
    let folder = tempfile::tempdir().unwrap();
    copy_folder(&fixture, folder.path());
    folder
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let to = to.join(path.file_name().unwrap());
        match path.is_dir() {
            true => copy_folder(&path, &to),
            false => drop(fs::copy(&path, to).unwrap()),
        }
    }
}

#[test]
fn files_of_the_release_before_are_moved_once_and_renamed() {
    for (name, files) in [
        (
            "alone",
            &["overrides.json", "lines.json", "retained.json"][..],
        ),
        ("box", &["fleet.json", "retained.json"]),
    ] {
        let folder = fixture(name);
        let text = |file: &str| fs::read_to_string(folder.path().join(file)).unwrap();
        let former: Vec<String> = files.iter().map(|file| text(file)).collect();
        let found = open(folder.path()).documents;
        let mut moved: Vec<&String> = found.values().collect();
        let mut expected: Vec<&String> = former.iter().collect();
        moved.sort();
        expected.sort();
        assert_eq!(moved, expected);
        for (file, before) in files.iter().zip(&former) {
            assert!(!folder.path().join(file).exists());
            assert_eq!(&text(&format!("{file}.old")), before);
        }
        // A crash between the move and the renaming: the file is older than the database.
        let database = open(folder.path());
        write(&database, Document::RetainedTopics, TEXT);
        drop(database);
        fs::write(folder.path().join("retained.json"), "{}").unwrap();
        assert_eq!(
            open(folder.path()).documents[&Document::RetainedTopics],
            TEXT
        );
        assert!(!folder.path().join("retained.json").exists());
    }
}

/// Of a run that could reach neither the broker nor the webhook `door`: the event of `gate-1` was dropped and its track is open.
#[test]
fn events_of_the_release_before_are_moved_once_and_renamed() {
    let folder = fixture("events");
    let expected = [
        ("00000001", "New", ""),
        ("00000002", "New", "mqtt webhook/door"),
        ("00000003", "Update(Better)", "mqtt webhook/door"),
        ("00000004", "End(Left)", "mqtt webhook/door"),
        ("00000005", "Update(Crossed)", "mqtt webhook/door"),
    ];
    for moved_before in [false, true] {
        if moved_before {
            // A crash between the move and the renaming.
            for name in ["spool", "webhooks"] {
                fs::rename(
                    folder.path().join(format!("{name}.old")),
                    folder.path().join(name),
                )
                .unwrap();
            }
        }
        let database = open(folder.path());
        let (_, found) = EventTable::open(&database.connection).unwrap();
        let events = found.events.iter().map(|found| {
            let waiting = event_table::names(&found.waiting);
            let step = format!("{:?}", found.logged.event.step);
            (found.logged.id[18..].to_owned(), step, waiting)
        });
        let expected = expected.map(|(id, step, waiting)| (id.into(), step.into(), waiting.into()));
        assert_eq!(events.collect::<Vec<_>>(), expected);
        let open: Vec<&str> = found
            .open
            .iter()
            .map(|event| event.event.track.as_str())
            .collect();
        assert_eq!(open, ["b7c1-gate-1", "b7c1-gate-3"]);
        let jpeg = event_table::picture(&database.connection, 2).unwrap();
        assert_eq!(jpeg.unwrap(), [0xff, 0xd8, 7]);
        for name in ["spool", "webhooks"] {
            assert!(!folder.path().join(name).exists());
            assert!(folder.path().join(format!("{name}.old")).is_dir());
        }
    }
}

/// The spool has what happened, the webhook the payload of it.
#[test]
fn event_of_a_webhook_equals_that_of_the_spool() {
    let read = |removed: &str| {
        let folder = fixture("events");
        fs::remove_dir_all(folder.path().join(removed)).unwrap();
        let found = EventTable::open(&open(folder.path()).connection).unwrap().1;
        found
            .events
            .into_iter()
            .map(|found| found.logged.event.clone())
    };
    let (of_spool, mut of_webhook) = (read("webhooks"), read("spool"));
    for mut event in of_spool.skip(1) {
        let mut of_payload = of_webhook.next().unwrap();
        assert!((event.top_score - of_payload.top_score).abs() < 0.001 || event.crossing.is_some());
        if event.crossing.is_some() {
            // What the message of a crossing does not have.
            (of_payload.started, of_payload.looks) = (event.started, event.looks);
            (of_payload.zones, of_payload.entered_zones) =
                (event.zones.clone(), event.entered_zones.clone());
            of_payload.camera_size = event.camera_size;
        }
        for event in [&mut event, &mut of_payload] {
            event.top_score = 0.0;
            event.dwell.clear();
            event.last_seen = WallTime::from_unix_millis(event.last_seen.unix_millis());
        }
        assert_eq!(of_payload, event);
    }
    assert!(of_webhook.next().is_none());
}

// Faults: S9.
#[test]
fn log_stays_short_beside_a_reader_that_never_ends() {
    let folder = folder_with_settings();
    let mut database = open(folder.path());
    let reader = open_file(&folder.path().join(FILE), OpenFlags::SQLITE_OPEN_READ_WRITE).unwrap();
    reader
        .execute_batch("BEGIN; SELECT * FROM document")
        .unwrap();
    let read = |text: &Connection| document::read_all(text).get(&Document::Overrides).cloned();
    assert_eq!(read(&reader).as_deref(), Some(TEXT));
    let (mut longest, mut replaced) = (0, 0);
    for number in 0..26 {
        let before = fs::metadata(folder.path().join(FILE)).unwrap();
        database.limit_log().unwrap();
        let after = fs::metadata(folder.path().join(FILE)).unwrap();
        replaced += usize::from(before.ino() != after.ino());
        // SQLite writes only what differs.
        let long = char::from(b'a' + number).to_string().repeat(4 << 20);
        write(&database, Document::Overrides, &format!("\"{long}\""));
        longest = longest.max(database.log_bytes());
    }
    assert!(longest < 64 << 20, "{longest}");
    assert_eq!(replaced, 1, "a new reader does not need the old file");
    assert_eq!(
        read(&reader).as_deref(),
        Some(TEXT),
        "it reads what it read"
    );
    // Its end removes nothing of the new file.
    reader.execute_batch("COMMIT").unwrap();
    drop(reader);
    write(&database, Document::Fleet, TEXT);
    drop(database);
    let found = open(folder.path()).documents;
    assert!(found[&Document::Overrides].starts_with("\"zz"));
    assert_eq!(found[&Document::Fleet], TEXT);
    assert_eq!(damaged_files(folder.path()).len(), 0);
}

// Faults: S10.
#[test]
fn interrupted_replacement_is_finished_at_the_next_start() {
    // The crash came after this number of steps.
    for steps in 0..=4 {
        let folder = folder_with_settings();
        let at = |name: &str| folder.path().join(name);
        let database = open(folder.path());
        write(&database, Document::Fleet, TEXT);
        copy_to_new(&database.connection, &at(NEXT)).unwrap();
        // A log with newer content, as a reader keeps it.
        let log = fs::read(at("state.db-wal")).unwrap();
        drop(database);
        fs::write(at("state.db-wal"), log).unwrap();
        for step in 0..steps {
            match step {
                0 => fs::rename(at(FILE), at(REPLACED)).unwrap(),
                1 => fs::remove_file(at("state.db-wal")).unwrap(),
                2 => fs::rename(at(NEXT), at(FILE)).unwrap(),
                _ => fs::remove_file(at(REPLACED)).unwrap(),
            }
        }
        let found = open(folder.path()).documents;
        assert_eq!(found.len(), 2, "{steps} steps");
        assert!(!at(NEXT).exists() && !at(REPLACED).exists());
    }
}

#[test]
fn backup_of_a_running_daemon_replaces_no_file() {
    let folder = folder_with_settings();
    let database = open(folder.path());
    write(&database, Document::Fleet, TEXT);
    let target = folder.path().join("copy.db");
    crate::back_up(folder.path(), &target).unwrap();
    let copy = Connection::open(&target).unwrap();
    assert_eq!(document::read_all(&copy).len(), 2);
    assert_eq!(
        fs::metadata(&target).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let error = crate::back_up(folder.path(), &target)
        .unwrap_err()
        .to_string();
    assert!(error.contains("and a backup replaces no file"), "{error}");
    let error = crate::back_up(&folder.path().join("none"), &folder.path().join("b")).unwrap_err();
    assert!(
        error.to_string().contains("no database of a daemon here"),
        "{error}"
    );
    assert!(!folder.path().join("b").exists());
    // It does not disturb the daemon.
    write(&database, Document::LineCounts, TEXT);
}
