//! Which owner of a camera is the present one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of an ownership of a camera in a fleet: the revision of the camera's key in the store, which only grows. So of two nodes the one
/// with the lower epoch is not the owner.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(try_from = "u64")]
pub struct Epoch(pub u64);

impl Epoch {
    /// No reader of JSON represents higher ones exactly, and no store comes to them in 270 years.
    pub const MAX: Self = Self(1 << 53);
}

impl TryFrom<u64> for Epoch {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        let epoch = Self(number);
        let too_high = || format!("epoch {number} is above {}", Self::MAX);
        (epoch <= Self::MAX).then_some(epoch).ok_or_else(too_high)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
