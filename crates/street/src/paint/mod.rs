//! Drawing: from a [`Scene`] to pixels. One file for each kind of thing, all built from the outlines of `figure`.
//!
//! `random` and `street` decide what is where, `truth` what counts as visible.
//!
//! [`Scene`]: crate::scene::Scene

mod animals;
mod backdrop;
mod effects;
mod figure;
mod items;
mod people;
mod picture;
mod props;
mod shade;
mod things;
mod vehicles;

pub(super) use figure::{FigureShape, ShapePart};
pub(super) use items::{Item, bounds, item_of_object, item_of_prop, items};
pub use picture::{draw, draw_i420};
