//! One picture, several prompts, straight to the engine.

use spotter_core::{Answer, IdError, Look, Outcome, Picture, PictureError, Task};
use spotter_engine::service::{Engine, EngineError};
use spotter_street::h264::CodecError;

/// Why a measurement ended early.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// A clip did not come back from the encoder.
    #[error("compressing scene {seed}: {source}")]
    Codec {
        /// Which scene.
        seed: u64,
        /// What broke.
        source: CodecError,
    },
    /// The encoder lost frames, so it is not known what the last picture shows.
    #[error("compressing scene {seed}: {found} of {sent} frames came back")]
    FramesLost {
        /// Which scene.
        seed: u64,
        /// How many came back.
        found: usize,
        /// How many went in.
        sent: usize,
    },
    /// Drawn pixels that are no picture.
    #[error("drawing scene {seed}: {source}")]
    Picture {
        /// Which scene.
        seed: u64,
        /// What is wrong.
        source: PictureError,
    },
    /// Pixels of a frame that are no picture: a mistake in this program.
    #[error("making a frame: {0}")]
    Frame(#[from] PictureError),
    /// A camera that is none: a mistake in this program.
    #[error("configuring the camera: {0}")]
    Configuration(String),
    /// A name that is no id: a mistake in this program.
    #[error("naming a prompt: {0}")]
    Id(#[from] IdError),
    /// An engine for the measurement cannot be built.
    #[error("building an engine: {0}")]
    Build(String),
    /// The engine.
    #[error("answering: {0}")]
    Engine(#[from] EngineError),
    /// The engine did not take the look.
    #[error("answering: {0}")]
    Unanswered(String),
}

/// Asks everything in one look, so that all prompts share the picture's prefix; answers in the order of `tasks`. Blocks
/// for the whole work.
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
        Outcome::Late(_) => Err(MeasureError::Unanswered("the look came too late".into())),
        Outcome::Failed(_, reason) => Err(MeasureError::Unanswered(reason)),
    }
}
