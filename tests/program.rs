//! The program as its users run it: child processes, a broker, cameras and servers on loopback. All these tests are one binary: a second
//! one would be linked with the same crates again, and while one test waits for a process, another one uses the processor.

#![expect(
    clippy::expect_used,
    reason = "in a test, what cannot be set up ends the test"
)]

mod support;

mod bad_input;
mod commands;
mod control;
mod demo;
mod engine_process;
mod fleet;
mod fleet_daemons;
mod fleet_list;
mod fleet_street;
mod model;
mod webhooks;
