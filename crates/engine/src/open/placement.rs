//! What is put on a device, and what is there afterwards.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    model::{CalibrationState, ModelConfig, Weights},
    scheduler::{backend::Backend, sequence::Bounds},
};
use spotter_config as config;
use spotter_core::{Clock, Picture};

/// Pictures from which fp8 learns the ranges of the model's values; called for fp8 alone, which is refused without any
/// (`Vec::new`). A few of the kind that the cameras deliver are enough. They must be the same at every start for the answers to be the same.
pub type CalibrationPictures = fn() -> Vec<Picture>;

/// What is to be put on a device.
pub struct ModelToPlace<'a> {
    pub settings: &'a config::ModelSettings,
    /// Adapters that a GPU is to have memory for.
    pub adapter_slots: usize,
    pub config: &'a ModelConfig,
    pub weights: Weights,
    /// What the user's pictures showed of the model's layers.
    pub measured: &'a CalibrationState,
    pub bounds: Bounds,
    pub calibration: CalibrationPictures,
    pub clock: Arc<dyn Clock>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuId {
    /// From 0 on, as this machine counts them.
    pub index: u32,
    pub name: String,
    /// What its driver knows it by, in every process.
    pub uuid: String,
}

/// A device with a model on it.
pub struct LoadedDevice {
    pub backend: Box<dyn Backend>,
    /// `f32`, `bf16`, `fp8`, `int8` or `int4`.
    pub precision: &'static str,
    /// Which layers are in 8 bits, and with which scales; `None` when none are.
    pub layers: Option<String>,
    /// Where it is and why there.
    pub device: String,
    pub label: String,
    /// The GPUs that work as one; none on the CPU.
    pub gpus: Vec<GpuId>,
    /// Looks that may be inside the engine at once.
    pub permits: usize,
}

/// Logs the line about layers in 8 bits; a calibration that cannot be used is a warning.
pub(super) fn log_layers(layers: Option<&str>, measured: &CalibrationState) {
    match (layers, measured) {
        (Some(layers), CalibrationState::Unusable(_)) => tracing::warn!("{layers}"),
        (Some(layers), _) => tracing::info!("{layers}"),
        (None, _) => {}
    }
}
