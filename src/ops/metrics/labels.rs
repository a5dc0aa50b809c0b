//! Labels of the metrics.

use prometheus_client::encoding::EncodeLabelSet;

use spotter_core::CameraId;

/// Label `camera`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CameraLabel {
    pub camera: String,
}

impl From<&CameraId> for CameraLabel {
    fn from(camera: &CameraId) -> Self {
        Self {
            camera: camera.to_string(),
        }
    }
}

/// Labels `camera` and `fate`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FateLabel {
    pub camera: String,
    pub fate: &'static str,
}

/// Label `stage` of the latency account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StageLabel {
    /// decode, wait, prep, vision, prompt, generate, post, out.
    pub stage: &'static str,
}

/// Label `device` of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct DeviceLabel {
    /// `cpu`, or `cuda 1, NVIDIA H200`.
    pub device: String,
}

/// Label `reason` of a loss.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    pub reason: &'static str,
}

/// Label `outcome` of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    pub outcome: &'static str,
}

/// Label `version` of the program.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BuildLabel {
    /// As Cargo.toml has it.
    pub version: &'static str,
}
