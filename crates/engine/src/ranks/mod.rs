//! Devices that work as one: each has a part of the decoder's weights, and all run the same steps.

mod group;
mod meeting;

pub use group::{RankBuild, RankGroup};
pub use meeting::{RankLeft, Seat};
