//! Which journal SQLite can have on a file system.

use std::{io, path::Path};

const NFS: u32 = 0x6969;
const SMB: u32 = 0x517B;
const CIFS: u32 = 0xFF53_4D42;
const SMB2: u32 = 0xFE53_4D42;

/// How SQLite makes a transaction whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JournalKind {
    /// One sync for each transaction, and readers do not delay the writer. Needs memory that processes of one machine share.
    WriteAhead,
    /// Three syncs. Works on each file system.
    Rollback,
}

impl JournalKind {
    /// On NFS and CIFS, processes of several machines would share the write-ahead log's index, which they cannot.
    fn on(file_system: u32) -> Self {
        match file_system {
            NFS | SMB | CIFS | SMB2 => Self::Rollback,
            _ => Self::WriteAhead,
        }
    }

    pub(crate) fn in_folder(path: &Path) -> io::Result<Self> {
        // The kernel's number has 32 bits; its type differs between architectures.
        Ok(Self::on(rustix::fs::statfs(path)?.f_type as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Faults: S8.
    #[test]
    fn network_file_systems_have_a_rollback_journal() {
        for network in [NFS, SMB, CIFS, SMB2] {
            assert_eq!(JournalKind::on(network), JournalKind::Rollback);
        }
        for (local, name) in [
            (0xEF53, "ext4"),
            (0x9123_683E, "btrfs"),
            (0x0102_1994, "tmpfs"),
        ] {
            assert_eq!(JournalKind::on(local), JournalKind::WriteAhead, "{name}");
        }
    }
}
