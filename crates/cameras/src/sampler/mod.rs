//! From frames to looks: the newest frame of each camera wins, and only frames that are due, fresh and worth it reach
//! the engine.
//!
//! The order is permit first, frame second: the app asks a [`CameraShare`] for a look when it already holds an engine permit,
//! so what it gets is the newest there is and no backlog can form. Whether a frame is due is decided when it arrives, so
//! a frame never waits for its prompts; it waits for the engine alone. A free text is not due again while the last one is being
//! written. Every frame ends in [`FrameCounters`](spotter_core::FrameCounters) under one name; the end of a look is
//! counted by the [`LookToken`](spotter_core::LookToken) inside of it, however it ends.
//!
//! ```text
//!            arrives ─┬─ nothing due ──────────▶ skipped
//!                     └─ waiting ─┬─ newer one ─▶ replaced
//!   (in the slot, at most one)    └─ taken ─┬───▶ late, gated
//!                                           └─ engine ─▶ looked, late, failed
//! ```
//!
//! A prompt with a strip needs frames of the last seconds: small copies are taken of arriving frames (`kept_frames`), and until they
//! reach back far enough, the prompt is not asked.
//!
//! Belongs here: cadence, choice between cameras, lateness, the motion gate, masks, the counters of frames. Does not
//! belong here: pixels on their way into the model (`engine`), what an answer means (`track`), connecting (`ingest`).
//! `cadence`, `gate`, `slot` and the rest are pure and take `now`; [`Sampler`] has all cameras, and each engine a
//! [`CameraShare`] of them, so that engines can be replaced while cameras go on.
//!
//! Each camera has one slot for one frame behind one lock (`sampled_camera`): ingest's thread takes the lock to swap a frame in, the
//! engine's task to take it out. The lists of cameras (`stage`, `share`) have locks of their own, because a reload and a lost
//! engine change them. The lock of a camera's filter is held while
//! pixels are read, by the engine's sampler alone. Nothing polls: a frame that is due wakes the engine's task.

mod cadence;
mod gate;
mod kept_frames;
mod limits;
mod mask;
mod motion;
mod motion_region;
mod next_frame;
mod sampled_camera;
mod share;
mod slot;
mod stage;
mod strip_maker;

pub use kept_frames::StripShortage;
pub use limits::TimeLimits;
pub use motion_region::SIDE_MIN_PX as MOTION_SIDE_MIN_PX;
pub use next_frame::NextFrame;
pub use share::{CameraShare, DueFrame};
pub use stage::Sampler;

#[cfg(test)]
mod tests;
