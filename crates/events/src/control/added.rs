//! What holds for a while only: prompts that were added by a command, and a reason to look more often.

use std::time::Duration;

use super::setting::{in_range, words};
use spotter_core::{
    CameraId, Mono, NewPrompt, PromptId, Refusal, RefusalCode, Task,
    config::{CameraConfig, PromptConfig, defaults as d},
};

/// Prompts that a camera may be given by commands. Each costs a part of every look.
const PROMPTS_MAX: usize = 16;
/// The longest time for which a command may ask for more looks.
const LOOK_MAX: Duration = Duration::from_secs(3600);

/// A prompt that the file does not know.
#[derive(Clone, Debug)]
pub(super) struct Added {
    pub(super) camera: CameraId,
    prompt: NewPrompt,
}

/// Looks at a camera that are asked for from outside, until then.
#[derive(Clone, Debug)]
pub(super) struct Attention {
    pub(super) camera: CameraId,
    pub(super) until: Mono,
    rate_hz: Option<f64>,
}

impl Added {
    /// Checks it by the file's own rules. `others` are those that were added to the camera before.
    pub(super) fn new(
        camera: &CameraConfig,
        mut prompt: NewPrompt,
        others: usize,
    ) -> Result<Self, Refusal> {
        let id = &prompt.id;
        if others >= PROMPTS_MAX {
            let text = format!(
                "camera {} has {others} added prompts, limit {PROMPTS_MAX}",
                camera.id
            );
            return Err(Refusal::new(RefusalCode::Conflict, text));
        }
        if camera.prompts.iter().any(|known| known.id == *id) {
            let text = format!(
                "camera {} has a prompt {id}; change its text instead",
                camera.id
            );
            return Err(Refusal::new(RefusalCode::Conflict, text));
        }
        if let Some(rate_hz) = prompt.rate_hz {
            in_range("rate", rate_hz, d::RATE_HZ_RANGE)?;
        }
        in_range("min_score", prompt.min_score, d::SHARE_RANGE)?;
        let unknown = |zone: &&_| !camera.zones.iter().any(|known| known.id == **zone);
        if let Some(zone) = prompt.zones.iter().find(unknown) {
            let text = format!("{zone} is not a zone of camera {}", camera.id);
            return Err(Refusal::new(RefusalCode::UnknownZone, text));
        }
        if let Task::Detect { object: text }
        | Task::Point { object: text }
        | Task::Query { question: text, .. } = &mut prompt.task
        {
            *text = words(text)?;
        }
        Ok(Self {
            camera: camera.id.clone(),
            prompt,
        })
    }

    pub(super) fn is(&self, camera: &CameraId, prompt: &PromptId) -> bool {
        self.camera == *camera && self.prompt.id == *prompt
    }

    /// As a prompt of its camera, with the camera's rules for events. A rate above the camera's is cut to it, as the camera's
    /// rate is the ceiling.
    pub(super) fn in_camera(&self, camera: &CameraConfig) -> PromptConfig {
        let NewPrompt {
            id,
            task,
            rate_hz,
            min_score,
            zones,
        } = self.prompt.clone();
        let events = camera.prompts.first().map(|first| first.events);
        PromptConfig {
            id,
            enabled: true,
            revision: 1,
            task,
            rate_hz: rate_hz.unwrap_or(camera.rate_hz).min(camera.rate_hz),
            min_score,
            min_area: 0.0,
            zones,
            snapshot: false,
            verify: None,
            events: events.unwrap_or(spotter_core::config::EventConfig {
                confirm: d::CONFIRM,
                end_after: d::END_AFTER,
                still_after: d::STILL_AFTER,
            }),
        }
    }
}

impl Attention {
    /// Checks the wish.
    pub(super) fn new(
        camera: &CameraId,
        lasting: Duration,
        rate_hz: Option<f64>,
        now: Mono,
    ) -> Result<Self, Refusal> {
        if lasting.is_zero() || lasting > LOOK_MAX {
            let (asked, most) = (lasting.as_secs_f64(), LOOK_MAX.as_secs());
            let text = format!("seconds: {asked} is not above 0 and up to {most}");
            return Err(Refusal::new(RefusalCode::BadValue, text));
        }
        if let Some(rate_hz) = rate_hz {
            in_range("rate", rate_hz, d::RATE_HZ_RANGE)?;
        }
        Ok(Self {
            camera: camera.clone(),
            until: now.after(lasting),
            rate_hz,
        })
    }

    /// All prompts of the camera are asked at this pace, and the motion gate holds nothing back.
    pub(super) fn put(&self, camera: &mut CameraConfig) {
        let rate_hz = self.rate_hz.unwrap_or(camera.rate_hz).max(camera.rate_hz);
        camera.rate_hz = rate_hz;
        camera.motion.on = false;
        for prompt in &mut camera.prompts {
            prompt.rate_hz = rate_hz;
        }
    }
}
