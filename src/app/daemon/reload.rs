//! The configuration is read again. What changed is changed, and nothing else: cameras that stay as they are keep their
//! connection and what is known of them.

use std::path::Path;

use super::{Daemon, REFUSED, log_refused};
use crate::{
    app::{birth, control::Force, engines::Engines, remember_secrets},
    config::{self, Config, Environment, Loaded},
    domain::CameraId,
    publish::{Announcer, ConfigReport, Publisher, Update},
};

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
}

impl Daemon {
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
        self.housekeeping.move_page(&loaded.config.http).await?;
        Ok(Next { loaded })
    }

    /// Goes on with another configuration, and gives it back when everything has to start again with it.
    pub(super) async fn go_on_with(&mut self, next: Next) -> Option<Box<Loaded>> {
        let Next { loaded } = next;
        let keys = self.needs_a_start(&loaded.config);
        if !keys.is_empty() {
            let keys = keys.join(", ");
            tracing::info!(keys, "configuration changed, starting again with it");
            return Some(Box::new(loaded));
        }
        tracing::info!("configuration changed");
        remember_secrets(&self.logging.secrets, &loaded.config);
        for warning in &loaded.warnings {
            tracing::warn!("{warning}");
        }
        self.file = loaded.config;
        self.force.rebase(&self.file, self.clock.now());
        self.apply().await;
        self.accept();
        None
    }

    /// What is in force has changed: every stage hears of it, those that take frames before those that give them.
    pub(super) async fn apply(&mut self) {
        let cameras = self.force.cameras();
        let stays = |id: &CameraId| cameras.iter().any(|camera| camera.id == *id);
        let before: Vec<CameraId> = self.cameras.online().map(|(id, _)| id.clone()).collect();
        self.engines.change(cameras);
        self.cameras
            .change(cameras, &self.engines, &self.clock)
            .await;
        self.desk.change(cameras);
        // After the last states of what is gone, which it clears.
        announce(
            &mut self.announcer,
            &self.publisher,
            (&self.file, &self.force),
            &self.engines,
        );
        self.board.change(cameras, &self.engines.seats());
        for gone in before.iter().filter(|id| !stays(id)) {
            self.housekeeping.forget(gone);
        }
        self.info.cams = birth::cameras(cameras);
        self.info.config_hash.clone_from(&self.file.hash);
        self.info.features = config::advice::insecure_features(&self.file);
        self.tell_settings();
    }

    /// Tells the values that may be changed at run time, and how many were.
    pub(super) fn tell_settings(&mut self) {
        self.info.overrides = self.force.overrides() as u32;
        self.publisher.publish(Update::Info(self.info.clone()));
        for (camera, settings) in self.force.settings() {
            for setting in settings {
                self.publisher.publish(Update::Setting {
                    camera: camera.clone(),
                    setting,
                    again: false,
                });
            }
        }
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

    /// The keys with which the stages that there are cannot go on: a new model gives other answers, and another broker or name
    /// is another place to tell them.
    fn needs_a_start(&self, new: &Config) -> Vec<&'static str> {
        let old = &self.file;
        // A GPU that had no camera gets an engine when there is one for it.
        let engines = new.model.gpus.len().min(new.cameras.len());
        let grows = !self.engines.gpus().is_empty() && engines > self.engines.count();
        let keys = [
            ("model", old.model != new.model),
            ("mqtt", old.mqtt != new.mqtt),
            ("node", old.node != new.node),
            ("a camera for a GPU that had none", grows),
        ];
        let changed = keys.into_iter().filter(|(_, changed)| *changed);
        changed.map(|(key, _)| key).collect()
    }
}

/// Tells Home Assistant what there is, and the broker what it need not keep any more. Blocks on the disk.
pub(super) fn announce(
    announcer: &mut Announcer,
    publisher: &Publisher,
    (file, force): (&Config, &Force),
    engines: &Engines,
) {
    let told = file.with_cameras(force.kept_cameras());
    // As with the figures of a GPU.
    let gpu = !engines.gpus().is_empty();
    announcer.announce(publisher, &told, force.cameras(), gpu);
}
