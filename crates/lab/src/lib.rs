//! Measures Spotter: how right the answers are and how fast they come.

pub mod args;
mod bench;
pub mod capacity;
mod fleet;
pub mod measure;

pub use fleet::serve_cameras;
