//! The engine: looks go in, answers come out, and the device never waits for the host.
//!
//! A *look* is a picture with all prompts that are due on it. The picture is encoded once; each prompt is a short text
//! behind it that the model continues one small decision at a time: is there one more, where, how large. Work is cut into
//! *steps*, each one forward pass over many rows of many looks. While the device runs a step the host settles the one
//! before and launches the one after:
//!
//! ```text
//!   looks ─▶ service ─▶ schedule ── step ──▶ worker ── launch, finalize, commit ──▶ backend
//!            words      plan, kv,          the loop                               cpu, sim, …
//!   answers ◀─ service ◀── settle ◀─ results ──┘
//!
//!   device   ▓ forward 1 ▓ sample ▓ forward 2 ▓ sample ▓ forward 3 ▓ sample
//!   host       commit 0, masks 1 ↑  commit 1, masks 2 ↑              the host works beside the forward passes
//! ```
//!
//! Device independent: the worker drives a [`backend::Backend`] step by step and never learns which one it is. Read in this
//! order; every file explains its mechanism with a drawing:
//!
//! | file | what it is |
//! | --- | --- |
//! | [`backend`] | the seam: a step, its slot, what a device may rely on |
//! | [`pipeline`] | slots and phases, commit before finalize |
//! | [`sequence`], [`decision`] | one prompt from its first token to its end; what is known of decisions still in flight |
//! | `job` | a sequence with its row: steps in flight, zombies, eviction |
//! | [`kv`] | pages and their holders, texts that are in the cache already |
//! | [`plan`] | who goes into the next step |
//! | `admission`, `active` | looks with waiting prompts; prompts with rows and pages |
//! | `batch` | fills the next step |
//! | `settlement` | what the results of a step mean |
//! | `failure` | what follows from a step without results |
//! | [`schedule`] | all of these together; `working_set` changes looks, jobs and pages together |
//! | [`draft`] | the previous answer rides along and is verified |
//! | [`still`] | what a camera's unchanged picture does not need to have computed again |
//! | [`constraint`] | answers that must be one of given texts |
//! | [`worker`] | the loop |
//! | [`pace`] | what steps cost, and a forecast for a number of looks in flight |
//! | [`timeline`] | what host and device did when |
//!
//! All but `worker` are pure: they hold no device, no thread and no clock. The module `service` turns text into tokens
//! and owns the engine's thread with its permits.
//!
//! Not here: what a camera is, when a look is due, what an answer means to the world.

mod active;
mod admission;
pub mod backend;
mod batch;
pub mod constraint;
pub mod decision;
pub mod draft;
mod failure;
mod job;
pub mod kv;
pub mod pace;
pub mod pipeline;
pub mod plan;
pub mod request;
pub mod schedule;
pub mod sequence;
mod settlement;
pub mod still;
pub mod timeline;
pub mod worker;
mod working_set;

pub use request::Options;

#[cfg(test)]
mod tests;
