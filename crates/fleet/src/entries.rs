//! What the store of a fleet holds, and what a watch of it reports.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    time::Duration,
};

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use spotter_core::{CameraId, Epoch, NodeId, plain_line};

/// How often a node renews its heartbeat.
pub const HEARTBEAT_PERIOD: Duration = Duration::from_secs(3);
/// How long a heartbeat lives in the store.
pub const HEARTBEAT_LIFETIME: Duration = Duration::from_secs(10);

/// The value of a node's key, renewed every [`HEARTBEAT_PERIOD`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// The program's version.
    #[serde(deserialize_with = "plain")]
    pub version: String,
    /// What distinguishes two machines with one node name.
    #[serde(default, deserialize_with = "plain")]
    pub machine: String,
    /// The list of cameras that the node follows; `None`: none yet, so that it can have no cameras.
    #[serde(default)]
    pub list_revision: Option<u64>,
    /// Looks of cost 1 a second; 0, or within [`CAPACITY_HZ_RANGE`].
    #[serde(deserialize_with = "capacity")]
    pub capacity_hz: f64,
    #[serde(deserialize_with = "labels")]
    pub labels: BTreeSet<String>,
    /// Cameras that it cannot watch, with the reason.
    #[serde(default, deserialize_with = "plain_reasons")]
    pub refused: BTreeMap<CameraId, String>,
    /// It stops: its cameras are for others.
    #[serde(default)]
    pub is_leaving: bool,
    /// Where people open its page.
    #[serde(default, deserialize_with = "page_url")]
    pub url: Option<String>,
}

/// The address of a page.
const URL_MAX_BYTES: usize = 1024;

/// Loads are work divided by capacity: outside of this range, they would not be numbers that can be compared.
pub const CAPACITY_HZ_RANGE: RangeInclusive<f64> = 1e-3..=1e6;

fn capacity<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    let hz = f64::deserialize(from)?;
    let is_allowed = hz == 0.0 || CAPACITY_HZ_RANGE.contains(&hz);
    let (least, most) = (CAPACITY_HZ_RANGE.start(), CAPACITY_HZ_RANGE.end());
    let wrong = || D::Error::custom(format!("capacity_hz: {hz} is not 0 or {least} to {most}"));
    is_allowed.then_some(hz).ok_or_else(wrong)
}

fn plain<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Ok(plain_line(&String::deserialize(from)?))
}

/// A page links it. Anything else in its place is none.
fn page_url<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let url = Option::<String>::deserialize(from)?;
    let is_plain = |url: &String| {
        let is_web = url.starts_with("https://") || url.starts_with("http://");
        is_web && url.len() <= URL_MAX_BYTES && url.bytes().all(|byte| byte.is_ascii_graphic())
    };
    Ok(url.filter(is_plain))
}

/// Those that a configuration file can have.
fn labels<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeSet<String>, D::Error> {
    let mut labels = BTreeSet::<String>::deserialize(from)?;
    labels.retain(|label| NodeId::new(label).is_ok());
    Ok(labels)
}

fn plain_reasons<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<BTreeMap<CameraId, String>, D::Error> {
    let reasons = BTreeMap::<CameraId, String>::deserialize(from)?.into_iter();
    Ok(reasons
        .map(|(camera, why)| (camera, plain_line(&why)))
        .collect())
}

/// A heartbeat as the watch reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct HeartbeatEntry {
    pub node: NodeId,
    pub heartbeat: Heartbeat,
    /// Of the bucket: it rises with each heartbeat of any node.
    pub revision: u64,
}

/// What the store says to a heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// With its revision.
    Accepted(u64),
    /// Another machine has the node's name.
    NameTaken(String),
}

/// The owner of a camera, and the revision of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// `None`: released.
    pub owner: Option<NodeId>,
    pub epoch: Epoch,
}

/// A revision of the list of cameras.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRevision {
    pub revision: u64,
    pub text: String,
}

/// What changed in the store.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreEvent {
    /// All current values follow, then [`StoreEvent::Current`].
    Connected,
    /// All owners were reported.
    Current,
    Disconnected {
        reason: String,
    },
    List(ListRevision),
    Heartbeat(HeartbeatEntry),
    /// A node has removed its heartbeat.
    Stopped(NodeId),
    Owned(CameraId, Ownership),
    /// What commands have changed at a camera; `None`: nothing any more.
    Settings {
        camera: CameraId,
        text: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};
    use spotter_core::{PLAIN_LINE_MAX_CHARS, testing::cases};

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(|bits| json!(f64::from_bits(bits))),
            (-1.0f64..100.0).prop_map(Value::from),
            ".{0,20}".prop_map(Value::from),
            (1usize..2000).prop_map(|length| Value::from("x".repeat(length))),
            prop::collection::vec("[a-z ]{0,4}", 0..3).prop_map(Value::from),
            prop::collection::btree_map("[a-z ]{0,4}", ".{0,300}", 0..3).prop_map(|map| json!(map)),
        ]
    }

    fn heartbeat() -> impl Strategy<Value = Value> {
        let capacity = prop_oneof![value(), any::<f64>().prop_map(|hz| json!(hz))];
        let texts = prop_oneof![value(), ".{0,300}".prop_map(Value::from)];
        (texts, capacity, value(), value(), value()).prop_map(
            |(version, capacity_hz, labels, refused, list_revision)| {
                let labels = if labels.is_array() { labels } else { json!([]) };
                let refused = if refused.is_object() { refused } else { json!({}) };
                json!({"version": version, "machine": version, "capacity_hz": capacity_hz, "labels": labels,
                    "refused": refused, "list_revision": list_revision.as_u64()})
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(256)))]

        // Faults: F10.
        #[test]
        fn accepted_heartbeats_obey_the_rules(text in prop_oneof![value(), heartbeat()]) {
            let read = serde_json::from_slice::<Heartbeat>(text.to_string().as_bytes());
            if let Ok(heartbeat) = read {
                let hz = heartbeat.capacity_hz;
                prop_assert!(hz == 0.0 || CAPACITY_HZ_RANGE.contains(&hz));
                let texts = [&heartbeat.version, &heartbeat.machine].into_iter().chain(heartbeat.refused.values());
                for text in texts {
                    prop_assert!(text.chars().count() <= PLAIN_LINE_MAX_CHARS);
                    prop_assert!(!text.chars().any(char::is_control));
                }
                prop_assert!(heartbeat.url.is_none_or(|url| url.starts_with("http")));
                prop_assert!(heartbeat.labels.iter().all(|label| NodeId::new(label).is_ok()));
            }
        }

        #[test]
        fn epochs_and_owners_of_any_text_are_bounded(number in any::<u64>(), text in value()) {
            let epoch = serde_json::from_value::<Epoch>(json!(number));
            prop_assert_eq!(epoch.is_ok(), number <= Epoch::MAX.0);
            if let Ok(epoch) = serde_json::from_value::<Epoch>(text) {
                prop_assert!(epoch <= Epoch::MAX);
            }
        }
    }
}
