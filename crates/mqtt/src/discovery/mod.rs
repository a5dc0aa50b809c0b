//! What Home Assistant is told, so that every camera appears there by itself (docs/mqtt.md section 6). Pure: a configuration
//! goes in, retained messages come out.
//!
//! ```text
//!   Config ──camera, node──▶ DiscoveryDevice ──device──▶ DiscoveryRecord, DiscoveryRecord, ..
//!                            entities, keys     one a device, or one an entity
//! ```
//!
//! Belongs here: which entities there are, what they are called, and the keys of Home Assistant's records. Does not belong
//! here: when a record is sent (the outbox sends it after every connect, [`Rebirth`] says when once more) and which ones
//! are to be cleared (`retained`).
//!
//! Keys are written out. Home Assistant knows abbreviations too, and ignores one that is misspelt without a word.

mod camera;
mod device;
mod node;
mod rebirth;

pub use device::EntityPlatforms;
pub use rebirth::Rebirth;

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::Topics;
use spotter_core::config::{Config, Discovery, HomeAssistantConfig};

/// One retained message to Home Assistant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    /// Where Home Assistant looks for it.
    pub topic: String,
    content: Value,
}

/// All records of this node; none when discovery is off. `gpu`: the figures of a GPU are published.
pub fn records(config: &Config, gpu: bool) -> Vec<DiscoveryRecord> {
    let topics = Topics::new(&config.mqtt.base, &config.node.name);
    let prefix = &config.mqtt.ha.prefix;
    let cameras = config.cameras.iter();
    let cameras = cameras.map(|camera| camera::device(config, &topics, camera));
    let devices = std::iter::once(node::device(config, &topics, gpu)).chain(cameras);
    match config.mqtt.ha.discovery {
        Discovery::Device => devices.map(|device| device.record(prefix)).collect(),
        Discovery::Single => devices.flat_map(|device| device.records(prefix)).collect(),
        Discovery::Off => Vec::new(),
    }
}

/// What is wrong with the ids of a configuration when two of its entities come out with one id: ids are joined with `_`,
/// which they may hold too. Home Assistant shows the first and drops the other. One line for each pair of devices; none when
/// discovery is off. Ids of other nodes are not known here: their names must differ by more than a `_`.
pub fn collisions(config: &Config, gpu: bool) -> Vec<String> {
    if config.mqtt.ha.discovery == Discovery::Off {
        return Vec::new();
    }
    let topics = Topics::new(&config.mqtt.base, &config.node.name);
    let node = ("the node".to_owned(), node::device(config, &topics, gpu));
    let cameras = config.cameras.iter().map(|camera| {
        let name = format!("camera {}", camera.id);
        (name, camera::device(config, &topics, camera))
    });
    let mut owners: HashMap<(&'static str, String), String> = HashMap::new();
    let mut told = HashSet::new();
    let mut lines = Vec::new();
    for (owner, device) in std::iter::once(node).chain(cameras) {
        for (platform, id) in device.unique_ids() {
            let other = owners.entry((platform, id.clone()));
            let other = other.or_insert_with(|| owner.clone());
            if *other != owner && told.insert((other.clone(), owner.clone())) {
                lines.push(format!(
                    "Home Assistant: {other} and {owner} both have a {platform} {id}, and only one of them is shown; \
                     rename a camera or a prompt"
                ));
            }
        }
    }
    lines
}

/// What is said at the topic of a record whose entities another record takes over, before that one is sent: Home Assistant
/// keeps then what its user made of them. When it is done, the topic is cleared.
pub(super) const MOVED: &[u8] = br#"{"migrate_discovery":true}"#;

/// True when the record at `topic` is about a device that is told of at one of `others` too, in the other way.
pub(super) fn is_moved<'a>(topic: &str, mut others: impl Iterator<Item = &'a String>) -> bool {
    let device = device_id(topic);
    device.is_some() && others.any(|other| device_id(other) == device)
}

/// Whose record is at `<prefix>/device/<id>/config` or `<prefix>/<platform>/<id>/<key>/config`.
fn device_id(topic: &str) -> Option<(&str, &str)> {
    let levels: Vec<&str> = topic.split('/').collect();
    match levels[..] {
        [prefix, "device", id, "config"] | [prefix, _, id, _, "config"] => Some((prefix, id)),
        _ => None,
    }
}

/// Where Home Assistant says that it has started; `None` when it is not told of us.
pub fn birth_topic(ha: &HomeAssistantConfig) -> Option<String> {
    (ha.discovery != Discovery::Off).then(|| format!("{}/status", ha.prefix))
}

#[cfg(test)]
mod rules;
#[cfg(test)]
pub(crate) mod tests;
