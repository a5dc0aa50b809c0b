//! A prompt as the decoder reads it.

use super::{grammar::AnswerGrammar, tokenizer::TokenizerError};
use spotter_core::CaptionLength;

/// What one position of the decoder reads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum DecoderInput {
    /// A row of the embedding table.
    Token(u32),
    /// A coordinate, 0..1, through the coordinate encoder.
    Coord(f32),
    /// Width and height, 0..1, through the size encoder.
    Size(f32, f32),
}

/// A prompt, and what may be answered to it.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelPrompt {
    /// The positions that follow an image prefix.
    pub inputs: Vec<DecoderInput>,
    pub grammar: AnswerGrammar,
}

/// A question in the model's terms.
#[derive(Clone, Copy, Debug)]
pub struct QueryWords<'a> {
    /// Places in the picture that it is about.
    pub places: &'a [DecoderInput],
    pub words: &'a [u32],
    /// Does the model write down its thoughts first?
    pub is_reasoned: bool,
}

/// Why a task has no prompt.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// The words are not text that the model can read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The model's config.json leaves this caption empty.
    #[error("this model has no {} caption; ask for another length", name(*length))]
    NoCaption {
        /// The length asked for.
        length: CaptionLength,
    },
    /// The model's config.json has templates, and none for this.
    #[error(
        "this model has no template for {task} in its config.json; add it, or use another model"
    )]
    NoTemplate { task: &'static str },
    #[error(
        "{family} draws no outlines; Moondream 3 preview and Moondream 3.1 do (`spotter model list` shows both): use one of them, or ask for boxes with detect"
    )]
    NoOutlines { family: &'static str },
    /// Beside a picture and its answer.
    #[error(
        "the text has {tokens} tokens with its template; beside a picture and its answer this model has room for {room}: shorten the text"
    )]
    TooLong { tokens: usize, room: usize },
}

fn name(length: CaptionLength) -> &'static str {
    match length {
        CaptionLength::Short => "short",
        CaptionLength::Normal => "normal",
        CaptionLength::Long => "long",
    }
}
