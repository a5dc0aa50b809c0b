//! The engine for callers: looks with texts in, answers out.
//!
//! ```text
//!   Permit ─▶ Look ─▶ texts to tokens ─▶ scheduler ─▶ bins and tokens to places and texts ─▶ Answer
//! ```
//!
//! The engine is a thread of this process ([`handle::start`]) or a process of its own ([`outside::start`], and in it
//! [`inside`]). Callers do not see which.
//!
//! Belongs here: the engine's thread or process with its permits, looks to requests, findings to answers. Not here: when a step runs
//! (`engine`), which model runs where (`app`), what an answer means (`track`).

mod adapters;
mod choices;
mod engine;
pub mod engine_loop;
mod error;
pub mod handle;
mod inbox;
pub mod inside;
mod look_limit;
mod open_look;
mod open_views;
mod outlines;
pub mod outside;
mod places;
mod process;
mod requests;
mod views;
pub(crate) mod wire;
mod written_text;

pub use adapters::BrokenAdapter;
pub use engine::Engine;
pub use error::EngineError;
pub use look_limit::{InFlight, LookRule};
pub use requests::EngineModel;
pub(crate) use requests::sequence;
pub use views::{LookView, SeenSizes, views};

#[cfg(test)]
mod tests;
