//! Overrides and revisions on disk: one small file in the state directory, replaced as a whole.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{EffectiveCameras, OverrideSet, revisions::RevisionRecord};

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

#[derive(Default, Serialize, Deserialize)]
struct OverrideFileContents {
    v: u32,
    overrides: OverrideSet,
    #[serde(default)]
    revisions: Vec<RevisionRecord>,
}

impl OverrideFile {
    /// The directory is made by the first [`save`](Self::save).
    pub fn new(state_dir: PathBuf) -> Self {
        Self(state_dir)
    }

    /// The overrides of an earlier run. A damaged file is renamed, so that it is reported once.
    pub fn load(&self) -> Result<(OverrideSet, Vec<RevisionRecord>), OverrideFileError> {
        let path = self.0.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(OverrideFileError::Disk { path, error }),
        };
        let read = serde_json::from_slice::<OverrideFileContents>(&bytes).and_then(|contents| {
            let newer = || serde::de::Error::custom("written by a newer version");
            (contents.v <= VERSION)
                .then_some(contents)
                .ok_or_else(newer)
        });
        match read {
            Ok(contents) => Ok((contents.overrides, contents.revisions)),
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
    pub fn save(&self, cameras: &EffectiveCameras) -> Result<(), OverrideFileError> {
        let (overrides, revisions) = cameras.stored();
        let contents = OverrideFileContents {
            v: VERSION,
            overrides: overrides.clone(),
            revisions,
        };
        let path = self.0.join(FILE);
        let written = serde_json::to_vec(&contents)
            .map_err(io::Error::from)
            .and_then(|bytes| spotter_core::write_file_atomically(&path, &bytes));
        written.map_err(|error| OverrideFileError::Disk { path, error })
    }
}
