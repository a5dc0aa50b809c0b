//! The configuration of this process: the file is read, and what commands change is stored (`mqtt.overrides = "keep"`). What applies is
//! decided by [`ConfigStore`].
//!
//! A change of `[camera]`, `[defaults]`, `[mode]`, `[webhook]` and `[adapter]` is applied while everything runs. A change of another section needs a restart of all
//! stages inside the process: [`restart_reasons`].

use std::path::Path;

use spotter_config::{
    self as config, AdapterConfig, Config, ConfigProblems, Environment, LoadedConfig, ModelSource,
    OverridePersistence,
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
/// A broker, a node name, a page and a model each have one owner for the time of a run, and none of them changes within a run. The engines
/// that run have memory for `adapter_slots` adapters.
pub fn restart_reasons(old: &Config, new: &Config, adapter_slots: usize) -> Vec<&'static str> {
    let sections = [
        ("[node]", old.node != new.node),
        ("[http]", old.http != new.http),
        ("[api]", old.api != new.api),
        ("[mqtt]", old.mqtt != new.mqtt),
        ("[model]", old.model != new.model),
        ("[adapter]", new.adapters.all.len() > adapter_slots),
        ("[fleet]", old.fleet != new.fleet),
        ("[history]", old.history != new.history),
    ];
    let changed = sections.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(section, _)| section).collect()
}

/// The adapters of `new` that a running configuration does not have for this model.
pub fn new_adapters(running: &Config, new: &Config) -> Vec<AdapterConfig> {
    let is_other_model = running.model.source != new.model.source;
    let mut adapters = new.adapters.all.clone();
    adapters.retain(|one| is_other_model || !running.adapters.all.contains(one));
    adapters
}

/// Reads the headers of adapters: one that does not fit the model is a mistake of the file. Blocks on the disk.
pub fn adapters_fit(
    file: &Path,
    model: &ModelSource,
    adapters: &[AdapterConfig],
) -> Result<(), ConfigProblems> {
    let broken = check_adapters(model, adapters).into_iter();
    let wrong = broken.map(|one| format!("adapter.{}.path: {}", one.id, one.reason));
    let wrong: Vec<String> = wrong.collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            let file = file.display().to_string();
            Err(ConfigProblems::of_file(&file, wrong.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::app::testing;
    use spotter_control::Command;
    use spotter_core::{
        AdapterId, ManualClock, ModeId, Mono, NO_MODE, Setting, WallTime, testing::rate,
    };

    /// A site whose camera has a rate of 1, with a mode from 22:00 to 06:00 and one without a schedule.
    fn site(overrides: &str) -> Config {
        testing::config(&format!(
            "mqtt = {{ url = \"mqtt://127.0.0.1:1\", overrides = \"{overrides}\" }}\n\
             [camera.gate]\nurl = \"test://\"\nrate = 1\nprompt.person.detect = \"person\"\n\
             [mode.night]\nschedule = \"Mon-Sun 22:00-06:00 UTC\"\ncamera.gate.rate = 4\n\
             [mode.away]\ncamera.gate = {{ enabled = true, rate = 2 }}\n",
        ))
    }

    /// Some hours after midnight of a day, UTC.
    fn hour(hours: i64) -> WallTime {
        WallTime::from_unix_millis(1_795_392_000_000 + hours * 3_600_000)
    }

    fn start(config: &Config, hours: i64, stored: StoredOverrides) -> ConfigStore {
        ConfigStore::new(config.clone(), stored, Mono::default(), hour(hours))
    }

    /// The next start of the daemon.
    fn restart(store: &ConfigStore, hours: i64) -> ConfigStore {
        let stored = store.stored().unwrap_or_default();
        start(store.file(), hours, stored)
    }

    fn execute(store: &mut ConfigStore, command: &Command, hours: i64) {
        let executed = store.execute(command, Mono::default(), hour(hours));
        executed.unwrap();
    }

    fn set(store: &mut ConfigStore, setting: Setting) {
        let camera = store.cameras()[0].id.clone();
        execute(store, &Command::Set { camera, setting }, 0);
    }

    fn set_rate(store: &mut ConfigStore, rate_hz: f64) {
        set(store, Setting::Rate(rate(rate_hz)));
    }

    fn switch(store: &mut ConfigStore, mode: &str, hours: i64) {
        let mode = ModeId::new(mode).unwrap();
        let mode = Some(mode).filter(|mode| mode.as_str() != NO_MODE);
        execute(store, &Command::SetMode { mode }, hours);
    }

    fn rate_hz(store: &ConfigStore) -> f64 {
        store.cameras()[0].rate.hz()
    }

    #[test]
    fn overrides_survive_a_restart_or_are_forgotten_as_configured() {
        let directory = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(hour(12));
        let open = |overrides| {
            let state = StateStore::open(directory.path(), Arc::new(clock.clone())).unwrap();
            let config = open_config(site(overrides), &state, &clock);
            (config, state)
        };
        let changed_rate = |overrides, rate_hz| {
            let (mut config, state) = open(overrides);
            set_rate(&mut config, rate_hz);
            store_overrides(&config, &state);
            self::rate_hz(&config)
        };
        assert_eq!(changed_rate("keep", 4.0), 4.0);
        assert_eq!(rate_hz(&open("keep").0), 4.0);
        assert_eq!(rate_hz(&open("forget").0), 1.0);
        assert_eq!(changed_rate("forget", 5.0), 5.0);
        assert_eq!(rate_hz(&open("forget").0), 1.0);
        assert_eq!(rate_hz(&open("keep").0), 1.0, "neither override is left");
    }

    #[test]
    fn file_read_before_the_fleets_list_keeps_the_later_list() {
        let text = "mqtt = { url = \"mqtt://127.0.0.1:1\" }\n[fleet]\nname = \"hall\"\nurl = \"nats://127.0.0.1:1\"\n";
        let file = testing::config(text);
        let mut config = testing::config_store(&file, &ManualClock::default());
        let list = site("keep").cameras;
        config.replace_list(list.clone(), Mono::default());
        config.replace_file(file, Mono::default(), hour(0));
        assert_eq!(config.file().cameras, list);
    }

    #[test]
    fn mode_replaces_the_file_and_a_later_command_the_mode() {
        let mut store = start(&site("keep"), 12, StoredOverrides::default());
        assert_eq!((store.mode(), rate_hz(&store)), (None, 1.0));
        switch(&mut store, "away", 12);
        assert_eq!(rate_hz(&store), 2.0);
        set_rate(&mut store, 3.0);
        assert!(!store.tick(Mono::default(), hour(21)));
        let restarted = restart(&store, 21);
        assert_eq!((rate_hz(&store), rate_hz(&restarted)), (3.0, 3.0));
        // The mode that comes later is newer than the command.
        assert!(store.tick(Mono::default(), hour(22)));
        assert_eq!((rate_hz(&store), store.overrides().count()), (4.0, 0));
        assert!(store.tick(Mono::default(), hour(30)));
        assert_eq!(rate_hz(&store), 1.0);
    }

    #[test]
    fn switch_discards_overrides_of_the_values_that_it_changes() {
        let mut store = start(&site("keep"), 12, StoredOverrides::default());
        set(&mut store, Setting::Enabled(false));
        set(&mut store, Setting::MotionGate(true));
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
        let mut store = start(&site("keep"), 12, StoredOverrides::default());
        set_rate(&mut store, 3.0);
        let rates = [13, 23, 24].map(|hours| rate_hz(&restart(&store, hours)));
        assert_eq!(rates, [3.0, 4.0, 4.0]);
        // With "forget", a restart ends a choice as it ends overrides.
        let mut store = start(&site("forget"), 12, StoredOverrides::default());
        switch(&mut store, "away", 12);
        assert_eq!(restart(&store, 12).mode(), None);
    }

    #[test]
    fn reload_keeps_the_active_mode_if_the_file_has_it() {
        let mut store = start(&site("keep"), 12, StoredOverrides::default());
        switch(&mut store, "away", 12);
        set_rate(&mut store, 3.0);
        let mut edited = site("keep");
        edited.modes[1].settings.remove(0);
        store.replace_file(edited.clone(), Mono::default(), hour(13));
        assert_eq!(store.mode().map(ModeId::as_str), Some("away"));
        assert_eq!(rate_hz(&store), 3.0);
        edited.modes.remove(1);
        store.replace_file(edited, Mono::default(), hour(13));
        assert_eq!((store.mode(), rate_hz(&store)), (None, 1.0));
    }

    #[test]
    fn each_section_except_cameras_and_adapters_needs_a_restart() {
        let old = site("keep");
        let mut other = old.clone();
        other.mqtt = site("forget").mqtt;
        assert_eq!(restart_reasons(&old, &other, usize::MAX), ["[mqtt]"]);
        let mut in_place = old.clone();
        in_place.cameras[0].rate = rate(3.0);
        in_place.hash = "another".into();
        in_place.modes.clear();
        in_place.adapters.all = vec![AdapterConfig {
            id: AdapterId::new("plates").unwrap(),
            path: "plates".into(),
        }];
        // A GPU's engine that was opened without adapters has no memory for one.
        assert_eq!(restart_reasons(&old, &in_place, 0), ["[adapter]"]);
        assert_eq!(restart_reasons(&old, &in_place, usize::MAX), [""; 0]);
        let mut new = old.clone();
        new.node.state_dir = "/nowhere".into();
        new.model.reuse_max_age += std::time::Duration::from_secs(1);
        assert_eq!(
            restart_reasons(&old, &new, usize::MAX),
            ["[node]", "[model]"]
        );
        let stores_events = "mqtt.url = \"mqtt://127.0.0.1:1\"\n[history]\n[camera.gate]\nurl = \"test://\"\nprompt.person.detect = \"person\"\n";
        let mut new = old.clone();
        new.history = testing::config(stores_events).history;
        assert_eq!(restart_reasons(&old, &new, usize::MAX), ["[history]"]);
    }
}
