//! Where messages are published: the broker, the login, TLS, the identity and the topics of this node.

use std::{fs, path::Path, sync::Arc};

use sha2::{Digest, Sha256};

use super::{
    client::{ClientSettings, WillSettings},
    timing::ConnectionTiming,
    tls::{TlsError, Trust},
};
use crate::Topics;
use spotter_config::MqttConfig;
use spotter_core::{CameraRights, NodeId};

/// The identity of this node on the broker.
#[derive(Clone, Debug)]
pub struct Identity {
    pub node: NodeId,
    pub(crate) fleet: Option<FleetIdentity>,
    /// Names this run of the daemon: 4 hex digits.
    pub boot: Arc<str>,
    /// Names the machine: 8 hex digits.
    machine: String,
    pub(crate) seed: u64,
}

/// The fleet whose cameras this node may watch.
#[derive(Clone, Debug)]
pub(crate) struct FleetIdentity {
    pub(crate) name: NodeId,
    pub(crate) rights: Arc<dyn CameraRights>,
}

impl Identity {
    /// Reads `/etc/machine-id` (blocks on the disk). Without that file the name of the node is used, so the client id is the
    /// same after a restart.
    pub fn of_this_machine(node: NodeId) -> Self {
        Self::new(node, Path::new("/etc/machine-id"))
    }

    /// The same node as a member of a fleet. `rights` decides about each message of a camera.
    #[must_use]
    pub fn in_fleet(self, name: NodeId, rights: Arc<dyn CameraRights>) -> Self {
        Self {
            fleet: Some(FleetIdentity { name, rights }),
            ..self
        }
    }

    /// 8 hex digits of the machine, the same at every start.
    pub fn machine(&self) -> &str {
        &self.machine
    }

    fn new(node: NodeId, machine_id: &Path) -> Self {
        let seed = fastrand::u64(..);
        let text = fs::read_to_string(machine_id).unwrap_or_default();
        let machine = match text.trim().get(..8) {
            Some(id) if id.bytes().all(|byte| byte.is_ascii_hexdigit()) => id.to_owned(),
            _ => {
                let digest = Sha256::digest(node.as_str());
                digest
                    .iter()
                    .take(4)
                    .map(|byte| format!("{byte:02x}"))
                    .collect()
            }
        };
        Self {
            node,
            fleet: None,
            boot: format!("{:04x}", seed >> 48).into(),
            machine,
            seed,
        }
    }
}

/// See the module's documentation.
#[derive(Clone)]
pub(crate) struct ConnectionTarget {
    pub(crate) mqtt: MqttConfig,
    pub(crate) identity: Identity,
    pub(crate) client_id: String,
    pub(crate) timing: ConnectionTiming,
    /// `None` = plain TCP.
    pub(crate) trust: Option<Trust>,
    pub(crate) topics: Arc<Topics>,
}

impl ConnectionTarget {
    /// Fails only when the TLS files cannot be used. Blocks on the disk.
    pub(crate) fn new(mqtt: &MqttConfig, identity: &Identity) -> Result<Self, TlsError> {
        let topics = Topics::new(&mqtt.base, &identity.node)
            .in_fleet(identity.fleet.as_ref().map(|fleet| &fleet.name))
            .with_reply_topics(&mqtt.reply_topics);
        Ok(Self {
            mqtt: mqtt.clone(),
            identity: identity.clone(),
            client_id: format!("{}-{}-{}", mqtt.base, identity.node, identity.machine()),
            timing: ConnectionTiming::default(),
            trust: mqtt.broker.tls.as_ref().map(Trust::read).transpose()?,
            topics: topics.into(),
        })
    }

    /// The client of this node. `retains`: the broker accepts a retained will.
    pub(crate) fn client<'a>(
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
                topic: self.topics.status(),
                is_retained: retains,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_id_is_the_machines_or_else_the_nodes() -> Result<(), Box<dyn std::error::Error>> {
        let node = NodeId::new("edge1")?;
        let directory = tempfile::tempdir()?;
        let file = directory.path().join("machine-id");
        fs::write(&file, "0123456789abcdef0123456789abcdef\n")?;
        assert_eq!(Identity::new(node.clone(), &file).machine, "01234567");
        let missing = directory.path().join("missing");
        let (a, b) = (
            Identity::new(node.clone(), &missing),
            Identity::new(node, &missing),
        );
        assert_eq!((a.machine.len(), &a.machine), (8, &b.machine));
        assert_ne!(a.seed, b.seed);
        Ok(())
    }
}
