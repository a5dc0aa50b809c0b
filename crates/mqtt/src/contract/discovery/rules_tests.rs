//! Home Assistant's rules for discovery records, from its MQTT integration (2026.2); `make home-assistant` checks a real one.
//! Home Assistant ignores a record that breaks a rule, with a line in its log.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{
    records,
    tests::{SITE, config, topics_of},
};

/// Keys that every entity may have.
const COMMON: &str = "platform unique_id name qos device origin availability availability_mode entity_category \
    json_attributes_topic json_attributes_template";

/// Keys of a platform besides, the required ones first.
fn keys(platform: &str) -> (&'static str, &'static str) {
    match platform {
        "binary_sensor" => (
            "state_topic",
            "device_class value_template payload_on payload_off expire_after",
        ),
        "sensor" => (
            "state_topic",
            "device_class value_template state_class unit_of_measurement options expire_after",
        ),
        "event" => ("state_topic event_types", "value_template"),
        "image" => ("image_topic", "content_type"),
        "number" => ("command_topic state_topic", "min max step mode retain"),
        "text" => ("command_topic state_topic", "max retain"),
        "switch" => ("command_topic state_topic", "retain"),
        "button" => ("command_topic", "payload_press retain"),
        "select" => (
            "command_topic state_topic options",
            "retain value_template command_template",
        ),
        other => panic!("{other} is no platform that we know the rules of"),
    }
}

fn check(platform: &str, entity: &Map<String, Value>) {
    let (required, optional) = keys(platform);
    for key in entity.keys().map(String::as_str) {
        let mut known = [COMMON, required, optional]
            .into_iter()
            .flat_map(|keys| keys.split(' '));
        assert!(known.any(|known| known == key), "{platform} has no {key}");
    }
    for key in required.split(' ').chain(["unique_id", "name"]) {
        assert!(entity.contains_key(key), "{platform} needs {key}");
    }
    for (key, value) in entity {
        let text = value.as_str();
        if key.ends_with("_topic") {
            let topic = text.unwrap();
            assert!(!topic.is_empty() && !topic.contains(['+', '#', '\0']));
        }
        if key.ends_with("_template") {
            let template = text.unwrap();
            assert!(template.starts_with("{{ ") && template.ends_with(" }}"));
        }
    }
    let text = |key: &str| entity.get(key).and_then(Value::as_str);
    let number = |key: &str| entity.get(key).and_then(Value::as_f64);
    match text("entity_category") {
        None | Some("diagnostic") => {}
        // A read-only entity cannot be a setting.
        Some("config") => assert!(entity.contains_key("command_topic")),
        Some(other) => panic!("{other} is no category"),
    }
    match platform {
        "sensor" => {
            let is_enum = text("device_class") == Some("enum");
            assert_eq!(is_enum, entity.contains_key("options"), "{entity:?}");
            let is_measured =
                entity.contains_key("state_class") || entity.contains_key("unit_of_measurement");
            assert!(!(is_enum && is_measured), "{entity:?}");
            assert!(matches!(
                text("state_class"),
                None | Some("measurement" | "total_increasing")
            ));
            match text("device_class") {
                None | Some("enum") => {}
                Some("duration") => assert_eq!(text("unit_of_measurement"), Some("ms")),
                Some(other) => panic!("which units has {other}?"),
            }
        }
        "binary_sensor" => {
            let class = text("device_class");
            assert!(matches!(class, None | Some("occupancy" | "problem")));
            let has = |key| entity.contains_key(key);
            assert_eq!(has("payload_on"), has("payload_off"));
        }
        "number" => {
            assert!(number("min") < number("max") && number("step") >= Some(0.001));
            let mode = text("mode");
            assert!(matches!(mode, None | Some("auto" | "box" | "slider")));
        }
        "text" => assert!(number("max") <= Some(255.0)),
        "event" => assert!(!entity["event_types"].as_array().unwrap().is_empty()),
        "image" => assert!(text("content_type").is_some_and(|kind| kind.starts_with("image/"))),
        _ => {}
    }
}

fn check_common(record: &Value) {
    let device = &record["device"];
    assert!(!device["identifiers"].as_array().unwrap().is_empty());
    assert!(device["name"].is_string() && record["origin"]["name"].is_string());
    assert!(matches!(record["availability_mode"].as_str(), Some("all")));
    for availability in record["availability"].as_array().unwrap() {
        assert!(availability["topic"].is_string());
    }
}

/// What a discovery topic may be made of.
fn check_topic(topic: &str) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let levels: Vec<&str> = topic.split('/').collect();
    assert!(matches!(levels[..], [_, "device", _, "config"]), "{topic}");
    let is_good = |level: &&str| !level.is_empty() && level.chars().all(good);
    assert!(levels.iter().all(is_good), "{topic}");
}

#[test]
fn home_assistant_accepts_every_record() {
    let mut unique_ids = BTreeSet::new();
    let config = config("", SITE);
    for record in records(&config, &topics_of(&config), true) {
        check_topic(&record.topic);
        let parsed: Value = serde_json::from_slice(&record.payload()).unwrap();
        check_common(&parsed);
        for entity in parsed["components"].as_object().unwrap().values() {
            check(
                entity["platform"].as_str().unwrap(),
                entity.as_object().unwrap(),
            );
            let unique_id = entity["unique_id"].as_str().unwrap().to_owned();
            assert!(unique_ids.insert(unique_id.clone()), "{unique_id} twice");
            // Home Assistant takes only availability from the device, so each entity has its own `qos`.
            assert_eq!(entity["qos"], 1);
        }
    }
    assert!(unique_ids.len() > 40);
}
