//! The files of the pictures.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

use spotter_core::{FileReaders, OpenFolder};

/// Below this, the disk is for rows and for other programs.
pub(crate) const FREE_MIN_BYTES: u64 = 64 << 20;

/// `<state_dir>/history`. A picture has one file, which is never replaced: a better one has another name.
#[derive(Debug)]
pub(crate) struct HistoryFolder {
    path: PathBuf,
    folder: OpenFolder,
    free_min_bytes: u64,
}

/// The file of an event's picture.
pub(crate) fn file_name(id: &str, picture: u64) -> String {
    format!("{id}.{picture}.jpg")
}

/// Where the picture of an event is, for readers.
pub(crate) fn picture_path(state_dir: &Path, id: &str, picture: u64) -> PathBuf {
    pictures_folder(state_dir).join(file_name(id, picture))
}

pub(crate) fn pictures_folder(state_dir: &Path) -> PathBuf {
    state_dir.join("history")
}

impl HistoryFolder {
    /// Creates it for its owner alone.
    pub fn open(state_dir: &Path, free_min_bytes: u64) -> io::Result<Self> {
        let path = pictures_folder(state_dir);
        let folder = OpenFolder::create(&path, FileReaders::Owner)?;
        Ok(Self {
            path,
            folder,
            free_min_bytes,
        })
    }

    /// Writes a picture. It survives `kill -9`; after a power failure its file may be short, which [`reconcile`](Self::reconcile) finds.
    pub fn write(&self, name: &str, jpeg: &[u8]) -> io::Result<()> {
        let found = rustix::fs::statvfs(&self.path)?;
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        if free < self.free_min_bytes.saturating_add(jpeg.len() as u64) {
            let (free, least) = (free >> 20, self.free_min_bytes >> 20);
            return Err(io::Error::other(format!(
                "the disk has {free} MiB free, and the last {least} MiB are left to other programs"
            )));
        }
        let mut file = self.folder.open(OsStr::new(name))?;
        let written = file.set_len(0).and_then(|()| file.write_all(jpeg));
        // The cause is returned; the rest of a file that cannot be removed is found at the next start.
        written.inspect_err(|_| _ = self.folder.remove(OsStr::new(name)))
    }

    /// One that is not there is removed. False: it cannot be.
    pub fn remove(&self, name: &str) -> bool {
        match self.folder.remove(OsStr::new(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(name, %error, "a picture of the history cannot be removed; it is tried again");
                false
            }
            _ => true,
        }
    }

    /// Removes files that no row has, and those of another size. Returns the names that rows have and that are not there.
    pub fn reconcile(&self, mut stored: BTreeMap<String, u64>) -> io::Result<Vec<String>> {
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let length = entry.metadata()?.len();
            if stored.get(&name) == Some(&length) {
                stored.remove(&name);
            } else {
                self.remove(&name);
            }
        }
        Ok(stored.into_keys().collect())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn owner_alone_may_read_pictures() {
        let state = tempfile::tempdir().unwrap();
        let folder = HistoryFolder::open(state.path(), 0).unwrap();
        folder.write("a.1.jpg", b"jpeg").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path), 0o700);
        assert_eq!(mode(&folder.path.join("a.1.jpg")), 0o600);
    }

    #[test]
    fn files_and_rows_that_do_not_fit_are_found() {
        let state = tempfile::tempdir().unwrap();
        let folder = HistoryFolder::open(state.path(), 0).unwrap();
        for name in ["a.1.jpg", "short.1.jpg", "orphan.1.jpg"] {
            folder.write(name, b"jpeg").unwrap();
        }
        let stored = [("a.1.jpg", 4), ("short.1.jpg", 5), ("gone.1.jpg", 4)];
        let stored = stored.map(|(name, bytes)| (name.to_owned(), bytes));
        let lost = folder.reconcile(stored.into()).unwrap();
        assert_eq!(lost, ["gone.1.jpg", "short.1.jpg"]);
        assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 1);
    }

    #[test]
    fn last_free_bytes_of_the_disk_are_left() {
        let state = tempfile::tempdir().unwrap();
        let folder = HistoryFolder::open(state.path(), u64::MAX).unwrap();
        let error = folder.write("a.1.jpg", b"jpeg").unwrap_err().to_string();
        assert!(error.contains("MiB free"), "{error}");
        assert_eq!(fs::read_dir(&folder.path).unwrap().count(), 0);
    }
}
