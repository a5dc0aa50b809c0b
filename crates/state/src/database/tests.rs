//! The file under damage, versions, other file systems, readers and crashes.

use std::{
    collections::BTreeSet,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
};

use super::*;
use crate::{
    Document,
    event_table::{self, EventTable, FoundEvent},
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

/// A text that needs several pages of its own.
fn long_text() -> String {
    format!("\"{}\"", "x".repeat(9000))
}

// Faults: S5.
#[test]
fn damaged_file_is_renamed_and_readable_settings_are_copied() {
    let folder = folder_with_settings();
    let database = open(folder.path());
    write(&database, Document::Fleet, &long_text());
    let sql = "SELECT rootpage FROM sqlite_schema WHERE name = 'event'";
    let root = database.connection.query_row(sql, [], |row| row.get(0));
    let root: u32 = root.unwrap();
    drop(database);
    let whole = fs::read(folder.path().join(FILE)).unwrap();
    let page = PAGE_BYTES as usize;
    let mut one_page = whole.clone();
    one_page[(root as usize - 1) * page..][..page].fill(0xa5);
    let cut = whole[..whole.len() - page * 3 / 2].to_vec();
    let text = b"no database, but a text that is long enough".repeat(90);
    for (name, damaged, kept) in [
        ("the root page of another table", one_page, Some(TEXT)),
        ("the last pages cut", cut, Some(TEXT)),
        ("no database at all", text, None),
        ("nothing but zeros", vec![0; whole.len()], None),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), &damaged).unwrap();
        // The second start finds a whole file.
        for _ in 0..2 {
            assert_eq!(settings(folder.path()).as_deref(), kept, "{name}");
            let aside = damaged_files(folder.path());
            assert_eq!(aside, ["state.db.damaged-20260822T101530Z"], "{name}");
            assert_eq!(fs::read(folder.path().join(&aside[0])).unwrap(), damaged);
        }
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
    let mut aside = damaged_files(folder.path());
    aside.sort();
    let newest = ["32Z", "33Z"].map(|end| format!("state.db.damaged-20260822T1015{end}").into());
    assert_eq!(aside, newest as [OsString; 2]);
    let entries = fs::read_dir(folder.path()).unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().into_string().unwrap());
    // With their journals.
    let left = names.filter(|name| name.starts_with(DAMAGED)).count();
    assert!(left <= 4, "{left}");
}

// Faults: S6.
/// SQLite does not notice it: the page is read with zeros at its end.
#[test]
fn torn_last_page_loses_no_document_but_its_own() {
    let folder = folder_with_settings();
    write(&open(folder.path()), Document::Fleet, &long_text());
    let path = folder.path().join(FILE);
    let file = File::options().write(true).open(path).unwrap();
    let length = file.metadata().unwrap().len();
    file.set_len(length - u64::from(PAGE_BYTES) / 2).unwrap();
    let found = open(folder.path()).documents;
    assert_eq!(found, Documents::from([(Document::Overrides, TEXT.into())]));
}

#[test]
fn tables_are_updated_in_one_transaction_after_a_copy() {
    let folder = folder_with_settings();
    let mut database = open(folder.path());
    let path = folder.path().join(FILE);
    let mut with = |more: &[&str]| {
        let steps = [schema::STEPS, more].concat();
        let updated = update(&mut database.connection, &database.folder, &path, &steps);
        let version = schema::version(&database.connection).unwrap();
        (updated.is_ok(), version)
    };
    let add = "ALTER TABLE document ADD COLUMN extra TEXT";
    let failing = format!("{add}; SELECT nonsense");
    assert_eq!(with(&[&failing]), (false, 4));
    assert_eq!(with(&[add, "UPDATE document SET extra = body"]), (true, 6));
    let sql = "SELECT extra FROM document";
    let extra = database.connection.query_row(sql, [], |row| row.get(0));
    assert_eq!(extra, Ok(TEXT.to_owned()));
    let copy = Connection::open(folder.path().join("state.db.version-4")).unwrap();
    assert_eq!(schema::version(&copy), Ok(4));
    assert_eq!(document::read_all(&copy)[&Document::Overrides], TEXT);
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
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
        assert_eq!(mode(&beside(&path, end)), 0o600, "{end}");
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
        ("alone", "overrides.json lines.json retained.json"),
        ("box", "fleet.json retained.json"),
    ] {
        let folder = fixture(name);
        let at = |name: &str| folder.path().join(name);
        let read = |file: &str| fs::read_to_string(at(file)).unwrap();
        let former: BTreeSet<String> = files.split(' ').map(read).collect();
        let found = open(folder.path()).documents;
        assert_eq!(found.into_values().collect::<BTreeSet<_>>(), former);
        let read_old = |file: &str| read(&format!("{file}.old"));
        let renamed: BTreeSet<String> = files.split(' ').map(read_old).collect();
        assert_eq!(renamed, former);
        // A crash between the move and the renaming: the file is older than the database.
        write(&open(folder.path()), Document::RetainedTopics, TEXT);
        fs::write(at("retained.json"), "{}").unwrap();
        let found = open(folder.path()).documents;
        assert_eq!(found[&Document::RetainedTopics], TEXT);
        assert!(!files.split(' ').any(|file| at(file).exists()));
    }
}

/// Of a run that could reach neither the broker nor the webhook `door`: the event of `gate-1` was dropped and its track is open.
#[test]
fn events_of_the_release_before_are_moved_once_and_renamed() {
    let folder = fixture("events");
    let at = |name: &str| folder.path().join(name);
    let folders = [("spool", "spool.old"), ("webhooks", "webhooks.old")];
    // Then a crash between the move and the renaming.
    for _ in 0..2 {
        let database = open(folder.path());
        let (_, found) = EventTable::open(&database.connection).unwrap();
        let events = found.events.iter().map(
            |FoundEvent {
                 logged, waiting, ..
             }| {
                let waiting = event_table::names(waiting);
                format!("{} {:?} {waiting}", &logged.id[25..], logged.kind)
            },
        );
        let expected = [
            "1 New ",
            "2 New mqtt webhook/door",
            "3 Update mqtt webhook/door",
            "4 End mqtt webhook/door",
            "5 Crossing mqtt webhook/door",
        ];
        assert_eq!(events.collect::<Vec<_>>(), expected);
        let open = found.open.iter().map(|event| event.track.as_str());
        // A crossing alone opens no track.
        assert!(open.eq(["b7c1-gate-1"]));
        let jpeg = event_table::picture(&database.connection, 2);
        assert_eq!(jpeg, Ok(Some(vec![0xff, 0xd8, 7])));
        for (name, old) in folders {
            assert!(!at(name).exists());
            fs::rename(at(old), at(name)).unwrap();
        }
    }
}

#[test]
fn event_of_a_webhook_equals_that_of_the_spool() {
    let read = |removed: &str| {
        let folder = fixture("events");
        fs::remove_dir_all(folder.path().join(removed)).unwrap();
        let found = EventTable::open(&open(folder.path()).connection).unwrap().1;
        let texts = found.events.into_iter();
        texts
            .map(|found| found.logged.json.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(read("webhooks")[1..], read("spool"));
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
    assert_eq!(mode(&target), 0o600);
    let other = folder.path().join("b");
    for (from, to, part) in [
        (folder.path(), &target, "and a backup replaces no file"),
        (
            &folder.path().join("none"),
            &other,
            "no database of a daemon here",
        ),
    ] {
        let error = crate::back_up(from, to).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
    assert!(!other.exists());
    // It does not disturb the daemon.
    write(&database, Document::LineCounts, TEXT);
}
