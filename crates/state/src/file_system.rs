//! Whether processes of several machines may share a folder.

use std::{io, path::Path};

/// NFS, SMB, CIFS and SMB 2, by the kernel's numbers.
const NETWORK: [u32; 4] = [0x6969, 0x517B, 0xFF53_4D42, 0xFE53_4D42];

pub(crate) fn is_network(path: &Path) -> io::Result<bool> {
    // The kernel's number has 32 bits; its type differs between architectures.
    let file_system = rustix::fs::statfs(path)?.f_type as u32;
    Ok(NETWORK.contains(&file_system))
}
