//! The configuration file, read again while the daemon runs: beside the loop, one reading at a time.
//!
//! A request that comes while the file is read may be about a later change of it, so the file is then read once more.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use tokio::task::spawn_blocking;

use super::{
    command_sender::CommandSender,
    config_store::{adapters_fit, new_adapters, read_file, restart_reasons},
    logging::remember_secrets,
    notice::{FoundFile, ReadFile, RunEnd, StageNotice},
    prompt_rule::{prompts_fit, read_prompt_rule},
    stage::{Stage, StageContext, StageFuture},
};
use crate::ops::secret_list::SecretList;
use spotter_config::{self as config, Config, ConfigProblems, LoadedConfig};
use spotter_engine::model::check_model;
use spotter_mqtt::Publisher;
use spotter_webhook::Webhooks;

const REJECTED: &str = "new configuration rejected; the running configuration stays active";

/// Commands that get a reply while the file is read; further ones get none.
const REPLIES_MAX: usize = 64;

/// See the module's documentation.
pub struct Reload {
    path: PathBuf,
    secrets: SecretList,
    /// Adapters that the engines have memory for.
    adapter_slots: usize,
    reading: Option<StageFuture<'static, ReadFile>>,
    /// Asked for while the file is read.
    again: Option<Vec<CommandSender>>,
}

impl Reload {
    pub fn new(path: PathBuf, secrets: SecretList, adapter_slots: usize) -> Self {
        Self {
            path,
            secrets,
            adapter_slots,
            reading: None,
            again: None,
        }
    }

    fn begin(&mut self, senders: Vec<CommandSender>, running: &Config) {
        let (path, running) = (self.path.clone(), running.clone());
        let adapter_slots = self.adapter_slots;
        self.reading = Some(Box::pin(async move {
            let found = find(&path, running, adapter_slots).await;
            ReadFile { senders, found }
        }));
    }

    fn carry_out(&mut self, found: FoundFile, context: &mut StageContext<'_>) {
        match found {
            FoundFile::Unchanged => tracing::info!("configuration unchanged"),
            FoundFile::InPlace(loaded) => {
                tracing::info!("configuration changed");
                remember_secrets(&self.secrets, &loaded.config);
                log_warnings(&loaded);
                log_advice(&loaded.config);
                let (now, wall) = (context.now, context.wall);
                context.config.replace_file(loaded.config, now, wall);
                context.cameras_changed();
            }
            FoundFile::Restart(loaded) => {
                return context.say(StageNotice::End(Ok(RunEnd::Restart(loaded))));
            }
            FoundFile::Rejected(errors) => return context.say(StageNotice::ConfigReported(errors)),
        }
        // A certificate or the rights at the broker may have changed with an unchanged file.
        context.say(StageNotice::FileApplied);
        context.say(StageNotice::ConfigReported(Vec::new()));
    }
}

impl Stage for Reload {
    fn next(&mut self) -> StageFuture<'_, Vec<StageNotice>> {
        let Some(reading) = &mut self.reading else {
            return Box::pin(std::future::pending());
        };
        Box::pin(async { vec![StageNotice::FileRead(reading.await)] })
    }

    fn hear(&mut self, notice: &mut StageNotice, context: &mut StageContext<'_>) {
        match notice {
            StageNotice::ReloadAsked(sender) if self.reading.is_none() => {
                self.begin(Vec::from_iter(sender.take()), context.config.file());
            }
            StageNotice::ReloadAsked(sender) => {
                let again = self.again.get_or_insert_default();
                again.extend(sender.take());
                again.truncate(REPLIES_MAX);
            }
            StageNotice::FileRead(read) => {
                self.reading = None;
                self.carry_out(std::mem::take(&mut read.found), context);
                if let Some(senders) = self.again.take() {
                    self.begin(senders, context.config.file());
                }
            }
            _ => {}
        }
    }
}

/// Reads the file and validates it. Logs what is wrong with it; changes nothing.
async fn find(path: &Path, running: Config, adapter_slots: usize) -> FoundFile {
    match read(path, running, adapter_slots).await {
        Ok(found) => found,
        Err(error) => {
            let Some(problems) = error.downcast_ref::<ConfigProblems>() else {
                tracing::error!("{REJECTED}: {error:#}");
                return FoundFile::Rejected(vec![format!("{error:#}")]);
            };
            tracing::error!(errors = problems.errors(), "{REJECTED}");
            // Each in an event of its own, because a journal shows a second line without priority and name.
            for problem in problems.iter() {
                match problem.is_error() {
                    true => tracing::error!("{problem}"),
                    false => tracing::warn!("{problem}"),
                }
            }
            FoundFile::Rejected(problems.iter().map(ToString::to_string).collect())
        }
    }
}

async fn read(path: &Path, running: Config, adapter_slots: usize) -> anyhow::Result<FoundFile> {
    let file = path.to_owned();
    let before = running.clone();
    let loaded = spawn_blocking(move || read_file(&file, &before)).await??;
    let new = &loaded.config;
    if *new == running {
        return Ok(FoundFile::Unchanged);
    }
    Webhooks::check(&new.webhooks)?;
    prompts_fit(path, new, &read_prompt_rule(&new.model).await?)?;
    new_adapters_fit(path, &running, new).await?;
    let reasons = restart_reasons(&running, new, adapter_slots);
    if reasons.is_empty() {
        return Ok(FoundFile::InPlace(Box::new(loaded)));
    }
    validate(&running, new).await?;
    let sections = reasons.join(", ");
    tracing::info!(sections, "configuration changed; restarting all stages");
    Ok(FoundFile::Restart(Box::new(loaded)))
}

/// Fails when a new adapter does not fit the model. One that has broken since it was read is no mistake of the new file.
async fn new_adapters_fit(path: &Path, running: &Config, new: &Config) -> anyhow::Result<()> {
    let (path, model) = (path.to_owned(), new.model.source.clone());
    let adapters = new_adapters(running, new);
    Ok(spawn_blocking(move || adapters_fit(&path, &model, &adapters)).await??)
}

/// Finds errors that are cheap to find before the running stages stop. What remains makes the previous configuration run again.
async fn validate(running: &Config, new: &Config) -> anyhow::Result<()> {
    if running.mqtt != new.mqtt {
        Publisher::check(&new.mqtt).context("mqtt")?;
    }
    // Their own ports are free in the restart, so only another one is tried before.
    let is_own = |port| listeners(running).any(|(_, own)| own.port() == port);
    for (key, address) in listeners(new).filter(|(_, new)| !is_own(new.port())) {
        drop(spotter_http::bind(key, address).await?);
    }
    if running.model.source != new.model.source {
        let source = new.model.source.clone();
        let checked = spawn_blocking(move || check_model(&source)).await?;
        checked.context("model")?;
    }
    Ok(())
}

/// The addresses of page and API, with their keys.
fn listeners(config: &Config) -> impl Iterator<Item = (&'static str, SocketAddr)> {
    let page = config.http.listen.map(|address| ("http.listen", address));
    let api = config.api.as_ref().map(|api| ("api.listen", api.listen));
    page.into_iter().chain(api)
}

pub fn log_warnings(loaded: &LoadedConfig) {
    for warning in &loaded.warnings {
        tracing::warn!("{warning}");
    }
}

/// Warns of valid settings that are probably not intended.
pub fn log_advice(file: &Config) {
    if let Some(warning) = config::advice::no_model(&file.model) {
        tracing::warn!("{warning}");
    }
}
