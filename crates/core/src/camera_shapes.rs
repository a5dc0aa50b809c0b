//! What is drawn on a camera.

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

/// All that is drawn on a camera, with the keys of its table in the file: `zone`, `line`, `mask`, and of each prompt `zones`, `lines` and
/// `region`. `spotter_config::shapes_of` writes it and `spotter_config::with_shapes` reads it; what a command or the disk gives may be wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CameraShapes(pub Table);

impl CameraShapes {
    /// The areas that are blacked out.
    pub fn mask(&self) -> Value {
        self.0
            .get("mask")
            .cloned()
            .unwrap_or(Value::Array(Vec::new()))
    }
}
