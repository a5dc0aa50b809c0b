//! A site with two cameras, changed at run time, restarted and edited.

use std::time::Duration;

use serde_json::json;

use super::*;
use crate::{NewPrompt, ReadOverrides};
use spotter_config::{
    Environment, of_text,
    testing::{camera, prompt},
};
use spotter_core::{
    CaptionLength, NormBox, PromptId, PromptRegion, RegionBox, Task,
    testing::{prompt_text, rate},
};

const WALL: WallTime = WallTime::from_unix_millis(0);

fn at(seconds: u64) -> Mono {
    Mono::default().after(Duration::from_secs(seconds))
}

fn site() -> Vec<CameraConfig> {
    let site = ["gate", "yard"].map(|id| camera(id, vec![prompt("person"), prompt("dog")]));
    site.into()
}

/// A file with these lines of camera gate.
fn file(lines: &str) -> Config {
    let text = format!(
        "mqtt.url = \"mqtt://broker\"\n[camera.gate]\nurl = \"test://\"\n{lines}prompt.person.detect = \"person\"\n"
    );
    let loaded = of_text("site.toml", &text, &Environment::new("box", |_| None));
    loaded.unwrap().config
}

/// The cameras of a file with what an earlier run stored.
pub(crate) fn restarted(cameras: Vec<CameraConfig>, stored: StoredOverrides) -> ConfigStore {
    ConfigStore::new(file("").with_cameras(cameras), stored, at(0), WALL)
}

/// The cameras of a file without overrides.
fn of_file(file: Vec<CameraConfig>) -> ConfigStore {
    restarted(file, StoredOverrides::default())
}

fn fresh() -> ConfigStore {
    of_file(site())
}

fn cameras(store: &mut ConfigStore, now: Mono) -> Vec<CameraConfig> {
    store.tick(now, WALL);
    store.cameras().to_vec()
}

fn execute(store: &mut ConfigStore, command: &Command, now: Mono) -> Result<(), Refusal> {
    store.execute(command, now, WALL).map(|_| ())
}

fn code(refused: Result<(), Refusal>) -> RefusalCode {
    refused.unwrap_err().code
}

fn gate() -> CameraId {
    CameraId::new("gate").unwrap()
}

fn person() -> PromptId {
    PromptId::new("person").unwrap()
}

fn set(effective: &mut ConfigStore, setting: Setting) -> Result<(), Refusal> {
    let camera = gate();
    execute(effective, &Command::Set { camera, setting }, at(0))
}

fn text(words: &str) -> Setting {
    Setting::Text(person(), prompt_text(words))
}

/// Text and revision of the first prompt of camera `gate`, with all overrides.
fn asked(effective: &ConfigStore) -> (String, u32) {
    let first = &effective.cameras()[0].prompts[0];
    (first.task.text().to_owned(), first.revision)
}

#[test]
fn words_change_with_their_revision_and_other_cameras_do_not() {
    let mut effective = fresh();
    assert_eq!(effective.cameras(), site());
    assert_eq!(asked(&effective), ("person".into(), 1));
    set(&mut effective, text("red hat")).unwrap();
    assert_eq!(asked(&effective), ("red hat".into(), 2));
    // The same text again is no change.
    set(&mut effective, text(" red hat ")).unwrap();
    assert_eq!(asked(&effective), ("red hat".into(), 2));
    assert_eq!(cameras(&mut effective, at(0))[1], site()[1]);
    assert_eq!(effective.overrides().count(), 1);
    // The file's own text removes the override, but the prompt has a new text, so its revision increases.
    set(&mut effective, text("person")).unwrap();
    assert_eq!(asked(&effective), ("person".into(), 3));
    assert_eq!(effective.overrides().count(), 0);
}

#[test]
fn invalid_change_is_rejected_and_changes_nothing() {
    let mut effective = fresh();
    let cat = PromptId::new("cat").unwrap();
    let unknown = set(&mut effective, Setting::PromptEnabled(cat, false));
    assert_eq!(code(unknown), RefusalCode::UnknownPrompt);
    let mut captioned = site();
    let length = CaptionLength::Short;
    captioned[0].prompts[0].task = Task::Caption { length };
    let refusal = set(&mut of_file(captioned), text("red hat")).unwrap_err();
    let words = "prompt person is a caption, which has no text";
    assert_eq!(refusal, Refusal::new(RefusalCode::BadValue, words));
    let camera = CameraId::new("roof").unwrap();
    let setting = Setting::Enabled(false);
    let nowhere = execute(&mut effective, &Command::Set { camera, setting }, at(0));
    assert_eq!(code(nowhere), RefusalCode::UnknownCamera);
    assert_eq!(cameras(&mut effective, at(0)), site());
}

#[test]
fn overrides_survive_a_restart_and_end_with_a_file_edit() {
    let mut effective = fresh();
    set(&mut effective, text("red hat")).unwrap();
    set(&mut effective, Setting::Rate(rate(2.0))).unwrap();
    let text = effective.stored_of(None).to_json().unwrap();

    let stored = ReadOverrides::of_json(text.as_bytes()).unwrap().stored;
    let again = restarted(site(), stored.clone());
    assert_eq!(again.overrides().count(), 2);
    assert_eq!(again.cameras(), effective.cameras());
    assert_eq!(asked(&again), ("red hat".into(), 2));

    let mut edited = site();
    edited[0].rate = rate(5.0);
    let after = restarted(edited, stored);
    assert_eq!(after.cameras()[0].rate, rate(5.0));
    // The operator did not edit the text.
    assert_eq!(asked(&after).0, "red hat");
}

#[test]
fn overrides_of_one_camera_move_to_another_node() {
    let mut effective = fresh();
    set(&mut effective, text("red hat")).unwrap();
    let id = &site()[0].id;
    let moved = effective.stored_of(Some(id)).to_json().unwrap();
    let moved = ReadOverrides::of_json(moved.as_bytes()).unwrap().stored;
    assert!(effective.stored_of(Some(&site()[1].id)).is_empty());

    let mut other = of_file(Vec::new());
    // Before and after the list: what is stored may arrive first.
    other.set_stored_of(id, moved.clone(), at(0));
    other.replace_list(site(), at(0));
    assert_eq!(asked(&other), ("red hat".into(), 2));
    other.set_stored_of(id, StoredOverrides::default(), at(0));
    assert_eq!(asked(&other).0, asked(&fresh()).0);
    other.set_stored_of(id, moved, at(0));
    assert_eq!(asked(&other).0, "red hat");
}

#[test]
fn text_of_another_program_or_a_newer_version_is_rejected() {
    for text in ["", "{", "[]", "{\"v\":2,\"overrides\":[]}"] {
        ReadOverrides::of_json(text.as_bytes()).unwrap_err();
    }
}

#[test]
fn resetting_takes_back_one_camera_or_all() {
    let mut effective = fresh();
    let yard = CameraId::new("yard").unwrap();
    set(&mut effective, Setting::Enabled(false)).unwrap();
    let in_yard = Command::Set {
        camera: yard.clone(),
        setting: Setting::MotionGate(true),
    };
    execute(&mut effective, &in_yard, at(0)).unwrap();
    for (camera, left) in [(Some(yard), 1), (None, 0)] {
        let reset = Command::ResetOverrides { camera };
        execute(&mut effective, &reset, at(0)).unwrap();
        assert_eq!(effective.overrides().count(), left);
    }
    assert_eq!(cameras(&mut effective, at(0)), site());
}

/// A prompt `hat` with these keys.
fn hat(keys: serde_json::Value) -> NewPrompt {
    NewPrompt {
        id: PromptId::new("hat").unwrap(),
        keys: serde_json::from_value(keys).unwrap(),
    }
}

fn add(prompt: NewPrompt) -> Command {
    let camera = gate();
    Command::AddPrompt { camera, prompt }
}

#[test]
fn prompts_added_at_run_time_can_be_removed_others_not() {
    let mut effective = fresh();
    let of = |object: &str| hat(json!({"detect": object}));
    execute(&mut effective, &add(of("hat")), at(0)).unwrap();
    assert_eq!(cameras(&mut effective, at(0))[0].prompts[2], prompt("hat"));
    let with_name = |id| NewPrompt { id, ..of("hat") };
    for taken in [of("hat"), with_name(person())] {
        let refused = execute(&mut effective, &add(taken), at(0));
        assert_eq!(code(refused), RefusalCode::Conflict);
    }
    // An added prompt is not stored.
    assert_eq!(effective.overrides().count(), 0);

    let remove = |prompt| Command::RemovePrompt {
        camera: gate(),
        prompt,
    };
    let refused = execute(&mut effective, &remove(person()), at(0));
    assert_eq!(code(refused), RefusalCode::Conflict);
    execute(&mut effective, &remove(of("hat").id), at(0)).unwrap();
    assert_eq!(cameras(&mut effective, at(0)), site());
    // The same name with another text gets a new revision, so that an answer to the old text is not taken for the new one.
    execute(&mut effective, &add(of("cap")), at(0)).unwrap();
    assert_eq!(cameras(&mut effective, at(0))[0].prompts[2].revision, 2);
    effective.replace_list(site().split_off(1), at(0));
    assert_eq!(cameras(&mut effective, at(0)), &site()[1..]);
}

#[test]
fn added_prompt_is_as_fast_as_its_camera_at_most() {
    let mut effective = fresh();
    let fast = || add(hat(json!({"detect": "hat", "rate": 3})));
    let refused = execute(&mut effective, &fast(), at(0)).unwrap_err();
    let text = "prompt.rate: 3 is above the camera's 1; the camera rate is the ceiling";
    assert_eq!(refused, Refusal::new(RefusalCode::BadValue, text));
    set(&mut effective, Setting::Rate(rate(4.0))).unwrap();
    execute(&mut effective, &fast(), at(0)).unwrap();
    for (camera_hz, expected_hz) in [(4.0, 3.0), (2.0, 2.0), (5.0, 3.0)] {
        set(&mut effective, Setting::Rate(rate(camera_hz))).unwrap();
        let added = &cameras(&mut effective, at(0))[0].prompts[2];
        assert_eq!(added.rate, rate(expected_hz));
    }
}

/// A camera with a zone `drive` in its left half and a line `door` in it.
fn with_drive() -> CameraConfig {
    let areas = "zone.drive.polygon = [[0.2, 0.4], [0.4, 0.4], [0.4, 0.9], [0.2, 0.9]]\nline.door.points = [[0.2, 0.5], [0.4, 0.5]]\n";
    file(areas).cameras.remove(0)
}

#[test]
fn added_prompt_with_mistakes_is_refused_with_all_of_them() {
    let wrong = hat(json!({"detect": "hat", "crops": 13, "zones": ["driv"]}));
    let refused = execute(&mut of_file(vec![with_drive()]), &add(wrong), at(0));
    let text = "prompt.crops: 13 is not within 1 to 12; prompt.zones: \"driv\" is not a zone of this camera; did you mean \"drive\"?";
    assert_eq!(refused, Err(Refusal::new(RefusalCode::BadValue, text)));
}

#[test]
fn added_prompt_ends_with_a_zone_or_line_it_names() {
    for (mut keys, is_left) in [
        (json!({"region": "drive"}), false),
        (json!({"dwell": {"drive": "1m"}}), false),
        (json!({"lines": ["door"]}), false),
        (json!({}), true),
    ] {
        keys["detect"] = json!("hat");
        let mut effective = of_file(vec![with_drive()]);
        execute(&mut effective, &add(hat(keys)), at(0)).unwrap();
        let mut file = with_drive();
        file.zones[0].polygon[0] = (0.0, 0.4);
        effective.replace_list(vec![file.clone()], at(0));
        let added = cameras(&mut effective, at(0))[0].prompts[1].clone();
        if let PromptRegion::Fixed(region) = added.region {
            let expected = NormBox::from_corners(0.0, 0.35, 0.44, 0.95);
            assert_eq!(region, RegionBox::new(expected), "it follows its zone");
        }
        (file.zones, file.lines) = (Vec::new(), Vec::new());
        effective.replace_list(vec![file], at(0));
        let prompts = cameras(&mut effective, at(0))[0].prompts.len();
        assert_eq!(prompts == 2, is_left);
    }
}

#[test]
fn boost_raises_the_look_rate_and_opens_the_gate() {
    let mut file = site();
    file[0].motion.on = true;
    let mut effective = of_file(file.clone());
    let look = |rate_hz: f64, seconds| Command::Look {
        camera: gate(),
        lasting: Duration::from_secs(seconds),
        rate: Some(rate(rate_hz)),
    };
    execute(&mut effective, &look(5.0, 10), at(100)).unwrap();
    let during = &cameras(&mut effective, at(105))[0];
    assert_eq!((during.rate, during.motion.on), (rate(5.0), false));
    assert!(during.prompts.iter().all(|prompt| prompt.rate == rate(5.0)));
    assert!(!effective.tick(at(109), WALL));
    assert!(effective.tick(at(110), WALL));
    assert_eq!(cameras(&mut effective, at(110)), file);
}
