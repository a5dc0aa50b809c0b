//! The file: who may use it, its journal, its damage, its version.

use std::{
    cmp::Ordering,
    ffi::{OsStr, OsString},
    fs::{self, File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, OpenFlags};
use spotter_core::{FileReaders, OpenFolder, WallTime};

use crate::{
    document::{self, Document, Documents},
    file_system::is_network,
    former_events, schema,
};

pub(crate) const FILE: &str = "state.db";
const LOCK: &str = "state.lock";
/// What SQLite keeps beside the file.
const SIDECARS: [&str; 3] = ["-wal", "-shm", "-journal"];
/// A copy that becomes the file when it is complete.
const NEXT: &str = "state.db.next";
/// The file that a copy replaces, until the copy has its name.
const REPLACED: &str = "state.db.replaced";
const DAMAGED: &str = "state.db.damaged-";
/// Of damaged files, the newest are kept: a disk that fails again and again must not fill up with them.
const DAMAGED_KEPT: usize = 2;
/// The daemon that ran before may still write its last values.
const LOCK_WITHIN: Duration = Duration::from_secs(3);
const LOCK_AGAIN: Duration = Duration::from_millis(20);
/// A user may write with sqlite3 meanwhile.
const BUSY_WITHIN: Duration = Duration::from_secs(5);
/// A transaction of an event writes one or two pages, so they are small (docs/state.md has the figures).
const PAGE_BYTES: u32 = 1024;
/// The write-ahead log is written into the file from this length on.
const CHECKPOINT_BYTES: u32 = 1 << 20;
/// It gets longer while a reader needs it. From this length on the file is replaced by a copy, so that with the longest transaction
/// it stays below 64 MiB.
const LOG_MAX_BYTES: u64 = 32 << 20;

/// The database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(
        "{}: written by a newer version of Spotter (its tables have version {found}, this program knows {known}); \
         run that version again, or move the file away", path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        known: u32,
    },
    #[error("{}: its tables are of an older version of Spotter; start the service once, which updates them", path.display())]
    Older { path: PathBuf },
    #[error("another process uses it; give each its own node.state_dir")]
    InUse,
    #[error("{0}")]
    Disk(#[from] io::Error),
    #[error("{0}")]
    Sqlite(#[from] rusqlite::Error),
}

impl OpenError {
    pub(crate) fn is_damage(&self) -> bool {
        let Self::Sqlite(error) = self else {
            return false;
        };
        use ErrorCode::{DatabaseCorrupt, NotADatabase};
        let code = error.sqlite_error_code();
        matches!(code, Some(DatabaseCorrupt | NotADatabase))
    }
}

/// The open database of one process. Its calls block on the disk.
#[derive(Debug)]
pub(crate) struct Database {
    pub(crate) connection: Connection,
    pub(crate) documents: Documents,
    /// Canonical: SQLite follows no link in it.
    path: PathBuf,
    folder: OpenFolder,
    /// Locked until the end. `None`: the file system has no locks.
    _lock: Option<File>,
}

impl Database {
    /// Opens or creates the database, moves the files of an earlier version into it, and repairs what a crash or a damage left.
    pub(crate) fn open(state_dir: &Path, wall: WallTime) -> Result<Self, OpenError> {
        let folder = OpenFolder::create(state_dir, FileReaders::Owner)?;
        let lock = lock(&folder)?;
        let path = fs::canonicalize(state_dir)?.join(FILE);
        finish_replacement(&folder, &path)?;
        let is_network = is_network(state_dir)?;
        let mut connection = match open_checked(&folder, &path, is_network) {
            Err(error) if error.is_damage() => {
                let found = read_damaged(&path);
                let aside = set_aside(&folder, &path, wall)?;
                tracing::error!(
                    path = %path.display(), %error, ?aside, settings = found.len(),
                    "state.db is damaged; it is renamed, and its readable settings are copied to a new file"
                );
                let connection = open_checked(&folder, &path, is_network)?;
                for (document, text) in found {
                    document.write(&connection, Some(&text))?;
                }
                connection
            }
            opened => opened?,
        };
        let mut moved = document::move_files(state_dir, &mut connection)?;
        moved.extend(former_events::move_files(state_dir, &mut connection)?);
        moved
            .into_iter()
            .for_each(|name| rename_moved(&folder, name));
        let documents = document::read_all(&connection);
        Ok(Self {
            connection,
            documents,
            path,
            folder,
            _lock: lock,
        })
    }

    /// Keeps the write-ahead log short also beside a reader that never ends: such a reader keeps the old file, which has no name any more.
    pub(crate) fn limit_log(&mut self) -> Result<(), OpenError> {
        if self.log_bytes() <= LOG_MAX_BYTES {
            return Ok(());
        }
        self.connection.busy_timeout(Duration::ZERO)?;
        let is_cut = truncate_log(&self.connection)?;
        self.connection.busy_timeout(BUSY_WITHIN)?;
        if is_cut {
            return Ok(());
        }
        tracing::warn!(
            path = %self.path.display(),
            "a program reads state.db in a transaction that does not end; state.db is now a copy, and that program reads the old file"
        );
        remove(&self.folder, NEXT)?;
        copy_to_new(&self.connection, &self.path.with_file_name(NEXT))?;
        // The old file is not written any more.
        self.connection = Connection::open_in_memory()?;
        replace(&self.folder)?;
        self.connection = open_checked(&self.folder, &self.path, false)?;
        Ok(())
    }

    fn log_bytes(&self) -> u64 {
        let log = fs::metadata(beside(&self.path, "-wal"));
        log.map_or(0, |log| log.len())
    }
}

/// Damaged files that are still there.
pub(crate) fn damaged_files(state_dir: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(state_dir).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let is_damaged = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with(DAMAGED) && SIDECARS.iter().all(|end| !name.ends_with(end))
    };
    names.filter(is_damaged).collect()
}

/// The documents, where the file is in use by another process or on a disk that cannot be written.
pub(crate) fn read_only(state_dir: &Path) -> Documents {
    let Ok(folder) = fs::canonicalize(state_dir) else {
        return Documents::new();
    };
    let path = folder.join(FILE);
    // A disk that cannot be written cannot have the shared memory of a log either, and no process changes the file there.
    let text = path.to_string_lossy();
    let escaped = text
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    let unchanged = PathBuf::from(format!("file:{escaped}?immutable=1"));
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let readable = [path, unchanged].iter().find_map(|path| {
        let connection = open_file(path, flags).ok()?;
        schema::version(&connection).ok().map(|_| connection)
    });
    readable.map_or_else(Documents::new, |connection| document::read_all(&connection))
}

/// A document as it is stored, also while a daemon uses the database; `None` without one, or where it cannot be read. Blocks on the disk.
pub fn stored_text(state_dir: &Path, document: Document) -> Option<String> {
    read_only(state_dir).remove(&document)
}

/// What was moved into the database stays for a return to the earlier version.
fn rename_moved(folder: &OpenFolder, name: &str) {
    let renamed = format!("{name}.old");
    match folder.rename(OsStr::new(name), OsStr::new(&renamed)) {
        Ok(()) => tracing::info!(name, "moved into state.db and renamed"),
        Err(error) => tracing::warn!(name, %error, "moved into state.db; it cannot be renamed"),
    }
}

fn lock(folder: &OpenFolder) -> Result<Option<File>, OpenError> {
    let file = folder.open(OsStr::new(LOCK))?;
    let mut waited = Duration::ZERO;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            // Some file systems have no locks.
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) if waited >= LOCK_WITHIN => return Err(OpenError::InUse),
            Err(TryLockError::WouldBlock) => thread::sleep(LOCK_AGAIN),
        }
        waited += LOCK_AGAIN;
    }
}

/// `flags`: how it is opened.
pub(crate) fn open_file(path: &Path, flags: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = flags | OpenFlags::SQLITE_OPEN_NOFOLLOW | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WITHIN)?;
    // A user can write views and triggers into the file; they call no function that has an effect.
    connection.pragma_update(None, "trusted_schema", false)?;
    // What is deleted leaves no text in the file.
    connection.pragma_update(None, "secure_delete", true)?;
    Ok(connection)
}

/// A connection for one query of another thread or process, which writes nothing; `None`: there is no database. A transaction that stays
/// open delays the writer's checkpoints. Blocks on the disk.
pub fn open_reader(state_dir: &Path) -> Result<Option<Connection>, OpenError> {
    let connection = open_existing(state_dir)?;
    if let Some(connection) = &connection {
        connection.pragma_update(None, "query_only", true)?;
    }
    Ok(connection)
}

/// The database that a daemon may be using, for another process; `None`: there is none. Its tables are those of this version.
pub(crate) fn open_existing(state_dir: &Path) -> Result<Option<Connection>, OpenError> {
    let path = match fs::canonicalize(state_dir) {
        Ok(folder) => folder.join(FILE),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if !path.is_file() {
        return Ok(None);
    }
    // A database in WAL cannot be read without its shared memory, which a reader creates where no daemon has it.
    let connection = open_file(&path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let (found, known) = (schema::version(&connection)?, schema::STEPS.len() as u32);
    match found.cmp(&known) {
        Ordering::Equal => Ok(Some(connection)),
        Ordering::Greater => Err(OpenError::Newer { path, found, known }),
        Ordering::Less => Err(OpenError::Older { path }),
    }
}

/// Writes the log into the file and cuts it, so that it has no text of deleted rows; false while another program reads.
pub(crate) fn truncate_log(connection: &Connection) -> rusqlite::Result<bool> {
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    connection
        .query_row(sql, [], |row| row.get(0))
        .map(|is_blocked: bool| !is_blocked)
}

/// Opens the file, checks it, and brings its tables to this version. A write-ahead log needs one sync for each transaction, and readers do not
/// delay the writer; but it needs memory that all processes share, which those of several machines cannot.
fn open_checked(
    folder: &OpenFolder,
    path: &Path,
    is_network: bool,
) -> Result<Connection, OpenError> {
    // Creates it with its mode, and rejects a link. SQLite gives its mode to the files beside it.
    drop(folder.open(OsStr::new(FILE))?);
    let mut connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "page_size", PAGE_BYTES)?;
    if is_network || !write_ahead(&connection)? {
        tracing::warn!(path = %path.display(), is_network, "the file system has no shared memory for state.db; it has a rollback journal, which is slower. Use a local disk");
        drop(connection);
        connection = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        connection.pragma_update(None, "page_size", PAGE_BYTES)?;
        rollback(&connection)?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    let check: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if check != "ok" {
        let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_CORRUPT);
        return Err(rusqlite::Error::SqliteFailure(code, Some(check)).into());
    }
    update(&mut connection, folder, path, schema::STEPS)?;
    Ok(connection)
}

/// False where the file system has no memory for it that processes share.
fn write_ahead(connection: &Connection) -> rusqlite::Result<bool> {
    let set = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0));
    // The mode is only set here; the memory is needed from the first transaction on.
    let first_transaction = set.and_then(|mode: String| {
        connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK")?;
        let pages = CHECKPOINT_BYTES / PAGE_BYTES;
        connection.pragma_update(None, "wal_autocheckpoint", pages)?;
        connection.pragma_update(None, "journal_size_limit", CHECKPOINT_BYTES)?;
        Ok(mode == "wal")
    });
    first_transaction.or_else(|error| match error.sqlite_error_code() {
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::ReadOnly) => Ok(false),
        _ => Err(error),
    })
}

/// Also a database that has a write-ahead log, which is read without shared memory once.
fn rollback(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    connection.query_row("PRAGMA journal_mode = TRUNCATE", [], |_| Ok(()))?;
    connection.pragma_update(None, "locking_mode", "NORMAL")?;
    // The exclusive lock ends with the next read.
    schema::version(connection).map(drop)
}

/// Brings the tables to the version of `steps`, after a copy of the file.
fn update(
    connection: &mut Connection,
    folder: &OpenFolder,
    path: &Path,
    steps: &[&str],
) -> Result<(), OpenError> {
    let (found, known) = (schema::version(connection)?, steps.len() as u32);
    if found > known {
        let path = path.to_owned();
        return Err(OpenError::Newer { path, found, known });
    }
    if found > 0 && found < known {
        let copy = format!("{FILE}.version-{found}");
        // One of an update that failed.
        remove(folder, &copy)?;
        copy_to_new(connection, &path.with_file_name(&copy))?;
        tracing::info!(
            copy,
            found,
            known,
            "the tables of state.db are updated, after a copy"
        );
    }
    Ok(schema::migrate(connection, steps)?)
}

/// Copies the whole database, as of one moment, to a new file that survives a power failure. Of a copy that fails nothing is left.
pub(crate) fn copy_to_new(connection: &Connection, target: &Path) -> Result<(), OpenError> {
    let name = target.to_str();
    let name = name.ok_or_else(|| rusqlite::Error::InvalidPath(target.to_owned()))?;
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(target)?;
    let copied = connection.execute("VACUUM INTO ?1", [name]);
    let synced = copied
        .map_err(OpenError::from)
        .and_then(|_| Ok(file.sync_all()?));
    synced.inspect_err(|_| _ = fs::remove_file(target))
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    name.into()
}

/// What can be read of the documents of a damaged file.
fn read_damaged(path: &Path) -> Documents {
    let Ok(damaged) = open_file(path, OpenFlags::SQLITE_OPEN_READ_WRITE) else {
        return Documents::new();
    };
    // Also a file that is shorter than it says. Without it, nothing is read of such a file.
    _ = damaged.pragma_update(None, "writable_schema", true);
    document::read_all(&damaged)
}

/// Renames the file, and what is beside it, and returns its new name.
fn set_aside(folder: &OpenFolder, path: &Path, wall: WallTime) -> io::Result<String> {
    let now = jiff::Timestamp::from_millisecond(wall.unix_millis()).unwrap_or_default();
    let aside = format!("{DAMAGED}{}", now.strftime("%Y%m%dT%H%M%SZ"));
    for end in [&SIDECARS[..], &[""]].concat() {
        if fs::exists(beside(path, end))? {
            let (from, to) = (format!("{FILE}{end}"), format!("{aside}{end}"));
            folder.rename(OsStr::new(&from), OsStr::new(&to))?;
        }
    }
    let mut damaged = path.parent().map(damaged_files).unwrap_or_default();
    damaged.sort_unstable();
    for old in damaged.iter().rev().skip(DAMAGED_KEPT) {
        for end in [&SIDECARS[..], &[""]].concat() {
            remove(folder, &format!("{}{end}", old.to_string_lossy()))?;
        }
    }
    folder.sync()?;
    Ok(aside)
}

/// Gives the complete copy the name of the file. [`finish_replacement`] continues it after a crash at any point.
fn replace(folder: &OpenFolder) -> io::Result<()> {
    folder.rename(OsStr::new(FILE), OsStr::new(REPLACED))?;
    folder.sync()?;
    rename_copy(folder)
}

/// There is no file, and its log belongs to none.
fn rename_copy(folder: &OpenFolder) -> io::Result<()> {
    for end in SIDECARS {
        remove(folder, &format!("{FILE}{end}"))?;
    }
    folder.rename(OsStr::new(NEXT), OsStr::new(FILE))?;
    folder.sync()?;
    remove(folder, REPLACED)
}

/// A copy is complete where the file has lost its name.
fn finish_replacement(folder: &OpenFolder, path: &Path) -> io::Result<()> {
    match (fs::exists(path)?, fs::exists(path.with_file_name(NEXT))?) {
        (false, true) => rename_copy(folder),
        (true, _) => {
            remove(folder, NEXT)?;
            remove(folder, REPLACED)
        }
        (false, false) => Ok(()),
    }
}

fn remove(folder: &OpenFolder, name: &str) -> io::Result<()> {
    match folder.remove(OsStr::new(name)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
