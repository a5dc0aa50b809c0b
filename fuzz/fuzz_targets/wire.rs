//! The wire between the daemon and the process of an engine: what each of the two reads of the other.
#![no_main]

use libfuzzer_sys::fuzz_target;

use spotter_engine::testing::wire::{daemon_reads, engine_reads};

fuzz_target!(|bytes: &[u8]| {
    engine_reads(bytes);
    daemon_reads(bytes, &[]);
});
