//! Which prompts the model can answer.

use std::{fmt, sync::Arc};

use crate::settings::put;
use spotter_config::{CameraConfig, Config, PromptConfig};
use spotter_core::{Prompt, Setting};

type PromptTest = dyn Fn(&Prompt) -> Result<(), String> + Send + Sync;

/// What the model that runs can answer. Without one, everything.
#[derive(Clone)]
pub struct PromptRule(Arc<PromptTest>);

/// A prompt that the model can never answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedPrompt {
    /// As in the configuration file, such as `camera.gate.prompt.person.describe`.
    pub key: String,
    /// What is wrong and what to do.
    pub reason: String,
}

impl PromptRule {
    /// `test`: what is wrong with a prompt for the model, and what to do.
    pub fn new(test: impl Fn(&Prompt) -> Result<(), String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(test))
    }

    /// The error says what is wrong and what to do.
    pub fn test(&self, prompt: &Prompt) -> Result<(), String> {
        (self.0)(prompt)
    }

    /// What of a camera's prompt the model cannot answer: the keys of the prompt, each with what is wrong.
    pub fn unfit_keys(
        &self,
        camera: &CameraConfig,
        prompt: &PromptConfig,
    ) -> Vec<(&'static str, String)> {
        let asked = camera.model_prompts(prompt).into_iter();
        let wrong = asked.filter_map(|(key, asked)| Some((key, self.test(&asked).err()?)));
        let mut wrong = Vec::from_iter(wrong);
        // An outline has the words of its prompt.
        wrong.dedup_by_key(|(key, _)| *key);
        wrong
    }

    /// What of a camera the model cannot answer.
    pub fn unfit_in_camera(&self, camera: &CameraConfig) -> Vec<RefusedPrompt> {
        let prompts = camera.prompts.iter();
        let unfit = prompts.flat_map(|prompt| {
            let keys = self.unfit_keys(camera, prompt).into_iter();
            keys.map(|(key, reason)| RefusedPrompt {
                key: format!("camera.{}.prompt.{}.{key}", camera.id, prompt.id),
                reason,
            })
        });
        unfit.collect()
    }

    /// What of a configuration the model cannot answer, in all its modes.
    pub fn unfit(&self, config: &Config) -> Vec<RefusedPrompt> {
        let cameras = config.cameras.iter();
        let mut unfit: Vec<_> = cameras
            .flat_map(|camera| self.unfit_in_camera(camera))
            .collect();
        for mode in &config.modes {
            for change in &mode.settings {
                let camera = config.cameras.iter().find(|own| own.id == change.camera);
                let reason = camera.and_then(|camera| self.unfit_setting(camera, &change.setting));
                unfit.extend(change.setting.prompt().zip(reason).map(|(prompt, reason)| {
                    let camera = &change.camera;
                    let key = format!("mode.{}.camera.{camera}.prompt.{prompt}.text", mode.id);
                    RefusedPrompt { key, reason }
                }));
            }
        }
        unfit
    }

    /// What is wrong with a prompt of the camera when it has this text; `None`: nothing, or the setting is no text.
    pub fn unfit_setting(&self, camera: &CameraConfig, setting: &Setting) -> Option<String> {
        let Setting::Text(id, _) = setting else {
            return None;
        };
        let mut camera = camera.clone();
        put(&mut camera, setting);
        let prompt = camera.prompts.iter().find(|prompt| prompt.id == *id)?;
        let (_, reason) = self.unfit_keys(&camera, prompt).into_iter().next()?;
        Some(reason)
    }
}

impl Default for PromptRule {
    fn default() -> Self {
        Self::new(|_| Ok(()))
    }
}

impl fmt::Debug for PromptRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptRule").finish_non_exhaustive()
    }
}
