//! Which token may follow which in an answer (docs/moondream.md section 8).

use crate::model::{
    family::ModelConfig,
    grammar::{AnswerGrammar, Skill, TextGrammar, ValueTokens},
};

/// The grammar of an answer of this kind.
pub fn grammar(skill: Skill, config: &ModelConfig) -> AnswerGrammar {
    let ids = &config.tokenizer;
    let answer = TextGrammar {
        end: ids.eos_id,
        banned: vec![ids.answer_id],
        values: ValueTokens::default(),
    };
    match skill {
        Skill::Detect => AnswerGrammar::Objects { has_size: true },
        Skill::Point => AnswerGrammar::Objects { has_size: false },
        Skill::Text => AnswerGrammar::Text(answer),
        // Thoughts may name points, which begin and end with tokens of their own, but no sizes.
        Skill::ReasonedText => AnswerGrammar::Reasoned {
            thoughts: TextGrammar {
                end: ids.answer_id,
                banned: vec![ids.eos_id, ids.size_id],
                values: ValueTokens {
                    coord: Some(ids.coord_id),
                    size: None,
                },
            },
            then: ids.templates.query.suffix.clone(),
            answer,
        },
        Skill::Segment => AnswerGrammar::Text(TextGrammar {
            end: ids.eos_id,
            banned: Vec::new(),
            values: ValueTokens {
                coord: Some(ids.coord_id),
                size: Some(ids.size_id),
            },
        }),
    }
}
