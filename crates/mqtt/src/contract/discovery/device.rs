//! The record of a device with its entities.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::DiscoveryRecord;
use spotter_core::CameraId;

/// For the subscriptions and commands of Home Assistant. Set in every entity: it has no effect on a device.
const QOS: u8 = 1;

/// The key of a record that contains its entities.
const COMPONENTS: &str = "components";

/// Keys of entities with their platforms.
pub type EntityPlatforms = BTreeMap<String, String>;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entity(Map<String, Value>);

impl Entity {
    /// `platform` is Home Assistant's kind of entity; `name` is shown below the name of the device.
    pub(super) fn new(platform: &str, name: &str) -> Self {
        let entity = Self(Map::new()).with("platform", platform);
        entity.with("name", name).with("qos", QOS)
    }

    pub(super) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
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

impl DiscoveryRecord {
    /// A camera or the node, without entities (Home Assistant 2024.11 and later). `id` is unique among all devices of the broker. The entities
    /// are available while every topic of `availability` is `online`.
    pub(super) fn new(
        prefix: &str,
        id: String,
        name: &str,
        model: &str,
        availability: &[String],
    ) -> Self {
        let topics = availability.iter().map(|topic| json!({"topic": topic}));
        let version = env!("CARGO_PKG_VERSION");
        let content = json!({
            "device": {
                "identifiers": [id], "name": name, "manufacturer": "Spotter", "model": model, "sw_version": version,
            },
            "origin": {"name": "Spotter", "sw_version": version},
            "availability": topics.collect::<Vec<_>>(),
            "availability_mode": "all",
            COMPONENTS: {},
        });
        Self {
            topic: format!("{prefix}/device/{id}/config"),
            camera: None,
            id,
            content,
        }
    }

    /// A message of this camera, which is reached through another device.
    pub(super) fn of_camera(mut self, camera: &CameraId, via: String) -> Self {
        self.camera = Some(camera.clone());
        self.content["device"]["via_device"] = via.into();
        self
    }

    /// Home Assistant links the page at `url` from the device, at its camera.
    pub(super) fn link(&mut self, url: &str) {
        let anchor = self.camera.iter().map(|camera| format!("#cam-{camera}"));
        let anchor: String = anchor.collect();
        self.content["device"]["configuration_url"] =
            format!("{}/{anchor}", url.trim_end_matches('/')).into();
    }

    /// Adds an entity under a unique key. Ids may contain the `_` that joins them, so two keys may be equal; the later one gets
    /// another `_`, because Home Assistant shows one entity per key.
    pub(super) fn add(&mut self, key: &str, entity: Entity) {
        let mut key = key.to_owned();
        while !self.content[COMPONENTS][&key].is_null() {
            key.push('_');
        }
        let unique_id = format!("{}_{key}", self.id);
        self.content[COMPONENTS][key] = entity.with("unique_id", unique_id).0.into();
    }

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
        for (key, platform) in known {
            let entity = &mut self.content[COMPONENTS][key];
            if entity.is_null() {
                *entity = json!({"platform": platform});
            }
        }
        self
    }

    pub fn payload(&self) -> Vec<u8> {
        self.content.to_string().into_bytes()
    }
}
