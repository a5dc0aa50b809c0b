//! From answers to what is there: found things without the model's doubles, cut to what the user wants reported, and
//! presence that does not flap.
//!
//! Everything here is pure and takes `now`; the app owns a [`Tracker`] and feeds it. Deliberately absent: the picture,
//! topics and JSON (`publish`), and text answers, which have no place and no count.

mod filter;
mod hysteresis;
mod tracker;

pub use filter::Object;
pub use hysteresis::Presence;
pub use tracker::{Change, Sighting, Tracker};
