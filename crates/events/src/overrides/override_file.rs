//! Overrides and revisions as text: of all cameras in one small file in the state directory, replaced as a whole; in a fleet, of each camera
//! in the fleet's store.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{OverrideSet, modes::StoredMode, revisions::RevisionRecord};

const FILE: &str = "overrides.json";
/// Rises with each change that an older program could not read.
const VERSION: u32 = 1;

/// The file in a state directory. Its calls block on the disk.
#[derive(Clone, Debug)]
pub struct OverrideFile(PathBuf);

/// Overrides cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum OverrideFileError {
    #[error("{}: {error}; overrides do not survive a restart until this is repaired", path.display())]
    Disk { path: PathBuf, error: io::Error },
    #[error("{}: damaged file ({error}); renamed to {}", path.display(), aside.display())]
    Damaged {
        path: PathBuf,
        /// Path of the renamed file.
        aside: PathBuf,
        error: serde_json::Error,
    },
}

/// What survives a restart, of all cameras or of one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StoredOverrides {
    v: u32,
    pub overrides: OverrideSet,
    #[serde(default)]
    pub revisions: Vec<RevisionRecord>,
    /// Of a box with its own cameras.
    #[serde(default, skip_serializing_if = "StoredMode::is_empty")]
    pub mode: StoredMode,
}

impl StoredOverrides {
    pub fn new(overrides: OverrideSet, revisions: Vec<RevisionRecord>) -> Self {
        Self {
            v: VERSION,
            overrides,
            revisions,
            mode: StoredMode::default(),
        }
    }

    /// Says what is wrong with a text of another program or of a newer version.
    pub fn of_json(text: &[u8]) -> Result<Self, serde_json::Error> {
        let stored: Self = serde_json::from_slice(text)?;
        let newer = || serde::de::Error::custom("written by a newer version");
        (stored.v <= VERSION).then_some(stored).ok_or_else(newer)
    }

    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Nothing differs from the file.
    pub fn is_empty(&self) -> bool {
        self.overrides.is_empty() && self.revisions.is_empty()
    }
}

impl OverrideFile {
    /// The directory is made by the first [`save`](Self::save).
    pub fn new(state_dir: PathBuf) -> Self {
        Self(state_dir)
    }

    /// The overrides of an earlier run. A damaged file is renamed, so that it is reported once.
    pub fn load(&self) -> Result<StoredOverrides, OverrideFileError> {
        let path = self.0.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(OverrideFileError::Disk { path, error }),
        };
        match StoredOverrides::of_json(&bytes) {
            Ok(stored) => Ok(stored),
            Err(error) => {
                let aside = path.with_extension("damaged");
                // If this fails too, the next change replaces the file.
                let _ = fs::rename(&path, &aside);
                Err(OverrideFileError::Damaged { path, aside, error })
            }
        }
    }

    pub fn forget(&self) -> Result<(), OverrideFileError> {
        let path = self.0.join(FILE);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(OverrideFileError::Disk { path, error }),
        }
    }

    /// Replaces the contents of the file.
    pub fn save(&self, stored: &StoredOverrides) -> Result<(), OverrideFileError> {
        let path = self.0.join(FILE);
        let written = stored
            .to_json()
            .map_err(io::Error::from)
            .and_then(|bytes| spotter_core::write_file_atomically(&path, &bytes));
        written.map_err(|error| OverrideFileError::Disk { path, error })
    }
}
