//! Files that are replaced as a whole.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

/// The text of a file, bytes that are not UTF-8 replaced; `None` when there is no file. An error when it has more than `max_bytes`. Blocks on
/// the disk.
pub fn read_short_file(path: &Path, max_bytes: u64) -> io::Result<Option<String>> {
    let bytes = match fs::metadata(path).map(|found| found.len()) {
        Ok(length) if length > max_bytes => {
            let reason = format!("longer than {max_bytes} bytes");
            Err(io::Error::other(reason))
        }
        Ok(_) => fs::read(path),
        Err(error) => Err(error),
    };
    match bytes {
        Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the file at `path`: after a crash or a power failure it has either its old or its new content. Creates the folder.
/// With several writers of one path, in one process or several, the last one wins. A crash leaves `NAME.tmp` at most, which the
/// next write replaces.
pub fn write_file_atomically(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "the path has no file name",
        ));
    };
    // `Path::new("file").parent()` is empty, and an empty path cannot be opened.
    let folder = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    fs::create_dir_all(folder)?;
    let mut temporary_name = name.to_owned();
    temporary_name.push(".tmp");
    let temporary = folder.join(temporary_name);
    let mut file = open_locked(&temporary)?;
    let replaced = file
        .set_len(0)
        .and_then(|()| file.write_all(bytes))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, folder.join(name)));
    if let Err(error) = replaced {
        // The cause is returned; the rest of a file that cannot be removed either adds nothing to it.
        let _ = fs::remove_file(&temporary);
        return Err(error);
    }
    // Without this, a power failure can undo the rename.
    fs::File::open(folder)?.sync_all()
}

/// Opens the temporary file when no other writer has it. Its lock ends with the file or the process.
fn open_locked(path: &Path) -> io::Result<fs::File> {
    loop {
        let mut options = fs::OpenOptions::new();
        let file = options
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        file.lock()?;
        // Another writer may have renamed or removed the file before it released the lock.
        let inode = file.metadata()?.ino();
        if fs::metadata(path).is_ok_and(|found| found.ino() == inode) {
            return Ok(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;

    fn files(folder: &Path) -> Vec<OsString> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn write_replaces_earlier_content_and_the_rest_of_a_crash() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/state.json");
        write_file_atomically(&path, b"a long first content").unwrap();
        // A crash between write and rename.
        let unfinished = path.with_extension("json.tmp");
        fs::write(unfinished, b"a long unfinished content").unwrap();
        write_file_atomically(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(files(path.parent().unwrap()), ["state.json"]);
    }

    #[test]
    fn failed_write_keeps_the_target_and_leaves_no_temporary_file() {
        let folder = tempfile::tempdir().unwrap();
        // A folder cannot be replaced by a file.
        let path = folder.path().join("state.json");
        fs::create_dir(&path).unwrap();
        write_file_atomically(&path, b"content").unwrap_err();
        assert!(path.is_dir());
        assert_eq!(files(folder.path()), ["state.json"]);
    }

    #[test]
    fn path_without_file_name_is_rejected() {
        let error = write_file_atomically(Path::new("/"), b"").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn concurrent_writers_of_one_path_write_complete_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = &folder.path().join("state.json");
        std::thread::scope(|scope| {
            for writer in 0..4u8 {
                scope.spawn(move || {
                    for _ in 0..8 {
                        write_file_atomically(path, &[writer; 4096]).unwrap();
                    }
                });
            }
        });
        let content = fs::read(path).unwrap();
        assert_eq!(content, [content[0]; 4096]);
        assert_eq!(files(folder.path()), ["state.json"]);
    }
}
