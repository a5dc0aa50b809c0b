//! What is told when the daemon starts: the birth message, and what a look is measured with.

use spotter_core::{
    Task, WallTime,
    config::{self, CameraConfig, Config, Environment},
};
use spotter_engine::open::ModelCard;
use spotter_mqtt::{CameraInfo, Daemon, Identity, Info, ModelInfo};

/// The prompts of the camera that has most of them: what one look may have to answer.
pub fn longest_look(cameras: &[CameraConfig]) -> Vec<Task> {
    let longest = cameras.iter().max_by_key(|camera| camera.prompts.len());
    let prompts = longest.into_iter().flat_map(|camera| &camera.prompts);
    prompts.map(|prompt| prompt.task.clone()).collect()
}

/// The birth message of a daemon that is ready at `started` and uses these `gpus`.
pub fn info(
    config: &Config,
    identity: &Identity,
    (card, gpus): (&ModelCard, Vec<String>),
    started: WallTime,
) -> Info {
    Info {
        daemon: Daemon {
            name: "spotter".into(),
            version: env!("CARGO_PKG_VERSION").into(),
        },
        boot: identity.boot.to_string(),
        started_ms: started.unix_millis(),
        host: Environment::process().host_name().to_owned(),
        gpus,
        model: Some(model(card)),
        cams: cameras(&config.cameras),
        config_hash: config.hash.clone(),
        overrides: 0,
        features: config::advice::insecure_features(config),
    }
}

/// The model in the birth message.
pub fn model(card: &ModelCard) -> ModelInfo {
    ModelInfo {
        name: card.name.to_string(),
        sha256: card.sha256.clone(),
        precision: card.precision.to_string(),
        object_limit: card.max_objects,
    }
}

/// The cameras in the birth message.
pub fn cameras(cameras: &[CameraConfig]) -> Vec<CameraInfo> {
    let told = |camera: &CameraConfig| CameraInfo {
        id: camera.id.to_string(),
        prompts: camera.prompts.iter().map(|p| p.id.to_string()).collect(),
        zones: camera.zones.iter().map(|z| z.id.to_string()).collect(),
        rate: camera.rate_hz,
    };
    cameras.iter().map(told).collect()
}
