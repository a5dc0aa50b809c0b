//! Answers of ONVIF cameras.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &str| spotter_onvif::testing::read_answers(answer));
