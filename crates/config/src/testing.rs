//! What tests of several crates share: a configured camera, prompt and broker.

use std::{collections::BTreeMap, time::Duration};

use super::tables::{camera::*, mqtt::*, prompt::*, source::*};
use spotter_core::{
    CameraId, PromptId, PromptRegion, Task,
    testing::{rate, share},
};

/// A broker on this machine, in clear, that keeps next to nothing for events.
pub fn mqtt(port: u16) -> MqttConfig {
    MqttConfig {
        broker: BrokerAccess {
            host: "127.0.0.1".into(),
            port,
            tls: None,
            user: None,
            password: None,
            version: MqttVersion::Auto,
            max_qos: 1,
        },
        base: "spotter".into(),
        commands: Commands::Basic,
        reply_topics: Vec::new(),
        overrides: OverridePersistence::Keep,
        retain_snapshots: false,
        spool: SpoolConfig {
            events: 1,
            max_age: Duration::from_secs(1),
            max_mb: 1,
        },
        ha: HomeAssistantConfig {
            discovery: Discovery::Off,
            prefix: "homeassistant".into(),
        },
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
    PromptConfig {
        id: PromptId::new(id).expect("an id"),
        enabled: true,
        revision: 1,
        task: Task::Detect { object: id.into() },
        region: PromptRegion::Whole,
        crops_max: None,
        rate: rate(1.0),
        min_score: share(0.0),
        min_area: 0.0,
        zones: Vec::new(),
        lines: Vec::new(),
        dwell: BTreeMap::new(),
        snapshot: false,
        verify: None,
        describe: None,
        strip: None,
        events: EventConfig::default(),
    }
}
