//! The configuration: the file as it was read last, its active mode, and the overrides that MQTT commands put over both.
//!
//! ```text
//!   file ─────────┐
//!                 ├─▶ ConfigStore ─▶ effective cameras ─▶ every stage
//!   commands ─────┘        └─▶ the state database (mqtt.overrides = "keep")
//! ```
//!
//! A value is the file's, unless the active mode has another one, unless a command set it since the mode became active.
//!
//! In a fleet, the cameras are those of the fleet's list, of which the node watches a part; what commands changed at a camera is in the fleet's
//! store, so that its next node knows it.
//!
//! A change of `[camera]`, `[defaults]`, `[mode]` and `[webhook]` is applied while everything runs. A change of another section needs a restart of all
//! stages inside the process: [`restart_reasons`].

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use spotter_config::{
    self as config, CameraConfig, Config, ConfigChange, ConfigProblems, Environment, LoadedConfig,
    OverridePersistence,
};
use spotter_control::{
    Command, DiscardedOverride, DroppedRecord, EffectiveCameras, ModeSwitch, OverrideEffect,
    ReadOverrides, Refusal, StoredOverrides,
};
use spotter_core::{CameraId, Clock, ModeId, Mono, NO_MODE, Setting, WallTime};
use spotter_engine::open::check_adapters;
use spotter_state::{Document, StateStore};

/// The file, the overrides over it and the cameras that result from both.
pub struct ConfigStore {
    path: PathBuf,
    file: Config,
    modes: ModeSwitch,
    effective: EffectiveCameras,
    /// `None`: overrides do not survive a restart of the process.
    state: Option<StateStore>,
    effective_cameras: Vec<CameraConfig>,
    /// `None`: the node watches all cameras of its file.
    own: Option<BTreeSet<CameraId>>,
    /// Without the overrides of an own camera stored in the fleet as they are now.
    unstored: BTreeSet<CameraId>,
    /// Of `effective_cameras`, those of `own`.
    own_cameras: Vec<CameraConfig>,
    /// As the stages have them.
    applied: Vec<CameraConfig>,
}

impl ConfigStore {
    /// Continues with the overrides of an earlier run if `mqtt.overrides` says so. Unreadable ones are logged, and the file's values
    /// apply. `path` is where [`read_file`](Self::read_file) reads.
    pub fn open(path: PathBuf, file: Config, state: StateStore, clock: &dyn Clock) -> Self {
        let (now, wall) = (clock.now(), clock.wall());
        let is_alone = file.fleet.is_none();
        let ReadOverrides { stored, dropped } = match file.mqtt.overrides {
            OverridePersistence::Keep if is_alone => stored_overrides(&state),
            OverridePersistence::Keep => ReadOverrides::default(),
            OverridePersistence::Forget => {
                state.remove(Document::Overrides);
                ReadOverrides::default()
            }
        };
        log_dropped(&dropped);
        let mut modes = ModeSwitch::new(file.modes.clone(), stored.mode.clone());
        let is_switched = modes.update(wall);
        let (mut effective, mut discarded) =
            EffectiveCameras::new(modes.cameras(&file.cameras), stored);
        if is_switched {
            discarded.extend(effective.discard_named(modes.settings()));
        }
        let keeps = is_alone && file.mqtt.overrides == OverridePersistence::Keep;
        let own = (!is_alone).then(BTreeSet::new);
        let mut store = Self {
            path,
            file,
            modes,
            effective,
            state: keeps.then_some(state),
            effective_cameras: Vec::new(),
            own,
            unstored: BTreeSet::new(),
            own_cameras: Vec::new(),
            applied: Vec::new(),
        };
        store.log_changes(is_switched, &discarded);
        store.update_effective(now);
        store
    }

    /// Reads the file again; nothing changes here. Blocks on the disk.
    pub fn read_file(&self) -> Result<LoadedConfig, ConfigProblems> {
        let mut loaded = config::load(&self.path, &Environment::process())?;
        if loaded.config.fleet.is_some() && loaded.config.fleet == self.file.fleet {
            // Those of the list.
            loaded.config.cameras.clone_from(&self.file.cameras);
        }
        Ok(loaded)
    }

    /// The file's values, and in a fleet the list's, without overrides.
    pub fn file(&self) -> &Config {
        &self.file
    }

    /// The whole configuration with the effective cameras, in a fleet with all of its list.
    pub fn effective(&self) -> Config {
        self.file.with_cameras(self.effective_cameras.clone())
    }

    /// What is different at the cameras of this node since the last call, for every stage.
    pub fn take_change(&mut self) -> ConfigChange {
        let change = ConfigChange::between(&self.applied, &self.own_cameras);
        self.applied.clone_from(&self.own_cameras);
        change
    }

    /// The effective cameras that this node watches and publishes.
    pub fn cameras(&self) -> &[CameraConfig] {
        &self.own_cameras
    }

    /// The node's cameras with the overrides that are stored, and without those that end by themselves.
    pub fn stored_cameras(&self) -> Vec<CameraConfig> {
        let mut cameras = self.effective.stored_cameras();
        cameras.retain(|camera| self.is_own(&camera.id));
        cameras
    }

    pub fn camera(&self, id: &CameraId) -> Result<&CameraConfig, Refusal> {
        let mut cameras = self.own_cameras.iter();
        let camera = cameras.find(|camera| camera.id == *id);
        camera.ok_or_else(|| Refusal::no_camera(id))
    }

    /// Takes over a file that needs no restart. An override whose value the file changed too is discarded.
    ///
    /// The active mode stays if the file has it.
    pub fn replace_file(&mut self, file: Config, now: Mono, wall: WallTime) {
        self.file = file;
        let modes = self.file.modes.clone();
        let is_switched = self.modes.replace_modes(modes, wall);
        self.change_base(is_switched, now);
        if !self.file.modes.is_empty() {
            // A choice is compared with the new schedules from now on.
            self.save_overrides();
        }
    }

    /// Replaces the fleet's list of cameras. An override whose value the list changed too is discarded.
    pub fn replace_list(&mut self, cameras: Vec<CameraConfig>, now: Mono) {
        self.file.cameras = cameras;
        self.change_base(false, now);
    }

    /// Makes a mode, or none, the active one until the schedules change next.
    pub fn switch_mode(
        &mut self,
        mode: Option<&ModeId>,
        now: Mono,
        wall: WallTime,
    ) -> Result<(), Refusal> {
        match self.modes.choose(mode, wall)? {
            true => self.change_base(true, now),
            // It may have been active by its schedule until now.
            false => self.save_overrides(),
        }
        Ok(())
    }

    /// The active mode; `None` when there is none.
    pub fn mode(&self) -> Option<&ModeId> {
        self.modes.active()
    }

    /// Sets which cameras of the fleet's list are this node's. True when they are others now.
    pub fn set_own(&mut self, own: BTreeSet<CameraId>, now: Mono) -> bool {
        let is_news = self.own.as_ref() != Some(&own);
        if is_news {
            self.own = Some(own);
            self.update_effective(now);
        }
        is_news
    }

    /// What commands changed at a camera, as the fleet's store has it. True when the effective cameras may be others now.
    pub fn set_stored_of(&mut self, camera: &CameraId, stored: StoredOverrides, now: Mono) -> bool {
        if self.file.mqtt.overrides == OverridePersistence::Forget
            || self.effective.stored_of(camera) == stored
        {
            return false;
        }
        self.effective.set_stored_of(camera, stored);
        self.update_effective(now);
        true
    }

    /// The own cameras whose overrides the fleet's store does not have as they are now. Each is returned once.
    pub fn take_unstored(&mut self) -> Vec<(CameraId, StoredOverrides)> {
        let unstored = std::mem::take(&mut self.unstored).into_iter();
        unstored
            .filter(|id| self.is_own(id))
            .map(|id| {
                let stored = self.effective.stored_of(&id);
                (id, stored)
            })
            .collect()
    }

    /// Executes a command that changes cameras.
    pub fn execute(&mut self, command: &Command, now: Mono) -> Result<(), Refusal> {
        if let Some(camera) = command.camera() {
            self.camera(camera)?;
        }
        let mut effect = OverrideEffect::None;
        for command in self.of_own_cameras(command) {
            effect = self.effective.execute(&command, now)?;
            if let (OverrideEffect::Stored, Some(camera)) = (effect, command.camera()) {
                self.unstored.insert(camera.clone());
            }
        }
        self.update_effective(now);
        if effect == OverrideEffect::Stored {
            self.save_overrides();
        }
        Ok(())
    }

    /// In a fleet, a command about all cameras is one about each own camera.
    fn of_own_cameras(&self, command: &Command) -> Vec<Command> {
        match (command, &self.own) {
            (Command::ResetOverrides { camera: None }, Some(own)) => {
                let of = |id: &CameraId| Command::ResetOverrides {
                    camera: Some(id.clone()),
                };
                own.iter().map(of).collect()
            }
            _ => vec![command.clone()],
        }
    }

    /// True when an override has ended or a schedule has switched the mode, so that the effective cameras are others now.
    pub fn tick(&mut self, now: Mono, wall: WallTime) -> bool {
        let before = self.modes.stored();
        let is_switched = self.modes.update(wall);
        if is_switched {
            self.change_base(true, now);
        } else if self.modes.stored() != before {
            // A choice has ended that another file could make valid again.
            self.save_overrides();
        }
        let is_due = self.effective.next_at().is_some_and(|at| at <= now);
        if is_due {
            self.update_effective(now);
        }
        is_due || is_switched
    }

    pub fn override_count(&self) -> usize {
        let overrides = self.effective.overrides().iter();
        overrides.filter(|o| self.is_own(&o.camera)).count()
    }

    /// Of each override: the camera, the file's value, the effective value.
    pub fn differences(&self) -> Vec<(CameraId, Setting, Setting)> {
        let all = self.effective.overrides().iter();
        all.filter(|o| self.is_own(&o.camera))
            .map(|o| (o.camera.clone(), o.file.clone(), o.now.clone()))
            .collect()
    }

    /// The values of each camera that a command may change. Prompts that end by themselves are not among them.
    pub fn settings(&self) -> Vec<(CameraId, Vec<Setting>)> {
        let settings = |camera: &CameraConfig| (camera.id.clone(), camera.changeable_settings());
        self.stored_cameras().iter().map(settings).collect()
    }

    fn is_own(&self, id: &CameraId) -> bool {
        self.own.as_ref().is_none_or(|own| own.contains(id))
    }

    fn update_effective(&mut self, now: Mono) {
        self.effective_cameras = self.effective.cameras(now);
        let all = self.effective_cameras.iter();
        let own = all.filter(|camera| self.is_own(&camera.id));
        self.own_cameras = own.cloned().collect();
    }

    /// The values below the overrides are others: those of the file, or the mode is another one, which is newer than all overrides.
    fn change_base(&mut self, is_switched: bool, now: Mono) {
        let mut discarded = Vec::new();
        if is_switched {
            discarded = self.effective.discard_named(self.modes.settings());
        }
        let base = self.modes.cameras(&self.file.cameras);
        discarded.extend(self.effective.replace_file(base));
        self.log_changes(is_switched, &discarded);
        self.update_effective(now);
    }

    fn save_overrides(&self) {
        let mut stored = self.effective.stored();
        stored.mode = self.modes.stored();
        // Numbers, texts and lists always serialise.
        if let (Some(state), Ok(text)) = (&self.state, stored.to_json()) {
            state.put(Document::Overrides, text);
        }
    }

    /// Logs a switch of the mode and the overrides that it or the file replaced, and stores what is left.
    fn log_changes(&self, is_switched: bool, discarded: &[DiscardedOverride]) {
        if is_switched {
            let mode = self.mode().map_or(NO_MODE, ModeId::as_str);
            tracing::info!(mode, "mode switched");
        }
        for DiscardedOverride { was, file } in discarded {
            let (camera, field) = (&was.camera, was.now.field());
            let prompt = was.now.prompt().map(tracing::field::display);
            let (discarded, file) = (&was.now, file.as_ref().map(tracing::field::debug));
            match is_switched {
                true => {
                    tracing::info!(%camera, prompt, field, ?discarded, "mode switched; run-time override discarded");
                }
                false => {
                    tracing::warn!(%camera, prompt, field, ?discarded, file, "configuration changed; run-time override discarded");
                }
            }
        }
        if is_switched || !discarded.is_empty() {
            self.save_overrides();
        }
    }
}

/// Those of an earlier run.
fn stored_overrides(state: &StateStore) -> ReadOverrides {
    let text = state.get(Document::Overrides);
    let read = text.map(|text| ReadOverrides::of_json(text.as_bytes()));
    read.transpose().map_or_else(
        |error| {
            tracing::error!(%error, "the stored overrides cannot be read; the values of the configuration apply");
            ReadOverrides::default()
        },
        Option::unwrap_or_default,
    )
}

/// Records of a disk or a store that break the rules of the configuration file.
pub fn log_dropped(records: &[DroppedRecord]) {
    for DroppedRecord {
        camera,
        key,
        reason,
    } in records
    {
        tracing::error!(
            camera,
            key,
            reason,
            "a stored setting is not allowed; the value of the configuration applies"
        );
    }
}

/// The camera without prompts in use: it is connected, and no look is taken.
/// The sections of the file whose change needs a restart of all stages, as far as they differ. Empty: `new` can be applied
/// while everything runs.
///
/// A broker, a node name, a page and a model each have one owner for the time of a run, and none of them changes within a run.
pub fn restart_reasons(old: &Config, new: &Config) -> Vec<&'static str> {
    let sections = [
        ("[node]", old.node != new.node),
        ("[http]", old.http != new.http),
        ("[api]", old.api != new.api),
        ("[mqtt]", old.mqtt != new.mqtt),
        ("[model]", old.model != new.model),
        ("[fleet]", old.fleet != new.fleet),
    ];
    let changed = sections.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(section, _)| section).collect()
}

/// Reads the headers of the adapters: one that does not fit the model is a mistake of the file. Blocks on the disk.
pub fn adapters_fit(file: &Path, model: &config::ModelSettings) -> Result<(), ConfigProblems> {
    let broken = check_adapters(model).into_iter();
    let wrong = broken.map(|one| (format!("adapter.{}.path", one.id), one.reason));
    match ConfigProblems::of_values(file, wrong.collect()) {
        Some(problems) => Err(problems),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::app::test_support;
    use spotter_core::{ManualClock, testing::rate};

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
        open_at(config, 0)
    }

    /// Some hours after midnight of a day, UTC.
    fn hour(hours: i64) -> WallTime {
        WallTime::from_unix_millis(1_795_392_000_000 + hours * 3_600_000)
    }

    fn open_at(config: &Config, hours: i64) -> ConfigStore {
        let clock = ManualClock::at(hour(hours));
        let state = StateStore::open(&config.node.state_dir, Arc::new(clock.clone())).unwrap();
        ConfigStore::open(PathBuf::new(), config.clone(), state, &clock)
    }

    /// Overrides as a program that means harm writes them.
    fn hostile_overrides(now: &str) -> String {
        let good = r#"{"camera":"gate","file":{"min_score":["person",0.0]},"now":{"min_score":["person",0.5]}}"#;
        let bad = format!(r#"{{"camera":"gate","file":{{"rate_hz":1.0}},"now":{now}}}"#);
        format!(r#"{{"v":1,"overrides":[{bad},{good}],"revisions":[]}}"#)
    }

    #[test]
    fn stored_settings_out_of_range_have_no_effect() {
        let long = format!(r#"{{"text":["person","{}"]}}"#, "x".repeat(550_000));
        let rates = ["0.0", "-1", "1e-320", "1e300", "null"];
        let rates = rates.map(|rate| format!(r#"{{"rate_hz":{rate}}}"#));
        for now in rates.iter().chain([&long]) {
            let state = tempfile::tempdir().unwrap();
            let [keep, _] = keep_and_forget(&state);
            let text = hostile_overrides(now);
            std::fs::write(state.path().join("overrides.json"), &text).unwrap();
            let of_disk = open(&keep);
            let [other, _] = keep_and_forget(&tempfile::tempdir().unwrap());
            let mut of_fleet = open(&other);
            let gate = of_fleet.cameras()[0].id.clone();
            let read = ReadOverrides::of_json(text.as_bytes()).unwrap();
            of_fleet.set_stored_of(&gate, read.stored, Mono::default());
            for store in [of_disk, of_fleet] {
                let camera = &store.cameras()[0];
                assert_eq!((camera.rate, store.override_count()), (rate(1.0), 1));
                let prompt = &camera.prompts[0];
                assert_eq!(
                    (prompt.task.text(), prompt.min_score.get()),
                    ("person", 0.5)
                );
            }
        }
    }

    fn switch(store: &mut ConfigStore, mode: &str, hours: i64) {
        let mode = ModeId::new(mode).unwrap();
        let mode = Some(mode).filter(|mode| mode.as_str() != NO_MODE);
        let switched = store.switch_mode(mode.as_ref(), Mono::default(), hour(hours));
        switched.unwrap();
    }

    fn rate_hz(store: &ConfigStore) -> f64 {
        store.cameras()[0].rate.hz()
    }

    fn set_rate(store: &mut ConfigStore, rate_hz: f64) {
        let command = Command::Set {
            camera: store.cameras()[0].id.clone(),
            setting: Setting::Rate(rate(rate_hz)),
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

    /// A file with a mode from 22:00 to 06:00 and one without a schedule.
    fn with_modes(state: &tempfile::TempDir) -> Config {
        let [mut config, _] = keep_and_forget(state);
        let modes = test_support::config(
            "mqtt.url = \"mqtt://127.0.0.1:1\"\n\
             [camera.gate]\nurl = \"test://\"\nrate = 1\nprompt.person.detect = \"person\"\n\
             [mode.night]\nschedule = \"Mon-Sun 22:00-06:00 UTC\"\ncamera.gate.rate = 4\n\
             [mode.away]\ncamera.gate = { enabled = true, rate = 2 }\n",
        );
        config.modes = modes.modes;
        config
    }

    #[test]
    fn mode_replaces_the_file_and_a_later_command_the_mode() {
        let state = tempfile::tempdir().unwrap();
        let config = with_modes(&state);
        let mut store = open_at(&config, 12);
        assert_eq!((store.mode(), rate_hz(&store)), (None, 1.0));
        switch(&mut store, "away", 12);
        assert_eq!(rate_hz(&store), 2.0);
        set_rate(&mut store, 3.0);
        assert_eq!(rate_hz(&store), 3.0);
        assert!(!store.tick(Mono::default(), hour(21)));
        assert_eq!(
            rate_hz(&open_at(&config, 21)),
            3.0,
            "all survives a restart"
        );
        // The mode that comes later is newer than the command.
        assert!(store.tick(Mono::default(), hour(22)));
        assert_eq!((rate_hz(&store), store.override_count()), (4.0, 0));
        assert!(store.tick(Mono::default(), hour(30)));
        assert_eq!(rate_hz(&store), 1.0);
    }

    #[test]
    fn switch_discards_overrides_of_the_values_that_it_changes() {
        let state = tempfile::tempdir().unwrap();
        let config = with_modes(&state);
        let mut store = open_at(&config, 12);
        let camera = store.cameras()[0].id.clone();
        let set = |store: &mut ConfigStore, setting| {
            let camera = camera.clone();
            let command = Command::Set { camera, setting };
            store.execute(&command, Mono::default()).unwrap();
        };
        set(&mut store, Setting::Enabled(false));
        set(&mut store, Setting::MotionGate(true));
        // Neither has a value for them.
        switch(&mut store, "night", 12);
        assert_eq!((rate_hz(&store), store.override_count()), (4.0, 2));
        // The mode says the same as the file, and it is newer than the command.
        switch(&mut store, "away", 13);
        assert!(store.cameras()[0].enabled && store.cameras()[0].motion.on);
        set_rate(&mut store, 5.0);
        switch(&mut store, "none", 14);
        assert_eq!(rate_hz(&store), 1.0);
        assert!(store.cameras()[0].motion.on);
    }

    #[test]
    fn mode_switched_while_stopped_discards_overrides_at_the_start() {
        let state = tempfile::tempdir().unwrap();
        let mut config = with_modes(&state);
        let mut store = open_at(&config, 12);
        set_rate(&mut store, 3.0);
        assert_eq!(rate_hz(&open_at(&config, 13)), 3.0);
        assert_eq!(rate_hz(&open_at(&config, 23)), 4.0);
        assert_eq!(rate_hz(&open_at(&config, 24)), 4.0);
        // With "forget", a restart ends a choice as it ends overrides.
        config.mqtt.overrides = OverridePersistence::Forget;
        let mut store = open_at(&config, 12);
        switch(&mut store, "away", 12);
        assert_eq!(open_at(&config, 12).mode(), None);
    }

    #[test]
    fn reload_keeps_the_active_mode_if_the_file_has_it() {
        let state = tempfile::tempdir().unwrap();
        let config = with_modes(&state);
        let mut store = open_at(&config, 12);
        switch(&mut store, "away", 12);
        set_rate(&mut store, 3.0);
        let mut edited = config.clone();
        edited.modes[1].settings.remove(0);
        store.replace_file(edited.clone(), Mono::default(), hour(13));
        assert_eq!(store.mode().map(ModeId::as_str), Some("away"));
        assert_eq!(rate_hz(&store), 3.0);
        edited.modes.remove(1);
        store.replace_file(edited, Mono::default(), hour(13));
        assert_eq!((store.mode(), rate_hz(&store)), (None, 1.0));
    }

    #[test]
    fn each_section_except_cameras_needs_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let [old, forget] = keep_and_forget(&state);
        assert_eq!(restart_reasons(&old, &forget), ["[mqtt]"]);
        let mut cameras = old.clone();
        cameras.cameras[0].rate = rate(3.0);
        cameras.hash = "another".into();
        assert_eq!(restart_reasons(&old, &cameras), [""; 0]);
        let with_webhook = test_support::config(
            "mqtt.url = \"mqtt://127.0.0.1:1\"\nwebhook.door.url = \"http://flows\"\n\
             [camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n",
        );
        let mut webhooks = old.clone();
        webhooks.webhooks = with_webhook.webhooks;
        assert_eq!(restart_reasons(&old, &webhooks), [""; 0]);
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
