//! What is in force changes while everything runs.

use super::Daemon;
use crate::app::{birth, control::Force};
use spotter_core::{
    CameraId,
    config::{self, Config},
};
use spotter_mqtt as publish;
use spotter_mqtt::{Announcer, Place, Publisher, Update, discovery::birth_topic};

impl Daemon {
    /// Every stage goes on with what the file says now.
    pub(super) async fn put_in_force(&mut self, new: Config, place: Option<Place>) {
        // Where they are told now: what becomes of cameras that are gone is said there and nowhere else.
        self.file = Config {
            mqtt: self.file.mqtt.clone(),
            node: self.file.node.clone(),
            ..new.clone()
        };
        self.force.rebase(&new, self.clock.now());
        self.apply().await;
        let tells_otherwise = self.file != new;
        self.file = new;
        match place {
            Some(place) => self.publisher.move_to(place),
            None => self.publisher.try_again(),
        }
        if tells_otherwise {
            self.tell_elsewhere();
        }
    }

    /// `[mqtt]` or `[node]` is another. What is true is told at the new place by the publisher itself.
    fn tell_elsewhere(&mut self) {
        self.publisher.keep_within(&self.file.mqtt.spool);
        self.publisher.listen(filters(&self.publisher, &self.file));
        self.board.told_at(&self.file);
        self.announce();
        self.info.features = config::advice::insecure_features(&self.file);
        self.tell_settings();
    }

    /// Tells Home Assistant what there is, and the broker what it need not keep any more. Blocks on the disk.
    fn announce(&mut self) {
        let of = (&self.file, &self.force);
        announce(&mut self.announcer, &self.publisher, of, &self.info.gpus);
    }

    /// What is in force has changed: every stage hears of it, those that take frames before those that give them.
    pub(super) async fn apply(&mut self) {
        let cameras = self.force.cameras();
        let before: Vec<CameraId> = self.cameras.online().map(|(id, _)| id.clone()).collect();
        self.engines.change(cameras);
        self.cameras
            .change(cameras, &self.engines, &self.clock)
            .await;
        self.answers
            .change(cameras, self.file.mqtt.retain_snapshots);
        // After the last states of what is gone, which it clears.
        self.announce();
        let cameras = self.force.cameras();
        self.board.change(cameras, &self.engines.seats());
        let stays = |id: &CameraId| cameras.iter().any(|camera| camera.id == *id);
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
}

/// What is listened to: commands that are obeyed, and when Home Assistant starts.
pub(super) fn filters(publisher: &Publisher, file: &Config) -> Vec<String> {
    let commands = publish::filters(&publisher.topics(), file.mqtt.commands);
    let all = commands.into_iter().chain(birth_topic(&file.mqtt.ha));
    all.collect()
}

/// Tells Home Assistant what there is, and the broker what it need not keep any more. Blocks on the disk.
pub(super) fn announce(
    announcer: &mut Announcer,
    publisher: &Publisher,
    (file, force): (&Config, &Force),
    gpus: &[String],
) {
    let told = file.with_cameras(force.kept_cameras());
    // As with the figures of a GPU.
    announcer.announce(publisher, &told, force.cameras(), !gpus.is_empty());
}
