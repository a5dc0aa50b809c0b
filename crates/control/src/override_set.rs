//! The values that a command set, each with the file's value at that time.
//!
//! A later edit of the same value in the file discards the override: the operator expects the edited value to apply.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::settings::{current_setting, put};
use spotter_config::{CameraConfig, ModeSetting};
use spotter_core::{CameraId, Setting};

/// At most one override for each value of each camera.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct OverrideSet(Vec<Override>);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Override {
    pub camera: CameraId,
    /// The value in the configuration file or, if the active mode has one, there.
    pub file: Setting,
    /// The value that replaces it.
    pub now: Setting,
}

/// An override that was discarded because its value in the file or in the active mode changed.
#[derive(Clone, Debug, PartialEq)]
pub struct DiscardedOverride {
    pub was: Override,
    /// The file's new value; `None`: the camera or prompt was removed from the file.
    pub file: Option<Setting>,
}

impl OverrideSet {
    /// Of several records of one value, the last one counts. A record whose values are of two keys is none that a command made.
    pub(super) fn of_records(records: Vec<Override>) -> Self {
        let mut keys = BTreeSet::new();
        let mut is_last = |record: &Override| {
            let prompt = record.now.prompt().cloned();
            keys.insert((record.camera.clone(), prompt, record.now.field()))
        };
        let backwards = records.into_iter().rev();
        let kept =
            backwards.filter(|record| record.file.is_same_key(&record.now) && is_last(record));
        let mut kept: Vec<Override> = kept.collect();
        kept.reverse();
        Self(kept)
    }

    /// Overrides a value of `camera`, which is as in the file. The file's own value removes the override.
    pub fn set(&mut self, camera: &CameraConfig, now: Setting) {
        self.0
            .retain(|old| old.camera != camera.id || !old.now.is_same_key(&now));
        let Some(file) = current_setting(camera, &now).filter(|file| *file != now) else {
            return;
        };
        self.0.push(Override {
            camera: camera.id.clone(),
            file,
            now,
        });
    }

    /// Sets the values in cameras that are as in the file.
    pub fn apply(&self, cameras: &mut [CameraConfig]) {
        for change in &self.0 {
            let of = cameras.iter_mut().find(|camera| camera.id == change.camera);
            if let Some(camera) = of {
                put(camera, &change.now);
            }
        }
    }

    /// Discards and returns the overrides whose value in the file changed.
    pub fn rebase(&mut self, cameras: &[CameraConfig]) -> Vec<DiscardedOverride> {
        let in_file = |change: &Override| {
            let camera = cameras.iter().find(|camera| camera.id == change.camera)?;
            current_setting(camera, &change.now)
        };
        let (kept, changed) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|change| in_file(change).as_ref() == Some(&change.file));
        self.0 = kept;
        let discarded = |was: Override| DiscardedOverride {
            file: in_file(&was),
            was,
        };
        Vec::into_iter(changed).map(discarded).collect()
    }

    /// Discards and returns the overrides of the values that a mode names.
    pub fn discard_named(&mut self, settings: &[ModeSetting]) -> Vec<DiscardedOverride> {
        let named = |change: &Override| {
            let mut settings = settings.iter();
            settings.find(|named| {
                named.camera == change.camera && named.setting.is_same_key(&change.now)
            })
        };
        let (replaced, kept) = std::mem::take(&mut self.0)
            .into_iter()
            .partition(|change| named(change).is_some());
        self.0 = kept;
        let discarded = |was: Override| DiscardedOverride {
            file: named(&was).map(|named| named.setting.clone()),
            was,
        };
        Vec::into_iter(replaced).map(discarded).collect()
    }

    /// Removes the overrides of a camera, or all.
    pub fn reset(&mut self, camera: Option<&CameraId>) {
        self.0
            .retain(|change| camera.is_some_and(|camera| change.camera != *camera));
    }

    /// The overrides of one camera.
    pub fn of_camera(&self, camera: &CameraId) -> Self {
        let of_camera = self.0.iter().filter(|change| change.camera == *camera);
        Self(of_camera.cloned().collect())
    }

    /// Replaces the overrides of one camera by those of it in `other`.
    pub fn replace_camera(&mut self, camera: &CameraId, other: &Self) {
        self.reset(Some(camera));
        self.0.extend(other.of_camera(camera).0);
    }

    pub fn iter(&self) -> impl Iterator<Item = &Override> {
        self.0.iter()
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
