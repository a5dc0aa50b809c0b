//! The file's cameras with everything that commands changed. The values of the active mode are among those of the file here.

use super::{
    command::Command,
    override_set::{DiscardedOverride, OverrideSet},
    refusal::*,
    revisions::Revisions,
    settings::current_setting,
    stored_overrides::StoredOverrides,
    temporary::{AddedPrompt, RateBoost},
};
use spotter_config::{CameraConfig, ModeSetting};
use spotter_core::{CameraId, Mono, Setting};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct EffectiveCameras {
    file: Vec<CameraConfig>,
    overrides: OverrideSet,
    revisions: Revisions,
    added: Vec<AddedPrompt>,
    boosts: Vec<RateBoost>,
}

/// How long the change of a command lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverrideEffect {
    /// It survives a restart.
    Stored,
    /// It does not survive a restart.
    Temporary,
    /// The command changes no camera.
    None,
}

impl EffectiveCameras {
    /// The file's cameras with the overrides and revisions of an earlier run.
    pub fn new(file: Vec<CameraConfig>, stored: StoredOverrides) -> (Self, Vec<DiscardedOverride>) {
        let mut effective = Self {
            file: Vec::new(),
            overrides: stored.overrides,
            revisions: Revisions::from_records(stored.revisions),
            added: Vec::new(),
            boosts: Vec::new(),
        };
        let discarded = effective.replace_file(file);
        // Numbers the prompts, so that the first change of a text raises its revision.
        effective.cameras(Mono::default());
        (effective, discarded)
    }

    /// Replaces the cameras of the file. An override whose value differs in the new file is discarded and returned. An added
    /// prompt stays if its camera stays, has the zones and lines that it names and no prompt of the same name.
    pub fn replace_file(&mut self, file: Vec<CameraConfig>) -> Vec<DiscardedOverride> {
        let discarded = self.overrides.rebase(&file);
        let find = |id: &CameraId| file.iter().find(|camera| camera.id == *id);
        self.added.retain(|added| {
            let taken = |camera: &CameraConfig| {
                let mut prompts = camera.prompts.iter();
                prompts.any(|prompt| added.is(&camera.id, &prompt.id))
            };
            find(&added.camera)
                .is_some_and(|camera| !taken(camera) && added.in_camera(camera).is_some())
        });
        self.boosts.retain(|boost| find(&boost.camera).is_some());
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

    /// Executes a command that changes cameras. A refusal changes nothing.
    pub fn execute(&mut self, command: &Command, now: Mono) -> Result<OverrideEffect, Refusal> {
        if let Some(camera) = command.camera() {
            self.camera(camera)?;
        }
        match command {
            Command::Set { camera, setting } => self.set(camera, setting),
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
                Ok(OverrideEffect::Temporary)
            }
            Command::AddPrompt { camera, prompt } => {
                let others = self.added.iter().filter(|added| added.camera == *camera);
                let others = others.count();
                if self.added.iter().any(|added| added.is(camera, &prompt.id)) {
                    let text = format!("camera {camera} has a prompt {}", prompt.id);
                    return Err(Refusal::new(RefusalCode::Conflict, text));
                }
                let cameras = self.stored_cameras();
                let known = cameras.iter().find(|known| known.id == *camera);
                let known = known.ok_or_else(|| Refusal::no_camera(camera))?;
                self.added
                    .push(AddedPrompt::new(known, prompt.clone(), others)?);
                Ok(OverrideEffect::Temporary)
            }
            Command::RemovePrompt { camera, prompt } => {
                let before = self.added.len();
                self.added.retain(|added| !added.is(camera, prompt));
                if self.added.len() == before {
                    return Err(self.not_added(camera, prompt));
                }
                Ok(OverrideEffect::Temporary)
            }
            Command::ResetOverrides { camera } => {
                self.overrides.reset(camera.as_ref());
                Ok(OverrideEffect::Stored)
            }
            Command::SetMode { .. }
            | Command::Reload {}
            | Command::Snapshot { .. }
            | Command::Reconnect { .. }
            | Command::Ask { .. }
            | Command::ResetLine { .. }
            | Command::Get { .. }
            | Command::LogLevel { .. } => Ok(OverrideEffect::None),
        }
    }

    pub fn overrides(&self) -> &OverrideSet {
        &self.overrides
    }

    /// What survives a restart.
    pub fn stored(&self) -> StoredOverrides {
        StoredOverrides::new(self.overrides.clone(), self.revisions.records())
    }

    /// What survives a restart, of one camera.
    pub fn stored_of(&self, camera: &CameraId) -> StoredOverrides {
        let revisions = self.revisions.records_of(camera);
        StoredOverrides::new(self.overrides.of_camera(camera), revisions)
    }

    /// Replaces what commands changed at one camera, which may be unknown yet: the next [`replace_file`](Self::replace_file) discards what does
    /// not fit then.
    pub fn set_stored_of(&mut self, camera: &CameraId, stored: StoredOverrides) {
        self.overrides.replace_camera(camera, &stored.overrides);
        self.revisions.replace_camera(camera, stored.revisions);
        if self.file.iter().any(|known| known.id == *camera) {
            // One that was set over another revision of the list.
            self.overrides.rebase(&self.file);
        }
    }

    fn set(&mut self, id: &CameraId, setting: &Setting) -> Result<OverrideEffect, Refusal> {
        let camera = self.camera(id)?;
        if current_setting(camera, setting).is_none() {
            if let Setting::Text(prompt, _) = setting
                && camera.prompts.iter().any(|known| known.id == *prompt)
            {
                let text = format!("prompt {prompt} is a caption, which has no text");
                return Err(Refusal::new(RefusalCode::BadValue, text));
            }
            let prompt = setting.prompt().map_or("", |prompt| prompt.as_str());
            let is_added = |added: &AddedPrompt| setting.prompt().is_some_and(|p| added.is(id, p));
            let text = match self.added.iter().any(is_added) {
                true => {
                    format!("prompt {prompt} was added for a while; take it away and add another")
                }
                false => format!("camera {id} has no prompt {prompt}"),
            };
            return Err(Refusal::new(RefusalCode::UnknownPrompt, text));
        }
        let camera = camera.clone();
        self.overrides.set(&camera, setting.clone());
        Ok(OverrideEffect::Stored)
    }

    fn camera(&self, id: &CameraId) -> Result<&CameraConfig, Refusal> {
        let known = self.file.iter().find(|camera| camera.id == *id);
        known.ok_or_else(|| Refusal::no_camera(id))
    }

    fn not_added(&self, camera: &CameraId, prompt: &spotter_core::PromptId) -> Refusal {
        let in_file =
            |camera: &CameraConfig| camera.prompts.iter().any(|known| known.id == *prompt);
        match self.camera(camera).is_ok_and(in_file) {
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

#[cfg(test)]
mod tests;
