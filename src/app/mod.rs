//! The daemon: the only code that sees every stage.
//!
//! | component | owns |
//! | --- | --- |
//! | [`daemon`] | start, select loop, stop, restart inside the process |
//! | [`config_store`] | the file, its active mode, the overrides, the effective cameras |
//! | [`camera_supervisor`] | the cameras and their published health |
//! | [`engine_supervisor`] | the engines, their cameras ([`camera_assignment`]), opening lost engines again |
//! | [`engine_slot`], [`looks`], [`answer_order`], [`request_turns`] | one engine and its sampler, the looks in flight, the order of their answers, requests of the API |
//! | [`engine_launch`] | how an engine is opened: thread or process |
//! | [`fleet_membership`], [`fleet_file`] | the node's part in a fleet: which cameras are its own, the order of a hand-over |
//! | [`command_handler`], [`pending_questions`] | commands over MQTT, repeats, replies |
//! | [`answer_router`], [`snapshots`], [`snapshot`] | the way of answers to the publisher; pictures of events and of the page |
//! | [`event_poster`] | the webhooks: events and their pictures to receivers over HTTP |
//! | [`line_counts`] | the counts at lines on the disk |
//! | [`node_reporter`] | information, settings, configuration report, Home Assistant discovery |
//! | [`loop_turns`] | how long each turn of the loop takes |
//! | [`housekeeping`], [`report`], [`watchdogs`] | figures, health; what makes no progress |
//! | [`status`], [`engine_usage`], [`canvas`], [`costs`] | what the status page shows |
//! | [`console`], [`lines`], [`mod@demo`] | output for people, output for programs, the demo |
//!
//! Belongs here: which part gets what, start, stop, reload. Does not belong here: how any part does its work.

mod answer_order;
mod answer_router;
mod camera_assignment;
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
mod event_poster;
mod fleet_membership;
mod fleet_record;
mod housekeeping;
mod line_counts;
mod lines;
pub mod looks;
mod loop_turns;
mod node_reporter;
mod onvif_events;
mod pending_confirmations;
mod pending_questions;
mod report;
mod request_turns;
mod snapshot;
mod snapshots;
mod status;
#[cfg(test)]
pub(crate) mod test_support;
mod triggers;
mod watchdogs;

use std::{path::Path, time::Duration};

pub use canvas::Canvas;
pub use config_store::adapters_fit;
pub use demo::{DemoOptions, demo};
pub use engine_launch::{EngineHost, EngineOrder, MeasuredEngine, open_with, serve};

use self::lines::Lines;
use crate::ops::telemetry::{self, Levels, SecretList, Sink};
use spotter_cameras::ingest;
use spotter_config::{self as config, Config, Environment, LoadedConfig};
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

/// The log while the process runs.
#[derive(Clone, Debug)]
pub struct Logging {
    /// What it must not show; may be added to.
    pub secrets: SecretList,
    /// How much it shows.
    pub levels: Levels,
}

/// Log lines, GStreamer's too, go to stderr or the journal, and no secret of `config` appears in them, nor any that is
/// added to the list later.
pub fn start_logging(verbose: u8, config: &Config) -> anyhow::Result<Logging> {
    let secrets = SecretList::default();
    remember_secrets(&secrets, config);
    let levels = telemetry::init(Sink::of_stderr(), verbose, secrets.clone())?;
    ingest::start_gstreamer()?;
    Ok(Logging { secrets, levels })
}

/// Keeps what `config` holds back out of the log.
fn remember_secrets(secrets: &SecretList, config: &Config) {
    let broker = &config.mqtt.broker;
    let client_key = broker.tls.as_ref().and_then(|tls| tls.client_key.as_ref());
    let cameras = config.cameras.iter();
    let logins = cameras.filter_map(|camera| camera.source.login());
    let of_broker = broker
        .password
        .as_ref()
        .map(|password| (broker.user.as_deref(), password));
    let of_tls = client_key.map(|key| (None, key));
    let webhooks = config.webhooks.iter();
    let of_webhooks = webhooks.flat_map(|webhook| {
        let url = webhook.is_url_secret.then_some(&webhook.url);
        [url, webhook.secret.as_ref(), webhook.bearer.as_ref()]
    });
    let tokens = config.api.iter().flat_map(|api| &api.tokens);
    let others = of_webhooks.flatten().chain(tokens);
    let others = others.map(|secret| (None, secret));
    for (user, secret) in logins.chain(of_broker).chain(of_tls).chain(others) {
        secrets.add(user, secret);
    }
}

/// Reads a configuration to run with it.
fn load(path: &Path) -> Result<LoadedConfig, config::ConfigProblems> {
    config::load(path, &Environment::process())
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}
