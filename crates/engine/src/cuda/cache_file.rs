//! How the files of the cache folder are written.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

/// Whole or not at all: another process, or another engine's thread, may read or write it at any time. Makes the folder.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    let (process, nth) = (std::process::id(), WRITTEN.fetch_add(1, Ordering::Relaxed));
    let half = path.with_extension(format!("{process}-{nth}.part"));
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&half, bytes)?;
    fs::rename(&half, path)
}
