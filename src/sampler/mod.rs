//! From frames to looks: the newest frame of each camera wins, and only frames that are due, fresh and worth it reach
//! the engine.
//!
//! The order is permit first, frame second: the app asks [`Sampler::next`] when it already holds an engine permit, so
//! what it gets is the newest there is and no backlog can form. Whether a frame is due is decided when it arrives, so
//! a frame never waits for its prompts; it waits for the engine alone. Every frame ends in [`Books`](crate::domain::Books) under one name.
//!
//! ```text
//!            arrives ─┬─ nothing due ──────────▶ skipped
//!                     └─ waiting ─┬─ newer one ─▶ replaced
//!   (in the slot, at most one)    └─ taken ─┬───▶ late, gated
//!                                           └─ engine ─▶ looked, late, failed
//! ```
//!
//! Belongs here: cadence, choice between cameras, lateness, the motion gate, masks, the books of frames. Does not
//! belong here: pixels on their way into the model (`engine`), what an answer means (`track`), connecting (`ingest`).
//! `cadence`, `gate`, `slot` and the rest are pure and take `now`; [`Sampler`] is the shell with the locks.

mod cadence;
mod gate;
mod limits;
mod mask;
mod motion;
mod policy;
mod slot;
mod stage;

pub use limits::TimeLimits;
pub use stage::Sampler;

#[cfg(test)]
mod tests;
