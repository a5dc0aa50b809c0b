//! What Spotter tells the world: topics, payloads, and the way to the broker (docs/mqtt.md).
//!
//! ```text
//!   Update ──message──▶ Message ──outbox──▶ Outgoing ──broker──▶ MQTT
//!   (plain facts)       topic, QoS,         what is due now,     the only code
//!                       retain              pure, takes `now`    that knows a client library
//! ```
//!
//! Belongs here: JSON, topic names, delivery rules. This is the only module that knows JSON on the wire. Does not
//! belong here: what is present or how a camera feels (that comes in as an [`Update`]). A detection stays plain
//! facts until the client takes it, so that its time of publication is true.

mod announcer;
mod broker;
mod command;
mod detection;
pub mod discovery;
mod event;
mod inbound;
mod line;
mod message;
mod message_counters;
mod outbox;
mod publisher;
mod report;
pub mod retained;
mod spool;
mod target;
mod topic;

pub use announcer::Announcer;
pub use broker::{BrokerState, TlsError};
pub use command::{CommandRequest, InboundKind, Reply, ReplyValue, RequestHead, filters, heard};
pub use inbound::{Inbound, ReplyTo};
pub use line::JsonLine;
pub use message::Update;
pub use message_counters::MessageCounters;
pub use outbox::{EventBounds, OutboxLimits};
pub use publisher::{Identity, Publisher, SentDetection};
pub use report::{
    CameraClockHealth, CameraHealth, CameraInfo, ConfigReport, ConfigState, DaemonInfo, GpuStats,
    Info, ModelInfo, Off, Stats,
};
pub use topic::Topics;

#[cfg(test)]
mod schema_tests;
