//! A configuration, a model and frames, for the tests of `app`.

use spotter_core::{
    CameraId, Frame, FrameTimes, Mono, Picture, WallTime,
    config::{self, Config, Environment},
};
use spotter_engine::open::ModelCard;

/// Parses `text`; the state directory does not exist, so nothing of an earlier run is found.
pub fn config(text: &str) -> Config {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("site.toml");
    std::fs::write(&path, text).unwrap();
    let mut config = config::load(&path, &Environment::process()).unwrap().config;
    config.node.state_dir = folder.path().to_owned();
    config
}

pub fn card() -> ModelCard {
    ModelCard {
        name: "simulated".into(),
        sha256: String::new(),
        precision: "bf16".into(),
        device: String::new(),
        label: String::new(),
        gpu: None,
        max_objects: 5,
        permits: 2,
    }
}

/// The frame `number` of a camera, received `now`.
pub fn frame(camera: &CameraId, number: u64, now: Mono) -> Frame {
    Frame {
        camera: camera.clone(),
        number,
        camera_size: (2, 2),
        key: false,
        times: FrameTimes {
            received: now,
            received_wall: WallTime::default(),
            decoded: now,
            capture: None,
            rtp: None,
        },
        picture: Picture::from_rgb(2, 2, vec![0; 12]).unwrap(),
    }
}
