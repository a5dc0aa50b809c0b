//! Measures Spotter: how right the answers are and how fast they come.

pub mod args;
mod bench;
mod cameras;
pub mod capacity;
mod fleet;
pub mod measure;

pub use cameras::serve_cameras;
pub use fleet::fleet_box;
