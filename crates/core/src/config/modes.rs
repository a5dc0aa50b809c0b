//! `[mode.*]`: values that replace those of cameras and prompts while the mode is active. They are those that a command may change.

use super::{
    ModeConfig, ModeSetting,
    keys::{self, mode_camera, mode_prompt},
    parse,
    reader::{ConfigValue, Reader},
    schedule::schedule,
};
use crate::{CameraId, ModeId, NO_MODE, PromptId, PromptText, Setting};

/// All modes in the order of the file.
pub(super) fn modes(root: &mut Reader<'_>) -> Vec<ModeConfig> {
    let mut modes = Vec::new();
    for (id, table) in root.tables(&keys::root::MODE, ModeId::new) {
        modes.push(mode(root, id, table, &modes));
    }
    modes
}

/// In a fleet, a node has no cameras of its own that a mode could change.
pub(super) fn no_modes(root: &mut Reader<'_>) -> Vec<ModeConfig> {
    if let Some(value) = root.get(&keys::root::MODE) {
        value.error(
            "not together with [fleet]: a mode changes cameras of this file, and those of a fleet are in its list; \
             remove it and send commands to the fleet's topics instead",
        );
    }
    Vec::new()
}

/// `earlier`: the modes before it in the file, which are active first.
fn mode(
    root: &Reader<'_>,
    id: ModeId,
    mut table: Reader<'_>,
    earlier: &[ModeConfig],
) -> ModeConfig {
    if id.as_str() == NO_MODE {
        table.error(format!(
            "{NO_MODE:?} is the word for no mode; choose another name"
        ));
    }
    let hours = table.get(&keys::mode::SCHEDULE);
    let schedule = hours.as_ref().and_then(|hours| hours.parsed(schedule));
    if let (Some(hours), Some(schedule)) = (&hours, &schedule) {
        let earlier = earlier.iter().filter_map(|mode| mode.schedule.as_ref());
        if schedule.is_within(&earlier.collect::<Vec<_>>()) {
            hours.warning(
                "never makes the mode active: earlier modes in the file have all of its times; move the mode before them",
            );
        }
    }
    let cameras = table.tables(&keys::mode::CAMERA, CameraId::new);
    table.finish();
    let settings = cameras.into_iter().flat_map(|(camera, table)| {
        let settings = camera_settings(root, &camera, table).into_iter();
        settings.map(move |setting| ModeSetting {
            camera: camera.clone(),
            setting,
        })
    });
    ModeConfig {
        id,
        schedule,
        settings: settings.collect(),
    }
}

fn camera_settings(root: &Reader<'_>, camera: &CameraId, mut table: Reader<'_>) -> Vec<Setting> {
    let camera = camera.as_str();
    check_known(
        &table,
        camera,
        "camera of this file",
        &root.names(&["camera"]),
    );
    let enabled = table.get(&mode_camera::ENABLED);
    let enabled = enabled.and_then(|value| value.flag());
    let rate = table.get(&mode_camera::RATE);
    let rate = rate.as_ref().and_then(ConfigValue::look_rate);
    let motion_gate = table.get(&mode_camera::MOTION_GATE);
    let motion_gate = motion_gate.and_then(|value| value.flag());
    let prompts = table.tables(&mode_camera::PROMPT, PromptId::new);
    table.finish();
    let own = [
        enabled.map(Setting::Enabled),
        rate.map(Setting::Rate),
        motion_gate.map(Setting::MotionGate),
    ];
    // The prompts of an unknown camera are unknown too; one message is enough.
    let known = root.names(&["camera", camera, "prompt"]);
    let is_camera = root.names(&["camera"]).contains(&camera);
    let of_prompts = prompts.into_iter().flat_map(|(prompt, table)| {
        if is_camera {
            let kind = format!("prompt of camera {camera}");
            check_known(&table, prompt.as_str(), &kind, &known);
        }
        prompt_settings(&prompt, table)
    });
    own.into_iter().flatten().chain(of_prompts).collect()
}

fn prompt_settings(prompt: &PromptId, mut table: Reader<'_>) -> Vec<Setting> {
    let text = table.parsed(&mode_prompt::TEXT, |text| {
        PromptText::new(text).map_err(|error| error.to_string())
    });
    let enabled = table.get(&mode_prompt::ENABLED);
    let enabled = enabled.and_then(|value| value.flag());
    let min_score = table.get(&mode_prompt::MIN_SCORE);
    let min_score = min_score.as_ref().and_then(ConfigValue::share);
    table.finish();
    let id = || prompt.clone();
    let settings = [
        text.map(|text| Setting::Text(id(), text)),
        enabled.map(|on| Setting::PromptEnabled(id(), on)),
        min_score.map(|score| Setting::MinScore(id(), score)),
    ];
    settings.into_iter().flatten().collect()
}

/// Notes an error when `table` is about something that the file does not have.
fn check_known(table: &Reader<'_>, name: &str, kind: &str, known: &[&str]) {
    if known.contains(&name) {
        return;
    }
    table.error(match parse::nearest(name, known.iter().copied()) {
        Some(near) => format!("is not a {kind}; did you mean {near:?}?"),
        None => format!("is not a {kind}; has: {}", known.join(", ")),
    });
}
