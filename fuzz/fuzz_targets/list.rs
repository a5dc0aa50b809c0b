//! The list of cameras that the nodes of a fleet share.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spotter_config::{Environment, ListReader, ListRights, camera_list};

fuzz_target!(|text: &str| {
    let environment = Environment::new("box", |_| None);
    let reader = ListReader {
        adapters: &[],
        environment: &environment,
        has_api: true,
        rights: &ListRights::default(),
    };
    _ = camera_list("list", text, &reader);
});
