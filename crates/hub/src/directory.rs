//! Model directories on this machine.

use std::{collections::BTreeMap, fs::File, io, path::Path};

use crate::{
    catalogue::KnownModel,
    error::HubError,
    hash::{FileHasher, RemoteHash, hash_all},
};
use spotter_core::{FileReaders, ModelRecord, OpenFolder};

/// What Spotter writes beside the files of a model.
const WRITTEN_BESIDE: [&str; 2] = [ModelRecord::FILE, "calibration.toml"];

/// Compares all files of a directory with their record, by their hashes. An error says why a file is not the
/// recorded one. Blocks; `seen` gets each file's name and the bytes that were read of it.
pub fn check_directory(
    directory: &Path,
    record: &ModelRecord,
    mut seen: impl FnMut(&str, u64),
) -> Vec<(String, Result<(), String>)> {
    let state = |name: &str, seen: &mut dyn FnMut(u64)| {
        let path = directory.join(name);
        let size = match path.metadata() {
            Ok(found) => found.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(format!("{name} is missing"));
            }
            Err(error) => return Err(format!("{name} cannot be read: {error}")),
        };
        record.check_size(name, size).map_err(|e| e.to_string())?;
        let sha256 = sha256(&path, seen).map_err(|e| format!("{name} cannot be read: {e}"))?;
        record
            .check_sha256(name, &sha256)
            .map_err(|e| e.to_string())
    };
    let files = record.files.iter().map(|file| {
        let state = state(&file.name, &mut |bytes| seen(&file.name, bytes));
        (file.name.clone(), state)
    });
    files.collect()
}

fn sha256(path: &Path, seen: &mut dyn FnMut(u64)) -> io::Result<String> {
    let mut hasher = FileHasher::like(&RemoteHash::Sha256(String::new()), 0);
    hash_all(&mut File::open(path)?, &mut hasher, seen)?;
    Ok(hasher.finish().sha256)
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

/// Bytes that this user can still write below `directory`, which need not exist yet.
pub fn free_bytes(directory: &Path) -> Result<u64, HubError> {
    let here = Path::new(".");
    let ancestors = directory.ancestors().filter(|path| *path != Path::new(""));
    let existing = ancestors.chain([here]).find(|path| path.exists());
    let existing = existing.unwrap_or(here);
    let found = rustix::fs::statvfs(existing).map_err(io::Error::from);
    let found = found.map_err(HubError::disk("find the free space of", existing))?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// Does this process run as root?
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
