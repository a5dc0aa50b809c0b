//! The file's cameras with everything that commands changed. The values of the active mode are among those of the file here.

use super::{
    command::Command,
    override_set::{DiscardedOverride, Override, OverrideSet},
    refusal::*,
    revisions::Revisions,
    settings::current_setting,
    stored_overrides::StoredOverrides,
    temporary::{AddedPrompt, RateBoost},
};
use spotter_config::{CameraConfig, ModeSetting};
use spotter_core::{CameraId, Mono, PromptId, Setting};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct EffectiveCameras {
    file: Vec<CameraConfig>,
    overrides: OverrideSet,
    revisions: Revisions,
    added: Vec<AddedPrompt>,
    boosts: Vec<RateBoost>,
}

impl EffectiveCameras {
    /// Continues with what an earlier run stored, without cameras yet.
    pub fn new(stored: StoredOverrides) -> Self {
        Self {
            file: Vec::new(),
            overrides: stored.overrides,
            revisions: Revisions::from_records(stored.revisions),
            added: Vec::new(),
            boosts: Vec::new(),
        }
    }

    /// Replaces the cameras of the file. An override whose value differs in the new file is discarded and returned. An added
    /// prompt stays if its camera stays, has the zones and lines that it names and no prompt of the same name.
    pub fn replace_file(&mut self, file: Vec<CameraConfig>) -> Vec<DiscardedOverride> {
        let discarded = self.overrides.rebase(&file);
        self.added.retain(|added| {
            let taken = |camera: &CameraConfig| {
                let mut prompts = camera.prompts.iter();
                prompts.any(|prompt| added.is(&camera.id, &prompt.id))
            };
            find(&file, &added.camera)
                .is_ok_and(|camera| !taken(camera) && added.in_camera(camera).is_some())
        });
        self.boosts
            .retain(|boost| find(&file, &boost.camera).is_ok());
        self.file = file;
        discarded
    }

    /// Discards and returns the overrides of the values that a mode names, which is active from now on: it is newer than they are.
    pub fn discard_named(&mut self, settings: &[ModeSetting]) -> Vec<DiscardedOverride> {
        self.overrides.discard_named(settings)
    }

    /// The effective cameras at `now`, in the order of the file.
    pub fn cameras(&mut self, now: Mono) -> Vec<CameraConfig> {
        self.boosts.retain(|boost| now < boost.until);
        let mut cameras = self.stored_cameras();
        for camera in &mut cameras {
            let added: Vec<_> = self
                .added
                .iter()
                .filter(|added| added.camera == camera.id)
                .filter_map(|added| added.in_camera(camera))
                .collect();
            camera.prompts.extend(added);
            let mut boosts = self.boosts.iter();
            if let Some(boost) = boosts.find(|boost| boost.camera == camera.id) {
                boost.apply(camera);
            }
        }
        self.revisions.number(&mut cameras);
        cameras
    }

    /// The file's cameras with the overrides that survive a restart, without temporary changes.
    pub fn stored_cameras(&self) -> Vec<CameraConfig> {
        let mut cameras = self.file.clone();
        self.overrides.apply(&mut cameras);
        cameras
    }

    /// When [`cameras`](Self::cameras) changes by time alone.
    pub fn next_at(&self) -> Option<Mono> {
        self.boosts.iter().map(|boost| boost.until).min()
    }

    /// Executes a command about cameras. A refusal changes nothing.
    pub fn execute(&mut self, command: &Command, now: Mono) -> Result<(), Refusal> {
        match command {
            Command::Set { camera, setting } => self.set(camera, setting)?,
            Command::Look {
                camera,
                lasting,
                rate,
            } => {
                self.boosts.retain(|other| other.camera != *camera);
                self.boosts.push(RateBoost {
                    camera: camera.clone(),
                    until: now.after(*lasting),
                    rate: *rate,
                });
            }
            Command::AddPrompt { camera, prompt } => {
                let cameras = self.stored_cameras();
                let camera = find(&cameras, camera)?;
                let added = AddedPrompt::new(camera, prompt.clone(), &self.added)?;
                self.added.push(added);
            }
            Command::RemovePrompt { camera, prompt } => {
                let place = self.added.iter().position(|added| added.is(camera, prompt));
                let place = place.ok_or_else(|| self.not_added(camera, prompt))?;
                self.added.remove(place);
            }
            _ => {}
        }
        Ok(())
    }

    /// Takes back what commands set at these cameras.
    pub fn reset(&mut self, is_reset: impl Fn(&CameraId) -> bool) {
        self.overrides.reset(is_reset);
    }

    pub fn overrides(&self) -> &[Override] {
        self.overrides.as_slice()
    }

    /// What survives a restart, of one camera; `None` = of all.
    pub fn stored(&self, camera: Option<&CameraId>) -> StoredOverrides {
        StoredOverrides::new(self.overrides.of(camera), self.revisions.records(camera))
    }

    /// Replaces what commands changed at one camera, which may be unknown yet: the next [`replace_file`](Self::replace_file) discards what does
    /// not fit then.
    pub fn set_stored_of(&mut self, camera: &CameraId, stored: StoredOverrides) {
        self.overrides.replace_camera(camera, &stored.overrides);
        self.revisions.replace_camera(camera, stored.revisions);
        if find(&self.file, camera).is_ok() {
            // One that was set over another revision of the list.
            self.overrides.rebase(&self.file);
        }
    }

    fn set(&mut self, id: &CameraId, setting: &Setting) -> Result<(), Refusal> {
        let camera = find(&self.file, id)?;
        if current_setting(camera, setting).is_some() {
            self.overrides.set(camera, setting.clone());
            return Ok(());
        }
        // Each camera has the values of its own.
        let prompt = setting.prompt();
        let is_added = |added: &AddedPrompt| prompt.is_some_and(|prompt| added.is(id, prompt));
        let is_caption = camera.prompts.iter().any(|known| Some(&known.id) == prompt);
        let prompt = prompt.map_or("", PromptId::as_str);
        let (code, text) = if is_caption {
            let text = format!("prompt {prompt} is a caption, which has no text");
            (RefusalCode::BadValue, text)
        } else if self.added.iter().any(is_added) {
            let text =
                format!("prompt {prompt} was added for a while; take it away and add another");
            (RefusalCode::UnknownPrompt, text)
        } else {
            let text = format!("camera {id} has no prompt {prompt}");
            (RefusalCode::UnknownPrompt, text)
        };
        Err(Refusal::new(code, text))
    }

    fn not_added(&self, camera: &CameraId, prompt: &PromptId) -> Refusal {
        let in_file =
            |camera: &CameraConfig| camera.prompts.iter().any(|known| known.id == *prompt);
        match find(&self.file, camera).is_ok_and(in_file) {
            true => Refusal::new(
                RefusalCode::Conflict,
                format!("prompt {prompt} is the file's; it can be disabled, not taken away"),
            ),
            false => Refusal::new(
                RefusalCode::UnknownPrompt,
                format!("camera {camera} has no prompt {prompt}"),
            ),
        }
    }
}

/// The camera that a command is about.
pub(crate) fn find<'a>(
    cameras: &'a [CameraConfig],
    id: &CameraId,
) -> Result<&'a CameraConfig, Refusal> {
    let known = cameras.iter().find(|camera| camera.id == *id);
    known.ok_or_else(|| Refusal::no_camera(id))
}

#[cfg(test)]
mod tests;
