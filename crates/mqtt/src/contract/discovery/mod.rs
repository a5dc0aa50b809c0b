//! Discovery records, from which Home Assistant creates its entities (docs/mqtt.md section 6). Pure: a configuration goes in,
//! retained messages come out.
//!
//! ```text
//!   Config ──camera, node──▶ entities ──device──▶ DiscoveryRecord
//! ```
//!
//! Belongs here: which entities there are, what they are called, and the keys of Home Assistant's records. Does not belong
//! here: when a record is sent (the outbox sends it after every connect, and again after a start of Home Assistant)
//! and which topics are cleared (`announcer`).
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
    /// Of the device.
    id: String,
    content: Value,
}

/// All records of this node; none when discovery is off. `topics`: those of the node, perhaps in a fleet. `gpu`: the figures of a GPU
/// are published.
pub fn records(config: &Config, topics: &Topics, gpu: bool) -> Vec<DiscoveryRecord> {
    if config.mqtt.ha.discovery == Discovery::Off {
        return Vec::new();
    }
    let cameras = config.cameras.iter();
    let cameras = cameras.map(|camera| camera::record(config, topics, camera));
    let node = node::record(config, topics, gpu);
    let mut records: Vec<_> = std::iter::once(node).chain(cameras).collect();
    if let Some(url) = &config.http.url {
        records
            .iter_mut()
            .for_each(|record| record.link(url.as_str()));
    }
    records
}

/// The topic on which Home Assistant reports its start; `None` when discovery is off.
pub fn birth_topic(ha: &HomeAssistantConfig) -> Option<String> {
    (ha.discovery != Discovery::Off).then(|| format!("{}/status", ha.prefix))
}

#[cfg(test)]
pub(crate) mod tests;
