//! For tests: a disk in memory that tears writes, gets full or is read-only.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard},
};

use super::disk::Disk;

/// The files, and the faults to come.
#[derive(Debug, Default)]
pub(crate) struct Medium {
    pub(crate) files: BTreeMap<u64, Vec<u8>>,
    /// Free bytes; `None` = any number.
    pub(crate) room: Option<usize>,
    pub(crate) read_only: bool,
    /// The next append is torn after this number of bytes, as by a kill of the process.
    pub(crate) dies_after: Option<usize>,
    pub(crate) syncs: usize,
}

/// Clones share one medium, as processes that follow each other do.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryDisk(Arc<Mutex<Medium>>);

impl MemoryDisk {
    pub(crate) fn medium(&self) -> MutexGuard<'_, Medium> {
        self.0.lock().unwrap()
    }

    fn changed(&self) -> io::Result<MutexGuard<'_, Medium>> {
        let medium = self.medium();
        if medium.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(medium)
    }
}

impl Disk for MemoryDisk {
    fn list(&mut self) -> io::Result<Vec<u64>> {
        Ok(self.medium().files.keys().rev().copied().collect())
    }

    fn read(&mut self, segment: u64) -> io::Result<Vec<u8>> {
        let medium = self.medium();
        let file = medium.files.get(&segment);
        file.cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn append(&mut self, segment: u64, bytes: &[u8]) -> io::Result<()> {
        let mut medium = self.changed()?;
        let dies_after = medium.dies_after.take();
        let fits = medium.room.unwrap_or(usize::MAX);
        let written = bytes.len().min(fits).min(dies_after.unwrap_or(usize::MAX));
        if let Some(room) = &mut medium.room {
            *room -= written;
        }
        let file = medium.files.entry(segment).or_default();
        file.extend_from_slice(&bytes[..written]);
        if dies_after.is_some() {
            // A killed process writes no more.
            medium.read_only = true;
            return Err(io::Error::other("killed"));
        }
        if written < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn cut(&mut self, segment: u64, length: u64) -> io::Result<()> {
        let mut medium = self.changed()?;
        let Some(file) = medium.files.get_mut(&segment) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let gone = file.len() - length as usize;
        file.truncate(length as usize);
        medium.room = medium.room.map(|room| room + gone);
        Ok(())
    }

    fn sync(&mut self, _segment: u64) -> io::Result<()> {
        self.changed()?.syncs += 1;
        Ok(())
    }

    fn remove(&mut self, segment: u64) -> io::Result<()> {
        let mut medium = self.changed()?;
        let Some(file) = medium.files.remove(&segment) else {
            return Err(io::ErrorKind::NotFound.into());
        };
        medium.room = medium.room.map(|room| room + file.len());
        Ok(())
    }
}
