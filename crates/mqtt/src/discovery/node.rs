//! The node as a device: latency, load and problems.

use super::{
    Topics,
    device::{DiscoveryDevice, Entity},
};
use spotter_core::config::Config;

/// `stats` is published every 10 s; the entities expire after three missing messages.
const STATS_EXPIRE_S: u32 = 30;

/// The id of the node among all devices of the broker.
pub(super) fn id(config: &Config) -> String {
    format!("{}_{}", config.mqtt.base, config.node.name)
}

/// `gpu`: with the load of the GPU.
pub(super) fn device(config: &Config, topics: &Topics, gpu: bool) -> DiscoveryDevice {
    let name = format!("Spotter {}", config.node.name);
    let mut device = DiscoveryDevice::new(&id(config), &name, "Spotter", &[topics.status()]);
    let figure = |name, key| {
        Entity::new("sensor", name)
            .with("state_topic", topics.stats())
            // A missing key is unknown, as one that is null.
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

/// Answers are later than the budget, so frames are dropped: the machine is overloaded.
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

/// The changed configuration file was rejected and the previous one is active, which shows nowhere else in Home Assistant.
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
