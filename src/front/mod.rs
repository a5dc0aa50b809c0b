//! The engine for those who speak in words: looks in, answers out.
//!
//! ```text
//!   Permit ─▶ Look ─▶ words to tokens ─▶ engine ─▶ bins and tokens to places and texts ─▶ Answer
//! ```
//!
//! Belongs here: the engine's thread with its permits, prompts to sequences, findings to answers. Not here: when a step runs
//! (`engine`), which model runs where (`app`), what an answer means (`track`).

mod choices;
mod engine;
pub mod handle;

pub use engine::{Engine, EngineError, News};

#[cfg(test)]
mod tests;
