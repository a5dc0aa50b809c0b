use super::*;
use crate::{
    CameraHealth, ConfigReport, Update,
    discovery::{
        records,
        tests::{SITE, config},
    },
    message::{Message, MessageContent},
};
use spotter_core::{CameraId, PromptId, WallTime, ZoneId};

fn topicwise(config: &Config) -> RetainedTopics {
    topics(config, &config.cameras, &records(config, true))
}

fn none(topics: &[&str]) -> RetainedTopics {
    let topics = topics.iter();
    topics
        .map(|topic| ((*topic).to_owned(), EntityPlatforms::new()))
        .collect()
}

fn gone(topics: &[&str]) -> Vec<ObsoleteTopic> {
    let topics = topics.iter();
    topics
        .map(|topic| ObsoleteTopic::Gone((*topic).to_owned()))
        .collect()
}

#[test]
fn topics_removed_while_stopped_are_cleared_at_the_next_start() {
    let directory = tempfile::tempdir().unwrap();
    let open = || RetainedList::open(&directory.path().join("state"), "01234567");
    assert_eq!(open().want(none(&["a", "b", "c"])), []);
    // Each call is a start of the process; the first two end before the broker receives the removal.
    for _ in 0..2 {
        assert_eq!(open().want(none(&["a"])), gone(&["b", "c"]));
    }
    let mut last = open();
    assert_eq!(last.want(none(&["a"])), gone(&["b", "c"]));
    last.still_there(&BTreeSet::from(["c".to_owned()]));
    assert_eq!(open().want(none(&["a"])), gone(&["c"]));
    // The running process uses one topic again and removes another.
    assert_eq!(last.want(none(&["c"])), gone(&["a"]));
    last.still_there(&BTreeSet::new());
    assert_eq!(open().want(none(&[])), gone(&["c"]));
}

#[test]
fn retained_list_that_is_damaged_or_foreign_is_ignored() {
    let directory = tempfile::tempdir().unwrap();
    let open = |machine| RetainedList::open(directory.path(), machine);
    open("01234567").want(none(&["a"]));
    assert_eq!(
        open("89abcdef").want(none(&[])),
        [],
        "the list of another machine is ignored"
    );
    open("01234567").want(none(&["a"]));
    let file = directory.path().join(FILE);
    let whole = fs::read(&file).unwrap();
    for damaged in [
        &whole[..whole.len() / 2],
        b"",
        b"[1]",
        b"\xff\xfe",
        b"{\"machine\":7}",
    ] {
        fs::write(&file, damaged).unwrap();
        assert_eq!(open("01234567").want(none(&["a"])), []);
        assert_eq!(fs::read(&file).unwrap(), whole, "the list is repaired");
    }
}

#[test]
fn a_list_that_cannot_be_written_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let in_the_way = directory.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let mut kept = RetainedList::open(&in_the_way, "01234567");
    kept.want(none(&["a", "b"]));
    assert_eq!(kept.want(none(&["a"])), gone(&["b"]));
}

#[test]
fn changed_record_style_moves_records_and_removed_cameras_are_cleared() {
    let directory = tempfile::tempdir().unwrap();
    let mut kept = RetainedList::open(directory.path(), "01234567");
    kept.want(topicwise(&config("", SITE)));
    let (gate, yard) = SITE.split_at(SITE.find("[camera.yard]").unwrap());
    assert!(yard.contains("car"));
    let leaving = kept.want(topicwise(&config("ha.discovery = \"single\"", gate)));
    let record = |id| format!("homeassistant/device/{id}/config");
    for moved in ["spotter_edge1", "spotter_edge1_gate"] {
        assert!(
            leaving.contains(&ObsoleteTopic::Moved(record(moved))),
            "{leaving:?}"
        );
    }
    assert!(leaving.contains(&ObsoleteTopic::Gone(record("spotter_edge1_yard"))));
    let state = ObsoleteTopic::Gone("spotter/edge1/cam/yard/count/car".to_owned());
    assert!(leaving.contains(&state), "{leaving:?}");
    // With the first form again, its records stay and all records of the other form are cleared.
    let leaving = kept.want(topicwise(&config("", SITE)));
    let moved = |leaving: &&ObsoleteTopic| matches!(leaving, ObsoleteTopic::Moved(topic) if topic.contains("spotter_edge1_gate/"));
    assert!(leaving.iter().filter(moved).count() > 20);
    assert!(!leaving.contains(&state));
}

#[test]
fn entities_of_a_record_are_known_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let start = |site: &str| {
        let config = config("", site);
        let mut kept = RetainedList::open(directory.path(), "01234567");
        let mut records = records(&config, false);
        kept.want(topics(&config, &config.cameras, &records));
        kept.complete(records.remove(1)).entities()
    };
    let before = start(SITE);
    let less = SITE.replace("prompt.scene.query = \"What is going on?\"\n", "");
    assert_eq!(start(&less), before);
}

/// The list has every published state and no other topic: a missing topic would stay on the broker, an extra one would be
/// cleared for nothing.
#[test]
fn the_list_is_what_is_published() {
    let config = config("ha.discovery = \"off\"", SITE);
    let node = Topics::new(&config.mqtt.base, &config.node.name);
    let mut published = BTreeSet::from([node.status(), node.info()]);
    let mut publish = |update: Update| {
        let message = Message::from_update(&node, update);
        assert!(matches!(message.content, MessageContent::State { .. }));
        published.insert(message.topic);
    };
    let at = WallTime::from_unix_millis(0);
    publish(Update::Config(ConfigReport::new(
        String::new(),
        at,
        Vec::new(),
    )));
    let of =
        |update: &mut dyn FnMut(Update), camera: &CameraId, prompt: &PromptId, zones: &[&str]| {
            let (camera, prompt) = (camera.clone(), prompt.clone());
            update(Update::State {
                camera: camera.clone(),
                prompt: prompt.clone(),
                state: spotter_core::PromptState::Presence(spotter_core::Presence::On),
            });
            update(Update::State {
                camera: camera.clone(),
                prompt: prompt.clone(),
                state: spotter_core::PromptState::Count(Some(1)),
            });
            for zone in zones {
                let zone = ZoneId::new(zone).unwrap();
                update(Update::State {
                    camera: camera.clone(),
                    prompt: prompt.clone(),
                    state: spotter_core::PromptState::ZoneCount { zone, count: None },
                });
            }
        };
    let id = |text| PromptId::new(text).unwrap();
    let (gate, yard) = (&config.cameras[0].id, &config.cameras[1].id);
    for camera in [gate, yard] {
        publish(Update::CameraStatus {
            camera: camera.clone(),
            online: true,
        });
        let health = Box::new(CameraHealth::default());
        publish(Update::Health {
            camera: camera.clone(),
            health,
        });
    }
    of(&mut publish, gate, &id("person"), &["drive"]);
    of(&mut publish, gate, &id("crane_hook"), &["drive", "door"]);
    of(&mut publish, yard, &id("car"), &[]);
    for prompt in ["is_open", "weather", "scene"] {
        let (camera, prompt) = (gate.clone(), id(prompt));
        publish(Update::State {
            camera,
            prompt,
            state: spotter_core::PromptState::Answer(None),
        });
    }
    for camera in &config.cameras {
        let of_camera = [
            Setting::Enabled(true),
            Setting::RateHz(1.0),
            Setting::MotionGate(false),
        ];
        let of_prompt = |prompt: &PromptConfig| {
            let id = || prompt.id.clone();
            [
                Setting::Text(id(), "person".into()),
                Setting::PromptEnabled(id(), true),
                Setting::MinScore(id(), 0.5),
            ]
        };
        let of_prompts = camera.prompts.iter().flat_map(of_prompt);
        for setting in of_camera.into_iter().chain(of_prompts) {
            publish(Update::Setting {
                camera: camera.id.clone(),
                setting,
                again: false,
            });
        }
    }
    let listed: BTreeSet<_> = topicwise(&config).into_keys().collect();
    assert_eq!(listed, published);
    // The list has the pictures of events if they are retained.
    let mut keeping = config.clone();
    keeping.mqtt.retain_snapshots = true;
    let with_pictures: BTreeSet<_> = topicwise(&keeping).into_keys().collect();
    let person = "spotter/edge1/cam/gate/snapshot/person".to_owned();
    assert_eq!(&with_pictures - &listed, BTreeSet::from([person]));
}

#[test]
fn retained_list_is_written_on_change_and_retried_until_written() {
    let directory = tempfile::tempdir().unwrap();
    let state = directory.path().join("state");
    fs::write(&state, "a file in the way").unwrap();
    let mut kept = RetainedList::open(&state, "01234567");
    kept.want(none(&["a"]));
    fs::remove_file(&state).unwrap();
    kept.want(none(&["a"]));
    let file = state.join(FILE);
    fs::remove_file(&file).expect("the list is written when the disk allows it");
    kept.want(none(&["a"]));
    assert!(!file.exists(), "an unchanged list is not written");
    kept.want(none(&["a", "b"]));
    assert!(file.exists());
}
