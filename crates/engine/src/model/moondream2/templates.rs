//! Prompt templates: the ids around the user's words (docs/moondream.md section 3).

use super::config::{ModelConfig, Template};
use crate::model::{
    prompt::{DecoderInput, PromptError},
    tokenizer::Tokenizer,
};
use spotter_core::{CaptionLength, Task};

/// A place in the picture that a question refers to, in shares of its width and height.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SpatialRef {
    /// x, y.
    Point(f32, f32),
    /// Left, upper, right and lower edge.
    Box(f32, f32, f32, f32),
}

/// The positions that follow an image prefix for `task`. `reasoning` asks a query to think first; other tasks ignore it.
pub fn prompt_tokens(
    task: &Task,
    config: &ModelConfig,
    tokenizer: &Tokenizer,
    reasoning: bool,
) -> Result<Vec<DecoderInput>, PromptError> {
    let templates = &config.tokenizer.templates;
    // Objects are encoded with one leading space, questions without.
    let words = |object: &str| tokenizer.encode(&format!(" {object}"));
    match task {
        Task::Detect { object } => Ok(object_tokens(&templates.detect, &words(object)?)),
        Task::Point { object } => Ok(object_tokens(&templates.point, &words(object)?)),
        Task::Query { question, .. } => {
            let words = tokenizer.encode(question)?;
            Ok(query_tokens(&words, &[], config, reasoning))
        }
        Task::Caption { length } => {
            let ids = match length {
                CaptionLength::Short => &templates.caption.short,
                CaptionLength::Normal => &templates.caption.normal,
                CaptionLength::Long => &templates.caption.long,
            };
            if ids.is_empty() {
                return Err(PromptError::NoCaption { length: *length });
            }
            Ok(tokens(ids).collect())
        }
    }
}

/// The positions of a question whose words are the ids `question`, about the places `refs` of the picture.
///
/// The suffix occurs twice in Moondream 2, or once before the thinking id: the released model was served so.
pub fn query_tokens(
    question: &[u32],
    refs: &[SpatialRef],
    config: &ModelConfig,
    reasoning: bool,
) -> Vec<DecoderInput> {
    let Template { prefix, suffix } = &config.tokenizer.templates.query;
    let thinking = [config.tokenizer.thinking_id];
    let last = if reasoning { &thinking[..] } else { suffix };
    let refs = refs.iter().flat_map(|place| place.inputs());
    tokens(prefix)
        .chain(refs)
        .chain(tokens(question))
        .chain(tokens(suffix))
        .chain(tokens(last))
        .collect()
}

/// The positions of a question without an image; the first is BOS, at position 0.
pub fn text_only_tokens(
    question: &[u32],
    config: &ModelConfig,
    reasoning: bool,
) -> Vec<DecoderInput> {
    let mut inputs = vec![DecoderInput::Token(config.tokenizer.bos_id)];
    inputs.extend(query_tokens(question, &[], config, reasoning));
    inputs
}

/// The positions that ask for an object whose name has these ids.
pub fn object_tokens(template: &Template, words: &[u32]) -> Vec<DecoderInput> {
    tokens(&template.prefix)
        .chain(tokens(words))
        .chain(tokens(&template.suffix))
        .collect()
}

fn tokens(ids: &[u32]) -> impl Iterator<Item = DecoderInput> {
    ids.iter().copied().map(DecoderInput::Token)
}

impl SpatialRef {
    fn inputs(&self) -> Vec<DecoderInput> {
        match *self {
            Self::Point(x, y) => vec![DecoderInput::Coord(x), DecoderInput::Coord(y)],
            Self::Box(x0, y0, x1, y1) => vec![
                DecoderInput::Coord((x0 + x1) / 2.0),
                DecoderInput::Coord((y0 + y1) / 2.0),
                DecoderInput::Size(x1 - x0, y1 - y0),
            ],
        }
    }
}

#[cfg(test)]
mod tests;
