//! The list of cameras that the nodes of a fleet share.
#![no_main]

use libfuzzer_sys::fuzz_target;
use spotter_core::config::{Environment, camera_list};

fuzz_target!(|text: &str| {
    let environment = Environment::new("box", |_| None);
    _ = camera_list("list", text, &environment, true);
});
