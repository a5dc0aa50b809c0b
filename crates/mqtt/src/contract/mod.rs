//! What is published and received: topics, payloads, discovery records, commands (docs/mqtt.md). Pure; knows neither a connection nor a task.

pub(crate) mod command;
pub(crate) mod detection;
pub mod discovery;
mod inbound;
mod line;
pub(crate) mod message;
pub(crate) mod node_topic;
pub(crate) mod part;
pub(crate) mod prompt_states;
pub(crate) mod report;
mod topic;
mod trigger;

pub use command::{
    CommandRequest, InboundKind, Reply, ReplyValue, RequestHead, Requester, filters, parse_inbound,
    parse_page_request,
};
pub use inbound::{Inbound, ReplyTo};
pub use line::JsonLine;
pub use message::{ClearedTopic, Update};
pub use node_topic::{NodeTopic, read_json, read_status};
pub use report::{
    CameraClockHealth, CameraHealth, CameraInfo, CameraOwner, CameraQuality, ConfigReport,
    ConfigState, DaemonInfo, GpuStats, Info, ModelInfo, Off, Stats,
};
pub(crate) use topic::can_be_published_to;
pub use topic::{RequestScope, Topics};
pub use trigger::trigger_signal;
