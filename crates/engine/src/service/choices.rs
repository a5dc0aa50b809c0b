//! The texts that an answer may be, as the model writes them.
//!
//! A word has two spellings in tokens: as it begins a text, and with the space before it that it has after another word.
//! With which of them an answer begins is the habit of a model's training, and a model that must break its habit chooses
//! badly: the embedded model has the first, and held to the second it prefers "a pineapple" to its own "No". So both are
//! allowed:
//!
//! ```text
//!   "open", "shut"      root ── open ──▶ ● end       root ── ␣open ──▶ ● end
//!                        └── sh ── ut ─▶ ● end        └───── ␣shut ──▶ ● end
//! ```
//!
//! Belongs here: choices to token ids. Not here: which id may come next (`engine::constraint`), which choices a user may
//! give (`config`).

use crate::{
    model::{Tokenizer, TokenizerError},
    scheduler::constraint::Choices,
};

/// Why the model cannot answer with a choice.
#[derive(Debug, thiserror::Error)]
pub(super) enum ChoiceError {
    /// Not text that the model can read.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// It has no ids, or ids of something else.
    #[error(
        "the model can write the choice {choice:?} as {written:?} only; choose other words for it"
    )]
    Unwritable {
        /// As it was given.
        choice: String,
        /// What its ids say.
        written: String,
    },
}

/// The ways that an answer may take.
#[derive(Debug)]
pub(super) struct AllowedTexts {
    /// Both spellings of every choice.
    pub tree: Choices,
    /// Tokens of the longest spelling, without the end.
    pub longest: usize,
}

/// Both spellings of `choices`; `None` when there are no choices. Every answer that follows the tree to an end is one of
/// them to the letter, once it is decoded and trimmed.
pub(super) fn allowed(
    choices: &[String],
    tokenizer: &Tokenizer,
) -> Result<Option<AllowedTexts>, ChoiceError> {
    let mut spellings = Vec::with_capacity(2 * choices.len());
    for choice in choices {
        spellings.push(spelling(choice, choice, tokenizer)?);
        spellings.push(spelling(choice, &format!(" {choice}"), tokenizer)?);
    }
    let longest = spellings.iter().map(Vec::len).max().unwrap_or(0);
    let tree = Choices::new(spellings.iter().map(Vec::as_slice));
    Ok(tree.map(|tree| AllowedTexts { tree, longest }))
}

/// The ids of `text`. They must say `choice` again: a text of special tokens alone says nothing, and one that holds the
/// end of the answer would be cut there.
fn spelling(choice: &str, text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>, ChoiceError> {
    let ids = tokenizer.encode(text)?;
    let written = tokenizer.decode(&ids)?;
    match written.trim() == choice {
        true => Ok(ids),
        false => Err(ChoiceError::Unwritable {
            choice: choice.to_owned(),
            written: written.trim().to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests;
