//! One picture with several prompts, submitted to the engine directly.

use spotter_core::{Answer, IdError, Look, Outcome, Picture, PictureError, Task};
use spotter_engine::service::{Engine, EngineError};
use spotter_street::h264::CodecError;

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A clip cannot be encoded or decoded.
    #[error("compressing scene {seed}: {source}")]
    Codec { seed: u64, source: CodecError },
    /// The encoder lost frames, so the content of the last picture is unknown.
    #[error("compressing scene {seed}: {found} of {sent} frames were decoded")]
    FramesLost {
        seed: u64,
        found: usize,
        sent: usize,
    },
    /// Drawn pixels that are no picture.
    #[error("drawing scene {seed}: {source}")]
    Picture { seed: u64, source: PictureError },
    /// A mistake in this program.
    #[error("making a frame: {0}")]
    Frame(#[from] PictureError),
    /// A mistake in this program.
    #[error("configuring the camera: {0}")]
    Configuration(String),
    /// A mistake in this program.
    #[error("naming a prompt: {0}")]
    Id(#[from] IdError),
    #[error("building an engine: {0}")]
    Build(String),
    #[error("answering: {0}")]
    Engine(#[from] EngineError),
    /// The look has no answers, or not those that the measurement needs.
    #[error("answering: {0}")]
    Unanswered(String),
}

/// Submits all tasks in one look, so that they share the picture's prefix; answers are in the order of `tasks`. Blocks for
/// the whole work.
pub(super) fn ask(
    engine: &mut Engine,
    picture: Picture,
    tasks: impl IntoIterator<Item = Task>,
) -> Result<Vec<Answer>, MeasureError> {
    answers_of(engine.look(Look::still(picture, tasks)?)?)
}

/// The answers of a look, or why it has none.
pub(super) fn answers_of(outcome: Outcome) -> Result<Vec<Answer>, MeasureError> {
    match outcome {
        Outcome::Answered { answers, .. } => Ok(answers),
        Outcome::Late(_) => Err(MeasureError::Unanswered("the look was late".into())),
        Outcome::Failed(_, reason) => Err(MeasureError::Unanswered(reason)),
    }
}
