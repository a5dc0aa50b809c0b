//! What Spotter publishes: topics, payloads, and the connection to the broker (docs/mqtt.md).
//!
//! ```text
//!   Update ──message──▶ Message ──outbox──▶ Outgoing ──broker──▶ MQTT
//!   (values)            topic, QoS,         what is due now,     the only code
//!                       retain              pure, takes `now`    that knows a client library
//! ```
//!
//! Belongs here: JSON, topic names, delivery rules. This is the only crate that knows payloads. Does not belong here: the
//! values of states; they arrive as an [`Update`]. A detection becomes JSON when the client library accepts it, so that its
//! time of publication is true.

mod announcer;
mod broker;
mod command;
mod crossing;
mod detection;
pub mod discovery;
mod event;
mod event_feed;
mod inbound;
mod line;
mod message;
mod message_counters;
mod node_topic;
mod outbox;
mod publisher;
mod report;
pub mod retained;
mod spool;
mod target;
mod topic;
mod trigger;

pub use announcer::Announcer;
pub use broker::{BrokerState, ReadError, TlsError, TopicReader};
pub use command::{
    CommandRequest, InboundKind, Reply, ReplyValue, RequestHead, filters, parse_inbound,
};
pub use event_feed::PublishedEvent;
pub use inbound::{Inbound, ReplyTo};
pub use line::JsonLine;
pub use message::{ClearedTopic, Update};
pub use message_counters::MessageCounters;
pub use node_topic::{NodeTopic, read_json, read_status};
pub use publisher::{Identity, Publisher, SentDetection};
pub use report::{
    CameraClockHealth, CameraHealth, CameraInfo, CameraOwner, ConfigReport, ConfigState,
    DaemonInfo, GpuStats, Info, ModelInfo, Off, Stats,
};
pub use topic::{RequestScope, Topics};
pub use trigger::trigger_signal;

#[cfg(test)]
mod schema_tests;
#[cfg(test)]
mod testing;
