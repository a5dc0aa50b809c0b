//! Why a look has no answer.

use crate::scheduler::worker::DeviceError;
use spotter_core::{AdapterId, LookFailure, Prompt};

/// Why a look could not be answered.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The prompt's text cannot be turned into tokens.
    #[error("prompt {prompt}: {reason}")]
    Prompt { prompt: String, reason: String },
    /// A step of a GPU has room for a limited number of crops of each picture.
    #[error(
        "a picture of {width} x {height} pixels is too long: it needs {crops} crops, a step has room for {limit}; \
         crop it to a shape that is less long"
    )]
    Picture {
        width: usize,
        height: usize,
        crops: usize,
        limit: usize,
    },
    /// The file of an adapter is missing or does not fit the model.
    #[error("adapter {id}: {reason}")]
    Adapter { id: AdapterId, reason: String },
    /// The device cannot go on: the engine must stop.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<EngineError> for LookFailure {
    fn from(error: EngineError) -> Self {
        let text = error.to_string();
        match error {
            EngineError::Adapter { id, reason } => Self::Adapter { id, reason },
            EngineError::Prompt { .. } | EngineError::Picture { .. } => Self::Unfit(text),
            EngineError::Device(_) => Self::Engine(text),
        }
    }
}

pub(super) fn prompt_error(prompt: &Prompt, reason: &dyn std::error::Error) -> EngineError {
    EngineError::Prompt {
        prompt: prompt.id.to_string(),
        reason: reason.to_string(),
    }
}
