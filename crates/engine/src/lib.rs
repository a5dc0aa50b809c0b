//! Runs a Moondream-class vision-language model on a CPU or an NVIDIA GPU: looks in, answers out.
//!
//! # Bird's eye
//!
//! A *look* is a picture with prompts. [`service::Engine`] turns the prompts into tokens and the results into places and
//! texts; the scheduler cuts the work of many looks into steps; a backend computes one step after the other.
//!
//! ```text
//!   Look ─▶ service::Engine ─▶ scheduler ── Step ──▶ Backend: cpu, cuda, sim
//!   Answer ◀──────┘                └◀── Committed ──────┘
//! ```
//!
//! ```no_run
//! use std::sync::Arc;
//! use spotter_config as config;
//! use spotter_core::{Look, SystemClock, Task};
//! use spotter_engine::service::Engine;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let picture = spotter_pictures::read("street.jpg".as_ref())?;
//! let settings = config::ModelSettings::of(config::ModelSource::Embedded);
//! let clock = Arc::new(SystemClock::new());
//! let (mut engine, _) = Engine::open(&settings, Vec::new, clock)?;
//! let object = "car".to_owned();
//! let look = engine.look(Look::still(picture, [Task::Detect { object }]))?;
//! # Ok(())
//! # }
//! ```
//!
//! # Code map
//!
//! | module | contents |
//! | --- | --- |
//! | [`open`] | from the `[model]` section to an engine: files, device, memory |
//! | [`service`] | the engine for callers: on this thread, on a thread of its own, in a process of its own |
//! | [`scheduler`] | the next step and what its results mean; the [`scheduler::backend::Backend`] seam with its numbered promises |
//! | [`model`] | model families behind one trait: files, dimensions, weights, tokenizer, tiling, prompts, grammars |
//! | [`network`] | the structure of a network, of which specification, weights and sizes are maps |
//! | [`cpu`] | the reference backend in f32 |
//! | [`cuda`] | the GPU backend, with all `unsafe` code of the workspace |
//! | [`ranks`] | several backends as one, each with a part of the decoder |
//! | [`sim`] | a backend of which each step takes a given time |
//! | [`step_check`] | checks of the seam that all backends share |
//!
//! # Invariants
//!
//! - The scheduler is pure: it has no device, no thread and no clock, and does not know which backend runs.
//! - On the CPU and the simulator, answers do not depend on what else runs, on drafts, on the depth of the pipeline or on evictions. On a
//!   GPU they do, a little: [`cuda`] says why.
//! - A backend is used by one thread. A GPU backend is built on the thread that uses it.
//! - No look enters without a permit, so no queue of old frames forms.
//! - Absent on purpose: cameras, MQTT, tracks, and the drawn street (tests alone use it).

pub mod cpu;
#[expect(
    unsafe_code,
    reason = "the GPU's module; each block argues why it is sound"
)]
pub mod cuda;
pub mod model;
pub mod network;
pub mod open;
pub mod ranks;
pub mod scheduler;
pub mod service;
pub mod sim;
pub mod step_check;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]
pub mod testing;
