//! Settings of a camera from the store of a fleet or from the disk, and what they make of a camera.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use spotter_config::{Config, Environment, of_text};
use spotter_control::{ConfigStore, ReadOverrides, StoredOverrides};
use spotter_core::{CameraId, Mono, WallTime};

const FILE: &str = "mqtt.url = \"mqtt://broker\"\n[camera.gate]\nurl = \"test://\"\nrate = 1\nprompt.person.detect = \"person\"\n\
    prompt.dark = { query = \"Is it dark?\", choices = [\"yes\", \"no\"] }\n";

fn config() -> Config {
    let loaded = of_text("site.toml", FILE, &Environment::new("box", |_| None));
    loaded.expect("a valid file").config
}

thread_local!(static CONFIG: RefCell<Config> = RefCell::new(config()));

fuzz_target!(|json: &[u8]| {
    let Ok(ReadOverrides { stored, .. }) = ReadOverrides::of_json(json) else {
        return;
    };
    let (now, wall) = (Mono::default(), WallTime::from_unix_millis(0));
    let file = CONFIG.with_borrow(Clone::clone);
    let gate = CameraId::new("gate").expect("an id");
    let of_disk = ConfigStore::new(file.clone(), stored.clone(), now, wall);
    let mut of_store = ConfigStore::new(file, StoredOverrides::default(), now, wall);
    of_store.set_stored_of(&gate, stored, now);
    for store in [of_disk, of_store] {
        for prompt in store.cameras().iter().flat_map(|camera| &camera.prompts) {
            // Every user of a rate makes a time of it.
            assert!(!prompt.rate.period().is_zero());
        }
    }
});
