//! A site with two cameras, changed at run time, restarted and edited.

use std::time::Duration;

use super::*;
use crate::overrides::OverrideFile;
use spotter_core::{
    NewPrompt, NormBox, PromptId, PromptRegion, RegionBox, Task, ZoneId,
    config::{PromptConfig, RequestedCrops, RequestedRegion, ZoneConfig, ZonePoint},
    testing::{camera, prompt},
};

fn at(seconds: u64) -> Mono {
    Mono::default().after(Duration::from_secs(seconds))
}

fn site() -> Vec<CameraConfig> {
    let site = ["gate", "yard"].map(|id| camera(id, vec![prompt("person"), prompt("dog")]));
    site.into()
}

/// The cameras of a file without overrides.
fn of_file(file: Vec<CameraConfig>) -> EffectiveCameras {
    let (effective, discarded) = EffectiveCameras::new(file, StoredOverrides::default());
    assert_eq!(discarded, []);
    effective
}

fn fresh() -> EffectiveCameras {
    of_file(site())
}

fn code(refused: Result<OverrideEffect, Refusal>) -> RefusalCode {
    refused.unwrap_err().code
}

fn gate() -> CameraId {
    CameraId::new("gate").unwrap()
}

fn person() -> PromptId {
    PromptId::new("person").unwrap()
}

fn set(effective: &mut EffectiveCameras, setting: Setting) -> Result<OverrideEffect, Refusal> {
    let camera = gate();
    effective.execute(&Command::Set { camera, setting }, at(0))
}

fn text(words: &str) -> Setting {
    Setting::Text(person(), words.into())
}

/// Text and revision of the first prompt of camera `gate`, with all overrides.
fn asked(effective: &mut EffectiveCameras) -> (String, u32) {
    let cameras = effective.cameras(at(0));
    let first = &cameras[0].prompts[0];
    (first.task.text().to_owned(), first.revision)
}

#[test]
fn without_changes_the_file_is_in_force() {
    assert_eq!(fresh().cameras(at(0)), site());
}

#[test]
fn words_change_with_their_revision_and_other_cameras_do_not() {
    let mut effective = fresh();
    assert_eq!(asked(&mut effective), ("person".into(), 1));
    let effect = set(&mut effective, text("red hat"));
    assert_eq!(effect, Ok(OverrideEffect::Stored));
    assert_eq!(asked(&mut effective), ("red hat".into(), 2));
    // The same text again is no change.
    set(&mut effective, text(" red hat ")).unwrap();
    assert_eq!(asked(&mut effective), ("red hat".into(), 2));
    assert_eq!(effective.cameras(at(0))[1], site()[1]);
    assert_eq!(effective.overrides().len(), 1);
    // The file's own text removes the override, but the prompt has a new text, so its revision increases.
    set(&mut effective, text("person")).unwrap();
    assert_eq!(asked(&mut effective), ("person".into(), 3));
    assert!(effective.overrides().is_empty());
}

#[test]
fn invalid_change_is_rejected_and_changes_nothing() {
    let mut effective = fresh();
    let too_fast = set(&mut effective, Setting::RateHz(99.0));
    assert_eq!(code(too_fast), RefusalCode::BadValue);
    let cat = PromptId::new("cat").unwrap();
    let unknown = set(&mut effective, Setting::PromptEnabled(cat, false));
    assert_eq!(code(unknown), RefusalCode::UnknownPrompt);
    let camera = CameraId::new("roof").unwrap();
    let setting = Setting::Enabled(false);
    let nowhere = effective.execute(&Command::Set { camera, setting }, at(0));
    assert_eq!(code(nowhere), RefusalCode::UnknownCamera);
    assert_eq!(effective.cameras(at(0)), site());
}

#[test]
fn overrides_survive_a_restart_and_end_with_a_file_edit() {
    let folder = tempfile::tempdir().unwrap();
    let store = OverrideFile::new(folder.path().join("state"));
    let mut effective = fresh();
    set(&mut effective, text("red hat")).unwrap();
    set(&mut effective, Setting::RateHz(2.0)).unwrap();
    effective.cameras(at(0));
    store.save(&effective.stored()).unwrap();

    let stored = store.load().unwrap();
    let (mut again, discarded) = EffectiveCameras::new(site(), stored.clone());
    assert_eq!(discarded, []);
    assert_eq!(again.cameras(at(0)), effective.cameras(at(0)));
    assert_eq!(asked(&mut again), ("red hat".into(), 2));

    let mut edited = site();
    edited[0].rate_hz = 5.0;
    let (mut after, discarded) = EffectiveCameras::new(edited, stored);
    let [DiscardedOverride { was, file }] = &discarded[..] else {
        panic!("{discarded:?}");
    };
    assert_eq!(was.now, Setting::RateHz(2.0));
    assert_eq!(file, &Some(Setting::RateHz(5.0)));
    assert_eq!(after.cameras(at(0))[0].rate_hz, 5.0);
    // The operator did not edit the text.
    assert_eq!(asked(&mut after).0, "red hat");
}

#[test]
fn overrides_of_one_camera_move_to_another_node() {
    let mut effective = fresh();
    set(&mut effective, text("red hat")).unwrap();
    effective.cameras(at(0));
    let id = &site()[0].id;
    let moved = effective.stored_of(id).to_json().unwrap();
    let moved = StoredOverrides::of_json(&moved).unwrap();
    assert!(effective.stored_of(&site()[1].id).is_empty());

    let mut other = of_file(Vec::new());
    // Before and after the list: what is stored may arrive first.
    other.set_stored_of(id, moved.clone());
    other.replace_file(site());
    assert_eq!(asked(&mut other), ("red hat".into(), 2));
    other.set_stored_of(id, StoredOverrides::default());
    assert_eq!(asked(&mut other).0, asked(&mut fresh()).0);
    other.set_stored_of(id, moved);
    assert_eq!(asked(&mut other).0, "red hat");
}

#[test]
fn damaged_override_file_is_reported_once_and_renamed() {
    let folder = tempfile::tempdir().unwrap();
    let store = OverrideFile::new(folder.path().to_owned());
    for damage in ["", "{", "[]", "{\"v\":2,\"overrides\":[]}"] {
        std::fs::write(folder.path().join("overrides.json"), damage).unwrap();
        let published = store.load().unwrap_err().to_string();
        assert!(published.contains("overrides.damaged"), "{published}");
        assert!(store.load().unwrap().is_empty());
    }
}

#[test]
fn resetting_takes_back_one_camera_or_all() {
    let mut effective = fresh();
    let yard = CameraId::new("yard").unwrap();
    set(&mut effective, Setting::Enabled(false)).unwrap();
    let (camera, setting) = (yard.clone(), Setting::MotionGate(true));
    let set = Command::Set { camera, setting };
    effective.execute(&set, at(0)).unwrap();
    let reset = |camera| Command::ResetOverrides { camera };
    effective.execute(&reset(Some(yard)), at(0)).unwrap();
    assert_eq!(effective.overrides().len(), 1);
    effective.execute(&reset(None), at(0)).unwrap();
    assert_eq!(effective.cameras(at(0)), site());
}

fn hat() -> NewPrompt {
    NewPrompt {
        id: PromptId::new("hat").unwrap(),
        task: Task::Detect {
            object: "hat".into(),
        },
        rate_hz: Some(7.0),
        min_score: 0.3,
        zones: Vec::new(),
        region: None,
        crops: None,
    }
}

#[test]
fn prompts_added_at_run_time_can_be_removed_others_not() {
    let mut effective = fresh();
    let add = |prompt| Command::AddPrompt {
        camera: gate(),
        prompt,
    };
    effective.execute(&add(hat()), at(0)).unwrap();
    let added = effective.cameras(at(0))[0].prompts[2].clone();
    assert_eq!(added.id.as_str(), "hat");
    assert_eq!(added.rate_hz, 1.0, "the camera's rate is the limit");
    let with_name = |id| NewPrompt { id, ..hat() };
    for taken in [hat(), with_name(person())] {
        let refused = effective.execute(&add(taken), at(0));
        assert_eq!(code(refused), RefusalCode::Conflict);
    }
    // An added prompt is not stored.
    assert!(effective.overrides().is_empty());

    let remove = |prompt| Command::RemovePrompt {
        camera: gate(),
        prompt,
    };
    let refused = effective.execute(&remove(person()), at(0));
    assert_eq!(code(refused), RefusalCode::Conflict);
    effective.execute(&remove(hat().id), at(0)).unwrap();
    assert_eq!(effective.cameras(at(0)), site());
    // The same name with another text gets a new revision, so that an answer to the old text is not taken for the new one.
    let mut other = hat();
    other.task = Task::Detect {
        object: "cap".into(),
    };
    effective.execute(&add(other), at(0)).unwrap();
    assert_eq!(effective.cameras(at(0))[0].prompts[2].revision, 2);
    effective.replace_file(site().split_off(1));
    assert_eq!(effective.cameras(at(0)), &site()[1..]);
}

/// A camera with a zone `drive` in its left half, and five crops at most.
fn with_drive() -> CameraConfig {
    let drive = ZoneConfig {
        id: ZoneId::new("drive").unwrap(),
        polygon: vec![(0.2, 0.4), (0.4, 0.4), (0.4, 0.9), (0.2, 0.9)],
        point: ZonePoint::Bottom,
    };
    CameraConfig {
        zones: vec![drive],
        crops_max: Some(5),
        ..camera("gate", vec![prompt("person")])
    }
}

fn add_hat(
    effective: &mut EffectiveCameras,
    region: Option<RequestedRegion>,
    crops: Option<RequestedCrops>,
) -> Result<PromptConfig, Refusal> {
    let prompt = NewPrompt {
        region,
        crops,
        ..hat()
    };
    let camera = gate();
    effective.execute(&Command::AddPrompt { camera, prompt }, at(0))?;
    Ok(effective.cameras(at(0))[0].prompts[1].clone())
}

fn word(text: &str) -> Option<RequestedRegion> {
    Some(RequestedRegion::Word(text.into()))
}

#[test]
fn added_prompt_has_its_region_and_crops() {
    let fixed =
        |x0, y0, x1, y1| PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(x0, y0, x1, y1)));
    let corners = Some(RequestedRegion::Corners(vec![0.5, 0.25, 1.0, 0.75]));
    let auto = Some(RequestedCrops::Word("auto".into()));
    for (region, crops, expected) in [
        (None, None, (PromptRegion::Whole, Some(5))),
        (corners, auto, (fixed(0.5, 0.25, 1.0, 0.75), None)),
        (
            word("drive"),
            Some(RequestedCrops::Most(1)),
            (fixed(0.18, 0.35, 0.42, 0.95), Some(1)),
        ),
        (word("motion"), None, (PromptRegion::Motion, Some(5))),
    ] {
        let added = add_hat(&mut of_file(vec![with_drive()]), region, crops).unwrap();
        assert_eq!((added.region, added.crops_max), expected);
    }
}

/// The messages are those of the file.
#[test]
fn added_prompt_with_wrong_region_or_crops_is_refused() {
    let corners = |corners: [f64; 4]| Some(RequestedRegion::Corners(corners.into()));
    let most = |most| Some(RequestedCrops::Most(most));
    let crops_word = Some(RequestedCrops::Word("all".into()));
    let (value, zone) = (RefusalCode::BadValue, RefusalCode::UnknownZone);
    for (region, crops, code, text) in [
        (
            corners([1.5, 0.0, 1.0, 1.0]),
            None,
            value,
            "region: 1.5 is above 1",
        ),
        (
            corners([0.5, 0.2, 0.3, 0.6]),
            None,
            value,
            "region: x1 is 0.3, which is not right of x0, 0.5; write [x0, y0, x1, y1]: left, top, right, bottom",
        ),
        (
            Some(RequestedRegion::Corners(vec![0.1])),
            None,
            value,
            "region: a region is [x0, y0, x1, y1] (left, top, right, bottom), this one has 1 numbers",
        ),
        (
            word("driv"),
            None,
            zone,
            "region: \"driv\" is not a zone of this camera; did you mean \"drive\"?",
        ),
        (None, most(13), value, "crops: 13 is above 12"),
        (None, most(-1), value, "crops: -1 is below 1"),
        (None, crops_word, value, "crops: \"all\" is not one of auto"),
    ] {
        let refused = add_hat(&mut of_file(vec![with_drive()]), region, crops);
        assert_eq!(refused, Err(Refusal::new(code, text)));
    }
    let prompt = NewPrompt {
        zones: vec![ZoneId::new("drive").unwrap()],
        region: corners([0.7, 0.0, 1.0, 1.0]),
        ..hat()
    };
    let camera = gate();
    let refused =
        of_file(vec![with_drive()]).execute(&Command::AddPrompt { camera, prompt }, at(0));
    assert_eq!(
        refused.unwrap_err().text,
        "zones: zone \"drive\" is outside of the prompt's region, so nothing is found in it; change one of them"
    );
}

#[test]
fn added_prompt_ends_with_the_zone_of_its_region() {
    let mut effective = of_file(vec![with_drive()]);
    add_hat(&mut effective, word("drive"), None).unwrap();
    let mut file = with_drive();
    file.zones[0].polygon[0] = (0.0, 0.4);
    effective.replace_file(vec![file.clone()]);
    let PromptRegion::Fixed(region) = effective.cameras(at(0))[0].prompts[1].region else {
        panic!("the region follows its zone");
    };
    assert_eq!(region.norm_box().x0, 0.0);
    file.zones.clear();
    effective.replace_file(vec![file.clone()]);
    assert_eq!(effective.cameras(at(0)), [file]);
}

#[test]
fn boost_raises_the_look_rate_and_opens_the_gate() {
    let mut file = site();
    file[0].motion.on = true;
    let mut effective = of_file(file.clone());
    let look = |rate_hz, seconds| Command::Look {
        camera: gate(),
        lasting: Duration::from_secs(seconds),
        rate_hz,
    };
    assert!(effective.execute(&look(None, 0), at(0)).is_err());
    assert!(effective.execute(&look(Some(99.0), 5), at(0)).is_err());
    effective.execute(&look(Some(5.0), 10), at(100)).unwrap();
    let during = &effective.cameras(at(105))[0];
    assert_eq!((during.rate_hz, during.motion.on), (5.0, false));
    assert!(during.prompts.iter().all(|prompt| prompt.rate_hz == 5.0));
    assert_eq!(effective.next_at(), Some(at(110)));
    assert_eq!(effective.cameras(at(110)), file);
    assert_eq!(effective.next_at(), None);
}
