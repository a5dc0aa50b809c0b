//! The file's cameras with everything that was changed at run time.

use super::{
    added::{Added, Attention},
    overrides::{Lapsed, Overrides},
    revisions::{Kept, Revisions},
    setting::{checked, current},
};
use spotter_core::{CameraId, Command, Mono, Refusal, RefusalCode, Setting, config::CameraConfig};

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Layer {
    file: Vec<CameraConfig>,
    overrides: Overrides,
    revisions: Revisions,
    added: Vec<Added>,
    attention: Vec<Attention>,
}

/// What a command changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// Something that is kept over a restart.
    Kept,
    /// Something that is not.
    Passing,
    /// It is not one of the commands that change the layer.
    Nothing,
}

impl Layer {
    /// The file's cameras with what an earlier run left.
    pub fn new(
        file: Vec<CameraConfig>,
        overrides: Overrides,
        revisions: Vec<Kept>,
    ) -> (Self, Vec<Lapsed>) {
        let mut layer = Self {
            file: Vec::new(),
            overrides,
            revisions: Revisions::from_kept(revisions),
            added: Vec::new(),
            attention: Vec::new(),
        };
        let lapsed = layer.rebase(file);
        // From now on a change of words is one, also when nobody has asked for the cameras yet.
        layer.cameras(Mono::default());
        (layer, lapsed)
    }

    /// The file was read again. What was edited in it holds from now on, and is told; added prompts stay where their camera
    /// stays, unless the file has one of their name now.
    pub fn rebase(&mut self, file: Vec<CameraConfig>) -> Vec<Lapsed> {
        let lapsed = self.overrides.rebase(&file);
        let find = |id: &CameraId| file.iter().find(|camera| camera.id == *id);
        self.added.retain(|added| {
            let taken = |camera: &CameraConfig| {
                let mut prompts = camera.prompts.iter();
                prompts.any(|prompt| added.is(&camera.id, &prompt.id))
            };
            find(&added.camera).is_some_and(|camera| !taken(camera))
        });
        self.attention
            .retain(|attention| find(&attention.camera).is_some());
        self.file = file;
        lapsed
    }

    /// The cameras that are in force at `now`, in the order of the file.
    pub fn cameras(&mut self, now: Mono) -> Vec<CameraConfig> {
        self.attention.retain(|attention| now < attention.until);
        let mut cameras = self.kept_cameras();
        for camera in &mut cameras {
            let added: Vec<_> = self
                .added
                .iter()
                .filter(|added| added.camera == camera.id)
                .map(|added| added.in_camera(camera))
                .collect();
            camera.prompts.extend(added);
            let mut attention = self.attention.iter();
            if let Some(attention) = attention.find(|attention| attention.camera == camera.id) {
                attention.put(camera);
            }
        }
        self.revisions.number(&mut cameras);
        cameras
    }

    /// The file's cameras with what is kept over a restart, and without what holds for a while only.
    pub fn kept_cameras(&self) -> Vec<CameraConfig> {
        let mut cameras = self.file.clone();
        self.overrides.apply(&mut cameras);
        cameras
    }

    /// When [`cameras`](Self::cameras) will be others by time alone.
    pub fn next_at(&self) -> Option<Mono> {
        self.attention.iter().map(|attention| attention.until).min()
    }

    /// Does what a command asks of the layer. A refusal changes nothing.
    pub fn command(&mut self, command: &Command, now: Mono) -> Result<Changed, Refusal> {
        if let Some(camera) = command.camera() {
            self.camera(camera)?;
        }
        match command {
            Command::Set { camera, setting } => self.set(camera, setting),
            Command::Look {
                camera,
                lasting,
                rate_hz,
            } => {
                let attention = Attention::new(camera, *lasting, *rate_hz, now)?;
                self.attention.retain(|other| other.camera != *camera);
                self.attention.push(attention);
                Ok(Changed::Passing)
            }
            Command::AddPrompt { camera, prompt } => {
                let others = self.added.iter().filter(|added| added.camera == *camera);
                let others = others.count();
                if self.added.iter().any(|added| added.is(camera, &prompt.id)) {
                    let text = format!("camera {camera} has a prompt {}", prompt.id);
                    return Err(Refusal::new(RefusalCode::Conflict, text));
                }
                let added = Added::new(self.camera(camera)?, prompt.clone(), others)?;
                self.added.push(added);
                Ok(Changed::Passing)
            }
            Command::RemovePrompt { camera, prompt } => {
                let before = self.added.len();
                self.added.retain(|added| !added.is(camera, prompt));
                if self.added.len() == before {
                    return Err(self.not_added(camera, prompt));
                }
                Ok(Changed::Passing)
            }
            Command::ResetOverrides { camera } => {
                self.overrides.reset(camera.as_ref());
                Ok(Changed::Kept)
            }
            Command::Reload
            | Command::Snapshot { .. }
            | Command::Reconnect { .. }
            | Command::Ask { .. }
            | Command::Get { .. }
            | Command::LogLevel { .. } => Ok(Changed::Nothing),
        }
    }

    /// What differs from the file.
    pub fn overrides(&self) -> &Overrides {
        &self.overrides
    }

    /// What is to be kept over a restart.
    pub fn kept(&self) -> (&Overrides, Vec<Kept>) {
        (&self.overrides, self.revisions.kept())
    }

    fn set(&mut self, id: &CameraId, setting: &Setting) -> Result<Changed, Refusal> {
        let setting = checked(setting)?;
        let camera = self.camera(id)?;
        if current(camera, &setting).is_none() {
            let prompt = setting.prompt().map_or("", |prompt| prompt.as_str());
            let is_added = |added: &Added| setting.prompt().is_some_and(|p| added.is(id, p));
            let text = match self.added.iter().any(is_added) {
                true => {
                    format!("prompt {prompt} was added for a while; take it away and add another")
                }
                false => format!("camera {id} has no prompt {prompt}"),
            };
            return Err(Refusal::new(RefusalCode::UnknownPrompt, text));
        }
        let camera = camera.clone();
        self.overrides.set(&camera, setting);
        Ok(Changed::Kept)
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
