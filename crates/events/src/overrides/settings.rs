//! The values of a camera that a command may change, and their ranges.

use std::ops::RangeInclusive;

use spotter_core::{
    PromptId, Refusal, RefusalCode, Setting, Task,
    config::{CameraConfig, PromptConfig, defaults as d, prompt_text},
};

/// The camera's value under the key of `like`; `None` when the camera has no such prompt.
pub fn current_setting(camera: &CameraConfig, like: &Setting) -> Option<Setting> {
    let mut settings = camera.changeable_settings().into_iter();
    settings.find(|own| own.is_same_key(like))
}

/// Sets a value; nothing happens when the camera does not have its prompt.
///
/// A change of the camera's rate changes the prompts that have the same rate.
pub(super) fn put(camera: &mut CameraConfig, setting: &Setting) {
    match setting {
        Setting::Enabled(on) => camera.enabled = *on,
        Setting::RateHz(rate_hz) => {
            let before_hz = camera.rate_hz;
            let follow = |prompt: &&mut PromptConfig| prompt.rate_hz == before_hz;
            for prompt in camera.prompts.iter_mut().filter(follow) {
                prompt.rate_hz = *rate_hz;
            }
            camera.rate_hz = *rate_hz;
        }
        Setting::MotionGate(on) => camera.motion.on = *on,
        Setting::Text(id, text) => {
            with_prompt(camera, id, |prompt| {
                prompt.task = with_text(&prompt.task, text)
            });
        }
        Setting::PromptEnabled(id, on) => with_prompt(camera, id, |prompt| prompt.enabled = *on),
        Setting::MinScore(id, score) => with_prompt(camera, id, |prompt| prompt.min_score = *score),
    }
}

fn with_prompt(camera: &mut CameraConfig, id: &PromptId, change: impl FnOnce(&mut PromptConfig)) {
    if let Some(prompt) = camera.prompts.iter_mut().find(|prompt| prompt.id == *id) {
        change(prompt);
    }
}

/// The same task with another text. A question keeps its choices; a caption has no text.
fn with_text(task: &Task, text: &str) -> Task {
    let object = text.to_owned();
    match task {
        Task::Detect { .. } => Task::Detect { object },
        Task::Point { .. } => Task::Point { object },
        Task::Query { choices, .. } => Task::Query {
            question: object,
            choices: choices.clone(),
        },
        Task::Caption { length } => Task::Caption { length: *length },
    }
}

/// The value as it is applied, or why it is refused. The rules are those of the file.
pub(super) fn checked(setting: &Setting) -> Result<Setting, Refusal> {
    match setting {
        Setting::RateHz(rate_hz) => in_range("rate", *rate_hz, d::RATE_HZ_RANGE)?,
        Setting::MinScore(_, score) => in_range("min_score", *score, d::SHARE_RANGE)?,
        Setting::Text(id, text) => return Ok(Setting::Text(id.clone(), checked_text(text)?)),
        Setting::Enabled(_) | Setting::MotionGate(_) | Setting::PromptEnabled(..) => {}
    }
    Ok(setting.clone())
}

/// The trimmed text of a prompt, by the rules of the file.
pub(super) fn checked_text(text: &str) -> Result<String, Refusal> {
    let code = match text.trim().chars().count() > d::PROMPT_TEXT_MAX_CHARS {
        true => RefusalCode::TooLong,
        false => RefusalCode::BadValue,
    };
    prompt_text(text).map_err(|why| Refusal::new(code, format!("prompt text: {why}")))
}

/// An error when `value` is outside of `range`.
pub(super) fn in_range(name: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), Refusal> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    let text = format!("{name}: {value} is not within {least} to {most}");
    Err(Refusal::new(RefusalCode::BadValue, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_core::testing::{camera, prompt};

    #[test]
    fn prompt_without_rate_uses_the_rate_of_its_camera() {
        let slow = PromptConfig {
            rate_hz: 0.2,
            ..prompt("parcel")
        };
        let mut camera = camera("gate", vec![prompt("person"), slow]);
        put(&mut camera, &Setting::RateHz(4.0));
        let rates: Vec<f64> = camera.prompts.iter().map(|prompt| prompt.rate_hz).collect();
        assert_eq!((camera.rate_hz, rates), (4.0, vec![4.0, 0.2]));
    }

    #[test]
    fn each_setting_can_be_read_and_restored() {
        let mut camera = camera("gate", vec![prompt("person")]);
        let person = camera.prompts[0].id.clone();
        let changes = [
            Setting::Enabled(false),
            Setting::RateHz(2.5),
            Setting::MotionGate(true),
            Setting::Text(person.clone(), "person with a hat".into()),
            Setting::PromptEnabled(person.clone(), false),
            Setting::MinScore(person, 0.5),
        ];
        for change in &changes {
            assert_ne!(current_setting(&camera, change).as_ref(), Some(change));
            put(&mut camera, change);
            assert_eq!(current_setting(&camera, change).as_ref(), Some(change));
        }
        assert_eq!(camera.changeable_settings(), changes);
        let other = Setting::MinScore(PromptId::new("dog").unwrap(), 0.5);
        assert_eq!(current_setting(&camera, &other), None);
    }

    #[test]
    fn values_obey_the_rules_of_the_file() {
        let person = PromptId::new("person").unwrap();
        let set = |text: &str| Setting::Text(person.clone(), text.to_owned());
        let text = |text: &str| checked(&set(text));
        assert_eq!(text("  a dog "), Ok(set("a dog")));
        let refused = text(&"x".repeat(240)).unwrap_err();
        assert_eq!(refused.code, RefusalCode::TooLong);
        assert!(refused.text.contains("240 characters, limit 200"));
        assert_eq!(text(" ").unwrap_err().code, RefusalCode::BadValue);
        assert_eq!(text("a\tb").unwrap_err().code, RefusalCode::BadValue);
        for wrong in [0.0, -1.0, 31.0, f64::NAN, f64::INFINITY] {
            let refused = checked(&Setting::RateHz(wrong)).unwrap_err();
            assert!(refused.text.contains("0.01 to 30"), "{refused}");
        }
        assert!(checked(&Setting::MinScore(person.clone(), 1.0)).is_ok());
        assert!(checked(&Setting::MinScore(person.clone(), 1.01)).is_err());
    }
}
