//! The node as a device: how fast it is, and what is wrong with it.

use super::{
    Topics,
    device::{DiscoveryDevice, Entity},
};
use spotter_core::config::Config;

/// Figures come every 10 s and are not retained; three that did not come are a silence.
const STATS_EXPIRE_S: u32 = 30;

/// The id of the node among all devices of the broker.
pub(super) fn id(config: &Config) -> String {
    format!("{}_{}", config.mqtt.base, config.node.name)
}

/// The node, with `gpu` also how busy its GPU is.
pub(super) fn device(config: &Config, topics: &Topics, gpu: bool) -> DiscoveryDevice {
    let name = format!("Spotter {}", config.node.name);
    let mut device = DiscoveryDevice::new(&id(config), &name, "Spotter", &[topics.status()]);
    let figure = |name, key| {
        Entity::new("sensor", name)
            .with("state_topic", topics.stats())
            // A key that is not there is as unknown as one that is null.
            .with(
                "value_template",
                format!("{{{{ value_json.{key} | default(none) }}}}"),
            )
            .with("expire_after", STATS_EXPIRE_S)
            .with("state_class", "measurement")
            .diagnostic()
    };
    device.add(
        "latency_p95",
        figure("Latency (95th percentile)", "lat_total_p95_ms")
            .with("device_class", "duration")
            .with("unit_of_measurement", "ms"),
    );
    device.add("cameras_online", figure("Cameras online", "cams_online"));
    if gpu {
        let busy = figure("GPU use", "gpu0_busy_pct").with("unit_of_measurement", "%");
        device.add("gpu_use", busy);
    }
    device.add("too_late", too_late(topics));
    device.add("config_problem", config_problem(topics));
    device
}

/// Answers come later than they may, so frames are dropped: too much is asked of the machine.
fn too_late(topics: &Topics) -> Entity {
    Entity::new("binary_sensor", "Answers too late")
        .with("device_class", "problem")
        .with("state_topic", topics.stats())
        .with(
            "value_template",
            "{{ 'ON' if value_json.lat_over_budget else 'OFF' }}",
        )
        .with("expire_after", STATS_EXPIRE_S)
        .diagnostic()
}

/// The configuration file was changed and cannot be used: the one before runs, and nobody would notice.
fn config_problem(topics: &Topics) -> Entity {
    Entity::new("binary_sensor", "Configuration problem")
        .with("device_class", "problem")
        .with("state_topic", topics.config())
        .with(
            "value_template",
            "{{ 'ON' if value_json.state == 'rejected' else 'OFF' }}",
        )
        .with("json_attributes_topic", topics.config())
        .diagnostic()
}
