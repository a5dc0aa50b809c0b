//! The events of a webhook on the disk: a file each, `<number>-<expiry in Unix ms>.json`. Calls block.
//!
//! A file is written under another name and renamed, so it is whole after a crash of the program. It survives a power failure from
//! [`PostStore::sync`] on, which the task calls when the receiver fails: an event that is accepted at once needs no write of the disk.
//!
//! While the disk fails, events are in memory within [`MEMORY_MAX_BYTES`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::webhook_event::{EventBody, add_picture};

const SUFFIX: &str = ".json";
const UNFINISHED: &str = ".tmp";
/// Of events that could not be written.
const MEMORY_MAX_BYTES: u64 = 4_000_000;

/// Events have pictures, so the folder is this user's alone, also where the process gives another mode to new files.
fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// An event as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StoredPost {
    /// Id of its message.
    pub(crate) id: String,
    pub(crate) body: EventBody,
}

/// An event of an earlier run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FoundPost {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// Unix time in milliseconds.
    pub(crate) expires_ms: i64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct PostStore {
    folder: PathBuf,
    /// Expiry of all events.
    expiries: BTreeMap<u64, i64>,
    unsynced: BTreeSet<u64>,
    /// Events without a file.
    memory: BTreeMap<u64, Vec<u8>>,
    /// Why the last write failed.
    pub(crate) trouble: Option<String>,
}

impl PostStore {
    /// Creates the folder and finds the events of an earlier run, oldest first.
    pub(crate) fn open(folder: &Path) -> (Self, Vec<FoundPost>) {
        let mut store = Self {
            folder: folder.to_owned(),
            ..Self::default()
        };
        let found = make_folder(folder).and_then(|()| store.find());
        let mut found = found.unwrap_or_else(|error| {
            store.failed(&error);
            Vec::new()
        });
        found.sort_unstable_by_key(|post| post.number);
        store.expiries = found.iter().map(|p| (p.number, p.expires_ms)).collect();
        (store, found)
    }

    fn find(&self) -> io::Result<Vec<FoundPost>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if name.ends_with(UNFINISHED) {
                // Of a crash; its event was not posted and is lost, or has its file without the picture.
                _ = fs::remove_file(entry.path());
            }
            let parts = name
                .strip_suffix(SUFFIX)
                .and_then(|name| name.split_once('-'));
            if let Some((number, expires_ms)) = parts
                && let (Ok(number), Ok(expires_ms)) = (number.parse(), expires_ms.parse())
            {
                // Its request says what is wrong with it.
                let bytes = entry.metadata().map_or(0, |file| file.len());
                found.push(FoundPost {
                    number,
                    bytes,
                    expires_ms,
                });
            }
        }
        Ok(found)
    }

    fn path(&self, number: u64, expires_ms: i64) -> PathBuf {
        let name = format!("{number:012}-{expires_ms}{SUFFIX}");
        self.folder.join(name)
    }

    /// Keeps an event and returns its length; in memory if it cannot be written.
    pub(crate) fn write(&mut self, number: u64, expires_ms: i64, post: &StoredPost) -> u64 {
        // An object that was read from JSON serialises.
        let bytes = serde_json::to_vec(post).unwrap_or_default();
        let length = bytes.len() as u64;
        self.expiries.insert(number, expires_ms);
        self.memory.insert(number, bytes);
        self.write_from_memory(number);
        length
    }

    /// Writes an event that is in memory to its file.
    fn write_from_memory(&mut self, number: u64) {
        let (Some(&expires_ms), Some(bytes)) =
            (self.expiries.get(&number), self.memory.get(&number))
        else {
            return;
        };
        match self.write_file(number, expires_ms, bytes) {
            Ok(()) => {
                self.memory.remove(&number);
                self.unsynced.insert(number);
                self.trouble = None;
            }
            Err(error) => self.failed(&error),
        }
    }

    fn write_file(&self, number: u64, expires_ms: i64, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(number, expires_ms);
        let unfinished = path.with_extension("json.tmp");
        let written = make_folder(&self.folder)
            .and_then(|()| fs::write(&unfinished, bytes))
            .and_then(|()| fs::rename(&unfinished, &path));
        if written.is_err() {
            _ = fs::remove_file(&unfinished);
        }
        written
    }

    fn failed(&mut self, error: &io::Error) {
        let folder = self.folder.display();
        self.trouble = Some(format!("cannot keep events in {folder}: {error}"));
    }

    /// Adds the picture to an event and returns its length; `None` if the event is not there.
    pub(crate) fn add_picture(&mut self, number: u64, jpeg: &[u8]) -> Option<u64> {
        let mut post = self.read(number)?;
        let expires_ms = *self.expiries.get(&number)?;
        add_picture(&mut post.body, jpeg);
        Some(self.write(number, expires_ms, &post))
    }

    /// `None` if it cannot be read.
    pub(crate) fn read(&self, number: u64) -> Option<StoredPost> {
        let bytes = match self.memory.get(&number) {
            Some(bytes) => bytes.clone(),
            None => fs::read(self.path(number, *self.expiries.get(&number)?)).ok()?,
        };
        serde_json::from_slice(&bytes).ok()
    }

    /// The events are not needed any more.
    pub(crate) fn remove(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.memory.remove(number);
            self.unsynced.remove(number);
            if let Some(expires_ms) = self.expiries.remove(number) {
                // A file that cannot be removed is found again at the next start, and posted twice.
                _ = fs::remove_file(self.path(*number, expires_ms));
            }
        }
    }

    /// Events could not be written.
    pub(crate) fn has_memory(&self) -> bool {
        !self.memory.is_empty()
    }

    /// Takes the oldest events in memory beyond the limit out.
    pub(crate) fn forget_excess(&mut self) -> Vec<u64> {
        let mut forgotten = Vec::new();
        let mut bytes: u64 = self.memory.values().map(|post| post.len() as u64).sum();
        while bytes > MEMORY_MAX_BYTES
            && let Some((number, post)) = self.memory.pop_first()
        {
            bytes -= post.len() as u64;
            forgotten.push(number);
        }
        self.remove(&forgotten);
        forgotten
    }

    /// Returns when all events survive a power failure, as far as the disk works.
    pub(crate) fn sync(&mut self) {
        for number in self.memory.keys().copied().collect::<Vec<_>>() {
            self.write_from_memory(number);
        }
        let unsynced = std::mem::take(&mut self.unsynced);
        if unsynced.is_empty() {
            return;
        }
        let sync = |path: &Path| File::open(path)?.sync_all();
        let mut failed = sync(&self.folder).err();
        for number in unsynced {
            let Some(expires_ms) = self.expiries.get(&number) else {
                continue;
            };
            // One file keeps no other from the disk.
            if let Err(error) = sync(&self.path(number, *expires_ms)) {
                self.unsynced.insert(number);
                failed = Some(error);
            }
        }
        if let Some(error) = failed {
            self.failed(&error);
        }
    }

    /// Removes the folder: the webhook is not configured any more.
    pub(crate) fn remove_all(&mut self) {
        remove_folder(&self.folder);
    }
}

/// Removes the folder of a webhook that is not configured any more.
pub(crate) fn remove_folder(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != io::ErrorKind::NotFound
    {
        let folder = folder.display();
        tracing::warn!(%folder, %error, "cannot remove the events of a webhook that is not configured any more");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(id: &str) -> StoredPost {
        let body = serde_json::from_str(r#"{"type":"new","score":0.83,"delayed":false}"#).unwrap();
        StoredPost {
            id: id.to_owned(),
            body,
        }
    }

    #[test]
    fn events_are_found_again_in_order_with_their_pictures() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("webhooks/door");
        let (mut store, found) = PostStore::open(&folder);
        assert_eq!(found, []);
        for number in [9, 10, 11] {
            store.write(number, 5000, &post(&number.to_string()));
        }
        let bytes = store.add_picture(10, &[0xff, 0xd8, 7]).unwrap();
        assert!(store.add_picture(12, &[1]).is_none());
        store.remove(&[9]);
        store.sync();
        fs::write(folder.join("000000000012-1.json.tmp"), "{").unwrap();
        fs::write(folder.join("notes.txt"), "not ours").unwrap();

        let (mut store, found) = PostStore::open(&folder);
        let numbers: Vec<u64> = found.iter().map(|post| post.number).collect();
        assert_eq!(numbers, [10, 11]);
        assert_eq!((found[0].bytes, found[0].expires_ms), (bytes, 5000));
        let with_picture = store.read(10).unwrap();
        assert_eq!(with_picture.body["snapshot_jpeg"], "/9gH");
        assert_eq!(store.read(11), Some(post("11")));
        assert_eq!(store.trouble, None);
        assert!(!folder.join("000000000012-1.json.tmp").exists());
        store.remove_all();
        assert!(!folder.exists());
    }

    #[test]
    fn failing_disk_keeps_a_bounded_number_of_events_in_memory() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("door");
        // A file in place of the folder.
        fs::write(&folder, "").unwrap();
        let (mut store, _) = PostStore::open(&folder);
        let jpeg = vec![7; 1_000_000];
        for number in 1..=4 {
            store.write(number, 5000, &post(&number.to_string()));
            store.add_picture(number, &jpeg).unwrap();
        }
        assert!(store.trouble.as_ref().unwrap().contains("cannot keep"));
        assert_eq!(store.forget_excess(), [1, 2]);
        assert_eq!(store.read(1), None);
        assert_eq!(store.read(3).unwrap().id, "3");

        fs::remove_file(&folder).unwrap();
        store.sync();
        assert_eq!(store.trouble, None);
        assert_eq!(PostStore::open(&folder).1.len(), 2);
    }

    #[test]
    fn file_that_cannot_be_synced_keeps_no_other_waiting() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("door");
        let (mut store, _) = PostStore::open(&folder);
        for number in 1..=3 {
            store.write(number, 5000, &post(&number.to_string()));
        }
        fs::remove_file(store.path(1, 5000)).unwrap();
        store.sync();
        assert_eq!(store.unsynced, BTreeSet::from([1]));
        assert!(store.trouble.is_some());
    }
}
