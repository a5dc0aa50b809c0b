//! From answers to what is there: found things without the model's doubles, cut to what the user wants reported, followed
//! from look to look, with presence and counts that do not flap and events that are told when something happened.
//!
//! ```text
//!             filter           follow (assign, motion)       life, doubt
//!  Answer ──▶ objects ──┬────▶ tracks ────────────────────▶ events ─────┐
//!                       ├────▶ hysteresis, zones: presence, counts ─────┼──▶ Sighting
//!             text ─────┴────▶ said: the believed answer ───────────────┘
//! ```
//!
//! Of a prompt with `verify` a thing that is there has its event only after a second look (`doubt`): the sighting brings a
//! question along, which the app has asked, and whose answer it hands back.
//!
//! A [`Tracker`] has a `watch` for each prompt of each camera. Everything here is pure and takes its times from frames and
//! from `now`; the app owns the tracker and feeds it. Deliberately absent: the picture, topics and JSON (`publish`).

mod assign;
mod doubt;
mod filter;
mod follow;
mod hysteresis;
mod life;
mod motion;
mod said;
mod tracker;
mod watch;
mod zones;

pub use filter::Object;
pub use hysteresis::{Hysteresis, Presence, Rules};
pub use tracker::{Change, Tracker};
pub use watch::{News, Sighting};
