//! Where messages are published: the broker, the login, TLS and the topics of this node.

use std::sync::Arc;

use super::{
    Identity, Topics,
    broker::{ConnectionTiming, Settings, TlsError, Trust},
    message::Message,
};
use spotter_core::config::MqttConfig;

/// See the module's documentation.
#[derive(Clone)]
pub(super) struct ConnectionTarget {
    pub(super) settings: Settings,
    /// `None` = plain TCP.
    pub(super) trust: Option<Trust>,
    pub(super) topics: Arc<Topics>,
}

impl ConnectionTarget {
    /// Fails only when the TLS files cannot be used. Blocks on the disk.
    pub(super) fn new(
        mqtt: &MqttConfig,
        identity: &Identity,
        timing: ConnectionTiming,
    ) -> Result<Self, TlsError> {
        let topics = Topics::new(&mqtt.base, &identity.node);
        let settings = Settings {
            host: mqtt.host.clone(),
            port: mqtt.port,
            user: mqtt.user.clone(),
            password: mqtt.password.clone(),
            client_id: format!("{}-{}-{}", mqtt.base, identity.node, identity.machine()),
            status_topic: topics.status(),
            timing,
        };
        Ok(Self {
            settings,
            trust: mqtt.tls.as_ref().map(Trust::read).transpose()?,
            topics: topics.into(),
        })
    }

    pub(super) fn final_status(&self) -> Message {
        Message::node_status(&self.topics, false)
    }
}
