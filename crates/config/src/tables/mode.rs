//! `[mode.*]`: values that replace those of cameras and prompts while the mode is active. They are those that a command may change.

use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::{CameraId, ModeId, NO_MODE, PromptId, Setting, WeeklySchedule};

/// A named set of values that replace those of the cameras while it is active.
#[derive(Clone, Debug, PartialEq)]
pub struct ModeConfig {
    pub id: ModeId,
    /// When it is active by itself; `None` = by commands alone.
    pub schedule: Option<WeeklySchedule>,
    /// In the order of the file, a camera's own values before those of its prompts.
    pub settings: Vec<ModeSetting>,
}

/// A value of a camera in a mode.
#[derive(Clone, Debug, PartialEq)]
pub struct ModeSetting {
    pub camera: CameraId,
    pub setting: Setting,
}

/// What a mode's value is without its key.
const UNCHANGED: &str = "unchanged";

pub(crate) fn mode(root: &Reader<'_>, id: ModeId, mut table: Reader<'_>) -> ModeConfig {
    if id.as_str() == NO_MODE {
        table.error(format!(
            "{NO_MODE:?} is the word for no mode; choose another name"
        ));
    }
    keys! { table in "`[mode.NAME]`", "Values that replace those of the cameras while the mode is active: by its schedule, or switched over MQTT (see [Modes](mqtt.md#modes)). One mode or none is active. The name is the one in MQTT and Home Assistant; `none` is no name. Not together with `[fleet]`.",
            "[mode.night]\nschedule = \"Mon-Sun 22:00-06:00 Europe/Berlin\"\n\n[mode.night.camera.gate]\nrate = 4\n\n[mode.night.camera.gate.prompt.person]\nmin_score = 0.3";
        /// Times at which the mode is active by itself. Where the times of modes overlap, the first one in the file is active.
        schedule = schedule().optional("by commands alone"), r#"schedule = "Mon-Sun 22:00-06:00 Europe/Berlin""#;
        /// Cameras with other values in this mode.
        camera = tables(CameraId::new, "camera of this file", "none"), "[mode.night.camera.gate]";
    }
    table.finish();
    let mut settings = Vec::new();
    for (camera, table) in camera {
        let of_camera = camera_settings(root, &camera, table).into_iter().flatten();
        settings.extend(of_camera.map(|setting| ModeSetting {
            camera: camera.clone(),
            setting,
        }));
    }
    ModeConfig {
        id,
        schedule,
        settings,
    }
}

fn camera_settings(
    root: &Reader<'_>,
    camera: &CameraId,
    mut table: Reader<'_>,
) -> Vec<Option<Setting>> {
    let camera = camera.as_str();
    let cameras = root.names(&["camera"]);
    check_known(&table, camera, "camera of this file", &cameras);
    keys! { table in "`[mode.NAME.camera.NAME]`", "Values of a camera in a mode: those that a command can change, with the meaning that they have there.", "[mode.night.camera.gate]\nenabled = true\nrate = 4\nmotion_gate = false";
        /// Whether the camera is watched; `false` also closes the connection to it.
        enabled = flag().optional(UNCHANGED), "enabled = false";
        /// The most looks per second, also of the prompts that have the camera's rate.
        rate = look_rate().optional(UNCHANGED), "rate = 4";
        /// Whether frames without motion are skipped.
        motion_gate = flag().optional(UNCHANGED), "motion_gate = false";
        /// Prompts with other values in this mode.
        prompt = tables(PromptId::new, "prompt of this camera", "none"), "[mode.night.camera.gate.prompt.person]";
    }
    table.finish();
    let mut settings = vec![
        enabled.map(Setting::Enabled),
        rate.map(Setting::Rate),
        motion_gate.map(Setting::MotionGate),
    ];
    let known = root.names(&["camera", camera, "prompt"]);
    for (prompt, table) in prompt {
        // The prompts of an unknown camera are unknown too; one message is enough.
        if cameras.contains(&camera) {
            let kind = format!("prompt of camera {camera}");
            check_known(&table, prompt.as_str(), &kind, &known);
        }
        settings.extend(prompt_settings(&prompt, table));
    }
    settings
}

fn prompt_settings(prompt: &PromptId, mut table: Reader<'_>) -> [Option<Setting>; 3] {
    keys! { table in "`[mode.NAME.camera.NAME.prompt.NAME]`", "Values of a prompt in a mode.", "[mode.night.camera.gate.prompt.person]\ntext = \"person with a torch\"\nenabled = true\nmin_score = 0.3";
        /// What the prompt looks for or asks, in place of its words in `[camera.NAME.prompt.NAME]`.
        text = prompt_words().optional(UNCHANGED), r#"text = "person with a torch""#;
        /// Whether the prompt is asked.
        enabled = flag().optional(UNCHANGED), "enabled = false";
        /// Objects with a lower score are not reported.
        min_score = share().optional(UNCHANGED), "min_score = 0.3";
    }
    table.finish();
    let id = || prompt.clone();
    [
        text.map(|text| Setting::Text(id(), text)),
        enabled.map(|on| Setting::PromptEnabled(id(), on)),
        min_score.map(|score| Setting::MinScore(id(), score)),
    ]
}

/// Notes an error when `table` is about something that the file does not have.
fn check_known(table: &Reader<'_>, name: &str, kind: &str, known: &[&str]) {
    if let Err(text) = find_id(name, kind, known) {
        table.error(text);
    }
}
