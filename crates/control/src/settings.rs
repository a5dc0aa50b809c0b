//! The values of a camera that a command may change.

use spotter_config::{CameraConfig, PromptConfig, shapes_of, with_shapes};
use spotter_core::{PromptId, Setting, Task};

/// The camera's value under the key of `like`; `None` when the camera has no such prompt.
pub fn current_setting(camera: &CameraConfig, like: &Setting) -> Option<Setting> {
    if let Setting::Shapes(_) = like {
        return Some(Setting::Shapes(shapes_of(camera)));
    }
    let mut settings = camera.changeable_settings().into_iter();
    settings.find(|own| own.is_same_key(like))
}

/// Sets a value; nothing happens when the camera does not have its prompt, or cannot have these shapes.
///
/// A change of the camera's rate changes the prompts that have the same rate.
pub(super) fn put(camera: &mut CameraConfig, setting: &Setting) {
    match setting {
        Setting::Enabled(on) => camera.enabled = *on,
        Setting::Rate(rate) => {
            let before = camera.rate;
            let follow = |prompt: &&mut PromptConfig| prompt.rate == before;
            for prompt in camera.prompts.iter_mut().filter(follow) {
                prompt.rate = *rate;
            }
            camera.rate = *rate;
        }
        Setting::MotionGate(on) => camera.motion.on = *on,
        Setting::Text(id, text) => {
            with_prompt(camera, id, |prompt| {
                set_text(&mut prompt.task, text.as_str())
            });
        }
        Setting::PromptEnabled(id, on) => with_prompt(camera, id, |prompt| prompt.enabled = *on),
        Setting::MinScore(id, score) => with_prompt(camera, id, |prompt| prompt.min_score = *score),
        Setting::Shapes(shapes) => {
            if let Ok(drawn) = with_shapes(camera, shapes) {
                *camera = drawn;
            }
        }
    }
}

fn with_prompt(camera: &mut CameraConfig, id: &PromptId, change: impl FnOnce(&mut PromptConfig)) {
    if let Some(prompt) = camera.prompts.iter_mut().find(|prompt| prompt.id == *id) {
        change(prompt);
    }
}

/// A question keeps its choices; a caption has no text.
fn set_text(task: &mut Task, text: &str) {
    match task {
        Task::Detect { object: words }
        | Task::Point { object: words }
        | Task::Segment { object: words, .. }
        | Task::Query {
            question: words, ..
        } => text.clone_into(words),
        Task::Caption { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spotter_config::testing::{camera, prompt};
    use spotter_core::testing::{prompt_text, rate, share};

    #[test]
    fn prompt_without_rate_uses_the_rate_of_its_camera() {
        let slow = PromptConfig {
            rate: rate(0.2),
            ..prompt("parcel")
        };
        let mut camera = camera("gate", vec![prompt("person"), slow]);
        put(&mut camera, &Setting::Rate(rate(4.0)));
        let rates: Vec<f64> = camera.prompts.iter().map(|p| p.rate.hz()).collect();
        assert_eq!((camera.rate.hz(), rates), (4.0, vec![4.0, 0.2]));
    }

    #[test]
    fn each_setting_can_be_read_and_restored() {
        let mut camera = camera("gate", vec![prompt("person")]);
        let person = camera.prompts[0].id.clone();
        let changes = [
            Setting::Enabled(false),
            Setting::Rate(rate(2.5)),
            Setting::MotionGate(true),
            Setting::Text(person.clone(), prompt_text("person with a hat")),
            Setting::PromptEnabled(person.clone(), false),
            Setting::MinScore(person, share(0.5)),
        ];
        for change in &changes {
            assert_ne!(current_setting(&camera, change).as_ref(), Some(change));
            put(&mut camera, change);
            assert_eq!(current_setting(&camera, change).as_ref(), Some(change));
        }
        assert_eq!(camera.changeable_settings(), changes);
        let other = Setting::MinScore(PromptId::new("dog").unwrap(), share(0.5));
        assert_eq!(current_setting(&camera, &other), None);
    }
}
