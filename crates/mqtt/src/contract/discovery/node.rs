//! The node as a device: latency, load, problems and its mode.

use serde_json::json;

use super::{DiscoveryRecord, Topics, device::Entity};
use spotter_config::{Commands, Config};
use spotter_core::NO_MODE;

/// `stats` is published every 10 s; the entities expire after three missing messages.
const STATS_EXPIRE_S: u32 = 30;

/// The id of the node among all devices of the broker.
pub(super) fn id(config: &Config) -> String {
    format!("{}_{}", config.mqtt.base, config.node.name)
}

/// `gpu`: with the load of the GPU.
pub(super) fn record(config: &Config, topics: &Topics, gpu: bool) -> DiscoveryRecord {
    let name = format!("Spotter {}", config.node.name);
    let (prefix, available) = (&config.mqtt.ha.prefix, [topics.status()]);
    let mut device = DiscoveryRecord::new(prefix, id(config), &name, "Spotter", &available);
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
    if config.mqtt.commands != Commands::Off && !config.modes.is_empty() {
        device.add("mode", mode(config, topics));
    }
    let problem = |name, topic: String, template| {
        Entity::new("binary_sensor", name)
            .with("device_class", "problem")
            .with("state_topic", topic)
            .with("value_template", template)
            .diagnostic()
    };
    // Answers are later than the budget, so frames are dropped: the machine is overloaded.
    let is_late = "{{ 'ON' if value_json.lat_over_budget else 'OFF' }}";
    let too_late = problem("Answers too late", topics.stats(), is_late);
    device.add("too_late", too_late.with("expire_after", STATS_EXPIRE_S));
    // The changed configuration file was rejected and the previous one is active, which shows nowhere else in Home Assistant.
    let is_rejected = "{{ 'ON' if value_json.state == 'rejected' else 'OFF' }}";
    let config_problem = problem("Configuration problem", topics.config(), is_rejected);
    let config_problem = config_problem.with("json_attributes_topic", topics.config());
    device.add("config_problem", config_problem);
    device
}

/// Shown in place of [`NO_MODE`], which Home Assistant's select takes for an unknown option. The space makes it no id of a mode.
const NO_MODE_OPTION: &str = "No mode";

/// The active mode, one of those in the file or none.
fn mode(config: &Config, topics: &Topics) -> Entity {
    let modes = config.modes.iter().map(|mode| mode.id.as_str());
    let options: Vec<&str> = std::iter::once(NO_MODE_OPTION).chain(modes).collect();
    let replace = |from, to| format!("{{{{ '{to}' if value == '{from}' else value }}}}");
    Entity::new("select", "Mode")
        .settable(&topics.mode())
        .with("options", json!(options))
        .with("value_template", replace(NO_MODE, NO_MODE_OPTION))
        .with("command_template", replace(NO_MODE_OPTION, NO_MODE))
}
