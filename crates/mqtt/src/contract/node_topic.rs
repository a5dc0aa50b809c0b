//! The other direction: what a reader of the broker finds below the base, for `spotter fleet`.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use spotter_core::{CameraId, NodeId};

/// `online` or `offline`, for nodes, cameras and the will.
pub(crate) fn status_text(online: bool) -> &'static str {
    if online { "online" } else { "offline" }
}

/// A retained topic of a node that a reader understands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeTopic {
    Status,
    Info,
    Config,
    Stats,
    /// Below a fleet's name instead of a node's: which node watches the camera ([`CameraOwner`](super::CameraOwner)).
    Owner(CameraId),
    Health(CameraId),
}

impl NodeTopic {
    /// Filters for these topics of all nodes below `base`. `info` comes before `stats`: a reader compares their runs. `owner` comes
    /// before `health`: it shows that the name is a fleet's.
    pub fn filters(base: &str) -> Vec<String> {
        let below = [
            "info",
            "status",
            "config",
            "stats",
            "cam/+/owner",
            "cam/+/health",
        ];
        below.map(|topic| format!("{base}/+/{topic}")).into()
    }

    /// The node and its topic; `None` for any other topic.
    pub fn parse(base: &str, topic: &str) -> Option<(NodeId, Self)> {
        let below = topic.strip_prefix(base)?.strip_prefix('/')?;
        let (node, below) = below.split_once('/')?;
        let node = NodeId::new(node).ok()?;
        let levels: Vec<&str> = below.split('/').collect();
        let topic = match levels.as_slice() {
            ["status"] => Self::Status,
            ["info"] => Self::Info,
            ["config"] => Self::Config,
            ["stats"] => Self::Stats,
            ["cam", camera, "owner"] => Self::Owner(CameraId::new(camera).ok()?),
            ["cam", camera, "health"] => Self::Health(CameraId::new(camera).ok()?),
            _ => return None,
        };
        Some((node, topic))
    }
}

/// A payload of `status`: true for `online`.
pub fn read_status(payload: &[u8]) -> Result<bool, String> {
    let online = [true, false]
        .into_iter()
        .find(|online| status_text(*online).as_bytes() == payload);
    online.ok_or_else(|| "neither online nor offline".to_owned())
}

/// A JSON object. Unknown keys are ignored, and missing ones have their default: the node may be of another version.
pub fn read_json<T: DeserializeOwned>(payload: &[u8]) -> Result<T, String> {
    // Not at once: a list would be read as the values of a struct.
    let object: Result<Map<String, Value>, _> = serde_json::from_slice(payload);
    let read = object.and_then(|object| serde_json::from_value(Value::Object(object)));
    read.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{camera, topics};

    #[test]
    fn topics_of_a_node_are_read_back() {
        let topics = topics();
        for (topic, expected) in [
            (topics.status(), NodeTopic::Status),
            (topics.info(), NodeTopic::Info),
            (topics.config(), NodeTopic::Config),
            (topics.stats(), NodeTopic::Stats),
            (
                topics.camera_owner(&camera("gate")),
                NodeTopic::Owner(camera("gate")),
            ),
            (
                topics.camera_health(&camera("gate")),
                NodeTopic::Health(camera("gate")),
            ),
        ] {
            let (node, read) = NodeTopic::parse("spotter", &topic).unwrap();
            assert_eq!((node.as_str(), read), ("edge1", expected));
        }
        for other in [
            topics.command(),
            "spotters/edge1/status".into(),
            "spotter/UPPER/info".into(),
        ] {
            assert_eq!(NodeTopic::parse("spotter", &other), None, "{other}");
        }
    }

    #[test]
    fn list_is_no_payload() {
        assert!(read_json::<crate::Info>(b"[]").is_err());
        assert_eq!(read_json::<crate::Info>(b"{}"), Ok(crate::Info::default()));
    }
}
