//! The configuration: the file as it was read last, and the overrides that MQTT commands put over it.
//!
//! ```text
//!   file ─────────┐
//!                 ├─▶ ConfigStore ─▶ effective cameras ─▶ every stage
//!   commands ─────┘        └─▶ overrides.json in node.state_dir (mqtt.overrides = "keep")
//! ```
//!
//! A change of `[camera]` and `[defaults]` is applied while everything runs. A change of another section needs a restart of all
//! stages inside the process: [`restart_reasons`].

use std::path::PathBuf;

use spotter_core::{
    CameraId, Command, Mono, Refusal, Setting,
    config::{
        self, CameraConfig, Config, ConfigProblems, Environment, LoadedConfig, OverridePersistence,
    },
};
use spotter_events::overrides::{
    DiscardedOverride, EffectiveCameras, OverrideEffect, OverrideFile,
};

/// The file, the overrides over it and the cameras that result from both.
pub struct ConfigStore {
    path: PathBuf,
    file: Config,
    effective: EffectiveCameras,
    /// `None`: overrides do not survive a restart of the process.
    overrides_file: Option<OverrideFile>,
    effective_cameras: Vec<CameraConfig>,
}

impl ConfigStore {
    /// Continues with the overrides of an earlier run if `mqtt.overrides` says so. An unreadable overrides file is logged, and
    /// the file's values apply. `path` is where [`read_file`](Self::read_file) reads. Blocks on the disk.
    pub fn open(path: PathBuf, file: Config, now: Mono) -> Self {
        let overrides_file = OverrideFile::new(file.node.state_dir.clone());
        let stored = match file.mqtt.overrides {
            OverridePersistence::Keep => overrides_file.load(),
            OverridePersistence::Forget => overrides_file.forget().map(|()| Default::default()),
        };
        let (overrides, revisions) = stored.unwrap_or_else(|error| {
            tracing::error!("{error}");
            Default::default()
        });
        let (effective, discarded) =
            EffectiveCameras::new(file.cameras.clone(), overrides, revisions);
        let keeps = file.mqtt.overrides == OverridePersistence::Keep;
        let mut store = Self {
            path,
            file,
            effective,
            overrides_file: keeps.then_some(overrides_file),
            effective_cameras: Vec::new(),
        };
        store.discard(&discarded);
        store.update_effective(now);
        store
    }

    /// Reads the file again; nothing changes here. Blocks on the disk.
    pub fn read_file(&self) -> Result<LoadedConfig, ConfigProblems> {
        config::load(&self.path, &Environment::process())
    }

    /// The file's values, without overrides.
    pub fn file(&self) -> &Config {
        &self.file
    }

    /// The whole configuration with the effective cameras.
    pub fn effective(&self) -> Config {
        self.file.with_cameras(self.effective_cameras.clone())
    }

    pub fn cameras(&self) -> &[CameraConfig] {
        &self.effective_cameras
    }

    /// The file's cameras with the overrides that are stored, and without those that end by themselves.
    pub fn stored_cameras(&self) -> Vec<CameraConfig> {
        self.effective.stored_cameras()
    }

    pub fn camera(&self, id: &CameraId) -> Result<&CameraConfig, Refusal> {
        let mut cameras = self.effective_cameras.iter();
        let camera = cameras.find(|camera| camera.id == *id);
        camera.ok_or_else(|| Refusal::no_camera(id))
    }

    /// Takes over a file that needs no restart. An override whose value the file changed too is discarded. Blocks on the disk.
    pub fn replace_file(&mut self, file: Config, now: Mono) {
        self.file = file;
        let discarded = self.effective.replace_file(self.file.cameras.clone());
        self.discard(&discarded);
        self.update_effective(now);
    }

    /// Executes a command that changes cameras. Blocks on the disk, for one small file.
    pub fn execute(&mut self, command: &Command, now: Mono) -> Result<(), Refusal> {
        let changed = self.effective.execute(command, now)?;
        self.update_effective(now);
        if changed == OverrideEffect::Stored {
            self.save_overrides();
        }
        Ok(())
    }

    /// True when an override has ended, so that the effective cameras are others now.
    pub fn tick(&mut self, now: Mono) -> bool {
        let is_due = self.effective.next_at().is_some_and(|at| at <= now);
        if is_due {
            self.update_effective(now);
        }
        is_due
    }

    pub fn override_count(&self) -> usize {
        self.effective.overrides().len()
    }

    /// Of each override: the camera, the file's value, the effective value.
    pub fn differences(&self) -> Vec<(CameraId, Setting, Setting)> {
        let all = self.effective.overrides().iter();
        all.map(|o| (o.camera.clone(), o.file.clone(), o.now.clone()))
            .collect()
    }

    /// The values of each camera that a command may change. Prompts that end by themselves are not among them.
    pub fn settings(&self) -> Vec<(CameraId, Vec<Setting>)> {
        let settings = |camera: &CameraConfig| (camera.id.clone(), camera.changeable_settings());
        self.stored_cameras().iter().map(settings).collect()
    }

    fn update_effective(&mut self, now: Mono) {
        self.effective_cameras = self.effective.cameras(now);
    }

    fn save_overrides(&self) {
        if let Some(Err(error)) = self
            .overrides_file
            .as_ref()
            .map(|f| f.save(&self.effective))
        {
            tracing::error!("{error}");
        }
    }

    /// Logs overrides that the file replaced, and removes them from the disk.
    fn discard(&self, discarded: &[DiscardedOverride]) {
        for DiscardedOverride { was, file } in discarded {
            let (camera, field) = (&was.camera, was.now.field());
            let prompt = was.now.prompt().map(tracing::field::display);
            let (discarded, file) = (&was.now, file.as_ref().map(tracing::field::debug));
            tracing::warn!(%camera, prompt, field, ?discarded, file, "configuration changed; run-time override discarded");
        }
        if !discarded.is_empty() {
            self.save_overrides();
        }
    }
}

/// The sections of the file whose change needs a restart of all stages, as far as they differ. Empty: `new` can be applied
/// while everything runs.
///
/// A broker, a node name, a page and a model each have one owner for the time of a run, and none of them changes within a run.
pub fn restart_reasons(old: &Config, new: &Config) -> Vec<&'static str> {
    let sections = [
        ("[node]", old.node != new.node),
        ("[http]", old.http != new.http),
        ("[mqtt]", old.mqtt != new.mqtt),
        ("[model]", old.model != new.model),
    ];
    let changed = sections.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(section, _)| section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::test_support;

    /// Two files of one site: `mqtt.overrides` is `keep` in the first and `forget` in the second.
    fn keep_and_forget(state: &tempfile::TempDir) -> [Config; 2] {
        ["keep", "forget"].map(|overrides| {
            let mut config = test_support::config(&format!(
                "mqtt = {{ url = \"mqtt://127.0.0.1:1\", overrides = \"{overrides}\" }}\n\
                 [camera.gate]\nurl = \"test://\"\nrate = 1\nprompt.person.detect = \"person\"\n"
            ));
            config.node.state_dir = state.path().to_owned();
            config
        })
    }

    fn open(config: &Config) -> ConfigStore {
        ConfigStore::open(PathBuf::new(), config.clone(), Mono::default())
    }

    fn rate_hz(store: &ConfigStore) -> f64 {
        store.cameras()[0].rate_hz
    }

    fn set_rate(store: &mut ConfigStore, rate_hz: f64) {
        let command = Command::Set {
            camera: store.cameras()[0].id.clone(),
            setting: Setting::RateHz(rate_hz),
        };
        store.execute(&command, Mono::default()).unwrap();
    }

    #[test]
    fn overrides_survive_a_restart_or_are_forgotten_as_configured() {
        let state = tempfile::tempdir().unwrap();
        let [keep, forget] = keep_and_forget(&state);
        set_rate(&mut open(&keep), 4.0);
        assert_eq!(rate_hz(&open(&keep)), 4.0);

        let mut store = open(&forget);
        assert_eq!(rate_hz(&store), 1.0);
        set_rate(&mut store, 5.0);
        assert_eq!(rate_hz(&store), 5.0);
        assert_eq!(rate_hz(&open(&forget)), 1.0);
        assert_eq!(rate_hz(&open(&keep)), 1.0, "neither override is left");
    }

    #[test]
    fn each_section_except_cameras_needs_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let [old, forget] = keep_and_forget(&state);
        assert_eq!(restart_reasons(&old, &forget), ["[mqtt]"]);
        let mut cameras = old.clone();
        cameras.cameras[0].rate_hz = 3.0;
        cameras.hash = "another".into();
        assert_eq!(restart_reasons(&old, &cameras), [""; 0]);
        let mut new = old.clone();
        new.node.state_dir = "/nowhere".into();
        new.http.listen = None;
        new.model.reuse_max_age += std::time::Duration::from_secs(1);
        assert_eq!(
            restart_reasons(&old, &new).len(),
            2 + usize::from(old.http != new.http)
        );
    }
}
