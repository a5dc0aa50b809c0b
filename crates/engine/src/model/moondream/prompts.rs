//! Prompt templates: the ids around the user's words (docs/moondream.md section 3).

use crate::model::{
    config::Template,
    family::ModelConfig,
    prompt::{DecoderInput, PromptError},
    tokenizer::Tokenizer,
};
use spotter_core::{CaptionLength, Task};

/// The positions that follow an image prefix for `task`. The suffix of a question occurs twice: the released model was served so.
pub fn prompt_tokens(
    task: &Task,
    config: &ModelConfig,
    tokenizer: &Tokenizer,
) -> Result<Vec<DecoderInput>, PromptError> {
    let templates = &config.tokenizer.templates;
    // Objects are encoded with one leading space, questions without.
    let words = |object: &str| tokenizer.encode(&format!(" {object}"));
    match task {
        Task::Detect { object } => Ok(object_tokens(&templates.detect, &words(object)?)),
        Task::Point { object } => Ok(object_tokens(&templates.point, &words(object)?)),
        Task::Query { question, .. } => {
            let Template { prefix, suffix } = &templates.query;
            let words = tokenizer.encode(question)?;
            Ok([prefix, &words, suffix, suffix]
                .into_iter()
                .flat_map(|ids| tokens(ids))
                .collect())
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

#[cfg(test)]
mod tests;
