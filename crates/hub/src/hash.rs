//! The hashes by which the hub names a file's content.

use std::{
    fmt,
    io::{self, Read},
};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// What the hub records of a file's content; lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RemoteHash {
    /// Of a large file (LFS).
    Sha256(String),
    /// Of a small file: its git blob id, SHA-1 of `blob SIZE`, a zero byte and the content.
    GitBlob(String),
}

impl fmt::Display for RemoteHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sha256(hex) => write!(f, "SHA-256 {hex}"),
            Self::GitBlob(hex) => write!(f, "git blob {hex}"),
        }
    }
}

/// Hashes a content: always with SHA-256, and as a git blob when the hub names it so.
#[derive(Clone)]
pub struct FileHasher {
    sha256: Sha256,
    git_blob: Option<Sha1>,
}

/// The hashes of a content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileHashes {
    pub sha256: String,
    /// Of the same kind as the hub's.
    pub remote: RemoteHash,
}

impl FileHasher {
    /// For a content of `size` bytes whose hash is to be compared with one like `recorded`.
    pub fn like(recorded: &RemoteHash, size: u64) -> Self {
        let git_blob = match recorded {
            RemoteHash::Sha256(_) => None,
            RemoteHash::GitBlob(_) => Some(Sha1::new_with_prefix(format!("blob {size}\0"))),
        };
        Self {
            sha256: Sha256::new(),
            git_blob,
        }
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.sha256.update(bytes);
        if let Some(git_blob) = &mut self.git_blob {
            git_blob.update(bytes);
        }
    }

    pub fn finish(self) -> FileHashes {
        let sha256 = hex(&self.sha256.finalize());
        let git_blob = self.git_blob.map(|git_blob| hex(&git_blob.finalize()));
        let remote = match git_blob {
            Some(blob) => RemoteHash::GitBlob(blob),
            None => RemoteHash::Sha256(sha256.clone()),
        };
        FileHashes { sha256, remote }
    }
}

/// Reads all of `source` into `hasher`; `seen` gets the number of bytes after each piece. Blocks.
pub fn hash_all(
    source: &mut impl Read,
    hasher: &mut FileHasher,
    mut seen: impl FnMut(u64),
) -> io::Result<u64> {
    let mut piece = vec![0; 1 << 20];
    let mut all = 0;
    loop {
        let count = match source.read(&mut piece) {
            Ok(0) => return Ok(all),
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        hasher.update(&piece[..count]);
        all += count as u64;
        seen(all);
    }
}

pub fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(recorded: &RemoteHash) -> FileHashes {
        let mut hasher = FileHasher::like(recorded, 6);
        let count = hash_all(&mut &b"hello\n"[..], &mut hasher, |_| {}).unwrap();
        assert_eq!(count, 6);
        hasher.finish()
    }

    /// `printf 'hello\n' | git hash-object --stdin` and `sha256sum`.
    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        let blob = RemoteHash::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".into());
        let hex = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        let sha256 = RemoteHash::Sha256(hex.into());
        assert_eq!(
            (hashes(&blob).remote, hashes(&blob).sha256),
            (blob, hex.into())
        );
        assert_eq!(hashes(&sha256).remote, sha256);
    }
}
