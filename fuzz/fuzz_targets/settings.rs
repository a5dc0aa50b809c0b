//! Settings of a camera from the store of a fleet or from the disk, and what they make of a camera.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use spotter_core::{CameraId, Mono};
use spotter_config::{CameraConfig, Environment, of_text};
use spotter_control::{EffectiveCameras, ReadOverrides, StoredOverrides};

const FILE: &str = "mqtt.url = \"mqtt://broker\"\n[camera.gate]\nurl = \"test://\"\nrate = 1\nprompt.person.detect = \"person\"\n\
    prompt.dark = { query = \"Is it dark?\", choices = [\"yes\", \"no\"] }\n";

fn cameras() -> Vec<CameraConfig> {
    let loaded = of_text("site.toml", FILE, &Environment::new("box", |_| None));
    loaded.expect("a valid file").config.cameras
}

thread_local!(static CAMERAS: RefCell<Vec<CameraConfig>> = RefCell::new(cameras()));

fuzz_target!(|json: &[u8]| {
    let Ok(ReadOverrides { stored, .. }) = ReadOverrides::of_json(json) else {
        return;
    };
    let cameras = CAMERAS.with_borrow(Clone::clone);
    let gate = CameraId::new("gate").expect("an id");
    let mut of_disk = EffectiveCameras::new(stored.clone());
    of_disk.replace_file(cameras.clone());
    let mut of_store = EffectiveCameras::new(StoredOverrides::default());
    of_store.replace_file(cameras);
    of_store.set_stored_of(&gate, stored);
    for effective in [&mut of_disk, &mut of_store] {
        for camera in effective.cameras(Mono::default()) {
            for prompt in &camera.prompts {
                // Every user of a rate makes a time of it.
                assert!(!prompt.rate.period().is_zero());
            }
        }
    }
});
