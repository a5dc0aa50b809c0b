//! A device with its entities, and its discovery record.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::DiscoveryRecord;
use spotter_core::CameraId;

/// For the subscriptions and commands of Home Assistant. Set in every entity: it has no effect on a device.
const QOS: u8 = 1;

/// The key of a device's record that contains its entities.
const COMPONENTS: &str = "components";

/// Keys of entities with their platforms.
pub type EntityPlatforms = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entity {
    platform: &'static str,
    fields: Map<String, Value>,
}

impl Entity {
    /// `platform` is Home Assistant's kind of entity; `name` is shown below the name of the device.
    pub(super) fn new(platform: &'static str, name: &str) -> Self {
        let entity = Self {
            platform,
            fields: Map::new(),
        };
        entity.with("name", name).with("qos", QOS)
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.fields.insert(key.to_owned(), value.into());
        self
    }

    /// Shown among the diagnostics of the device.
    pub(super) fn diagnostic(self) -> Self {
        self.with("entity_category", "diagnostic")
    }

    /// A value that a command may change. Commands are not retained: a retained one would be executed again at every start.
    pub(super) fn settable(self, state_topic: &str) -> Self {
        self.with("entity_category", "config")
            .with("state_topic", state_topic)
            .with("command_topic", format!("{state_topic}/set"))
            .with("retain", false)
    }

    /// Available while this topic is `online`, independent of the availability of the device.
    pub(super) fn available_with(self, status_topic: &str) -> Self {
        self.with("availability", json!([{"topic": status_topic}]))
    }
}

/// A camera or the node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DiscoveryDevice {
    id: String,
    camera: Option<CameraId>,
    /// Keys of all entities: device, origin, availability.
    common: Map<String, Value>,
    entities: BTreeMap<String, Entity>,
}

impl DiscoveryDevice {
    /// `id` is unique among all devices of the broker. The entities are available while every topic of `availability` is
    /// `online`.
    pub(super) fn new(id: &str, name: &str, model: &str, availability: &[String]) -> Self {
        let topics: Vec<Value> = availability
            .iter()
            .map(|topic| json!({"topic": topic}))
            .collect();
        let version = env!("CARGO_PKG_VERSION");
        let device = json!({
            "identifiers": [id], "name": name, "manufacturer": "Spotter", "model": model, "sw_version": version,
        });
        let common = [
            ("device", device),
            ("origin", json!({"name": "Spotter", "sw_version": version})),
            ("availability", topics.into()),
            ("availability_mode", "all".into()),
        ];
        let common = common
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value));
        Self {
            id: id.to_owned(),
            camera: None,
            common: common.collect(),
            entities: BTreeMap::new(),
        }
    }

    /// Its records are messages of this camera.
    pub(super) fn of_camera(mut self, camera: &CameraId) -> Self {
        self.camera = Some(camera.clone());
        self
    }

    /// Reached through another device.
    pub(super) fn via(mut self, device_id: &str) -> Self {
        if let Some(device) = self.common.get_mut("device") {
            device["via_device"] = device_id.into();
        }
        self
    }

    /// Adds an entity under a unique key. Ids may contain the `_` that joins them, so two keys may be equal; the later one gets
    /// another `_`, because Home Assistant shows one entity per key.
    pub(super) fn add(&mut self, key: &str, entity: Entity) {
        let mut key = key.to_owned();
        while self.entities.contains_key(&key) {
            key.push('_');
        }
        self.entities.insert(key, entity);
    }

    /// All entities in one record (Home Assistant 2024.11 and later).
    pub(super) fn record(self, prefix: &str) -> DiscoveryRecord {
        let topic = format!("{prefix}/device/{}/config", self.id);
        let components = self.entities.into_iter().map(|(key, entity)| {
            let mut fields = entity.fields;
            fields.insert("platform".into(), entity.platform.into());
            fields.insert("unique_id".into(), unique_id(&self.id, &key).into());
            (key, Value::Object(fields))
        });
        let mut payload = self.common;
        payload.insert(COMPONENTS.into(), Value::Object(components.collect()));
        DiscoveryRecord {
            topic,
            camera: self.camera,
            content: Value::Object(payload),
        }
    }
}

impl DiscoveryRecord {
    /// The entities with their platforms.
    pub(crate) fn entities(&self) -> EntityPlatforms {
        let components = self.content[COMPONENTS].as_object().into_iter().flatten();
        let platform = |(key, fields): (&String, &Value)| {
            let platform = fields["platform"].as_str()?;
            Some((key.clone(), platform.to_owned()))
        };
        components.filter_map(platform).collect()
    }

    /// Makes Home Assistant remove all of `known` that are not in the record: an entity that is only left out stays.
    #[must_use]
    pub(crate) fn forgetting(mut self, known: &EntityPlatforms) -> Self {
        if let Some(components) = self
            .content
            .get_mut(COMPONENTS)
            .and_then(Value::as_object_mut)
        {
            for (key, platform) in known {
                let nothing = || json!({"platform": platform});
                components.entry(key).or_insert_with(nothing);
            }
        }
        self
    }

    pub fn payload(&self) -> Vec<u8> {
        self.content.to_string().into_bytes()
    }
}

fn unique_id(device_id: &str, key: &str) -> String {
    format!("{device_id}_{key}")
}
