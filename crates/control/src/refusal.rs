//! Why a command is not executed.

use serde::{Deserialize, Serialize};

use spotter_core::{CameraId, CameraShapes, PromptId, ValueError};

/// The kind of a refusal: its word in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalCode {
    /// The words are no request.
    BadRequest,
    /// No such operation, or not in this version.
    UnknownOp,
    UnknownCamera,
    UnknownPrompt,
    UnknownLine,
    UnknownMode,
    UnknownEvent,
    /// The value is not of the right kind or out of its range.
    BadValue,
    /// The text is too long.
    TooLong,
    /// It is there already, or there are too many.
    Conflict,
    /// The camera or the model is not available now.
    Unavailable,
    /// It was tried and went wrong.
    Failed,
}

/// Why something that was asked is not done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Refusal {
    pub code: RefusalCode,
    /// For people: what is wrong and what is allowed.
    pub text: String,
    /// For programs.
    #[serde(flatten, skip_deserializing)]
    pub details: Option<Box<RefusalDetails>>,
}

/// What else a refusal says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum RefusalDetails {
    /// All mistakes of a value.
    Mistakes { errors: Vec<String> },
    /// The shapes are others than the sender has seen.
    Shapes { now: CameraShapes, version: String },
}

impl Refusal {
    /// A refusal with its words.
    pub fn new(code: RefusalCode, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            details: None,
        }
    }

    pub(crate) fn with(self, details: RefusalDetails) -> Self {
        Self {
            details: Some(Box::new(details)),
            ..self
        }
    }

    pub fn bad_value(text: impl Into<String>) -> Self {
        Self::new(RefusalCode::BadValue, text)
    }

    /// The value of `name` is not allowed.
    pub fn of_value(name: &str, error: &ValueError) -> Self {
        let code = match error {
            ValueError::TooLong(_) => RefusalCode::TooLong,
            ValueError::OutOfRange { .. } | ValueError::BadText(_) => RefusalCode::BadValue,
        };
        Self::new(code, format!("{name}: {error}"))
    }

    /// The request names a thing that is not there.
    pub fn unknown(code: RefusalCode, kind: &str, name: &str) -> Self {
        Self::new(code, format!("there is no {kind} {}", shown(name)))
    }

    /// There is no such camera.
    pub fn no_camera(camera: &CameraId) -> Self {
        let text = format!("there is no camera {camera}");
        Self::new(RefusalCode::UnknownCamera, text)
    }

    pub(crate) fn no_prompt(camera: &CameraId, prompt: &PromptId) -> Self {
        let text = format!("camera {camera} has no prompt {prompt}");
        Self::new(RefusalCode::UnknownPrompt, text)
    }
}

/// Text of a request for messages: quoted and shortened.
pub fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    match text.chars().count() > SHOWN_CHARS {
        true => format!("{:?}…", text.chars().take(SHOWN_CHARS).collect::<String>()),
        false => format!("{text:?}"),
    }
}
