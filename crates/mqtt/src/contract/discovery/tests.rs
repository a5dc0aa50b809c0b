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

const GATE: &str = "homeassistant/device/spotter_edge1_gate/config";

#[test]
fn camera_is_a_device_with_entities_of_its_prompts() {
    let published = published(&config("", SITE));
    let topics: Vec<_> = published.keys().map(String::as_str).collect();
    let yard = "homeassistant/device/spotter_edge1_yard/config";
    let node = "homeassistant/device/spotter_edge1/config";
    assert_eq!(topics, [node, GATE, yard]);
    let gate = &published[GATE];
    let entities = &gate["components"];
    let version = env!("CARGO_PKG_VERSION");
    for (found, expected) in [
        (
            &gate["device"],
            json!({"identifiers": ["spotter_edge1_gate"], "name": "Gate", "manufacturer": "Spotter",
            "model": "Test picture", "sw_version": version, "via_device": "spotter_edge1"}),
        ),
        (
            &gate["availability"],
            json!([{"topic": "spotter/edge1/status"}, {"topic": "spotter/edge1/cam/gate/status"}]),
        ),
        (&gate["availability_mode"], json!("all")),
        (
            &entities["person_present"],
            json!({"platform": "binary_sensor", "unique_id": "spotter_edge1_gate_person_present", "name": "Person",
            "device_class": "occupancy", "qos": 1, "state_topic": "spotter/edge1/cam/gate/present/person"}),
        ),
        (
            &entities["person_min_score"],
            json!({"platform": "number", "unique_id": "spotter_edge1_gate_person_min_score", "name": "Person min score",
            "entity_category": "config", "min": 0.0, "max": 1.0, "step": 0.01, "retain": false, "qos": 1,
            "state_topic": "spotter/edge1/cam/gate/prompt/person/min_score",
            "command_topic": "spotter/edge1/cam/gate/prompt/person/min_score/set"}),
        ),
    ] {
        assert_eq!(*found, expected);
    }
    // A prompt that is limited to a zone is counted only there, any other prompt in all zones; dwell and lines are those that it names.
    let camera = "spotter/edge1/cam/gate";
    for (key, name, topic) in [
        (
            "person_zone_drive",
            "Person count in drive",
            "zone/drive/person",
        ),
        (
            "person_dwell_drive",
            "Person dwells in drive",
            "dwell/drive/person",
        ),
        (
            "person_line_kerb_to_road",
            "Person to road at kerb",
            "line/kerb/to_road/person",
        ),
        (
            "person_crossing_kerb",
            "Person crossing kerb",
            "crossing/kerb/person",
        ),
        (
            "crane_hook_zone_door",
            "Crane hook count in door",
            "zone/door/crane_hook",
        ),
        ("trigger_bell", "Trigger bell", "trigger/bell"),
    ] {
        assert_eq!(entities[key]["name"], name);
        assert_eq!(entities[key]["state_topic"], format!("{camera}/{topic}"));
    }
    // An image entity without pictures would stay unknown for ever.
    assert!(entities.get("person_image").is_some());
    let absent =
        "person_zone_door crane_hook_dwell_drive crane_hook_crossing_kerb crane_hook_image";
    for key in absent.split(' ') {
        assert!(entities.get(key).is_none(), "{key}");
    }
    let directions = &entities["person_crossing_kerb"]["event_types"];
    assert_eq!(*directions, json!(["to_road", "to_house"]));
    assert_eq!(entities["line_kerb_reset"]["payload_press"], "RESET");
    // An automation can tell an event that waited for the broker from one that happens now.
    for (entity, time) in [
        ("person_event", "last_seen_ms"),
        ("person_crossing_kerb", "at_ms"),
    ] {
        let template = entities[entity]["value_template"].as_str().unwrap();
        for name in ["delayed", time] {
            let attribute = format!("'{name}': value_json.{name}");
            assert!(template.contains(&attribute), "{entity}: {template}");
        }
    }
    // These entities show or change that the camera is offline, so they stay available.
    let node_alone = json!([{"topic": "spotter/edge1/status"}]);
    for key in ["enabled", "state", "problem", "trigger_bell"] {
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
    assert_eq!(open["platform"], "binary_sensor");
    assert!(open["payload_on"] == "Yes" && open["payload_off"] == "No");
    let weather = &entities["weather_answer"];
    assert_eq!(weather["device_class"], "enum");
    assert_eq!(weather["options"], json!(["sun", "rain", "snow"]));
    let scene = &entities["scene_answer"];
    assert_eq!(scene["value_template"], "{{ value[:255] }}");
    assert!(scene.get("device_class").is_none());
    for key in "is_open_present scene_count weather_event scene_min_score".split(' ') {
        assert!(entities.get(key).is_none(), "{key}");
    }
}

#[test]
fn modes_are_a_select_of_the_node() {
    let published_with = |site: &str| published(&config("", site));
    let select = |site: &str| {
        let node = published_with(site).remove("homeassistant/device/spotter_edge1/config");
        node.unwrap()["components"]["mode"].take()
    };
    let mode = select(SITE);
    assert_eq!(mode["platform"], "select");
    assert_eq!(mode["options"], json!(["No mode", "night", "away"]));
    let shown = "{{ 'No mode' if value == 'none' else value }}";
    assert_eq!(mode["value_template"], shown);
    let sent = "{{ 'none' if value == 'No mode' else value }}";
    assert_eq!(mode["command_template"], sent);
    assert_eq!(mode["command_topic"], "spotter/edge1/mode/set");
    assert_eq!(select(SITE.split("[mode").next().unwrap()), Value::Null);
}

#[test]
fn disallowed_commands_are_not_offered() {
    for (commands, offered) in [
        (Commands::Off, 0),
        (Commands::Basic, 23),
        (Commands::All, 23),
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
fn node_record_has_gpu_entities_only_with_a_gpu() {
    let config = config("base = \"site-b\"", SITE);
    let node = |gpu| json_of(&records(&config, &topics_of(&config), gpu)[0]);
    let keys = |node: Value| {
        let keys = node["components"].as_object().unwrap().keys().cloned();
        keys.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        node(false)["device"]["identifiers"],
        json!(["site-b_edge1"])
    );
    let usual = "cameras_online config_problem latency_p95 mode too_late";
    assert_eq!(keys(node(false)), usual);
    assert!(keys(node(true)).contains("gpu_use"));
}

#[test]
fn two_entities_never_share_a_key() {
    let id = "spotter_edge1_gate".to_owned();
    let mut device = DiscoveryRecord::new("ha", id, "Gate", "RTSP camera", &[]);
    // Zone "count" of prompt "p", and the count of a prompt "p_zone".
    for name in ["a", "b", "c"] {
        device.add("p_zone_count", Entity::new("sensor", name));
    }
    let record = json_of(&device);
    let entities = record["components"].as_object().unwrap().values();
    let ids: BTreeSet<_> = entities
        .map(|entity| entity["unique_id"].as_str())
        .collect();
    assert_eq!(ids.len(), 3);
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
