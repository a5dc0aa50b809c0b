//! The configuration of this process: the file is read, and what commands change is stored (`mqtt.overrides = "keep"`). What applies is
//! decided by [`ConfigStore`].
//!
//! A change of `[camera]`, `[defaults]`, `[mode]` and `[webhook]` is applied while everything runs. A change of another section needs a restart of all
//! stages inside the process: [`restart_reasons`].

use std::path::Path;

use anyhow::bail;

use spotter_config::{
    self as config, Config, ConfigProblems, Environment, LoadedConfig, OverridePersistence,
};
use spotter_control::{ConfigStore, ReadOverrides, StoredOverrides};
use spotter_core::Clock;
use spotter_engine::open::check_adapters;
use spotter_state::{Document, StateStore};

/// Continues with the overrides of an earlier run if `mqtt.overrides` says so. Unreadable ones are logged, and the file's values apply.
pub fn open_config(file: Config, state: &StateStore, clock: &dyn Clock) -> ConfigStore {
    let keeps = file.mqtt.overrides == OverridePersistence::Keep;
    if !keeps {
        state.remove(Document::Overrides);
    }
    let text = state.get(Document::Overrides);
    let text = text.filter(|_| keeps && file.fleet.is_none());
    let read = text.map(|text| ReadOverrides::of_json(text.as_bytes()));
    let (stored, is_whole) = match read.transpose() {
        Ok(read) => {
            let ReadOverrides { stored, dropped } = read.unwrap_or_default();
            log_dropped(&dropped);
            (stored, dropped.is_empty())
        }
        Err(error) => {
            tracing::error!(%error, "the stored overrides cannot be read; the values of the configuration apply");
            (StoredOverrides::default(), false)
        }
    };
    let config = ConfigStore::new(file, stored, clock.now(), clock.wall());
    if is_whole {
        store_overrides(&config, state);
    }
    config
}

/// Stores what commands changed, as far as it is not stored.
pub fn store_overrides(config: &ConfigStore, state: &StateStore) {
    // Numbers, texts and lists always serialise.
    if let Some(Ok(text)) = config.stored().map(|stored| stored.to_json()) {
        state.put(Document::Overrides, text);
    }
}

/// Reads the file again. Blocks on the disk.
pub fn read_file(path: &Path, running: &Config) -> Result<LoadedConfig, ConfigProblems> {
    let mut loaded = config::load(path, &Environment::process())?;
    if loaded.config.fleet.is_some() && loaded.config.fleet == running.fleet {
        // Those of the list.
        loaded.config.cameras.clone_from(&running.cameras);
    }
    Ok(loaded)
}

/// Records of a disk or a store that break the rules of the configuration file.
pub fn log_dropped(records: &[String]) {
    for reason in records {
        let text = "a stored setting is not allowed; the value of the configuration applies";
        tracing::error!(reason, "{text}");
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
        ("[api]", old.api != new.api),
        ("[mqtt]", old.mqtt != new.mqtt),
        ("[model]", old.model != new.model),
        ("[fleet]", old.fleet != new.fleet),
    ];
    let changed = sections.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(section, _)| section).collect()
}

/// Reads the headers of the adapters: one that does not fit the model is a mistake of the file. Blocks on the disk.
pub fn adapters_fit(file: &Path, model: &config::ModelSettings) -> anyhow::Result<()> {
    let broken = check_adapters(model).into_iter();
    let wrong = broken.map(|one| format!("adapter.{}.path: {}", one.id, one.reason));
    let wrong: Vec<String> = wrong.collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => bail!("{}: {}", file.display(), wrong.join("; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::app::test_support;
    use spotter_control::Command;
    use spotter_core::{ManualClock, ModeId, Mono, NO_MODE, Setting, WallTime, testing::rate};

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

    /// As the daemon stores what an input changed.
    struct Stored {
        config: ConfigStore,
        state: StateStore,
    }

    impl std::ops::Deref for Stored {
        type Target = ConfigStore;

        fn deref(&self) -> &ConfigStore {
            &self.config
        }
    }

    impl Stored {
        fn input<T>(&mut self, input: impl FnOnce(&mut ConfigStore) -> T) -> T {
            let output = input(&mut self.config);
            store_overrides(&self.config, &self.state);
            output
        }

        fn set(&mut self, setting: Setting) {
            let camera = self.cameras()[0].id.clone();
            let command = Command::Set { camera, setting };
            self.execute(&command, 0);
        }

        fn execute(&mut self, command: &Command, hours: i64) {
            let executed = self.input(|c| c.execute(command, Mono::default(), hour(hours)));
            executed.unwrap();
        }

        fn tick(&mut self, hours: i64) -> bool {
            self.input(|config| config.tick(Mono::default(), hour(hours)))
        }
    }

    fn open(config: &Config) -> Stored {
        open_at(config, 0)
    }

    /// Some hours after midnight of a day, UTC.
    fn hour(hours: i64) -> WallTime {
        WallTime::from_unix_millis(1_795_392_000_000 + hours * 3_600_000)
    }

    fn open_at(config: &Config, hours: i64) -> Stored {
        let clock = ManualClock::at(hour(hours));
        let state = StateStore::open(&config.node.state_dir, Arc::new(clock.clone())).unwrap();
        let config = open_config(config.clone(), &state, &clock);
        Stored { config, state }
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
            of_fleet.input(|c| c.set_stored_of(&gate, read.stored, Mono::default()));
            for store in [of_disk, of_fleet] {
                let camera = &store.cameras()[0];
                assert_eq!((camera.rate, store.overrides().count()), (rate(1.0), 1));
                let prompt = &camera.prompts[0];
                assert_eq!(
                    (prompt.task.text(), prompt.min_score.get()),
                    ("person", 0.5)
                );
            }
        }
    }

    fn switch(store: &mut Stored, mode: &str, hours: i64) {
        let mode = ModeId::new(mode).unwrap();
        let mode = Some(mode).filter(|mode| mode.as_str() != NO_MODE);
        store.execute(&Command::SetMode { mode }, hours);
    }

    fn rate_hz(store: &Stored) -> f64 {
        store.cameras()[0].rate.hz()
    }

    fn set_rate(store: &mut Stored, rate_hz: f64) {
        store.set(Setting::Rate(rate(rate_hz)));
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
    fn file_read_before_the_fleets_list_keeps_the_later_list() {
        let text = "mqtt = { url = \"mqtt://127.0.0.1:1\" }\n[fleet]\nname = \"hall\"\nurl = \"nats://127.0.0.1:1\"\n";
        let file = test_support::config(text);
        let mut config = test_support::config_store(&file, &ManualClock::default());
        let list = test_support::config(
            "mqtt.url = \"mqtt://127.0.0.1:1\"\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n",
        );
        config.replace_list(list.cameras.clone(), Mono::default());
        config.replace_file(file, Mono::default(), hour(0));
        assert_eq!(config.file().cameras, list.cameras);
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
        assert!(!store.tick(21));
        assert_eq!(
            rate_hz(&open_at(&config, 21)),
            3.0,
            "all survives a restart"
        );
        // The mode that comes later is newer than the command.
        assert!(store.tick(22));
        assert_eq!((rate_hz(&store), store.overrides().count()), (4.0, 0));
        assert!(store.tick(30));
        assert_eq!(rate_hz(&store), 1.0);
    }

    #[test]
    fn switch_discards_overrides_of_the_values_that_it_changes() {
        let state = tempfile::tempdir().unwrap();
        let config = with_modes(&state);
        let mut store = open_at(&config, 12);
        store.set(Setting::Enabled(false));
        store.set(Setting::MotionGate(true));
        // Neither has a value for them.
        switch(&mut store, "night", 12);
        assert_eq!((rate_hz(&store), store.overrides().count()), (4.0, 2));
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
        store.input(|c| c.replace_file(edited.clone(), Mono::default(), hour(13)));
        assert_eq!(store.mode().map(ModeId::as_str), Some("away"));
        assert_eq!(rate_hz(&store), 3.0);
        edited.modes.remove(1);
        store.input(|c| c.replace_file(edited, Mono::default(), hour(13)));
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
