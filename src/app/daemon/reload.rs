//! The configuration is read again. What changed is changed, and nothing else: cameras that stay as they are keep their
//! connection and what is known of them.

use std::path::Path;

use anyhow::Context as _;

use super::{Daemon, REFUSED, advise, log_refused};
use crate::app::remember_secrets;
use spotter_core::config::{self, Config, Environment, FramePlace, Loaded};
use spotter_mqtt::{ConfigReport, Identity, Place, Update};

/// What became of a file that was read again.
pub(super) enum Reloaded {
    /// Nothing had changed.
    Unchanged,
    /// It is good, and is to be put in force.
    Good(Box<Next>),
    /// It is not, for these reasons, and the old one stays in force.
    Refused(Vec<String>),
}

/// A configuration with which Spotter can go on.
pub(super) struct Next {
    loaded: Loaded,
    identity: Identity,
    /// Where to tell everything, when that is another place.
    place: Option<Place>,
}

impl Next {
    /// What is to be in force.
    pub(super) fn config(&self) -> &Config {
        &self.loaded.config
    }
}

/// What another configuration takes, and which keys ask for it.
enum Takes {
    /// Nothing has to end.
    Nothing,
    /// Other engines.
    Engines(Vec<&'static str>),
    /// A new beginning of everything.
    Start(Vec<&'static str>),
}

impl Daemon {
    /// The file is read again, and gone on with. Gives back what everything has to start again with.
    pub(super) async fn read_again(&mut self, path: &Path) -> Option<Box<Loaded>> {
        match self.reload(path).await {
            Reloaded::Good(next) => self.go_on_with(*next).await,
            Reloaded::Unchanged | Reloaded::Refused(_) => None,
        }
    }

    /// Reads the configuration again, and tries what may go wrong with it. Blocks on the disk.
    pub(super) async fn reload(&mut self, path: &Path) -> Reloaded {
        let loaded = match config::load(path, &Environment::process()) {
            Ok(loaded) => loaded,
            Err(problems) => {
                log_refused(&problems);
                return self.refused(problems.iter().map(ToString::to_string).collect());
            }
        };
        if loaded.config == self.file {
            tracing::info!("configuration unchanged");
            // What it names may be another: a certificate, a right at the broker.
            self.publisher.try_again();
            self.accept();
            return Reloaded::Unchanged;
        }
        match self.prepare(loaded).await {
            Ok(next) => Reloaded::Good(Box::new(next)),
            Err(error) => {
                tracing::error!("{REFUSED}: {error:#}");
                self.refused(vec![format!("{error:#}")])
            }
        }
    }

    /// Everything that another configuration needs of the machine, so that it is refused before anything else changes.
    async fn prepare(&mut self, loaded: Loaded) -> anyhow::Result<Next> {
        let new = &loaded.config;
        let identity = self.identity.renamed(new.node.name.clone());
        let place = match Place::is_same(&self.file, new) {
            true => None,
            false => Some(Place::new(&new.mqtt, &identity).context("mqtt")?),
        };
        // Last, because trying it is doing it.
        self.housekeeping.move_page(&new.http).await?;
        Ok(Next {
            loaded,
            identity,
            place,
        })
    }

    /// Goes on with another configuration, and gives it back when everything has to start again with it.
    pub(super) async fn go_on_with(&mut self, next: Next) -> Option<Box<Loaded>> {
        match self.takes(next.config()) {
            Takes::Nothing => self.go_on(next).await,
            Takes::Engines(keys) => {
                let keys = keys.join(", ");
                tracing::info!(keys, "configuration changed, opening engines for it");
                self.swap(next).await;
            }
            Takes::Start(keys) => {
                let keys = keys.join(", ");
                tracing::info!(keys, "configuration changed, starting again with it");
                return Some(Box::new(next.loaded));
            }
        }
        None
    }

    /// Puts another configuration in force, for which there are the right engines.
    pub(super) async fn go_on(&mut self, next: Next) {
        let Next {
            loaded,
            identity,
            place,
        } = next;
        tracing::info!("configuration changed");
        remember_secrets(&self.around.logging.secrets, &loaded.config);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        advise(&loaded.config);
        self.identity = identity;
        self.put_in_force(loaded.config, place).await;
        self.accept();
    }

    /// Tells that the configuration that was tried is the one in force.
    pub(super) fn accept(&self) {
        self.report(Vec::new());
    }

    /// Tells that another configuration than the running one was tried and is not used.
    pub(super) fn refuse(&self, errors: Vec<String>) {
        self.report(errors);
    }

    fn report(&self, errors: Vec<String>) {
        let report = ConfigReport::new(self.file.hash.clone(), self.clock.wall(), errors);
        self.board.configured(&report);
        self.publisher.publish(Update::Config(report));
    }

    fn refused(&self, errors: Vec<String>) -> Reloaded {
        self.refuse(errors.clone());
        Reloaded::Refused(errors)
    }

    /// An engine is opened with all of `[model]`. What is kept in `node.state_dir` is read at the start only, and a camera whose
    /// frames stay on a GPU holds memory of it that must not outlive the engine.
    fn takes(&self, new: &Config) -> Takes {
        if self.file.node.state_dir != new.node.state_dir {
            return Takes::Start(vec!["node.state_dir"]);
        }
        let (old, model) = (&self.file.model, &new.model);
        // A GPU that had no camera gets an engine when there is one for it.
        let engines = model.gpus.len().min(new.cameras.len());
        let grows = !self.engines.gpus().is_empty() && engines > self.engines.count();
        let keys = [
            ("model.path", old.source != model.source),
            ("model.device", old.device != model.device),
            ("model.gpus", old.gpus != model.gpus),
            ("model.precision", old.precision != model.precision),
            ("model.budget", old.budget != model.budget),
            ("model.max_objects", old.max_objects != model.max_objects),
            ("model.frames", old.frames != model.frames),
            (
                "model.tile_difference",
                old.tile_difference != model.tile_difference,
            ),
            ("a camera for a GPU that had none", grows),
        ];
        let changed = keys.into_iter().filter(|(_, changed)| *changed);
        let keys: Vec<_> = changed.map(|(key, _)| key).collect();
        let on_gpu = [old, model].map(|model| model.frames == FramePlace::Gpu);
        match (keys.is_empty(), on_gpu) {
            (true, _) => Takes::Nothing,
            (false, [false, false]) => Takes::Engines(keys),
            (false, _) => Takes::Start(keys),
        }
    }
}
