//! From answers to detections, states and events. Found objects lose their duplicates, pass the prompt's filters and are
//! followed from look to look; presence and counts change with hysteresis; a track becomes an event.
//!
//! ```text
//!            filter               track_set (assign, motion)    lifecycle, verification
//!  Answer ──▶ candidates ──┬────▶ tracks ─────────────────────▶ events ──┐
//!                          │             └▶ crossing, line_counts ─▶ ──┤
//!                          ├────▶ hysteresis, zones: presence, counts ───┼──▶ TrackedAnswer
//!             text ────────┴────▶ believed_answer ──────────────────────┘
//! ```
//!
//! With `verify`, a confirmed track has its event only after a second look (`verification`); with `describe`, a question is asked about the object of
//! each event (`description`); both are a `question`. A [`PromptChange`] contains such questions, and the daemon passes their answers to [`Tracker::settled`].
//! With `segment`, outlines of objects are asked for after a look (`outline`); their answers go the same way.
//!
//! A [`Tracker`] has a `prompt_tracker` for each prompt of each camera. Everything here is pure and takes its times from
//! frames and from `now`; the daemon owns the tracker. Not here: pictures, topics and JSON.

mod assign;
mod believed_answer;
mod crossing;
mod description;
mod dwell;
mod filter;
mod hysteresis;
mod lifecycle;
mod line_counts;
mod motion;
mod outline;
mod prompt_tracker;
mod question;
mod rules;
mod seen_part;
mod track_set;
mod tracker;
mod verification;
mod zones;

pub use hysteresis::{Hysteresis, HysteresisRules};
pub use line_counts::{LineCount, LineCountRecord};
pub use outline::{OutlineMask, OutlinedTrack};
pub(crate) use prompt_tracker::PromptTracker;
pub use prompt_tracker::{PromptChange, TrackedAnswer};
pub use question::outline_question;
pub(crate) use track_set::IdAllocator;
pub use tracker::Tracker;
pub(crate) use verification::VERIFICATION_CHOICES;
