//! The hashes by which the hub names a file's content.

use std::io::{self, Read};

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// What the hub records of a file's content; lower-case hex.
#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
pub enum RemoteHash {
    /// Of a large file (LFS).
    #[display("SHA-256 {_0}")]
    Sha256(String),
    /// Of a small file: its git blob id, SHA-1 of `blob SIZE`, a zero byte and the content.
    #[display("git blob {_0}")]
    GitBlob(String),
}

/// The hashes of a content.
#[derive(Debug)]
pub struct FileHashes {
    pub sha256: String,
    /// Of the same kind as the hub's.
    pub remote: RemoteHash,
}

impl FileHashes {
    /// Reads all of `source`, which has `size` bytes and will be compared with `recorded`; `seen` gets the number of bytes after each
    /// piece. Blocks.
    pub fn of(
        source: &mut impl Read,
        recorded: &RemoteHash,
        size: u64,
        mut seen: impl FnMut(u64),
    ) -> io::Result<Self> {
        let mut sha256 = Sha256::new();
        let mut git_blob = match recorded {
            RemoteHash::Sha256(_) => None,
            RemoteHash::GitBlob(_) => Some(Sha1::new_with_prefix(format!("blob {size}\0"))),
        };
        let (mut piece, mut all) = (vec![0; 1 << 20], 0);
        loop {
            let count = match source.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            sha256.update(&piece[..count]);
            if let Some(git_blob) = &mut git_blob {
                git_blob.update(&piece[..count]);
            }
            all += count as u64;
            seen(all);
        }
        let sha256 = hex(&sha256.finalize());
        let remote = match git_blob {
            Some(blob) => RemoteHash::GitBlob(hex(&blob.finalize())),
            None => RemoteHash::Sha256(sha256.clone()),
        };
        Ok(Self { sha256, remote })
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

    /// `printf 'hello\n' | git hash-object --stdin` and `sha256sum`.
    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        let hex = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
        for recorded in [
            RemoteHash::GitBlob("ce013625030ba8dba906f756967f9e9ca394464a".into()),
            RemoteHash::Sha256(hex.into()),
        ] {
            let hashes = FileHashes::of(&mut &b"hello\n"[..], &recorded, 6, |_| {}).unwrap();
            assert_eq!((hashes.remote, hashes.sha256), (recorded, hex.into()));
        }
    }
}
