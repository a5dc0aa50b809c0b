use std::cell::RefCell;

use super::*;
use crate::{
    CameraHealth, ConfigReport, Stats,
    contract::{
        discovery::tests::{SITE, config, topics_of},
        message::{Message, MessageContent},
    },
    testing::state_of,
};
use spotter_core::{NodeId, WallTime};

const MACHINE: &str = "01234567";

fn listed(config: &Config) -> BTreeSet<String> {
    let mut announcer = Announcer::new(None, MACHINE);
    announcer.announce(&topics_of(config), config, &config.cameras, true);
    announcer.wanted.into_keys().collect()
}

fn none(topics: &[&str]) -> RetainedTopics {
    let topics = topics.iter();
    topics
        .map(|topic| ((*topic).to_owned(), RetainedTopic::default()))
        .collect()
}

/// The topics that leave.
fn leaving(list: &mut Announcer, wanted: RetainedTopics) -> Vec<String> {
    let left = list.want(wanted).into_iter();
    left.map(|cleared| cleared.topic).collect()
}

/// Stores the list as the daemon does.
fn keep(list: &mut Announcer, stored: &RefCell<Option<String>>) {
    if let Some(text) = list.take_unstored() {
        stored.replace(Some(text));
    }
}

#[test]
fn topics_removed_while_stopped_are_cleared_at_the_next_start() {
    let stored = RefCell::<Option<String>>::default();
    let open = || Announcer::new(stored.borrow().as_deref(), MACHINE);
    let want = |list: &mut Announcer, topics: &[&str]| {
        let left = leaving(list, none(topics));
        keep(list, &stored);
        list.want(none(topics));
        assert_eq!(list.take_unstored(), None, "an unchanged list");
        left
    };
    assert_eq!(want(&mut open(), &["a", "b", "c"]), [""; 0]);
    // Each call is a start of the process; the first two end before the broker receives the removal.
    for _ in 0..2 {
        assert_eq!(want(&mut open(), &["a"]), ["b", "c"]);
    }
    let mut last = open();
    assert_eq!(want(&mut last, &["a"]), ["b", "c"]);
    last.still_there(&BTreeSet::from(["c".to_owned()]));
    keep(&mut last, &stored);
    assert_eq!(want(&mut open(), &["a"]), ["c"]);
    // The running process uses one topic again and removes another.
    assert_eq!(want(&mut last, &["c"]), ["a"]);
    last.still_there(&BTreeSet::new());
    keep(&mut last, &stored);
    assert_eq!(want(&mut open(), &[]), ["c"]);
}

#[test]
fn retained_list_that_is_damaged_or_foreign_is_ignored() {
    let listed = || {
        let mut list = Announcer::new(None, MACHINE);
        list.want(none(&["a"]));
        list.take_unstored().unwrap()
    };
    let whole = listed();
    let of_another_machine = Announcer::new(Some(&whole), "89abcdef").want(none(&[]));
    assert!(of_another_machine.is_empty());
    for damaged in [&whole[..whole.len() / 2], "", "[1]", "{\"machine\":7}"] {
        let mut list = Announcer::new(Some(damaged), MACHINE);
        assert!(list.want(none(&["a"])).is_empty());
        assert_eq!(list.take_unstored(), Some(listed()), "the list is repaired");
    }
}

#[test]
fn entities_of_a_record_are_known_after_a_restart() {
    let stored = RefCell::<Option<String>>::default();
    let start = |site: &str| {
        let config = config("", site);
        let mut announcer = Announcer::new(stored.borrow().as_deref(), MACHINE);
        let updates = announcer.announce(&topics_of(&config), &config, &config.cameras, false);
        keep(&mut announcer, &stored);
        let gate = updates.into_iter().find_map(|update| match update {
            Update::Discovery(record) if record.camera.is_some() => Some(record.entities()),
            _ => None,
        });
        gate.unwrap()
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
        let message = Message::from_update(&node, update, None);
        assert!(matches!(message.content, MessageContent::State { .. }));
        published.insert(message.topic);
    };
    let at = WallTime::from_unix_millis(0);
    let report = ConfigReport::new(String::new(), at, Vec::new());
    publish(Update::Config(report));
    publish(Update::Stats(Stats::default()));
    let (mode, again) = (None, false);
    publish(Update::Mode { mode, again });
    for camera in &config.cameras {
        let (id, online) = (camera.id.clone(), true);
        publish(Update::CameraStatus { camera: id, online });
        let (id, health) = (camera.id.clone(), Box::<CameraHealth>::default());
        publish(Update::Health { camera: id, health });
        for trigger in &camera.triggers {
            publish(Update::Trigger {
                camera: camera.id.clone(),
                trigger: trigger.id.clone(),
                is_active: false,
            });
        }
        for prompt in &camera.prompts {
            for state in states_of(camera, prompt) {
                publish(state_of(camera.id.as_str(), prompt.id.as_str(), state));
            }
        }
        for setting in camera.changeable_settings() {
            publish(Update::Setting {
                camera: camera.id.clone(),
                setting,
                again: false,
            });
        }
    }
    let without_pictures = listed(&config);
    assert_eq!(without_pictures, published);
    // The list has the pictures of events if they are retained.
    let mut keeping = config.clone();
    keeping.mqtt.retain_snapshots = true;
    for state in ["count", "zone/drive", "dwell/drive", "line/kerb/to_house"] {
        let topic = format!("spotter/edge1/cam/gate/{state}/person");
        assert!(without_pictures.contains(&topic), "{topic}");
    }
    let person = "spotter/edge1/cam/gate/snapshot/person".to_owned();
    assert_eq!(
        &listed(&keeping) - &without_pictures,
        BTreeSet::from([person])
    );
}

#[test]
fn topics_of_a_fleets_cameras_are_not_stored() {
    let stored = RefCell::<Option<String>>::default();
    let open = || Announcer::new(stored.borrow().as_deref(), MACHINE);
    let config = config("retain_snapshots = true", SITE);
    let fleet = NodeId::new("hall").unwrap();
    let all = topics_of(&config).in_fleet(Some(&fleet));
    let wanted = |cameras: &[CameraConfig]| {
        let config = config.with_cameras(cameras.to_vec());
        let records = discovery::records(&config, &all, false);
        retained_topics(&config, &all, &config.cameras, &records)
    };
    let (gate, yard) = (&config.cameras[..1], &config.cameras[1..]);
    let mut list = open();
    assert_eq!(leaving(&mut list, wanted(&config.cameras)), [""; 0]);
    keep(&mut list, &stored);
    // A box that starts again clears nothing of cameras that others own.
    assert_eq!(leaving(&mut open(), wanted(&[])), [""; 0]);

    // One camera moved, a prompt of the other one was removed.
    list.cameras_moved(&[yard[0].id.clone()]);
    let mut less = gate.to_vec();
    less[0]
        .prompts
        .retain(|prompt| prompt.id.as_str() == "person");
    let left = list.want(wanted(&less));
    let scene = "spotter/hall/cam/gate/answer/scene";
    assert!(left.iter().any(|cleared| cleared.topic == scene));
    let gate = Some(&gate[0].id);
    assert!(left.iter().all(|cleared| cleared.camera.as_ref() == gate));
    // The last owner of a camera that is removed from the list clears all its topics.
    let left = leaving(&mut list, wanted(&[]));
    for topic in [
        "spotter/hall/cam/gate/owner",
        "spotter/hall/cam/gate/status",
        "homeassistant/device/spotter_hall_gate/config",
    ] {
        assert!(left.iter().any(|other| other == topic), "{topic}: {left:?}");
    }
    assert!(left.iter().all(|topic| !topic.contains("yard")));
}

#[test]
fn home_assistant_starts_republish_once_within_five_seconds() {
    let mut announcer = Announcer::new(None, MACHINE);
    let at = |seconds| Mono::default().after(Duration::from_secs(seconds));
    for _ in 0..100 {
        announcer.home_assistant_started(at(10));
        let due = announcer.republish_at;
        assert!(due.is_some_and(|due| due >= at(10) && due <= at(15)));
        // Two of them are one.
        announcer.home_assistant_started(at(11));
        assert_eq!(announcer.republish_at.take(), due);
    }
}
