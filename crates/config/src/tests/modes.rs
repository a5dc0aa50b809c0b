//! `[mode.*]`: values, and what is wrong with them.

use super::*;
use spotter_core::{
    CameraId, PromptId, Setting,
    testing::{prompt_text, rate, share},
};

#[test]
fn mode_has_its_settings_and_schedule() {
    let text = person(
        "[mode.night]\nschedule = \"Mon-Sun 22:00-06:00 Europe/Berlin\"\n\
         [mode.night.camera.gate]\nprompt.person = { text = \" a torch \", enabled = true, min_score = 0.3 }\n\
         enabled = false\nrate = 4\nmotion_gate = true\n[mode.away]\n",
    );
    let modes = loaded(&text).config.modes;
    let ids: Vec<_> = modes.iter().map(|mode| mode.id.as_str()).collect();
    assert_eq!(ids, ["night", "away"]);
    assert!(modes[0].schedule.is_some() && modes[1].schedule.is_none());
    let camera = CameraId::new("gate").unwrap();
    let person = PromptId::new("person").unwrap();
    let settings = [
        Setting::Enabled(false),
        Setting::Rate(rate(4.0)),
        Setting::MotionGate(true),
        Setting::Text(person.clone(), prompt_text("a torch")),
        Setting::PromptEnabled(person.clone(), true),
        Setting::MinScore(person, share(0.3)),
    ];
    let settings = settings.map(|setting| ModeSetting {
        camera: camera.clone(),
        setting,
    });
    assert_eq!(modes[0].settings, settings);
    assert_eq!(modes[1].settings, []);
}
