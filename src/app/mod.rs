//! The daemon: the only code that sees every stage.
//!
//! | component | owns |
//! | --- | --- |
//! | [`daemon`], [`stages`] | start, loop, stop, restart inside the process; which stages there are |
//! | [`stage`], [`notice`] | what all stages have in common, and what they say to each other |
//! | [`reload`] | the file, read again beside the loop |
//! | [`config_store`] | the file is read, what commands change is stored |
//! | [`camera_supervisor`] | the cameras and their published health |
//! | [`engine_supervisor`] | the engines, their cameras ([`camera_assignment`]), opening lost engines again |
//! | [`engine_slot`], [`looks`], [`answer_order`], [`request_turns`] | one engine and its sampler, the looks in flight, the order of their answers, requests of the API |
//! | [`engine_launch`] | how an engine is opened: thread or process |
//! | [`broker_link`], [`http_servers`] | what comes from the broker; page and API |
//! | [`fleet_membership`], [`fleet_record`] | the node's part in a fleet: which cameras are its own, the order of a hand-over |
//! | [`command_handler`], [`command_sender`], [`pending_questions`] | commands over MQTT and of the page, repeats, replies |
//! | [`answer_router`], [`snapshots`], [`snapshot`] | the way of answers to the publisher; pictures of events and of the page |
//! | [`line_counts`], [`event_history`] | the counts at lines on the disk; stored events |
//! | [`shapes`] | what the page shows of the shapes on a camera |
//! | [`node_reporter`] | information, settings, configuration report, Home Assistant discovery |
//! | [`loop_turns`] | how long each turn of the loop takes |
//! | [`housekeeping`], [`report`], [`watchdogs`] | figures; what makes no progress |
//! | [`status`], [`engine_usage`], [`canvas`], [`costs`] | what the status page shows |
//! | [`console`], [`lines`], [`logging`], [`mod@run`], [`mod@demo`] | output for people, output for programs, the log, `spotter run`, the demo |
//!
//! Belongs here: which part gets what, start, stop, reload. Does not belong here: how any part does its work.

mod answer_order;
mod answer_router;
mod broker_link;
mod camera_assignment;
mod camera_supervisor;
mod canvas;
mod command_handler;
mod command_sender;
mod config_store;
mod console;
pub mod costs;
mod daemon;
mod demo;
mod engine_launch;
pub mod engine_slot;
mod engine_supervisor;
mod engine_usage;
mod event_history;
mod fleet_membership;
mod fleet_record;
mod housekeeping;
mod http_servers;
mod line_counts;
mod lines;
mod logging;
pub mod looks;
mod loop_turns;
mod near_events;
mod node_reporter;
mod notice;
mod onvif_events;
mod pending_marks;
mod pending_questions;
pub mod prompt_rule;
mod quality_reports;
mod reload;
mod report;
mod request_history;
mod request_turns;
mod run;
mod shapes;
mod snapshot;
mod snapshots;
mod stage;
mod stages;
mod status;
#[cfg(test)]
pub(crate) mod testing;
mod text_parts;
mod trials;
mod triggers;
mod watchdogs;
mod webhooks;

pub use canvas::Canvas;
pub use config_store::adapters_fit;
pub use demo::{DemoOptions, demo};
pub use engine_launch::{EngineOrder, MeasuredEngine, serve};
pub use logging::{Logging, start_logging};
pub use run::{run, runtime};
