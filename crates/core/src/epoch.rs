//! Which owner of a camera is the present one.

use std::fmt;

use derive_more::Display;
use serde::{Deserialize, Serialize};

use crate::{CameraId, Mono};

/// The number of an ownership of a camera in a fleet: the revision of the camera's key in the store, which only grows. So of two nodes the one
/// with the lower epoch is not the owner.
#[derive(
    Clone, Copy, Debug, Default, Display, Serialize, Deserialize, PartialEq, Eq, PartialOrd, Ord,
)]
#[serde(try_from = "u64")]
pub struct Epoch(pub u64);

impl Epoch {
    /// No reader of JSON represents higher ones exactly, and no store comes to them in 270 years.
    pub const MAX: Self = Self(1 << 53);
}

/// Whether a node of a fleet may publish messages of a camera.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MayPublish {
    /// With this epoch and no other.
    Publish(Epoch),
    /// What has an older epoch than this one is void; 0 while the node knows of no owner.
    Silent { newest: Epoch },
}

/// The rights of a node to publish the cameras of its fleet.
pub trait CameraRights: fmt::Debug + Send + Sync {
    fn may(&self, camera: &CameraId, now: Mono) -> MayPublish;

    /// The broker has an `owner` of the camera with this epoch.
    fn seen_owner(&self, camera: &CameraId, epoch: Epoch);
}

impl TryFrom<u64> for Epoch {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        let epoch = Self(number);
        let too_high = || format!("epoch {number} is above {}", Self::MAX);
        (epoch <= Self::MAX).then_some(epoch).ok_or_else(too_high)
    }
}
