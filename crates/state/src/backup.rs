//! A copy of the database while a daemon uses it: `spotter state backup`.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};

use crate::database::{FILE, open_file};

/// A backup cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{}: no database of a daemon here; `node.state_dir` of the configuration names the directory", .0.display())]
    NoDatabase(PathBuf),
    #[error("{}: cannot be read: {error}", path.display())]
    Source {
        path: PathBuf,
        error: rusqlite::Error,
    },
    #[error("{}: {error}; a backup replaces no file", path.display())]
    Target { path: PathBuf, error: io::Error },
}

/// Copies the database in `state_dir` to a new file at `target`, as of one moment; its owner alone may read it. Blocks on the disk.
pub fn back_up(state_dir: &Path, target: &Path) -> Result<(), BackupError> {
    let source = state_dir.join(FILE);
    let failed = |error| BackupError::Source {
        path: source.clone(),
        error,
    };
    let Ok(folder) = fs::canonicalize(state_dir) else {
        return Err(BackupError::NoDatabase(source));
    };
    if !folder.join(FILE).is_file() {
        return Err(BackupError::NoDatabase(source));
    }
    // A database in WAL cannot be read without its shared memory, which a reader creates where no daemon has it.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = open_file(&folder.join(FILE), flags).map_err(failed)?;
    let of_target = |error| BackupError::Target {
        path: target.to_owned(),
        error,
    };
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600);
    let file = created.open(target).map_err(of_target)?;
    if let Err(error) = copy_into(&connection, target) {
        // Of a copy that failed nothing is left.
        _ = fs::remove_file(target);
        return Err(failed(error));
    }
    file.sync_all().map_err(of_target)
}

/// Copies the whole database as of one moment to a file that is empty or does not exist.
pub(crate) fn copy_into(connection: &Connection, target: &Path) -> rusqlite::Result<()> {
    let text = target
        .to_str()
        .ok_or_else(|| rusqlite::Error::InvalidPath(target.to_owned()))?;
    connection.execute("VACUUM INTO ?1", [text])?;
    Ok(())
}

/// [`copy_into`] that survives a power failure. It replaces what an interrupted copy left.
pub(crate) fn copy_durably(connection: &Connection, target: &Path) -> rusqlite::Result<()> {
    let io = |error: io::Error| rusqlite::Error::ToSqlConversionFailure(error.into());
    match fs::remove_file(target) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let created = options.write(true).create_new(true).mode(0o600);
    let file: File = created.open(target).map_err(io)?;
    copy_into(connection, target)?;
    file.sync_all().map_err(io)
}
