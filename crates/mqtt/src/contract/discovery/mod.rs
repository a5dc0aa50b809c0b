//! Discovery records, from which Home Assistant creates its entities (docs/mqtt.md section 6). Pure: a configuration goes in,
//! retained messages come out.
//!
//! ```text
//!   Config ──camera, node──▶ DiscoveryDevice ──device──▶ DiscoveryRecord
//!                            entities, keys
//! ```
//!
//! Belongs here: which entities there are, what they are called, and the keys of Home Assistant's records. Does not belong
//! here: when a record is sent (the outbox sends it after every connect, `announcer` after a start of Home Assistant)
//! and which ones are cleared (`retained`).
//!
//! Keys are not abbreviated. Home Assistant has abbreviations, and ignores a misspelt one without a message.

mod camera;
mod device;
mod node;

pub use device::EntityPlatforms;

use serde_json::Value;

use super::Topics;
use spotter_config::{Config, Discovery, HomeAssistantConfig};
use spotter_core::CameraId;

/// One retained message to Home Assistant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveryRecord {
    pub topic: String,
    /// `None` for the node.
    pub camera: Option<CameraId>,
    content: Value,
}

/// All records of this node; none when discovery is off. `topics`: those of the node, perhaps in a fleet. `gpu`: the figures of a GPU
/// are published.
pub fn records(config: &Config, topics: &Topics, gpu: bool) -> Vec<DiscoveryRecord> {
    let prefix = &config.mqtt.ha.prefix;
    let cameras = config.cameras.iter();
    let cameras = cameras.map(|camera| camera::device(config, topics, camera));
    let devices = std::iter::once(node::device(config, topics, gpu)).chain(cameras);
    match config.mqtt.ha.discovery {
        Discovery::Device => devices.map(|device| device.record(prefix)).collect(),
        Discovery::Off => Vec::new(),
    }
}

/// The topic on which Home Assistant reports its start; `None` when discovery is off.
pub fn birth_topic(ha: &HomeAssistantConfig) -> Option<String> {
    (ha.discovery != Discovery::Off).then(|| format!("{}/status", ha.prefix))
}

#[cfg(test)]
mod rules_tests;
#[cfg(test)]
pub(crate) mod tests;
