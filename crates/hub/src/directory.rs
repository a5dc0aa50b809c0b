//! Model directories on this machine.

use std::{fs::File, io, path::Path};

use crate::hash::{FileHashes, RemoteHash};
use spotter_core::{ModelRecord, RecordedFile};

/// Compares a file of a directory with its record, by its hash. An error says why it is not the recorded one. Blocks.
pub fn check_file(
    directory: &Path,
    record: &ModelRecord,
    RecordedFile { name, .. }: &RecordedFile,
) -> Result<(), String> {
    let path = directory.join(name);
    let size = match path.metadata() {
        Ok(found) => found.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(format!("{name} is missing"));
        }
        Err(error) => return Err(format!("{name} cannot be read: {error}")),
    };
    record.check_size(name, size).map_err(|e| e.to_string())?;
    let like = RemoteHash::Sha256(String::new());
    let hashes =
        File::open(path).and_then(|mut file| FileHashes::of(&mut file, &like, size, |_| {}));
    let hashes = hashes.map_err(|error| format!("{name} cannot be read: {error}"))?;
    let checked = record.check_sha256(name, &hashes.sha256);
    checked.map_err(|error| error.to_string())
}

/// Does this process run as root?
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
