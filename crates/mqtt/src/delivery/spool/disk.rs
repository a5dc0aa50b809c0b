//! The storage of the journal: a few operations on numbered files, and their implementation on the file system.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// Numbered files that only grow. All calls block.
pub(crate) trait Disk {
    /// The numbers of all files, in any order.
    fn list(&mut self) -> io::Result<Vec<u64>>;
    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>>;
    /// Appends to a file and creates it if needed. After an error any part of `bytes` may be written.
    fn append(&mut self, segment: u64, bytes: &[u8]) -> io::Result<()>;
    /// Truncates a file to `length` bytes.
    fn cut(&mut self, segment: u64, length: u64) -> io::Result<()>;
    /// Returns when the file and its name survive a power failure.
    fn sync(&mut self, segment: u64) -> io::Result<()>;
    fn remove(&mut self, segment: u64) -> io::Result<()>;
}

/// A folder of the file system, locked for one process.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    /// The file that was appended to last.
    open: Option<(u64, File)>,
    /// Locked until the end of the process; `None` on a read-only disk.
    _lock: Option<File>,
}

impl Folder {
    /// Creates the folder if needed. Fails when that fails or another process has the lock.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        fs::create_dir_all(path)?;
        let lock = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path.join("lock"));
        // On a read-only disk the files are read, and each write reports its own error.
        let lock = lock.ok();
        match lock.as_ref().map(File::try_lock) {
            Some(Err(TryLockError::WouldBlock)) => {
                return Err(io::Error::other(
                    "another process uses it; give each its own node.state_dir",
                ));
            }
            // Some file systems have no locks.
            Some(Err(TryLockError::Error(_)) | Ok(())) | None => {}
        }
        Ok(Self {
            path: path.to_owned(),
            open: None,
            _lock: lock,
        })
    }

    fn file(&self, segment: u64) -> PathBuf {
        self.path.join(format!("{segment:010}.log"))
    }

    fn opened(&mut self, segment: u64) -> io::Result<&mut File> {
        let file = match self.open.take() {
            Some((number, file)) if number == segment => file,
            _ => OpenOptions::new()
                .create(true)
                .append(true)
                .open(self.file(segment))?,
        };
        Ok(&mut self.open.insert((segment, file)).1)
    }
}

impl Disk for Folder {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let number: Option<u64> = name
                .to_str()
                .and_then(|name| name.strip_suffix(".log")?.parse().ok());
            found.extend(number);
        }
        Ok(found)
    }

    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        fs::read(self.file(segment))
    }

    fn append(&mut self, segment: u64, bytes: &[u8]) -> io::Result<()> {
        self.opened(segment)?.write_all(bytes)
    }

    fn cut(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.opened(segment)?.set_len(length)
    }

    fn sync(&mut self, segment: u64) -> io::Result<()> {
        self.opened(segment)?.sync_data()?;
        File::open(&self.path)?.sync_all()
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        self.open.take_if(|(number, _)| *number == segment);
        fs::remove_file(self.file(segment))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_what_is_appended_and_belongs_to_one() -> io::Result<()> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join("state/spool");
        let mut folder = Folder::open(&path)?;
        folder.append(7, b"one")?;
        folder.append(7, b"two")?;
        folder.append(12, b"three")?;
        folder.cut(7, 4)?;
        folder.append(7, b"!")?;
        folder.sync(7)?;
        fs::write(path.join("notes.txt"), "not ours")?;
        let mut names = folder.list()?;
        names.sort_unstable();
        assert_eq!(names, [7, 12]);
        assert_eq!(folder.read(7)?, b"onet!");
        assert!(Folder::open(&path).is_err(), "another process has it");
        drop(folder);

        let mut again = Folder::open(&path)?;
        assert_eq!(again.read(12)?, b"three");
        again.remove(7)?;
        assert_eq!(again.list()?, [12]);
        Ok(())
    }
}
