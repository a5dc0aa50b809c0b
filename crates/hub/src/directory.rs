//! Model directories on this machine.

use std::{collections::BTreeMap, fs::File, io, path::Path};

use crate::{
    catalogue::KnownModel,
    error::HubError,
    hash::{FileHashes, RemoteHash},
};
use spotter_core::{FileReaders, ModelRecord, OpenFolder, RecordedFile};

/// What Spotter writes beside the files of a model.
const WRITTEN_BESIDE: [&str; 2] = [ModelRecord::FILE, "calibration.toml"];

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

/// The files of `model` in `directory` with their bytes, parts of a cut download and what Spotter wrote included. None when the directory
/// does not exist. Blocks on the disk.
pub fn model_files(
    model: &KnownModel,
    directory: &Path,
) -> Result<BTreeMap<String, u64>, HubError> {
    let record = ModelRecord::read(directory).ok().flatten();
    let recorded = record.iter().flat_map(|record| &record.files);
    let recorded: Vec<&str> = recorded.map(|file| file.name.as_str()).collect();
    let is_of_model = |file: &str| {
        let whole = file.strip_suffix(".part").unwrap_or(file);
        WRITTEN_BESIDE.contains(&file) || recorded.contains(&whole) || model.may_have(whole)
    };
    let cannot_list = || HubError::disk("list", directory);
    let entries = match directory.read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        entries => entries.map_err(cannot_list())?,
    };
    let mut files = BTreeMap::new();
    for entry in entries {
        let entry = entry.map_err(cannot_list())?;
        let found = entry.metadata().map_err(cannot_list())?;
        match entry.file_name().into_string() {
            Ok(name) if !found.is_dir() && is_of_model(&name) => files.insert(name, found.len()),
            _ => None,
        };
    }
    Ok(files)
}

/// Deletes the [`model_files`] of a directory, and itself when nothing else is in it; gives the bytes. Blocks on the disk.
pub fn remove_files(directory: &Path, files: &BTreeMap<String, u64>) -> Result<u64, HubError> {
    let folder = OpenFolder::create(directory, FileReaders::Everyone);
    let folder = folder.map_err(HubError::disk("open", directory))?;
    for file in files.keys() {
        let removed = folder.remove(file.as_ref());
        removed.map_err(HubError::disk("remove", directory.join(file)))?;
    }
    // A link, a mount, or a directory with other files stays.
    let _ = std::fs::remove_dir(directory);
    Ok(files.values().sum())
}

/// Does this process run as root?
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
