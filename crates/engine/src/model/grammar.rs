//! What may follow what in an answer, and when it ends: plain data that a model family fills in ([`super::ModelFamily`]) and that
//! the scheduler's sequences follow, so that no step asks the family.

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skill {
    Detect,
    Point,
    Text,
}

/// The grammar of one prompt's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerGrammar {
    /// Objects one after the other, until the model chooses the end instead of a further x.
    Objects {
        /// True: x, y, size, x, … False: x, y, x, …
        has_size: bool,
    },
    /// Tokens of the vocabulary.
    Text(TextGrammar),
}

/// An answer in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextGrammar {
    pub end: u32,
    /// Not chosen from the second token on.
    pub banned: Vec<u32>,
}
