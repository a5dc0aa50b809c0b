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

#[test]
fn mistakes_of_modes_are_reported_with_line_and_column() {
    for (extra, line) in [
        (
            "[mode.night.camera.gat]\nrate = 2",
            "8:1 mode.night.camera.gat: \"gat\" is not a camera of this file; did you mean \"gate\"?",
        ),
        (
            "[mode.night.camera.yard.prompt.car]\nenabled = true",
            "8:20 mode.night.camera.yard: \"yard\" is not a camera of this file; has: gate",
        ),
        (
            "[mode.night.camera.gate.prompt.dog]\nenabled = true",
            "8:1 mode.night.camera.gate.prompt.dog: \"dog\" is not a prompt of camera gate; has: person",
        ),
        (
            "[mode.night.camera.gate]\nrate = 60",
            "9:8 mode.night.camera.gate.rate: 60 is above 30",
        ),
        (
            "[mode.night.camera.gate]\nurl = \"test://\"",
            "9:1 mode.night.camera.gate.url: unknown key; valid keys: enabled, rate, motion_gate, prompt",
        ),
        (
            "[mode.night.camera.gate.prompt.person]\ntext = \" \"",
            "9:8 mode.night.camera.gate.prompt.person.text: empty; describe in plain words what to look for",
        ),
        (
            "[mode.none]",
            "8:1 mode.none: \"none\" is the word for no mode; choose another name",
        ),
        (
            "[mode.night]\nschedule = \"22:00-06:00\"",
            "9:12 mode.night.schedule: \"22:00-06:00\" is not days, times and a time zone; write \"Mon-Fri 18:00-06:00 Europe/Berlin\"",
        ),
    ] {
        assert_eq!(said(&person(extra)), [line]);
    }
    // A camera with a mistake is one all the same.
    let text = gate("rate = 60") + "[mode.night.camera.gate.prompt.person]\nenabled = true\n";
    assert_eq!(said(&text), ["5:8 camera.gate.rate: 60 is above 30"]);
}

#[test]
fn modes_are_refused_in_a_fleet() {
    let text = "[mqtt]\nurl = \"mqtt://broker\"\n[fleet]\nname = \"hall\"\nurl = \"nats://nats\"\n[mode.night]\n";
    let said = said(text);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(
        said[0].contains("mode: not together with [fleet]"),
        "{said:?}"
    );
}
