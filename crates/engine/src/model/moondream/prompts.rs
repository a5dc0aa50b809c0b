//! Prompt templates: the ids around the user's words (docs/moondream.md section 3).

use crate::model::{
    config::Template,
    family::{ModelConfig, ModelFamily},
    grammar::Skill,
    prompt::{DecoderInput, ModelPrompt, PromptError, QueryWords},
    tokenizer::Tokenizer,
};
use spotter_core::{CaptionLength, Location, NormPoint, SpatialReference, Task};

/// What asks for `task`, and what may be answered.
pub fn prompt(
    family: &dyn ModelFamily,
    task: &Task,
    config: &ModelConfig,
    tokenizer: &Tokenizer,
) -> Result<ModelPrompt, PromptError> {
    let templates = &config.tokenizer.templates;
    // Objects are encoded with one leading space, questions and objects whose outline is wanted without.
    let words = |object: &str| tokenizer.encode(&format!(" {object}"));
    let (inputs, skill) = match task {
        Task::Detect { object } => {
            require(&templates.detect, "detect")?;
            let inputs = family.object_prompt(&words(object)?, config);
            (inputs, Skill::Detect)
        }
        Task::Point { object } => {
            require(&templates.point, "point")?;
            let inputs = around(&templates.point, &[], &words(object)?);
            (inputs, Skill::Point)
        }
        Task::Query {
            question, options, ..
        } => {
            require(&templates.query, "query")?;
            let query = QueryWords {
                places: &places(&options.places),
                words: &tokenizer.encode(question)?,
                is_reasoned: options.reasoning,
            };
            let skill = match options.reasoning {
                true => Skill::ReasonedText,
                false => Skill::Text,
            };
            (family.query_prompt(query, config), skill)
        }
        Task::Segment {
            object,
            places: given,
        } => {
            let words = tokenizer.encode(object)?;
            let inputs = family.segment_prompt(&places(given), &words, config);
            let family = family.name();
            let inputs = inputs.ok_or(PromptError::NoOutlines { family })?;
            (inputs, Skill::Segment)
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
            (tokens(ids).collect(), Skill::Text)
        }
    };
    Ok(ModelPrompt {
        inputs,
        grammar: family.grammar(skill, config),
    })
}

/// A point is two coordinates; a box is those of its centre, and a size.
fn places(places: &[SpatialReference]) -> Vec<DecoderInput> {
    let inputs = places.iter().map(|place| match place.location() {
        Location::Point(point) => (point, None),
        Location::Box(area) => {
            let [width, height] = [area.x1 - area.x0, area.y1 - area.y0].map(|side| side as f32);
            (area.centre(), Some(DecoderInput::Size(width, height)))
        }
    });
    let input = |(centre, size): (NormPoint, Option<DecoderInput>)| {
        let coords = [centre.x, centre.y].map(|share| DecoderInput::Coord(share as f32));
        coords.into_iter().chain(size)
    };
    inputs.flat_map(input).collect()
}

/// Fails when the model has no such template.
fn require(template: &Template, task: &'static str) -> Result<(), PromptError> {
    match template.prefix.is_empty() && template.suffix.is_empty() {
        true => Err(PromptError::NoTemplate { task }),
        false => Ok(()),
    }
}

/// A template with places and words in it.
pub fn around(template: &Template, places: &[DecoderInput], words: &[u32]) -> Vec<DecoderInput> {
    let places = places.iter().copied();
    tokens(&template.prefix)
        .chain(places)
        .chain(tokens(words))
        .chain(tokens(&template.suffix))
        .collect()
}

/// The end of a question: the suffix, behind which the model answers, or the id behind which it thinks first.
pub fn answer_or_thoughts(is_reasoned: bool, config: &ModelConfig) -> Vec<DecoderInput> {
    match is_reasoned {
        true => vec![DecoderInput::Token(config.tokenizer.thinking_id)],
        false => tokens(&config.tokenizer.templates.query.suffix).collect(),
    }
}

fn tokens(ids: &[u32]) -> impl Iterator<Item = DecoderInput> {
    ids.iter().copied().map(DecoderInput::Token)
}

#[cfg(test)]
mod tests;
