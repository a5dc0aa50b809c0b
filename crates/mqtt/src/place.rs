//! Where everything is told: a broker with the way to it, and our topics there.

use std::sync::Arc;

use super::{
    Identity, Topics,
    broker::{Settings, TlsError, Trust},
    message::Message,
};
use spotter_core::config::{Config, MqttConfig};

/// See the module's documentation.
#[derive(Clone)]
pub struct Place {
    pub(super) settings: Settings,
    /// `None` = plain TCP.
    pub(super) trust: Option<Trust>,
    pub(super) topics: Arc<Topics>,
}

impl Place {
    /// As configured. Fails only when the TLS files are no good; blocks to read them.
    pub fn new(mqtt: &MqttConfig, identity: &Identity) -> Result<Self, TlsError> {
        let topics = Topics::new(&mqtt.base, &identity.node);
        let settings = Settings {
            host: mqtt.host.clone(),
            port: mqtt.port,
            user: mqtt.user.clone(),
            password: mqtt.password.clone(),
            client_id: format!("{}-{}-{}", mqtt.base, identity.node, identity.machine()),
            status_topic: topics.status(),
        };
        Ok(Self {
            settings,
            trust: mqtt.tls.as_ref().map(Trust::read).transpose()?,
            topics: topics.into(),
        })
    }

    /// Whether two configurations name one place, reached in one way.
    pub fn is_same(a: &Config, b: &Config) -> bool {
        let broker = |config: &Config| {
            let mqtt = config.mqtt.clone();
            let login = (mqtt.user, mqtt.password, mqtt.tls);
            (mqtt.host, mqtt.port, login, mqtt.base)
        };
        a.node.name == b.node.name && broker(a) == broker(b)
    }

    /// What is said there last.
    pub(super) fn farewell(&self) -> Message {
        Message::node_status(&self.topics, false)
    }
}
