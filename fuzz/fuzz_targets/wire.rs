//! The wire between the daemon and the process of an engine: what each of the two reads of the other.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;

use spotter_core::{Prompt, PromptId, PromptView, Task};
use spotter_engine::testing::wire::{daemon_reads, engine_reads};

fuzz_target!(|bytes: &[u8]| {
    engine_reads(bytes);
    let prompt = Prompt::new(PromptId::new("person").expect("an id"), 1, Task::Detect {
            object: "person".into(),
        });
    daemon_reads(bytes, &[Arc::new(prompt)]);
});
