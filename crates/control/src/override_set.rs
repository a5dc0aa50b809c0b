//! The values that a command set, each with the file's value at that time.
//!
//! A later edit of the same value in the file discards the override: the operator expects the edited value to apply.

use serde::{Deserialize, Serialize};
use toml::Value;

use super::{
    prompt_rule::PromptRule,
    settings::{current_setting, put},
};
use spotter_config::{CameraConfig, ModeSetting, shapes_of, with_shapes};
use spotter_core::{CameraId, CameraShapes, PromptId, Setting};

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
    /// Width and height of the picture that shapes were drawn on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drawn_size: Option<[u32; 2]>,
}

impl OverrideSet {
    /// Of several records of one value, the last one counts. A record whose values are of two keys is none that a command made.
    pub(super) fn of_records(records: Vec<Override>) -> Self {
        let mut set = Self::default();
        for record in records {
            if record.file.is_same_key(&record.now) {
                set.remove(&record.camera, &record.now);
                set.0.push(record);
            }
        }
        set
    }

    fn remove(&mut self, camera: &CameraId, like: &Setting) {
        self.0
            .retain(|old| old.camera != *camera || !old.now.is_same_key(like));
    }

    /// Overrides a value of `camera`, which is as in the file. The file's own value removes the override.
    pub fn set(&mut self, camera: &CameraConfig, now: Setting, drawn_size: Option<[u32; 2]>) {
        self.remove(&camera.id, &now);
        if let Some(file) = current_setting(camera, &now).filter(|file| *file != now) {
            self.0.push(Override {
                camera: camera.id.clone(),
                file,
                now,
                drawn_size,
            });
        }
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

    /// Discards the overrides whose value in the file changed, texts that the model cannot answer, and shapes that the camera cannot have. Of
    /// shapes, masked areas stay: an edit of a zone in the file uncovers no place that a command hid.
    pub fn rebase(&mut self, cameras: &[CameraConfig], rule: &PromptRule) {
        self.0.retain_mut(|change| {
            let camera = cameras.iter().find(|camera| camera.id == change.camera);
            let file = camera.and_then(|camera| current_setting(camera, &change.now));
            let is_as_before = file.as_ref() == Some(&change.file);
            if !is_as_before {
                log_discarded(change, file.as_ref(), "configuration changed");
                return camera.is_some_and(|camera| keep_mask(change, camera));
            }
            let reason = camera.and_then(|camera| match &change.now {
                Setting::Shapes(shapes) => Some(with_shapes(camera, shapes).err()?.join("; ")),
                setting => rule.unfit_setting(camera, setting),
            });
            if let Some(reason) = &reason {
                log_discarded(change, file.as_ref(), reason);
            }
            reason.is_none() || camera.is_some_and(|camera| keep_mask(change, camera))
        });
    }

    /// Discards the overrides of the values that a mode names.
    pub fn discard_named(&mut self, settings: &[ModeSetting]) {
        self.0.retain(|change| {
            let is_it = |named: &&ModeSetting| {
                named.camera == change.camera && named.setting.is_same_key(&change.now)
            };
            let named = settings.iter().find(is_it);
            if let Some(named) = named {
                log_discarded(change, Some(&named.setting), "mode switched");
            }
            named.is_none()
        });
    }

    /// Removes the overrides of these cameras.
    pub fn reset(&mut self, is_reset: impl Fn(&CameraId) -> bool) {
        self.0.retain(|change| !is_reset(&change.camera));
    }

    /// The overrides of one camera; `None` = of all.
    pub fn of(&self, camera: Option<&CameraId>) -> Self {
        let is_of = |change: &&Override| camera.is_none_or(|camera| change.camera == *camera);
        Self(self.0.iter().filter(is_of).cloned().collect())
    }

    /// Replaces the overrides of one camera by those of it in `other`.
    pub fn replace_camera(&mut self, camera: &CameraId, other: &Self) {
        self.reset(|id| id == camera);
        self.0.extend(other.of(Some(camera)).0);
    }

    pub fn as_slice(&self) -> &[Override] {
        &self.0
    }
}

/// Makes an override of shapes one of the file's shapes, with the areas besides that a command masked. False where it masked none.
fn keep_mask(change: &mut Override, camera: &CameraConfig) -> bool {
    let (Setting::Shapes(before), Setting::Shapes(now)) = (&change.file, &change.now) else {
        return false;
    };
    let file = shapes_of(camera);
    let [before, now, mut mask] = [before, now, &file].map(areas_of_mask);
    let is_drawn = |area: &Value| !before.contains(area) && !mask.contains(area);
    let drawn: Vec<_> = now.into_iter().filter(is_drawn).collect();
    if drawn.is_empty() {
        return false;
    }
    tracing::warn!(camera = %camera.id, areas = drawn.len(), "areas that a command masked stay masked");
    mask.extend(drawn);
    let mut kept = file.clone();
    kept.0.insert("mask".into(), Value::Array(mask));
    let fits = with_shapes(camera, &kept).is_ok();
    change.file = Setting::Shapes(file);
    change.now = Setting::Shapes(kept);
    fits
}

fn areas_of_mask(shapes: &CameraShapes) -> Vec<Value> {
    match shapes.mask() {
        Value::Array(areas) => areas,
        _ => Vec::new(),
    }
}

/// `file`: the value that is below; `None`: the camera or prompt was removed.
fn log_discarded(was: &Override, file: Option<&Setting>, reason: &str) {
    let (camera, field) = (&was.camera, was.now.field());
    let prompt = was.now.prompt().map(PromptId::as_str);
    // Shapes are long.
    let shown = |setting: &Setting| match setting {
        Setting::Shapes(_) => "shapes".to_owned(),
        value => format!("{value:?}"),
    };
    let (discarded, file) = (shown(&was.now), file.map(shown));
    tracing::warn!(%camera, prompt, field, discarded, file, "{reason}; run-time override discarded");
}
