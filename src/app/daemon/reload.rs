//! The configuration is read again. What changed is changed, and nothing else: cameras that stay as they are keep their
//! connection and what is known of them.

use std::path::Path;

use super::{Daemon, log_refused};
use crate::{
    app::{birth, control::Force, engines::Engines, remember_secrets},
    config::{self, Config, Environment, Loaded},
    domain::CameraId,
    publish::{Announcer, ConfigReport, Publisher, Update},
};

/// What became of a reload.
pub(super) enum Reloaded {
    /// Nothing had changed.
    Unchanged,
    /// The new configuration is in force.
    InForce,
    /// It is good, and everything has to start again with it.
    StartAgain(Box<Loaded>),
    /// It is not, for these reasons, and the old one stays in force.
    Refused(Vec<String>),
}

impl Daemon {
    /// Reads the configuration again. Blocks on the disk.
    pub(super) async fn reload(&mut self, path: &Path) -> Reloaded {
        let loaded = match config::load(path, &Environment::process()) {
            Ok(loaded) => loaded,
            Err(problems) => {
                log_refused(&problems);
                let errors: Vec<String> = problems.iter().map(ToString::to_string).collect();
                self.refuse(errors.clone());
                return Reloaded::Refused(errors);
            }
        };
        if loaded.config == self.file {
            tracing::info!("configuration unchanged");
            self.accept();
            return Reloaded::Unchanged;
        }
        if !self.can_stay(&loaded.config) {
            tracing::info!("configuration changed, starting again with it");
            return Reloaded::StartAgain(Box::new(loaded));
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
        Reloaded::InForce
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

    /// Whether the stages that there are can go on with another configuration. Only cameras change in place: a new model
    /// gives other answers, and another broker or name is another place to tell them, so everything starts again then.
    fn can_stay(&self, new: &Config) -> bool {
        let old = &self.file;
        // A GPU that had no camera gets an engine when there is one for it.
        let engines = new.model.gpus.len().min(new.cameras.len());
        let grows = !self.engines.gpus().is_empty() && engines > self.engines.count();
        old.model == new.model
            && old.mqtt == new.mqtt
            && old.node == new.node
            && old.http == new.http
            && !grows
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
