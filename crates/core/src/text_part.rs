//! Texts that are published while the model writes them.

use super::{CameraId, PromptId, TrackId};

/// What a text of a prompt is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TextSubject {
    /// The answer to the prompt on the frame with this number.
    Frame(u64),
    /// The description of this track.
    Track(TrackId),
}

/// A text that is published in parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PublishedText {
    pub camera: CameraId,
    /// Of a description: the prompt that has found the track.
    pub prompt: PromptId,
    pub subject: TextSubject,
}

/// What a text goes on with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart {
    pub of: PublishedText,
    /// Of the last part perhaps empty.
    pub text: String,
    /// Nothing follows: the text is complete, or the model stopped before its end.
    pub is_last: bool,
}
