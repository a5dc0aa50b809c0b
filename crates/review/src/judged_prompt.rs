//! A prompt and its alarms whose marks belong together.

use spotter_config::{CameraConfig, PromptConfig};
use spotter_history::{SeriesKey, StoredAlarm};
use spotter_quality::{AnsweringModel, JudgedAlarm, Series};

/// A prompt that finds objects, with the alarms of what it is now.
#[derive(Clone, Copy, Debug)]
pub struct JudgedPrompt<'a> {
    pub camera: &'a CameraConfig,
    pub prompt: &'a PromptConfig,
    pub model: &'a AnsweringModel,
}

impl<'a> JudgedPrompt<'a> {
    /// Those of a camera.
    pub fn all_of(
        camera: &'a CameraConfig,
        model: &'a AnsweringModel,
    ) -> impl Iterator<Item = Self> {
        let all = camera.prompts.iter();
        let finding = all.filter(|prompt| prompt.task.finds_objects());
        finding.map(move |prompt| Self {
            camera,
            prompt,
            model,
        })
    }

    pub fn key(&self) -> SeriesKey {
        let series = Series::new(self.prompt, self.model);
        SeriesKey {
            camera: self.camera.id.clone(),
            prompt: self.prompt.id.clone(),
            series: series.as_str().to_owned(),
        }
    }
}

/// `None`: it has no mark.
pub(crate) fn judged_alarm(alarm: &StoredAlarm) -> Option<JudgedAlarm> {
    Some(JudgedAlarm {
        place: alarm.place,
        judgement: alarm.judgement?,
        choice: alarm.choice()?,
    })
}
