//! A copy of the database while a daemon uses it: `spotter state backup`.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::OpenFlags;

use crate::database::{FILE, OpenError, copy_to_new, open_file};

/// A backup cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("{}: no database of a daemon here; `node.state_dir` of the configuration names the directory", .0.display())]
    NoDatabase(PathBuf),
    #[error("{}: it exists, and a backup replaces no file", .0.display())]
    Exists(PathBuf),
    #[error("cannot copy {} to {}: {error}", from.display(), to.display())]
    Copy {
        from: PathBuf,
        to: PathBuf,
        error: OpenError,
    },
}

/// Copies the database in `state_dir` to a new file at `target`, as of one moment; its owner alone may read it. Blocks on the disk.
pub fn back_up(state_dir: &Path, target: &Path) -> Result<(), BackupError> {
    let from = state_dir.join(FILE);
    let file = fs::canonicalize(state_dir).map(|folder| folder.join(FILE));
    let Some(file) = file.ok().filter(|file| file.is_file()) else {
        return Err(BackupError::NoDatabase(from));
    };
    // A database in WAL cannot be read without its shared memory, which a reader creates where no daemon has it.
    let opened = open_file(&file, OpenFlags::SQLITE_OPEN_READ_WRITE).map_err(OpenError::from);
    let copied = opened.and_then(|connection| copy_to_new(&connection, target));
    copied.map_err(|error| match error {
        OpenError::Disk(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            BackupError::Exists(target.to_owned())
        }
        error => BackupError::Copy {
            from,
            to: target.to_owned(),
            error,
        },
    })
}
