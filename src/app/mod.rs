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
//! | [`command_handler`], [`pending_questions`] | commands over MQTT, repeats, replies |
//! | [`answer_router`], [`snapshots`], [`snapshot`] | the way of answers to the publisher; pictures of events and of the page |
//! | [`line_counts`] | the counts at lines on the disk |
//! | [`node_reporter`] | information, settings, configuration report, Home Assistant discovery |
//! | [`loop_turns`] | how long each turn of the loop takes |
//! | [`housekeeping`], [`report`], [`watchdogs`] | figures; what makes no progress |
//! | [`status`], [`engine_usage`], [`canvas`], [`costs`] | what the status page shows |
//! | [`console`], [`lines`], [`logging`], [`mod@demo`] | output for people, output for programs, the log, the demo |
//!
//! Belongs here: which part gets what, start, stop, reload. Does not belong here: how any part does its work.

mod answer_order;
mod answer_router;
mod broker_link;
mod camera_assignment;
mod camera_sessions;
mod camera_supervisor;
mod canvas;
mod command_handler;
mod config_store;
mod console;
pub mod costs;
mod daemon;
mod demo;
mod engine_launch;
pub mod engine_slot;
mod engine_supervisor;
mod engine_usage;
mod fleet_membership;
mod fleet_record;
mod housekeeping;
mod http_servers;
mod line_counts;
mod lines;
mod logging;
pub mod looks;
mod loop_turns;
mod node_reporter;
mod notice;
mod onvif_events;
mod pending_questions;
mod reload;
mod report;
mod request_turns;
mod snapshot;
mod snapshots;
mod stage;
mod stages;
mod status;
#[cfg(test)]
pub(crate) mod test_support;
mod triggers;
mod watchdogs;
mod webhooks;

use std::{path::Path, time::Duration};

pub use canvas::Canvas;
pub use config_store::adapters_fit;
pub use demo::{DemoOptions, demo};
pub use engine_launch::{EngineHost, EngineOrder, MeasuredEngine, open_with, serve};
pub use logging::{Logging, start_logging};

use self::lines::Lines;
use spotter_config::{self as config, Environment, LoadedConfig};
use spotter_core::keep_new_files_private;

/// The reader of our standard output has so long for the last lines.
const LAST_LINES_LIMIT: Duration = Duration::from_secs(1);

/// `spotter run`: watches the cameras until a signal stops it. With `json`, prints what is published. Blocks.
pub fn run(config: &Path, verbose: u8, json: bool) -> anyhow::Result<()> {
    keep_new_files_private();
    let loaded = load(config)?;
    let logging = start_logging(verbose, &loaded.config)?;
    let runtime = runtime()?;
    let (lines, printed) = json.then(Lines::new).unzip();
    let report = runtime.block_on(daemon::run(daemon::Start {
        path: config.to_owned(),
        loaded,
        logging,
        console: false,
        lines,
        seconds: None,
    }))?;
    // A line each: the journal would give a second line neither a priority nor a name.
    for line in report.to_string().lines() {
        tracing::info!("{line}");
    }
    // With it goes all that could still publish.
    drop(runtime);
    if let Some(printed) = printed {
        printed.wait(LAST_LINES_LIMIT);
    }
    Ok(())
}

/// Reads a configuration to run with it.
fn load(path: &Path) -> Result<LoadedConfig, config::ConfigProblems> {
    config::load(path, &Environment::process())
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}
