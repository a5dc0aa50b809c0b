use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::contract::discovery::device::Entity;
use spotter_config::{Commands, Environment, check};
use spotter_core::NodeId;

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
line.kerb = { points = [[0, 0.7], [1, 0.7]], directions = ["to_road", "to_house"] }
prompt.person = { detect = "person", zones = ["drive"], lines = ["kerb"], dwell = "30s", snapshot = true }
prompt.crane_hook.point = "crane hook"
prompt.is_open = { query = "Is it open?", choices = ["No", "Yes"] }
prompt.weather = { query = "What is the weather like?", choices = ["sun", "rain", "snow"] }
prompt.scene.query = "What is going on?"
prompt.view.caption = "long"
prompt.why_open = { query = "Why is it open?", reasoning = true }
trigger.bell.mqtt = "zigbee2mqtt/bell"
[camera.yard]
url = "file:///video.mp4"
prompt.car.detect = "car"
[mode.night.camera.gate]
rate = 4
[mode.away]
"#;

pub(crate) fn topics_of(config: &Config) -> Topics {
    Topics::new(&config.mqtt.base, &config.node.name)
}

fn json_of(record: &DiscoveryRecord) -> Value {
    serde_json::from_slice(&record.payload()).unwrap()
}

/// The discovery records of a configuration, by topic.
fn published(config: &Config) -> BTreeMap<String, Value> {
    let records = records(config, &topics_of(config), true).into_iter();
    records
        .map(|record| (record.topic.clone(), json_of(&record)))
        .collect()
}

/// All keys of all entities. `records.txt` has each device, and below it its entities.
#[test]
fn records_of_a_site_are_those_of_the_list() {
    let mut lines = Vec::new();
    for (topic, mut record) in published(&config("", SITE)) {
        let entities = record["components"].take();
        lines.push(format!("{topic} {record}"));
        let entities = entities.as_object().unwrap().iter();
        lines.extend(entities.map(|(key, entity)| format!("  {key} {entity}")));
    }
    let found = lines
        .join("\n")
        .replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let expected = include_str!("records.txt").lines();
    assert_eq!(found.lines().count(), expected.clone().count(), "{found}");
    for (found, expected) in found.lines().zip(expected) {
        assert_eq!(found, expected);
    }
}

#[test]
fn devices_link_the_page_that_has_a_url() {
    let mut config = config("", SITE);
    config.http.url = "https://spotter.example".parse().ok();
    let links = published(&config).into_values();
    let links: BTreeSet<String> = links
        .map(|record| {
            record["device"]["configuration_url"]
                .as_str()
                .unwrap()
                .to_owned()
        })
        .collect();
    assert!(links.contains("https://spotter.example/"), "{links:?}");
    assert!(
        links.contains("https://spotter.example/#cam-gate"),
        "{links:?}"
    );
}

#[test]
fn disallowed_commands_are_not_offered() {
    for (commands, offered) in [
        (Commands::Off, 0),
        (Commands::Basic, 26),
        (Commands::All, 26),
    ] {
        let mut config = config("", SITE);
        config.mqtt.commands = commands;
        let records: Vec<_> = published(&config).into_values().collect();
        let topics = json!(records).to_string().matches("command_topic").count();
        assert_eq!(topics, offered, "{commands:?}");
    }
    assert!(published(&config("ha = { discovery = \"off\" }", SITE)).is_empty());
}

/// What its schema does not say of a record. Home Assistant ignores one that breaks a rule; `make home-assistant` checks a real one.
#[test]
fn home_assistant_accepts_every_record() {
    let mut unique_ids = BTreeSet::new();
    for (topic, record) in published(&config("", SITE)) {
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/');
        assert!(topic.chars().all(good), "{topic}");
        for entity in record["components"].as_object().unwrap().values() {
            let unique_id = entity["unique_id"].to_string();
            assert!(unique_ids.insert(unique_id), "{entity}");
            let is_setting = entity["entity_category"] == "config";
            assert_eq!(
                is_setting,
                entity.get("command_topic").is_some(),
                "{entity}"
            );
            if entity["platform"] == "sensor" {
                let is_enum = entity["device_class"] == "enum";
                assert_eq!(is_enum, entity.get("options").is_some(), "{entity}");
                assert!(!is_enum || entity.get("state_class").is_none(), "{entity}");
            }
        }
    }
    assert!(unique_ids.len() > 40);
}

#[test]
fn gpu_and_modes_have_entities_only_where_they_are() {
    let config = config("base = \"site-b\"", SITE.split("[mode").next().unwrap());
    let node = &records(&config, &topics_of(&config), false)[0];
    let keys: Vec<_> = node.entities().into_keys().collect();
    let usual = "cameras_online config_problem latency_p95 too_late";
    assert_eq!(keys.join(" "), usual);
    assert_eq!(node.topic, "homeassistant/device/site-b_edge1/config");
}

#[test]
fn two_entities_never_share_a_key() {
    let id = "spotter_edge1_gate".to_owned();
    let mut device = DiscoveryRecord::new("ha", id, "Gate", "RTSP camera", &[]);
    // Zone "count" of prompt "p", and the count of a prompt "p_zone".
    for name in ["a", "b", "c"] {
        device.add("p_zone_count", Entity::new("sensor", name));
    }
    assert_eq!(device.entities().len(), 3);
}

#[test]
fn removed_entity_is_published_once_as_removed() {
    let after = SITE.replace("prompt.scene.query = \"What is going on?\"\n", "");
    let of_gate = |site| {
        let config = config("", site);
        records(&config, &topics_of(&config), false).remove(1)
    };
    let known = of_gate(SITE).entities();
    let record = of_gate(&after).forgetting(&known);
    let published = json_of(&record);
    let entities = &published["components"];
    assert_eq!(entities["scene_answer"], json!({"platform": "sensor"}));
    assert_eq!(entities["scene_prompt"], json!({"platform": "text"}));
    assert_eq!(entities["weather_answer"]["name"], "Weather");
    assert_eq!(record.entities(), known);
}

#[test]
fn fleet_camera_is_one_device_whichever_node_owns_it() {
    let mut config = config("", SITE);
    let mut records_of = |node: &str| -> BTreeMap<String, Value> {
        config.node.name = NodeId::new(node).unwrap();
        let fleet = NodeId::new("hall").unwrap();
        let topics = topics_of(&config).in_fleet(Some(&fleet));
        let records = records(&config, &topics, false).into_iter();
        let of_cameras = records.filter(|record| record.camera.is_some());
        let with_placeholder = |record: DiscoveryRecord| {
            let mut json = json_of(&record);
            assert_eq!(json["device"]["via_device"], format!("spotter_{node}"));
            json["device"]["via_device"] = Value::Null;
            let text = json.to_string();
            let status = format!("{{\"topic\":\"spotter/{node}/status\"}}");
            assert!(text.contains(&status), "{text}");
            let text = text.replace(&status, "{}");
            assert!(!text.contains(node), "{text}");
            (record.topic, serde_json::from_str(&text).unwrap())
        };
        of_cameras.map(with_placeholder).collect()
    };
    let (first, second) = (records_of("edge1"), records_of("edge2"));
    assert_eq!(first, second);
    assert!(first.keys().all(|topic| topic.contains("/spotter_hall_")));
}
