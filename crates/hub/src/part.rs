//! `NAME.part`: the part of a file that has arrived. It survives the process, so the next run continues it.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::{Path, PathBuf},
};

use crate::{
    client::RecordedContent,
    error::HubError,
    fetch::make_readable,
    hash::{FileHasher, FileHashes, hash_all},
};

/// An open and locked part.
pub struct PartFile {
    path: PathBuf,
    file: File,
    length: u64,
    hasher: FileHasher,
    content: RecordedContent,
}

impl PartFile {
    /// Opens or creates the part of `target`, which will have `content`. Hashes what is there; `seen` gets the bytes of it.
    pub fn open(
        target: &Path,
        content: RecordedContent,
        seen: impl FnMut(u64),
    ) -> Result<Self, HubError> {
        let path = path_of(target);
        let mut options = fs::OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(&path).map_err(HubError::disk("open", &path))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(HubError::Busy { path }),
            Err(TryLockError::Error(error)) => return Err(HubError::disk("lock", &path)(error)),
        }
        let mut hasher = FileHasher::like(&content.hash, content.size);
        let length =
            hash_all(&mut file, &mut hasher, seen).map_err(HubError::disk("read", &path))?;
        let mut part = Self {
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
        let written = make_readable(&self.path, 0o644);
        let written = written.and_then(|()| self.file.sync_all());
        written.map_err(HubError::disk("write", &self.path))
    }

    /// Becomes the file itself.
    pub fn install(self, target: &Path) -> Result<(), HubError> {
        fs::rename(&self.path, target).map_err(HubError::disk("replace", target))
    }
}

/// Bytes of the part of `target` on the disk.
pub fn length_of_part(target: &Path) -> u64 {
    fs::metadata(path_of(target)).map_or(0, |found| found.len())
}

fn path_of(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    name.into()
}
