//! Changes that end by themselves or with the process: prompts that a command added, and a higher rate for a while.

use std::{collections::BTreeMap, time::Duration};

use super::settings::{checked_text, in_range};
use spotter_core::{
    CameraId, Mono, NewPrompt, PromptId, PromptRegion, Refusal, RefusalCode, Task,
    config::{
        CameraConfig, PromptConfig, RequestedCrops, RequestedRegion, defaults as d,
        zones_outside_region,
    },
};

/// Added prompts of one camera. Each costs a part of every look.
const PROMPTS_MAX: usize = 16;
/// The longest time of a higher rate.
const LOOK_MAX: Duration = Duration::from_secs(3600);

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
    rate_hz: Option<f64>,
}

impl AddedPrompt {
    /// Checks the prompt by the rules of the file. `others`: prompts that were added to the camera before.
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
        let region = region_of(&prompt, camera).map_err(|text| {
            let code = match &prompt.region {
                Some(RequestedRegion::Word(_)) => RefusalCode::UnknownZone,
                _ => RefusalCode::BadValue,
            };
            Refusal::new(code, format!("region: {text}"))
        })?;
        let bad_value =
            |key: &str, text: &str| Refusal::new(RefusalCode::BadValue, format!("{key}: {text}"));
        crops_of(&prompt, camera).map_err(|text| bad_value("crops", &text))?;
        if let [text, ..] = &zones_outside_region(region, &prompt.zones, &camera.zones)[..] {
            return Err(bad_value("zones", text));
        }
        if let Task::Detect { object: text }
        | Task::Point { object: text }
        | Task::Query { question: text, .. } = &mut prompt.task
        {
            *text = checked_text(text)?;
        }
        Ok(Self {
            camera: camera.id.clone(),
            prompt,
        })
    }

    pub(super) fn is(&self, camera: &CameraId, prompt: &PromptId) -> bool {
        self.camera == *camera && self.prompt.id == *prompt
    }

    /// False when its region is a zone that the camera does not have.
    pub(super) fn has_region_on(&self, camera: &CameraConfig) -> bool {
        region_of(&self.prompt, camera).is_ok()
    }

    /// As a prompt of its camera, with the camera's rules for events. The camera's rate is the upper limit.
    pub(super) fn in_camera(&self, camera: &CameraConfig) -> PromptConfig {
        // Both were checked when the prompt was added, the region also when the file was replaced.
        let region = region_of(&self.prompt, camera).unwrap_or_default();
        let crops_max = crops_of(&self.prompt, camera).unwrap_or_default();
        let NewPrompt {
            id,
            task,
            rate_hz,
            min_score,
            zones,
            ..
        } = self.prompt.clone();
        let events = camera.prompts.first().map(|first| first.events);
        PromptConfig {
            id,
            enabled: true,
            revision: 1,
            task,
            region,
            crops_max,
            rate_hz: rate_hz.unwrap_or(camera.rate_hz).min(camera.rate_hz),
            min_score,
            min_area: 0.0,
            zones,
            lines: Vec::new(),
            dwell: BTreeMap::new(),
            snapshot: false,
            verify: None,
            describe: None,
            strip: None,
            events: events.unwrap_or(d::EVENTS),
        }
    }
}

fn region_of(prompt: &NewPrompt, camera: &CameraConfig) -> Result<PromptRegion, String> {
    let on_camera = |requested: &RequestedRegion| requested.on_camera(&camera.zones);
    prompt
        .region
        .as_ref()
        .map_or(Ok(PromptRegion::Whole), on_camera)
}

fn crops_of(prompt: &NewPrompt, camera: &CameraConfig) -> Result<Option<u8>, String> {
    let crops = prompt.crops.as_ref();
    crops.map_or(Ok(camera.crops_max), RequestedCrops::crops_max)
}

impl RateBoost {
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

    /// All prompts of the camera get this rate, and the motion gate is off.
    pub(super) fn apply(&self, camera: &mut CameraConfig) {
        let rate_hz = self.rate_hz.unwrap_or(camera.rate_hz).max(camera.rate_hz);
        camera.rate_hz = rate_hz;
        camera.motion.on = false;
        for prompt in &mut camera.prompts {
            prompt.rate_hz = rate_hz;
        }
    }
}
