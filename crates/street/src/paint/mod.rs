//! Drawing: from a [`Scene`] to pixels. What things look like is in `figures.txt`, which `drawing` reads; all is built from the
//! outlines of `figure`.
//!
//! `random` and `street` decide what is where, `truth` what counts as visible.
//!
//! [`Scene`]: crate::scene::Scene

mod backdrop;
mod drawing;
mod effects;
mod figure;
mod items;
mod picture;
mod shade;

pub(super) use figure::{FigureShape, ShapePart};
pub(super) use items::{Item, bounds, item_of_object, item_of_prop, items};
pub use picture::{draw, draw_i420};
