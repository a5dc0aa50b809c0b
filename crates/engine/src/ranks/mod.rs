//! Devices that work as one: each has a part of the decoder's weights, and all run the same steps.

mod meeting;

pub use meeting::{RankLeft, Seat};
