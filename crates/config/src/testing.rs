//! What tests of several crates share: a configured camera, prompt and broker.

use std::time::Duration;

use super::{
    forms::environment::Environment,
    load::{file::of_text, prompt_keys::prompt_of_keys},
    tables::{camera::*, mqtt::*, prompt::*, source::*},
};
use spotter_core::{CameraId, PromptId};

/// A broker on this machine, in clear, that keeps next to nothing for events.
pub fn mqtt(port: u16) -> MqttConfig {
    let text = format!(
        "mqtt = {{ url = \"mqtt://127.0.0.1:{port}\", ha.discovery = \"off\" }}\n\
         [camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n"
    );
    let loaded = of_text("site.toml", &text, &Environment::new("box", |_| None));
    MqttConfig {
        spool: SpoolConfig {
            events: 1,
            max_age: Duration::from_secs(1),
            max_mb: 1,
        },
        ..loaded.expect("a site").config.mqtt
    }
}

/// A camera of the test source: one look a second, no gate, no mask, no zones, no lines.
pub fn camera(id: &str, prompts: Vec<PromptConfig>) -> CameraConfig {
    let id = CameraId::new(id).expect("an id");
    CameraConfig {
        prompts,
        ..CameraConfig::new(id, SourceConfig::Test)
    }
}

/// A prompt that detects what it is called, once a second, and reports everything.
pub fn prompt(id: &str) -> PromptConfig {
    let (keys, id) = ([("detect".to_owned(), id.into())], PromptId::new(id));
    let id = id.expect("an id");
    let read = prompt_of_keys(
        &keys.into_iter().collect(),
        &id,
        &camera("gate", Vec::new()),
        &[],
    );
    read.expect("a prompt")
}
