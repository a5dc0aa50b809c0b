use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::discovery::device::{DiscoveryDevice, Entity};
use spotter_core::config::{Commands, Environment, check};

/// A configuration of the two tables that every one needs, and `more`.
pub(crate) fn config(mqtt: &str, more: &str) -> Config {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("test.toml");
    let text = format!("node.name = \"edge1\"\n[mqtt]\nurl = \"mqtt://127.0.0.1\"\n{mqtt}\n{more}");
    std::fs::write(&file, text).unwrap();
    let loaded =
        check(&file, &Environment::process()).unwrap_or_else(|problems| panic!("{problems}"));
    loaded.config
}

/// A configuration with one prompt of each kind.
pub(crate) const SITE: &str = r#"
[camera.gate]
url = "test://"
zone.drive.polygon = [[0, 0.5], [1, 0.5], [1, 1]]
zone.door.polygon = [[0, 0], [1, 0], [1, 0.5]]
prompt.person = { detect = "person", zones = ["drive"], snapshot = true }
prompt.crane_hook.point = "crane hook"
prompt.is_open = { query = "Is it open?", choices = ["No", "Yes"] }
prompt.weather = { query = "What is the weather like?", choices = ["sun", "rain", "snow"] }
prompt.scene.query = "What is going on?"
[camera.yard]
url = "file:///video.mp4"
prompt.car.detect = "car"
"#;

fn json_of(record: &DiscoveryRecord) -> Value {
    serde_json::from_slice(&record.payload()).unwrap()
}

/// The discovery records of a configuration, by topic.
fn published(config: &Config) -> BTreeMap<String, Value> {
    let records = records(config, true).into_iter();
    records
        .map(|record| (record.topic.clone(), json_of(&record)))
        .collect()
}

const GATE: &str = "homeassistant/device/spotter_edge1_gate/config";

#[test]
fn camera_is_a_device_with_entities_of_its_prompts() {
    let published = published(&config("", SITE));
    let topics: Vec<_> = published.keys().map(String::as_str).collect();
    let yard = "homeassistant/device/spotter_edge1_yard/config";
    assert_eq!(
        topics,
        ["homeassistant/device/spotter_edge1/config", GATE, yard]
    );
    let gate = &published[GATE];
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(
        gate["device"],
        json!({"identifiers": ["spotter_edge1_gate"], "name": "Gate", "manufacturer": "Spotter",
            "model": "Test picture", "sw_version": version, "via_device": "spotter_edge1"})
    );
    assert_eq!(
        gate["availability"],
        json!([{"topic": "spotter/edge1/status"}, {"topic": "spotter/edge1/cam/gate/status"}])
    );
    assert_eq!(gate["availability_mode"], "all");
    let entities = &gate["components"];
    assert_eq!(
        entities["person_present"],
        json!({"platform": "binary_sensor", "unique_id": "spotter_edge1_gate_person_present", "name": "Person",
            "device_class": "occupancy", "qos": 1, "state_topic": "spotter/edge1/cam/gate/present/person"})
    );
    assert_eq!(
        entities["person_min_score"],
        json!({"platform": "number", "unique_id": "spotter_edge1_gate_person_min_score", "name": "Person min score",
            "entity_category": "config", "min": 0.0, "max": 1.0, "step": 0.01, "retain": false, "qos": 1,
            "state_topic": "spotter/edge1/cam/gate/prompt/person/min_score",
            "command_topic": "spotter/edge1/cam/gate/prompt/person/min_score/set"})
    );
    // A prompt that is limited to a zone is counted only there, any other prompt in all zones.
    assert_eq!(
        entities["person_zone_drive"]["name"],
        "Person count in drive"
    );
    assert!(entities.get("person_zone_door").is_none());
    assert!(entities.get("crane_hook_zone_door").is_some());
    // An image entity without pictures would stay unknown for ever.
    assert!(entities.get("person_image").is_some());
    assert!(entities.get("crane_hook_image").is_none());
    // These entities show or change that the camera is offline, so they stay available.
    let node_alone = json!([{"topic": "spotter/edge1/status"}]);
    for key in ["enabled", "state", "problem"] {
        assert_eq!(entities[key]["availability"], node_alone, "{key}");
    }
    // A camera that is off on purpose is no problem.
    assert_eq!(
        entities["problem"]["value_template"],
        "{{ 'OFF' if (value_json.reason or '').split(':')[0] in ['', 'switched_off', 'schedule', 'ended'] else 'ON' }}"
    );
}

#[test]
fn the_answers_that_a_question_has_decide_what_it_is() {
    let published = published(&config("", SITE));
    let entities = &published[GATE]["components"];
    let open = &entities["is_open_yes"];
    assert_eq!(
        (&open["platform"], &open["payload_on"], &open["payload_off"]),
        (&json!("binary_sensor"), &json!("Yes"), &json!("No"))
    );
    let weather = &entities["weather_answer"];
    assert_eq!(weather["device_class"], "enum");
    assert_eq!(weather["options"], json!(["sun", "rain", "snow"]));
    let scene = &entities["scene_answer"];
    assert_eq!(scene["value_template"], "{{ value[:255] }}");
    assert!(scene.get("device_class").is_none());
    for key in [
        "is_open_present",
        "scene_count",
        "weather_event",
        "scene_min_score",
    ] {
        assert!(entities.get(key).is_none(), "{key}");
    }
}

#[test]
fn disallowed_commands_are_not_offered_and_commands_not_retained() {
    for (commands, offered) in [
        (Commands::Off, 0),
        (Commands::Basic, 21),
        (Commands::All, 21),
    ] {
        let mut config = config("", SITE);
        config.mqtt.commands = commands;
        let mut found = 0;
        for record in published(&config).values() {
            for entity in record["components"].as_object().unwrap().values() {
                let state = entity["state_topic"]
                    .as_str()
                    .map(|topic| format!("{topic}/set"));
                if let Some(topic) = entity.get("command_topic") {
                    assert_eq!(topic.as_str(), state.as_deref());
                    assert_eq!(entity["retain"], false, "{entity}");
                    found += 1;
                }
            }
        }
        assert_eq!(found, offered, "{commands:?}");
    }
}

#[test]
fn both_ways_tell_the_same_of_the_same_entities() {
    let device = published(&config("", SITE));
    let single = published(&config(
        "ha = { discovery = \"single\", prefix = \"ha\" }",
        SITE,
    ));
    let mut expected = BTreeMap::new();
    for (topic, record) in &device {
        let id = topic.split('/').nth(2).unwrap();
        for (key, entity) in record["components"].as_object().unwrap() {
            let mut entity = entity.clone();
            let fields = entity.as_object_mut().unwrap();
            let platform = fields.remove("platform").unwrap();
            for common in ["device", "origin", "availability", "availability_mode"] {
                let value = || record[common].clone();
                fields.entry(common).or_insert_with(value);
            }
            let topic = format!("ha/{}/{id}/{key}/config", platform.as_str().unwrap());
            expected.insert(topic, entity);
        }
    }
    assert_eq!(single, expected);
    assert!(published(&config("ha = { discovery = \"off\" }", SITE)).is_empty());
}

#[test]
fn node_record_has_gpu_entities_only_with_a_gpu() {
    let config = config("base = \"site-b\"", SITE);
    let node = |gpu| {
        let node = json_of(&records(&config, gpu)[0]);
        let keys = node["components"].as_object().unwrap().keys();
        (
            node["device"]["identifiers"].clone(),
            keys.cloned().collect::<Vec<_>>(),
        )
    };
    let usual = [
        "cameras_online",
        "config_problem",
        "latency_p95",
        "too_late",
    ];
    assert_eq!(
        node(false),
        (json!(["site-b_edge1"]), usual.map(str::to_owned).into())
    );
    assert!(node(true).1.contains(&"gpu_use".to_owned()));
}

#[test]
fn two_entities_never_share_a_key() {
    let mut device = DiscoveryDevice::new("spotter_edge1_gate", "Gate", "RTSP camera", &[]);
    // Zone "count" of prompt "p", and the count of a prompt "p_zone".
    for name in ["a", "b", "c"] {
        device.add("p_zone_count", Entity::new("sensor", name));
    }
    let record = json_of(&device.record("ha"));
    let entities = record["components"].as_object().unwrap().values();
    let ids: BTreeSet<_> = entities
        .map(|entity| entity["unique_id"].as_str())
        .collect();
    assert_eq!(ids.len(), 3);
}

#[test]
fn removed_entity_is_published_once_as_removed() {
    let (before, after) = (
        config("", SITE),
        SITE.replace("prompt.scene.query = \"What is going on?\"\n", ""),
    );
    let known = records(&before, false)[1].entities();
    let record = records(&config("", &after), false)
        .remove(1)
        .forgetting(&known);
    let published = json_of(&record);
    assert_eq!(
        published["components"]["scene_answer"],
        json!({"platform": "sensor"})
    );
    assert_eq!(
        published["components"]["scene_prompt"],
        json!({"platform": "text"})
    );
    assert_eq!(published["components"]["weather_answer"]["name"], "Weather");
    assert_eq!(record.entities(), known);
}

#[test]
fn record_moves_when_its_device_is_announced_on_another_topic() {
    let single = "homeassistant/sensor/spotter_edge1_gate/person_count/config".to_owned();
    let other = "ha/sensor/spotter_edge1_gate/person_count/config".to_owned();
    assert!(
        is_moved(GATE, [&single].into_iter()) && is_moved(&single, [&GATE.to_owned()].into_iter())
    );
    assert!(
        !is_moved(GATE, [&other].into_iter()),
        "Home Assistant does not read this topic"
    );
    assert!(!is_moved(
        "spotter/edge1/status",
        ["spotter/edge1/status".to_owned()].iter()
    ));
}

#[test]
fn colliding_entity_ids_of_two_devices_are_reported() {
    let camera = |id: &str, prompt: &str| {
        format!("[camera.{id}]\nurl = \"test://\"\nprompt.{prompt}.detect = \"person\"\n")
    };
    let wrong = |mqtt: &str, cameras: &[String]| collisions(&config(mqtt, &cameras.concat()), true);
    assert!(collisions(&config("", SITE), true).is_empty());
    // `gate_yard_person` is an id of camera `gate` and of camera `gate_yard`.
    let both = [camera("gate", "yard_person"), camera("gate_yard", "person")];
    let lines = wrong("", &both);
    let [line] = lines.as_slice() else {
        panic!("{lines:?}");
    };
    assert!(
        line.starts_with("Home Assistant: camera gate and camera gate_yard both have a "),
        "{line}"
    );
    assert!(line.contains(" spotter_edge1_gate_yard_person_"), "{line}");
    // The id of a camera's sensor may equal the id of a sensor of the node.
    let lines = wrong("", &[camera("config", "person")]);
    assert_eq!(
        lines,
        [
            "Home Assistant: the node and camera config both have a binary_sensor spotter_edge1_config_problem, and only one \
             of them is shown; rename a camera or a prompt"
        ]
    );
    // Similar, but not equal, so there is no collision.
    let alike = [camera("gate", "person"), camera("gate_yard", "person")];
    assert!(wrong("", &alike).is_empty());
    assert!(wrong("ha.discovery = \"off\"", &both).is_empty());
}
