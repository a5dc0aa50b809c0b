//! The ids by which a model steers its own answers.

use super::config::ModelConfig;

/// The ids that steer a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenIds {
    /// Ends an answer.
    pub eos: u32,
    /// Ends the thinking; suppressed inside of an answer.
    pub answer: u32,
    /// A coordinate follows.
    pub coord: u32,
    /// A size follows.
    pub size: u32,
    /// Begins a grounded stretch of thinking.
    pub start_ground: u32,
    /// Ends it.
    pub end_ground: u32,
    /// Fed between thinking and answer.
    pub answer_suffix: Vec<u32>,
}

impl TokenIds {
    /// The ids of a model.
    pub fn of(config: &ModelConfig) -> Self {
        let ids = &config.tokenizer;
        Self {
            eos: ids.eos_id,
            answer: ids.answer_id,
            coord: ids.coord_id,
            size: ids.size_id,
            start_ground: ids.start_ground_points_id,
            end_ground: ids.end_ground_id,
            answer_suffix: ids.templates.query.suffix.clone(),
        }
    }
}
