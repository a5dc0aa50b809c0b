//! `[camera.NAME]` in the list of a fleet.

use super::camera::{CameraConfig, CameraDefaults, camera};
use crate::{forms::prelude::*, read::prelude::*};
use spotter_core::CameraId;

/// A camera of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedCamera {
    pub camera: CameraConfig,
    /// A label that its node must have.
    pub label: Option<String>,
    pub priority: u8,
}

/// Reads a camera of the list.
pub(crate) fn shared_camera(
    scope: &Scope<'_>,
    id: CameraId,
    mut table: Reader<'_>,
    base: &CameraDefaults,
) -> Option<SharedCamera> {
    keys! { table in "`[camera.NAME]` in the list of a fleet", "A camera of `spotter fleet apply FILE` also accepts these keys; see [fleet.md](fleet.md).", "[camera.gate]\nlabel = \"hall2\"\npriority = 1";
        /// Only nodes with this label watch the camera.
        label = node_name().optional("any node"), r#"label = "hall2""#;
        /// Cameras with a higher priority come first where the nodes cannot do all.
        priority = whole(0..=9, "").or(0), "priority = 1";
    }
    table.ignored(
        "sessions",
        "every camera is disconnected before its next node connects",
    );
    Some(SharedCamera {
        camera: camera(scope, id, table, base)?,
        label: label.map(|label| label.to_string()),
        priority,
    })
}
