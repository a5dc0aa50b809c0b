//! Where messages are published: the broker, the login, TLS and the topics of this node.

use std::sync::Arc;

use super::{
    Identity, Topics,
    broker::{ClientSettings, ConnectionTiming, TlsError, Trust, WillSettings},
};
use spotter_core::config::MqttConfig;

/// See the module's documentation.
#[derive(Clone)]
pub(super) struct ConnectionTarget {
    pub(super) mqtt: MqttConfig,
    pub(super) identity: Identity,
    pub(super) client_id: String,
    pub(super) status_topic: String,
    /// The filter of the owners of all cameras; `None` without a fleet.
    pub(super) owner_filter: Option<String>,
    pub(super) timing: ConnectionTiming,
    /// `None` = plain TCP.
    pub(super) trust: Option<Trust>,
    pub(super) topics: Arc<Topics>,
}

impl ConnectionTarget {
    /// Fails only when the TLS files cannot be used. Blocks on the disk.
    pub(super) fn new(mqtt: &MqttConfig, identity: &Identity) -> Result<Self, TlsError> {
        let topics = Topics::new(&mqtt.base, &identity.node)
            .in_fleet(identity.fleet.as_ref().map(|fleet| &fleet.name))
            .with_reply_topics(&mqtt.reply_topics);
        Ok(Self {
            mqtt: mqtt.clone(),
            identity: identity.clone(),
            client_id: format!("{}-{}-{}", mqtt.base, identity.node, identity.machine()),
            status_topic: topics.status(),
            owner_filter: topics.any_owner(),
            timing: ConnectionTiming::default(),
            trust: mqtt.broker.tls.as_ref().map(Trust::read).transpose()?,
            topics: topics.into(),
        })
    }

    /// The client of this node. `retains`: the broker accepts a retained will.
    pub(super) fn client<'a>(
        &'a self,
        trust: Option<&'a Trust>,
        retains: bool,
    ) -> ClientSettings<'a> {
        ClientSettings {
            broker: &self.mqtt.broker,
            id: &self.client_id,
            timing: &self.timing,
            trust,
            will: Some(WillSettings {
                topic: &self.status_topic,
                is_retained: retains,
            }),
        }
    }

    /// The log message when the broker rejects the subscription to `filter`: what does not work without it.
    pub(super) fn effect_of_rejected(&self, filter: &str) -> &'static str {
        if filter == self.status_topic {
            "subscription to the node's own status rejected; a late offline will is not corrected"
        } else if Some(filter) == self.owner_filter.as_deref() {
            "subscription to the owners of the fleet's cameras rejected; while the fleet's store does not answer, this node does not see that another one has its cameras"
        } else if self.topics.levels_of(filter).is_some() {
            "subscription rejected; commands on this topic are ignored"
        } else {
            "subscription to Home Assistant's status rejected; discovery is not published again when it restarts"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_subscription_names_what_stops_working() -> Result<(), Box<dyn std::error::Error>> {
        let identity = Identity::of_this_machine(spotter_core::NodeId::new("edge1")?);
        let mqtt = spotter_core::testing::mqtt(1883);
        let target = ConnectionTarget::new(&mqtt, &identity)?;
        for (filter, effect) in [
            ("spotter/edge1/status", "a late offline will"),
            ("spotter/edge1/cam/+/+/set", "commands on this topic"),
            ("spotter/edge1/cmd", "commands on this topic"),
            ("homeassistant/status", "discovery is not published again"),
        ] {
            let found = target.effect_of_rejected(filter);
            assert!(found.contains(effect), "{filter}");
        }
        Ok(())
    }
}
