//! `spotter run`, and what the demo shares with it.

use std::{path::Path, time::Duration};

use super::{daemon, lines::Lines, logging::start_logging, stages::ProcessContext};
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
    let context = ProcessContext {
        lines,
        ..ProcessContext::new(config, logging)
    };
    let report = runtime.block_on(daemon::run(context, loaded, None))?;
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
pub fn load(path: &Path) -> Result<LoadedConfig, config::ConfigProblems> {
    config::load(path, &Environment::process())
}

pub fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(2).enable_all().build()?)
}
