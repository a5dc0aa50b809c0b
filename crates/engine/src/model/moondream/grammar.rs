//! Which token may follow which in an answer (docs/moondream.md section 8).

use crate::model::{
    family::ModelConfig,
    grammar::{AnswerGrammar, Skill, TextGrammar},
};

/// The grammar of an answer of this kind.
pub fn grammar(skill: Skill, config: &ModelConfig) -> AnswerGrammar {
    match skill {
        Skill::Detect => AnswerGrammar::Objects { has_size: true },
        Skill::Point => AnswerGrammar::Objects { has_size: false },
        Skill::Text => AnswerGrammar::Text(TextGrammar {
            end: config.tokenizer.eos_id,
            banned: vec![config.tokenizer.answer_id],
        }),
    }
}
