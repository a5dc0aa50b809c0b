//! The values that differ from the file because somebody asked for it, each with what the file said at that time.
//!
//! A later edit of the same value in the file wins: who edits a file expects it to hold.

use serde::{Deserialize, Serialize};

use super::setting::{current, put};
use spotter_core::{CameraId, Setting, config::CameraConfig};

/// All of them, at most one for each value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Overrides(Vec<Override>);

/// One changed value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Override {
    /// Of which camera.
    pub camera: CameraId,
    /// What the file says.
    pub file: Setting,
    /// What holds.
    pub now: Setting,
}

/// A change that holds no longer, because the file was edited since.
#[derive(Clone, Debug, PartialEq)]
pub struct Lapsed {
    /// What was changed.
    pub was: Override,
    /// What the file says now; `None`: the camera or prompt is not in it any more.
    pub file: Option<Setting>,
}

impl Overrides {
    /// Notes that a value of `camera`, as it is in the file, is to be another one. The file's own value is no override.
    pub fn set(&mut self, camera: &CameraConfig, now: Setting) {
        self.0
            .retain(|old| old.camera != camera.id || !old.now.is_same_key(&now));
        let Some(file) = current(camera, &now).filter(|file| *file != now) else {
            return;
        };
        self.0.push(Override {
            camera: camera.id.clone(),
            file,
            now,
        });
    }

    /// Puts the values into cameras that are as in the file.
    pub fn apply(&self, cameras: &mut [CameraConfig]) {
        for change in &self.0 {
            let of = cameras.iter_mut().find(|camera| camera.id == change.camera);
            if let Some(camera) = of {
                put(camera, &change.now);
            }
        }
    }

    /// Forgets those that the file has other values for than it had, and tells which.
    pub fn rebase(&mut self, cameras: &[CameraConfig]) -> Vec<Lapsed> {
        let in_file = |change: &Override| {
            let camera = cameras.iter().find(|camera| camera.id == change.camera)?;
            current(camera, &change.now)
        };
        let (kept, lapsed) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|change| in_file(change).as_ref() == Some(&change.file));
        self.0 = kept;
        let told = |was: Override| Lapsed {
            file: in_file(&was),
            was,
        };
        Vec::into_iter(lapsed).map(told).collect()
    }

    /// Forgets those of a camera, or all.
    pub fn reset(&mut self, camera: Option<&CameraId>) {
        self.0
            .retain(|change| camera.is_some_and(|camera| change.camera != *camera));
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &Override> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when the file alone holds.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
