//! `NAME.part`: the part of a file that has arrived. It survives the process, so the next run continues it.

use std::{
    fs::{File, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    client::RecordedContent,
    error::HubError,
    hash::{FileHasher, FileHashes, hash_all},
};
use spotter_core::OpenFolder;

/// An open and locked part.
pub struct PartFile {
    name: String,
    /// For messages.
    path: PathBuf,
    file: File,
    length: u64,
    hasher: FileHasher,
    content: RecordedContent,
}

impl PartFile {
    /// Opens or creates the part of `target`, a file in `folder`, which will have `content`. Hashes what is there; `seen` gets the
    /// bytes of it.
    pub fn open(
        folder: &OpenFolder,
        target: &Path,
        content: RecordedContent,
        seen: impl FnMut(u64),
    ) -> Result<Self, HubError> {
        let name = part_name(target);
        let path = target.with_file_name(&name);
        let opened = folder.open(name.as_ref());
        let mut file = opened.map_err(HubError::disk("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(HubError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(HubError::disk("lock", &path)(error)),
        }
        let mut hasher = FileHasher::like(&content.hash, content.size);
        let length =
            hash_all(&mut file, &mut hasher, seen).map_err(HubError::disk("read", &path))?;
        let mut part = Self {
            name,
            path,
            file,
            length,
            hasher,
            content,
        };
        if part.length > part.content.size {
            part.restart()?;
        }
        Ok(part)
    }

    /// Bytes that are there.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn is_complete(&self) -> bool {
        self.length == self.content.size
    }

    /// Forgets what is there.
    pub fn restart(&mut self) -> Result<(), HubError> {
        let emptied = self.file.set_len(0);
        let emptied = emptied.and_then(|()| self.file.seek(SeekFrom::Start(0)));
        emptied.map_err(HubError::disk("empty", &self.path))?;
        self.length = 0;
        self.hasher = FileHasher::like(&self.content.hash, self.content.size);
        Ok(())
    }

    /// Writes what `body` gives, up to the size of the file. The inner error is that of the body: the part keeps what came before.
    pub fn receive(
        &mut self,
        body: impl io::Read,
        mut seen: impl FnMut(u64),
    ) -> Result<io::Result<()>, HubError> {
        let mut body = body.take(self.content.size - self.length);
        let mut piece = vec![0; 256 << 10];
        loop {
            let bytes = match body.read(&mut piece) {
                Ok(0) => return Ok(Ok(())),
                Ok(count) => &piece[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Ok(Err(error)),
            };
            if let Err(error) = self.file.write_all(bytes) {
                // A part of the piece may be written; the next run continues at a byte that was hashed.
                let _ = self.file.set_len(self.length);
                return Err(HubError::disk("write", &self.path)(error));
            }
            self.hasher.update(bytes);
            self.length += bytes.len() as u64;
            seen(self.length);
        }
    }

    /// The hashes of what is there.
    pub fn hashes(&self) -> FileHashes {
        self.hasher.clone().finish()
    }

    /// Writes the content to the disk, so that it survives a power failure.
    pub fn sync(&self) -> Result<(), HubError> {
        let written = self.file.sync_all();
        written.map_err(HubError::disk("write", &self.path))
    }

    /// Becomes the file itself.
    pub fn install(self, folder: &OpenFolder, target: &Path) -> Result<(), HubError> {
        let name = target.file_name().unwrap_or_default();
        let renamed = folder.rename(self.name.as_ref(), name);
        renamed.map_err(HubError::disk("replace", target))
    }
}

/// Bytes of the part of `target` on the disk.
pub fn length_of_part(folder: &OpenFolder, target: &Path) -> u64 {
    let part = folder.read(part_name(target).as_ref()).ok().flatten();
    part.and_then(|part| part.metadata().ok())
        .map_or(0, |found| found.len())
}

fn part_name(target: &Path) -> String {
    let name = target.file_name().unwrap_or_default();
    format!("{}.part", name.display())
}
