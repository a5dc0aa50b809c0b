//! Which owner of a camera is the present one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of an ownership of a camera in a fleet: the revision of the camera's key in the store, which only grows. So of two nodes the one
/// with the lower epoch is not the owner.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
