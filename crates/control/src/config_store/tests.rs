//! A site with two cameras, changed at run time, restarted and edited.

use std::time::Duration;

use super::*;
use crate::ReadOverrides;
use spotter_config::{
    Environment, of_text,
    testing::{camera, prompt},
};
use spotter_core::{
    CaptionLength, NormBox, PromptId, PromptRegion, Task,
    testing::{prompt_text, rate},
};

mod stories;

const WALL: WallTime = WallTime::from_unix_millis(0);

fn at(seconds: u64) -> Mono {
    Mono::default().after(Duration::from_secs(seconds))
}

fn site() -> Vec<CameraConfig> {
    let site = ["gate", "yard"].map(|id| camera(id, vec![prompt("person"), prompt("dog")]));
    site.into()
}

/// The cameras of a file with what an earlier run stored.
pub(crate) fn restarted(cameras: Vec<CameraConfig>, stored: StoredOverrides) -> ConfigStore {
    let file = stories::site_of(stories::SITE);
    ConfigStore::new(file.with_cameras(cameras), stored, at(0), WALL)
}

/// The cameras of a file without overrides.
fn of_file(file: Vec<CameraConfig>) -> ConfigStore {
    restarted(file, StoredOverrides::default())
}

fn fresh() -> ConfigStore {
    of_file(site())
}

fn gate() -> CameraId {
    CameraId::new("gate").unwrap()
}

fn person() -> PromptId {
    PromptId::new("person").unwrap()
}

fn set(effective: &mut ConfigStore, setting: Setting) -> Result<(), Refusal> {
    let camera = gate();
    let set = Command::Set { camera, setting };
    effective.execute(&set, at(0), WALL).map(drop)
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
fn caption_has_no_words_to_change() {
    let mut captioned = site();
    let length = CaptionLength::Short;
    captioned[0].prompts[0].task = Task::Caption { length };
    let refusal = set(&mut of_file(captioned), text("red hat")).unwrap_err();
    let words = "prompt person is a caption, which has no text";
    assert_eq!(refusal, Refusal::new(RefusalCode::BadValue, words));
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
