//! What the keys of cameras, prompts and modes become.

use super::*;
use spotter_core::{
    AdapterId, CameraId, NormBox, PromptId, PromptRegion, QueryOptions, RegionBox, Setting,
    SpatialReference, StripShape,
    testing::{prompt_text, rate, share},
};

const DRIVE: &str = "\n[camera.gate.zone.drive]\npolygon = [[0.2, 0.4], [0.6, 0.4], [0.6, 0.9]]\n";
const DOOR: &str = "\n[camera.gate.line.door]\npoints = [[0.3, 0.8], [0.7, 0.8]]\n";

/// The camera of a file.
fn camera(text: &str) -> CameraConfig {
    loaded(text).config.cameras.remove(0)
}

/// A prompt with these lines, which name its task.
fn prompt(lines: &str) -> PromptConfig {
    let text = gate("").replace("detect = \"person\"", lines);
    camera(&text).prompts.remove(0)
}

#[test]
fn choices_are_trimmed_texts_of_a_question() {
    let task = Task::Query {
        question: "Open?".into(),
        choices: vec!["Open".into(), "half open".into()],
        options: Default::default(),
    };
    let choices = "query = \"Open?\"\nchoices = [\" Open\", \"half open \"]";
    assert_eq!(prompt(choices).task, task);
}

#[test]
fn segment_detects_and_limits_its_outlines() {
    for (lines, outlines_max) in [
        ("detect = \"car\"", 0),
        ("segment = \" car\"", 3),
        ("segment = \"car\"\nmax_segments = 8", 8),
    ] {
        let prompt = prompt(lines);
        let object = "car".into();
        assert_eq!(prompt.task, Task::Detect { object }, "{lines}");
        assert_eq!(prompt.outlines_max, outlines_max, "{lines}");
    }
}

#[test]
fn places_of_a_question_are_points_boxes_and_zones() {
    let query =
        "query = \"Open?\"\nreasoning = true\nrefs = [[0.5, 1], [0, 0.25, 0.5, 1], \"drive\"]";
    let prompt = prompt(&format!("{query}{DRIVE}"));
    let place = |shares: &[f64]| SpatialReference::from_shares(shares).unwrap();
    let options = QueryOptions {
        places: vec![
            place(&[0.5, 1.0]),
            place(&[0.0, 0.25, 0.5, 1.0]),
            place(&[0.2, 0.4, 0.6, 0.9]),
        ],
        reasoning: true,
    };
    let Task::Query { options: found, .. } = prompt.task else {
        panic!("{prompt:?}")
    };
    assert_eq!(found, options);
}

#[test]
fn strip_is_4_or_9_frames_over_4_seconds() {
    let strip = |frames, over_ms| {
        let over = Duration::from_millis(over_ms);
        Some(StripShape { frames, over })
    };
    let describe = "detect = \"person\"\ndescribe = \"What happens?\"\nframes = 4\nover = \"1.5s\"";
    let query = "query = \"Is a parcel left behind?\"";
    for (lines, expected) in [
        (query, None),
        (&format!("{query}\nframes = 1"), None),
        (&format!("{query}\nframes = 9"), strip(9, 4000)),
        (describe, strip(4, 1500)),
    ] {
        assert_eq!(prompt(lines).strip, expected, "{lines}");
    }
}

#[test]
fn strips_that_cannot_be_made_have_a_remedy() {
    let over = Duration::from_secs(4);
    let needs = "9 frames over 4 s need a frame every 1 s, the camera sends one every 3 s; set a longer over or fewer frames";
    let gaps = "the camera's frames have gaps or change their size too often for 9 frames over 4 s";
    let with_key_frames = format!("{needs}, or decode = \"all\"");
    for (seconds, decode, expected) in [
        (3, Decode::All, needs),
        (3, Decode::KeyFrames, &with_key_frames),
        (1, Decode::All, gaps),
    ] {
        let shape = StripShape { frames: 9, over };
        let said = advice::no_strip(shape, Duration::from_secs(seconds), decode);
        assert_eq!(said, expected);
    }
}

#[test]
fn region_is_box_zone_or_motion_in_own_pixels() {
    let fixed =
        |x0, y0, x1, y1| PromptRegion::Fixed(RegionBox::new(NormBox::from_corners(x0, y0, x1, y1)));
    for (lines, region, width) in [
        ("", PromptRegion::Whole, Some(1280)),
        (
            "region = [0, 0.25, 0.5, 1]",
            fixed(0.0, 0.25, 0.5, 1.0),
            None,
        ),
        ("region = \"drive\"", fixed(0.16, 0.35, 0.64, 0.95), None),
        ("region = \"motion\"", PromptRegion::Motion, None),
    ] {
        let camera = camera(&person(&format!("{lines}{DRIVE}")));
        let view = camera.view_of(&camera.prompts[0]);
        let found = (view.region, view.width_max, camera.frame_width());
        assert_eq!(found, (region, width, width), "{lines}");
    }
}

#[test]
fn crops_of_a_prompt_replace_those_of_its_camera() {
    for (of_camera, of_prompt, expected) in [
        ("", "", None),
        ("crops = 5", "", Some(5)),
        ("crops = 5", "crops = 1", Some(1)),
        ("crops = 5", "crops = \"auto\"", None),
    ] {
        let camera = camera(&(gate(of_camera) + of_prompt));
        assert_eq!(camera.prompts[0].crops_max, expected);
    }
}

#[test]
fn dwell_is_one_time_for_all_zones_or_one_each() {
    let door = "[camera.gate.zone.door]\npolygon = [[0, 0], [1, 1], [0, 1]]\n";
    for (lines, expected) in [
        ("", &[][..]),
        ("dwell = \"30s\"", &[("door", 30), ("drive", 30)]),
        ("dwell = \"1m\"\nzones = [\"drive\"]", &[("drive", 60)]),
        ("dwell = { door = \"5s\" }", &[("door", 5)]),
    ] {
        let camera = camera(&person(&format!("{lines}{DRIVE}{door}")));
        let times = camera.prompts[0].dwell.iter();
        let times = times.map(|(zone, time)| (zone.as_str(), time.as_secs()));
        assert_eq!(times.collect::<Vec<_>>(), expected, "{lines}");
    }
}

#[test]
fn line_has_its_defaults_and_prompts_name_it() {
    let more = "directions = [\"east\", \"west\"]\npoint = \"centre\"\nreset = \"Mon 06:00 UTC\"\n";
    for (more, names, point) in [
        ("", ["in", "out"], ZonePoint::Bottom),
        (more, ["east", "west"], ZonePoint::Centre),
    ] {
        let camera = camera(&person(&format!("lines = [\"door\"]{DOOR}{more}")));
        let counted: Vec<_> = camera.lines_counted(&camera.prompts[0]).collect();
        let [door] = counted[..] else {
            panic!("{counted:?}")
        };
        assert_eq!(door.points, [(0.3, 0.8), (0.7, 0.8)]);
        let directions = door.directions.each_ref().map(|name| name.as_str());
        assert_eq!((directions, door.point), (names, point));
        let reset = door
            .reset
            .as_ref()
            .map(|reset| (reset.days[..2].to_vec(), reset.minute));
        assert_eq!(reset, (!more.is_empty()).then(|| (vec![true, false], 360)));
    }
}

#[test]
fn trigger_has_its_defaults_and_its_values() {
    let trigger = |keys: &str| {
        let text = person(&format!("[camera.gate.trigger.bell]\n{keys}\n[api]"));
        let [trigger] = &camera(&text).triggers[..] else {
            panic!("{keys}")
        };
        assert_eq!(trigger.id.as_str(), "bell");
        let times = [trigger.hold, trigger.at_most].map(|time| time.as_secs());
        (trigger.source.clone(), times)
    };
    let of_mqtt = |topic: &str, key: &[&str], [value, off]: [Option<&str>; 2]| {
        TriggerSource::Mqtt(MqttTrigger {
            topic: topic.into(),
            key: key.iter().map(|&name| name.into()).collect(),
            value: value.map(Into::into),
            off: off.map(Into::into),
        })
    };
    let bell = of_mqtt("zigbee2mqtt/bell", &[], [None, None]);
    let pir = of_mqtt(
        "pir",
        &["state", "occupancy"],
        [Some("true"), Some("false")],
    );
    let onvif = |text: &str| TriggerSource::Onvif(text.into());
    let topic = "tns1:VideoSource/MotionAlarm";
    for (keys, source, times) in [
        ("mqtt = \"zigbee2mqtt/bell\"", bell, [20, 600]),
        (
            // The default limit is not below `for`.
            "mqtt = \"pir\"\nkey = \"state.occupancy\"\nvalue = true\noff = false\nfor = \"1h\"",
            pir,
            [3600, 3600],
        ),
        ("http = true", TriggerSource::Http, [20, 600]),
        ("onvif = \"motion\"", onvif("motion"), [20, 600]),
        (&format!("onvif = \"{topic}\""), onvif(topic), [20, 600]),
    ] {
        assert_eq!(trigger(keys), (source, times), "{keys}");
    }
}

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
    let person = || PromptId::new("person").unwrap();
    let settings = [
        Setting::Enabled(false),
        Setting::Rate(rate(4.0)),
        Setting::MotionGate(true),
        Setting::Text(person(), prompt_text("a torch")),
        Setting::PromptEnabled(person(), true),
        Setting::MinScore(person(), share(0.3)),
    ];
    let settings = settings.map(|setting| ModeSetting {
        camera: CameraId::new("gate").unwrap(),
        setting,
    });
    assert_eq!(modes[0].settings, settings);
    assert_eq!(modes[1].settings, []);
}

#[test]
fn adapters_of_the_model_keep_the_order_of_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let expected = ["plates", "dogs"].map(|name| AdapterConfig {
        id: AdapterId::new(name).unwrap(),
        path: folder.path().join(name),
    });
    let tables = expected.each_ref().map(|AdapterConfig { id, path }| {
        fs::write(path, "").unwrap();
        format!("[adapter.{id}]\npath = {path:?}\n")
    });
    let loaded = loaded(&person(&tables.concat()));
    assert_eq!(loaded.config.adapters.all, expected);
    assert!(loaded.warnings.is_empty());
}
