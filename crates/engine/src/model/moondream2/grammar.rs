//! Which token may follow which in an answer of Moondream 2 (docs/moondream.md section 8).

use super::config::ModelConfig;
use crate::model::grammar::{AnswerGrammar, Skill, TextGrammar, ThinkingGrammar};

/// The grammar of an answer of this kind. The reference bans ids from the second token on.
pub(super) fn grammar(skill: Skill, config: &ModelConfig) -> AnswerGrammar {
    let ids = &config.tokenizer;
    let reasoning = match skill {
        Skill::Detect => return AnswerGrammar::Objects { has_size: true },
        Skill::Point => return AnswerGrammar::Objects { has_size: false },
        Skill::Text { reasoning } => reasoning,
    };
    AnswerGrammar::Text(TextGrammar {
        end: ids.eos_id,
        banned: vec![ids.answer_id],
        thinking: reasoning.then(|| ThinkingGrammar {
            end: ids.answer_id,
            banned: vec![ids.eos_id, ids.size_id],
            marks: vec![ids.start_ground_points_id, ids.end_ground_id],
            coord: ids.coord_id,
            answer_suffix: ids.templates.query.suffix.clone(),
        }),
    })
}
