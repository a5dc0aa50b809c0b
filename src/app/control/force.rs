//! The cameras in force: the file's, with what was changed at run time and is kept over a restart.

use spotter_core::{
    CameraId, Command, Mono, Refusal, Setting,
    config::{CameraConfig, Config, OverridePersistence as Policy},
};
use spotter_events::control::{self, Changed, Lapsed, Layer, Store};

/// The layer with its store.
pub struct Force {
    layer: Layer,
    /// `None`: changes do not survive a restart.
    store: Option<Store>,
    cameras: Vec<CameraConfig>,
}

impl Force {
    /// Goes on where an earlier run stood, when the configuration wants that. What cannot be read is logged: Spotter runs
    /// with the file alone then. Blocks on the disk.
    pub fn open(config: &Config, now: Mono) -> Self {
        let store = Store::new(config.node.state_dir.clone());
        let kept = match config.mqtt.overrides {
            Policy::Keep => store.load(),
            Policy::Forget => store.forget().map(|()| Default::default()),
        };
        let (overrides, revisions) = kept.unwrap_or_else(|error| {
            tracing::error!("{error}");
            Default::default()
        });
        let (layer, lapsed) = Layer::new(config.cameras.clone(), overrides, revisions);
        let mut force = Self {
            layer,
            store: (config.mqtt.overrides == Policy::Keep).then_some(store),
            cameras: Vec::new(),
        };
        force.tell(&lapsed);
        force.renew(now);
        force
    }

    /// The cameras as they are in force.
    pub fn cameras(&self) -> &[CameraConfig] {
        &self.cameras
    }

    /// The cameras of the file with what is kept over a restart, and without what is there for a while only.
    pub fn kept_cameras(&self) -> Vec<CameraConfig> {
        self.layer.kept_cameras()
    }

    /// The camera as it is in force.
    pub fn camera(&self, id: &CameraId) -> Result<&CameraConfig, Refusal> {
        let known = self.cameras.iter().find(|camera| camera.id == *id);
        known.ok_or_else(|| Refusal::no_camera(id))
    }

    /// The file says something else now.
    pub fn rebase(&mut self, config: &Config, now: Mono) {
        self.keep_by(config);
        let lapsed = self.layer.rebase(config.cameras.clone());
        self.tell(&lapsed);
        self.renew(now);
    }

    /// A file as it would be in force.
    pub fn over(&self, file: &Config, now: Mono) -> Config {
        let mut layer = self.layer.clone();
        layer.rebase(file.cameras.clone());
        file.with_cameras(layer.cameras(now))
    }

    /// Does what a command asks of the layer; the cameras are those that are in force then. Blocks on the disk, for one small
    /// file.
    pub fn command(&mut self, command: &Command, now: Mono) -> Result<Changed, Refusal> {
        let changed = self.layer.command(command, now)?;
        self.renew(now);
        if changed == Changed::Kept {
            self.save();
        }
        Ok(changed)
    }

    /// True when time alone has changed what is in force.
    pub fn tick(&mut self, now: Mono) -> bool {
        let due = self.layer.next_at().is_some_and(|at| at <= now);
        if due {
            self.renew(now);
        }
        due
    }

    /// How many values differ from the file.
    pub fn overrides(&self) -> usize {
        self.layer.overrides().len()
    }

    /// Which values differ from the file: what it says, and what holds.
    pub fn differences(&self) -> Vec<(CameraId, Setting, Setting)> {
        let all = self.layer.overrides().iter();
        all.map(|o| (o.camera.clone(), o.file.clone(), o.now.clone()))
            .collect()
    }

    /// The values that may be changed, of each camera of the file. Prompts that were added for a while are not among them.
    pub fn settings(&self) -> Vec<(CameraId, Vec<Setting>)> {
        let of = |camera: &CameraConfig| (camera.id.clone(), control::all(camera));
        self.layer.kept_cameras().iter().map(of).collect()
    }

    /// Changes survive a restart from now on, or do not any more.
    fn keep_by(&mut self, config: &Config) {
        match (config.mqtt.overrides, &self.store) {
            (Policy::Keep, None) => {
                self.store = Some(Store::new(config.node.state_dir.clone()));
                self.save();
            }
            (Policy::Forget, Some(store)) => {
                if let Err(error) = store.forget() {
                    tracing::error!("{error}");
                }
                self.store = None;
            }
            (Policy::Keep, Some(_)) | (Policy::Forget, None) => {}
        }
    }

    fn renew(&mut self, now: Mono) {
        self.cameras = self.layer.cameras(now);
    }

    fn save(&self) {
        if let Some(Err(error)) = self.store.as_ref().map(|store| store.save(&self.layer)) {
            tracing::error!("{error}");
        }
    }

    /// What was changed at run time and holds no longer. It is forgotten on disk too.
    fn tell(&self, lapsed: &[Lapsed]) {
        for Lapsed { was, file } in lapsed {
            let (camera, field) = (&was.camera, was.now.field());
            let prompt = was.now.prompt().map(tracing::field::display);
            let (dropped, file) = (&was.now, file.as_ref().map(tracing::field::debug));
            tracing::warn!(%camera, prompt, field, ?dropped, file, "the file was edited: a run-time change holds no longer");
        }
        if !lapsed.is_empty() {
            self.save();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::rig;

    /// Two files of one site that differ in what becomes of changes: keep, forget.
    fn files(state: &tempfile::TempDir) -> [Config; 2] {
        ["keep", "forget"].map(|overrides| {
            let mut config = rig::config(&format!(
                "mqtt = {{ url = \"mqtt://127.0.0.1:1\", overrides = \"{overrides}\" }}\n\
                 [camera.gate]\nurl = \"test://\"\nrate = 1\nprompt.person.detect = \"person\"\n"
            ));
            config.node.state_dir = state.path().to_owned();
            config
        })
    }

    fn open(config: &Config) -> Force {
        Force::open(config, Mono::default())
    }

    fn rate_hz(force: &Force) -> f64 {
        force.cameras()[0].rate_hz
    }

    fn set_rate(force: &mut Force, rate_hz: f64) {
        let command = Command::Set {
            camera: force.cameras()[0].id.clone(),
            setting: Setting::RateHz(rate_hz),
        };
        force.command(&command, Mono::default()).unwrap();
    }

    #[test]
    fn changes_survive_a_restart_or_are_forgotten_as_the_file_wants_it() {
        let state = tempfile::tempdir().unwrap();
        let [keep, forget] = files(&state);
        set_rate(&mut open(&keep), 4.0);
        assert_eq!(rate_hz(&open(&keep)), 4.0);

        let mut force = open(&forget);
        assert_eq!(rate_hz(&force), 1.0);
        set_rate(&mut force, 5.0);
        assert_eq!(rate_hz(&force), 5.0);
        assert_eq!(rate_hz(&open(&forget)), 1.0);
        assert_eq!(rate_hz(&open(&keep)), 1.0, "neither change is left");
    }

    #[test]
    fn a_reload_begins_to_keep_what_holds_and_forgets_what_was_kept() {
        let state = tempfile::tempdir().unwrap();
        let [keep, forget] = files(&state);
        let mut force = open(&forget);
        set_rate(&mut force, 5.0);
        force.rebase(&keep, Mono::default());
        assert_eq!(rate_hz(&open(&keep)), 5.0);

        force.rebase(&forget, Mono::default());
        assert_eq!(rate_hz(&force), 5.0, "it holds until the end of this run");
        set_rate(&mut force, 6.0);
        assert_eq!(rate_hz(&open(&keep)), 1.0, "nothing is left of it");
    }
}
