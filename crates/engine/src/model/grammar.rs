//! What may follow what in an answer, and when it ends: plain data that a model family fills in ([`super::ModelFamily`]) and that
//! the scheduler's sequences follow, so that no step asks the family.

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Skill {
    Detect,
    Point,
    Text,
    /// A text with thoughts before it.
    ReasonedText,
    /// The outline of one object.
    Segment,
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
    Reasoned {
        /// What ends them is not the end of the answer.
        thoughts: TextGrammar,
        /// Tokens that are fed between the thoughts and the answer, in place of what ended the thoughts.
        then: Vec<u32>,
        answer: TextGrammar,
    },
}

/// An answer in words, or thoughts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextGrammar {
    pub end: u32,
    /// Not chosen from the second token on.
    pub banned: Vec<u32>,
    pub values: ValueTokens,
}

/// Tokens that stand for a value: it is decided with them, from the same hidden state, and fed in their place. `None`: there is no
/// such token, and one with its id is fed as any other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueTokens {
    /// For a coordinate.
    pub coord: Option<u32>,
    /// For a width and a height.
    pub size: Option<u32>,
}
