//! Overrides on disk: one small file in the state directory, replaced whole, so that a crash leaves the old one or the new
//! one.

use std::{
    fs,
    io::{self, Write as _},
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::{Layer, Overrides, revisions::Kept};

const FILE: &str = "overrides.json";
/// Rises when an older program could not read it.
const VERSION: u32 = 1;

/// Where overrides are kept. Its calls block on the disk.
#[derive(Clone, Debug)]
pub struct Store(PathBuf);

/// Why overrides could not be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The disk.
    #[error("{}: {error}; run-time changes do not survive a restart until this is mended", path.display())]
    Disk {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: io::Error,
    },
    /// The contents.
    #[error("{}: not what Spotter wrote ({error}); it is set aside as {}", path.display(), aside.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// Its new name.
        aside: PathBuf,
        /// What is wrong.
        error: serde_json::Error,
    },
}

#[derive(Default, Serialize, Deserialize)]
struct Contents {
    v: u32,
    overrides: Overrides,
    #[serde(default)]
    revisions: Vec<Kept>,
}

impl Store {
    /// In that directory, which is made when something is to be kept.
    pub fn new(state_dir: PathBuf) -> Self {
        Self(state_dir)
    }

    /// What an earlier run left; nothing when there was none. A damaged file is set aside, so that the next start does not
    /// stumble again.
    pub fn load(&self) -> Result<(Overrides, Vec<Kept>), StoreError> {
        let path = self.0.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Default::default()),
            Err(error) => return Err(StoreError::Disk { path, error }),
        };
        let read = serde_json::from_slice::<Contents>(&bytes).and_then(|contents| {
            let newer = || serde::de::Error::custom("written by a newer version");
            (contents.v <= VERSION)
                .then_some(contents)
                .ok_or_else(newer)
        });
        match read {
            Ok(contents) => Ok((contents.overrides, contents.revisions)),
            Err(error) => {
                let aside = path.with_extension("damaged");
                // Where even that fails, the file is replaced by the next change.
                let _ = fs::rename(&path, &aside);
                Err(StoreError::Damaged { path, aside, error })
            }
        }
    }

    /// Forgets what an earlier run left.
    pub fn forget(&self) -> Result<(), StoreError> {
        let path = self.0.join(FILE);
        match fs::remove_file(&path) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(StoreError::Disk { path, error }),
        }
    }

    /// Keeps what the layer has to keep.
    pub fn save(&self, layer: &Layer) -> Result<(), StoreError> {
        let (overrides, revisions) = layer.kept();
        let contents = Contents {
            v: VERSION,
            overrides: overrides.clone(),
            revisions,
        };
        let path = self.0.join(FILE);
        let write = || {
            fs::create_dir_all(&self.0)?;
            let new = path.with_extension("new");
            let mut file = fs::File::create(&new)?;
            file.write_all(&serde_json::to_vec(&contents)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| StoreError::Disk {
            path: path.clone(),
            error,
        })
    }
}
