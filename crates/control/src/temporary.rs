//! Changes that end by themselves or with the process: prompts that a command added, and a higher rate for a while.

use crate::{command::NewPrompt, refusal::*};
use spotter_config::{CameraConfig, PromptConfig, prompt_of_keys};
use spotter_core::{AdapterId, CameraId, LookRate, Mono, PromptId};

/// Added prompts of one camera. Each costs a part of every look.
const PROMPTS_MAX: usize = 16;

/// A prompt that is not in the file.
#[derive(Clone, Debug)]
pub(super) struct AddedPrompt {
    pub(super) camera: CameraId,
    prompt: NewPrompt,
}

/// A higher rate of looks at one camera, until a time.
#[derive(Clone, Debug)]
pub(super) struct RateBoost {
    pub(super) camera: CameraId,
    pub(super) until: Mono,
    pub(super) rate: Option<LookRate>,
}

impl AddedPrompt {
    /// Refuses a name that the camera has, and one prompt too many. `added`: the prompts that were added before.
    pub(super) fn new(
        camera: &CameraConfig,
        prompt: NewPrompt,
        added: &[Self],
    ) -> Result<Self, Refusal> {
        let id = &prompt.id;
        let conflict = |text: String| Err(Refusal::new(RefusalCode::Conflict, text));
        let of_camera = added.iter().filter(|added| added.camera == camera.id);
        let known = camera.prompts.iter().map(|prompt| &prompt.id);
        let mut known = known.chain(of_camera.clone().map(|added| &added.prompt.id));
        if known.any(|known| known == id) {
            let text = "change its text, or take it away and add it again";
            return conflict(format!("camera {} has a prompt {id}; {text}", camera.id));
        }
        if of_camera.count() >= PROMPTS_MAX {
            let text = format!("has {PROMPTS_MAX} added prompts, which is the limit");
            return conflict(format!("camera {} {text}", camera.id));
        }
        Ok(Self {
            camera: camera.id.clone(),
            prompt,
        })
    }

    pub(super) fn is(&self, camera: &CameraId, prompt: &PromptId) -> bool {
        self.camera == *camera && self.prompt.id == *prompt
    }

    /// The file has a prompt of this name.
    pub(super) fn is_in(&self, camera: &CameraConfig) -> bool {
        let mut prompts = camera.prompts.iter();
        prompts.any(|prompt| self.is(&camera.id, &prompt.id))
    }

    /// As a prompt of its camera, by the rules of the file.
    pub(super) fn read(
        &self,
        camera: &CameraConfig,
        adapters: &[AdapterId],
    ) -> Result<PromptConfig, String> {
        let NewPrompt { id, keys } = &self.prompt;
        prompt_of_keys(keys, id, camera, adapters)
    }

    /// The same later; `None` when the camera or the box does not have any more what it names: zones, lines, an adapter. The camera's rate may
    /// be lower than when it was added, and is the upper limit.
    pub(super) fn in_camera(
        &self,
        camera: &CameraConfig,
        adapters: &[AdapterId],
    ) -> Option<PromptConfig> {
        let at_any_rate = CameraConfig {
            rate: LookRate::nearest(*LookRate::RANGE.end()),
            ..camera.clone()
        };
        let prompt = self.read(&at_any_rate, adapters).ok()?;
        let rate = prompt.rate.min(camera.rate);
        Some(PromptConfig { rate, ..prompt })
    }
}

impl RateBoost {
    /// All prompts of the camera get this rate, and the motion gate is off.
    pub(super) fn apply(&self, camera: &mut CameraConfig) {
        let rate = self.rate.unwrap_or(camera.rate).max(camera.rate);
        camera.rate = rate;
        camera.motion.on = false;
        for prompt in &mut camera.prompts {
            prompt.rate = rate;
        }
    }
}
