//! The counts at lines as one small file in the state directory, replaced as a whole.
//!
//! They are no overrides: they replace no value of the configuration file, a change of that file discards none of them, and they
//! survive a restart also with `mqtt.overrides = "forget"`. So they have a file of their own.

use std::{fs, io, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::track::LineCountRecord;
use spotter_core::read_short_file;

const FILE: &str = "lines.json";
/// Rises with each change that an older program could not read.
const VERSION: u32 = 1;
/// No file of this program is longer, in bytes: ten lines of each of ten thousand cameras.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// The file in a state directory. Its calls block on the disk.
#[derive(Clone, Debug)]
pub struct LineCountFile(PathBuf);

/// Counts cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LineCountFileError {
    #[error("{}: {error}; counts at lines do not survive a restart until this is repaired", path.display())]
    Disk { path: PathBuf, error: io::Error },
    #[error("{}: damaged file ({error}); renamed to {}, and all lines count from 0", path.display(), aside.display())]
    Damaged {
        path: PathBuf,
        /// Path of the renamed file.
        aside: PathBuf,
        error: serde_json::Error,
    },
}

#[derive(Serialize, Deserialize)]
struct StoredLineCounts {
    v: u32,
    lines: Vec<LineCountRecord>,
}

impl LineCountFile {
    /// The directory is made by the first [`save`](Self::save).
    pub fn new(state_dir: PathBuf) -> Self {
        Self(state_dir.join(FILE))
    }

    /// The counts of an earlier run. A damaged file is renamed, so that it is reported once.
    pub fn load(&self) -> Result<Vec<LineCountRecord>, LineCountFileError> {
        let path = self.0.clone();
        let text = match read_short_file(&path, FILE_MAX_BYTES) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Vec::new()),
            Err(error) => return Err(LineCountFileError::Disk { path, error }),
        };
        let stored = serde_json::from_str(&text).and_then(|stored: StoredLineCounts| {
            let newer = || serde::de::Error::custom("written by a newer version");
            (stored.v <= VERSION).then_some(stored).ok_or_else(newer)
        });
        match stored {
            Ok(stored) => Ok(stored.lines),
            Err(error) => {
                let aside = path.with_extension("damaged");
                // If this fails too, the next change replaces the file.
                let _ = fs::rename(&path, &aside);
                Err(LineCountFileError::Damaged { path, aside, error })
            }
        }
    }

    /// Replaces the contents of the file.
    pub fn save(&self, lines: Vec<LineCountRecord>) -> Result<(), LineCountFileError> {
        let stored = StoredLineCounts { v: VERSION, lines };
        let written = serde_json::to_vec(&stored)
            .map_err(io::Error::from)
            .and_then(|bytes| spotter_core::write_file_atomically(&self.0, &bytes));
        let path = self.0.clone();
        written.map_err(|error| LineCountFileError::Disk { path, error })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::{CameraId, DirectionId, LineId, PromptId, WallTime};

    #[test]
    fn damaged_file_is_renamed_and_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = LineCountFile::new(folder.path().to_owned());
        assert_eq!(file.load().unwrap(), []);
        let [way, _] = DirectionId::in_and_out();
        let record = LineCountRecord {
            camera: CameraId::new("gate").unwrap(),
            prompt: PromptId::new("person").unwrap(),
            line: LineId::new("door").unwrap(),
            counts: [(way, 12)].into(),
            since: WallTime::from_unix_millis(1_787_393_730_023),
        };
        file.save(vec![record.clone()]).unwrap();
        assert_eq!(file.load().unwrap(), [record]);
        fs::write(folder.path().join(FILE), "{\"v\":2,\"lines\":[]}").unwrap();
        let error = file.load().unwrap_err().to_string();
        assert!(error.contains("written by a newer version"), "{error}");
        assert_eq!(file.load().unwrap(), []);
        assert!(folder.path().join("lines.damaged").exists());
    }
}
