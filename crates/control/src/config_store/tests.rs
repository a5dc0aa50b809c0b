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

/// The rule of a model that has room for short words, and draws no outlines.
fn short_words() -> PromptRule {
    PromptRule::new(|prompt| match &prompt.task {
        Task::Segment { .. } => Err("no outlines".into()),
        task if task.text().len() > 9 => Err("too long".into()),
        _ => Ok(()),
    })
}

// Faults: K20.
#[test]
fn prompts_that_the_model_cannot_answer_are_refused() {
    let mut store = fresh();
    store.set_prompt_rule(short_words(), at(0));
    set(&mut store, text("a hat")).unwrap();
    let wrong = set(&mut store, text("a very red hat"));
    assert_eq!(wrong, Err(Refusal::bad_value("too long")));
    for (keys, wrong) in [
        (
            r#""detect": "hat", "verify": "Is it a hat?""#,
            "prompt.verify: too long",
        ),
        (r#""segment": "hat""#, "prompt.segment: no outlines"),
    ] {
        let request =
            format!(r#"{{"op": "prompt_add", "cam": "gate", "prompt": {{"id": "hat", {keys}}}}}"#);
        let add = Command::of_request(serde_json::from_str(&request).unwrap()).unwrap();
        let refused = store.execute(&add, at(0), WALL);
        assert_eq!(refused, Err(Refusal::bad_value(wrong)), "{keys}");
    }
    assert_eq!(asked(&store), ("a hat".to_owned(), 2));
    assert_eq!(store.cameras()[0].prompts.len(), 2);
}

// Faults: K20.
#[test]
fn stored_words_that_another_model_cannot_answer_are_discarded() {
    let mut before = fresh();
    set(&mut before, text("a very red hat")).unwrap();
    set(&mut before, Setting::Rate(rate(2.0))).unwrap();
    let mut store = restarted(site(), before.stored().unwrap());
    store.set_prompt_rule(short_words(), at(0));
    assert_eq!(asked(&store).0, "person");
    assert_eq!(store.overrides().count(), 1, "the rate");
}

// Faults: K20.
#[test]
fn words_that_the_model_cannot_answer_have_their_keys() {
    let text = "camera.gate = { url = \"test://\", prompt.dog = { segment = \"dog\", describe = \"What is it?\" } }\n\
        [mode.night]\ncamera.gate.prompt.dog.text = \"a black dog\"\n[mode.away]\ncamera.gate.prompt.dog.text = \"cat\"\n";
    let mut site = stories::site_of(text);
    let keys = |site: &Config| {
        let unfit = short_words().unfit(site).into_iter();
        unfit.map(|unfit| unfit.key).collect::<Vec<_>>()
    };
    let dog = "camera.gate.prompt.dog";
    let night = format!("mode.night.{dog}.text");
    let away = format!("mode.away.{dog}.text");
    let [describe, segment] = ["describe", "segment"].map(|key| format!("{dog}.{key}"));
    assert_eq!(
        keys(&site),
        [&segment, &describe, &night, &away].map(String::clone)
    );
    let object = "a very red hat".into();
    let short = std::mem::replace(
        &mut site.cameras[0].prompts[0].task,
        Task::Detect { object },
    );
    let too_long = short_words().unfit(&site);
    assert_eq!(
        (&too_long[0].key, &*too_long[0].reason),
        (&segment, "too long")
    );
    assert_eq!(too_long[1].key, describe, "one mistake of one key");
    site.cameras[0].prompts[0].task = short;
    site.cameras[0].prompts[0].outlines_max = 0;
    site.cameras[0].prompts[0].describe = None;
    assert_eq!(keys(&site), [night]);
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
fn broken_adapter_disables_the_prompts_that_name_it() {
    let prompts = "prompt.car.detect = \"car\"\nprompt.plate = { detect = \"plate\", adapter = \"plates\" }\n";
    let site =
        format!("[adapter.plates]\npath = \"p\"\n[camera.gate]\nurl = \"test://\"\n{prompts}");
    let file = stories::site_of(&site);
    let mut store = ConfigStore::new(file, StoredOverrides::default(), at(0), WALL);
    store.take_change();
    let faults = [(AdapterId::new("plates").unwrap(), "it is cut off".into())];
    assert!(store.set_adapter_faults(faults.clone().into(), Mono::default()));
    assert!(
        !store.set_adapter_faults(faults.into(), Mono::default()),
        "no news"
    );
    let states = |store: &ConfigStore| {
        let prompts = store.cameras()[0].prompts.iter();
        prompts
            .map(|prompt| (prompt.enabled, prompt.is_asked()))
            .collect::<Vec<_>>()
    };
    assert_eq!(states(&store), [(true, true), (true, false)]);
    assert!(!store.take_change().has_other_topics());
    assert!(store.set_adapter_faults(BTreeMap::new(), Mono::default()));
    assert_eq!(states(&store), [(true, true), (true, true)]);
}

/// The file hides another place after a mask was drawn.
#[test]
fn drawn_mask_stays_when_other_shapes_of_the_file_change() {
    let mut store = fresh();
    let seen = store.shapes(&gate()).unwrap().version();
    let request = format!(
        r#"{{"op": "shapes_set", "cam": "gate", "seen": "{seen}", "shapes": {{"mask": [[[0, 0], [0.5, 0], [0, 0.5]]]}}}}"#
    );
    let set = Command::of_request(serde_json::from_str(&request).unwrap()).unwrap();
    store.execute(&set, at(0), WALL).unwrap();
    let (drawn, of_file) = (
        [(0.0, 0.0), (0.5, 0.0), (0.0, 0.5)],
        [(1.0, 1.0), (0.9, 1.0), (1.0, 0.9)],
    );
    let mut file = site();
    file[0].mask = vec![of_file.to_vec()];
    store.replace_list(file, at(1));
    assert_eq!(store.cameras()[0].mask, [of_file, drawn]);
}

#[test]
fn shapes_survive_a_restart_with_the_size_of_their_picture() {
    let mut store = fresh();
    let version = |store: &ConfigStore| store.shapes(&gate()).unwrap().version();
    let seen = version(&store);
    let set = |seen: &str| {
        let shapes = r#"{"mask": [[[0, 0], [0.12344, 0], [1, 1]]], "prompt": {"dog": {"region": "motion"}}}"#;
        let request = format!(
            r#"{{"op": "shapes_set", "cam": "gate", "seen": "{seen}", "shapes": {shapes}, "size": [1920, 1080]}}"#
        );
        Command::of_request(serde_json::from_str(&request).unwrap()).unwrap()
    };
    let result = store.execute(&set(&seen), at(0), WALL).unwrap();
    assert_eq!(result, ChangeResult::ShapesVersion(version(&store)));
    let refusal = store.execute(&set(&seen), at(0), WALL).unwrap_err();
    let details = RefusalDetails::Shapes {
        now: shapes_of(&store.cameras()[0]),
        version: version(&store),
    };
    assert_eq!(refusal.details.as_deref(), Some(&details));
    let stored = store.stored().unwrap().to_json().unwrap();
    let read = ReadOverrides::of_json(stored.as_bytes()).unwrap();
    let again = restarted(site(), read.stored);
    assert_eq!(again.cameras(), store.cameras());
    assert_eq!(
        again.cameras()[0].mask,
        [[(0.0, 0.0), (0.1234, 0.0), (1.0, 1.0)]]
    );
    assert_eq!(again.cameras()[0].prompts[1].region, PromptRegion::Motion);
    let report = again.shapes(&gate()).unwrap();
    assert_eq!(report.drawn_size, Some([1920, 1080]));
    assert_eq!(report.version(), version(&store));
    assert!(report.file.mask.is_empty());
}

/// Who watches a camera of the list is known from the fleet.
#[test]
fn camera_of_another_node_is_refused_with_its_node() {
    let mut store = fresh();
    store.set_own(["yard"].map(|id| CameraId::new(id).unwrap()).into(), at(0));
    let refused = |store: &ConfigStore| store.camera(&gate()).unwrap_err().text;
    assert!(refused(&store).contains("no node of the fleet"));
    let owner = FleetOwner {
        node: NodeId::new("edge2").unwrap(),
        url: Some("https://edge2.example".into()),
    };
    store.set_owners([(gate(), owner.clone())].into());
    let text = "camera gate is watched by node edge2 (https://edge2.example); change it there";
    assert_eq!(refused(&store), text);
    assert_eq!(store.shapes(&gate()).unwrap().owner, Some(owner));
    assert_eq!(
        store.shapes(&CameraId::new("yard").unwrap()).unwrap().owner,
        None
    );
}
