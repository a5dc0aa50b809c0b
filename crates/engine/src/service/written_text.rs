//! The text of an answer while its tokens are decided: pieces of whole characters, which together are the text of the answer. Pure.

use crate::model::{Tokenizer, TokenizerError};

/// What a decoder makes of bytes that are no characters, and of the first bytes of one.
const UNDECODED: char = char::REPLACEMENT_CHARACTER;

#[derive(Clone, Debug, Default)]
pub(super) struct WrittenText {
    /// The last tokens: those of the last characters, and behind them those that end within a character. A decoder may make something else
    /// of a token that has none before it.
    tokens: Vec<u32>,
    /// Tokens and bytes of these last characters.
    decoded: (usize, usize),
    /// What was handed out.
    pieces: String,
    /// White space behind it, which an answer does not end with.
    space: String,
}

impl WrittenText {
    /// Takes the next tokens. `None` when they end in white space or within a character, and have nothing to show before it.
    pub fn add(
        &mut self,
        tokens: &[u32],
        tokenizer: &Tokenizer,
    ) -> Result<Option<String>, TokenizerError> {
        self.tokens.extend(tokens);
        let text = tokenizer.decode(&self.tokens)?;
        if text.ends_with(UNDECODED) {
            return Ok(None);
        }
        let (known_tokens, known_bytes) = self.decoded;
        let added = text.get(known_bytes..).unwrap_or_default();
        self.tokens.drain(..known_tokens);
        self.decoded = (self.tokens.len(), tokenizer.decode(&self.tokens)?.len());
        self.space.push_str(added);
        let mut piece = self.space.as_str();
        if self.pieces.is_empty() {
            piece = piece.trim_start();
        }
        let piece = piece.trim_end().to_owned();
        if piece.is_empty() {
            return Ok(None);
        }
        self.space = self.space[self.space.trim_end().len()..].to_owned();
        self.pieces.push_str(&piece);
        Ok(Some(piece))
    }

    /// What the complete text has behind its pieces: the end of one that ends within a character. `None` when there is nothing, or when the
    /// text was decided again and is another one, which happens on a GPU.
    pub fn rest<'a>(&self, text: &'a str) -> Option<&'a str> {
        let rest = text.trim().strip_prefix(self.pieces.as_str())?;
        (!rest.is_empty()).then_some(rest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing;
    use spotter_core::testing::cases;

    /// Pieces of a text whose tokens arrive in groups of these sizes, with the text.
    fn written(tokens: &[u32], sizes: &[usize]) -> (Vec<String>, String) {
        let tokenizer = &testing::micro_model().tokenizer;
        let (mut text, mut pieces, mut left) = (WrittenText::default(), Vec::new(), tokens);
        let mut sizes = sizes.iter().cycle();
        while !left.is_empty() {
            let size = sizes.next().map_or(1, |&size| size.clamp(1, left.len()));
            pieces.extend(text.add(&left[..size], tokenizer).unwrap());
            left = &left[size..];
        }
        let whole = tokenizer.decode(tokens).unwrap();
        pieces.extend(text.rest(&whole).map(str::to_owned));
        (pieces, whole.trim().to_owned())
    }

    fn tokens(text: &str) -> Vec<u32> {
        let tokenizer = &testing::micro_model().tokenizer;
        tokenizer.encode(text).unwrap()
    }

    #[test]
    fn cut_character_waits_for_its_last_byte() {
        let (pieces, text) = written(&tokens("a \u{1f697} é"), &[1]);
        assert_eq!(text, "a \u{1f697} é");
        assert_eq!(pieces, ["a", " \u{1f697}", " é"]);
        let car = tokens("\u{1f697}");
        assert!(car.len() > 1, "{car:?}");
        let (pieces, text) = written(&car[..car.len() - 1], &[1]);
        assert_eq!(pieces.concat(), text);
        assert!(text.ends_with(UNDECODED));
    }

    #[test]
    fn white_space_at_the_ends_is_in_no_piece() {
        let (pieces, _) = written(&tokens(" \n a  b \n"), &[1]);
        assert_eq!(pieces, ["a", "  b"]);
        assert!(written(&tokens("  "), &[1]).0.is_empty());
    }

    #[test]
    fn text_that_was_decided_again_has_no_rest() {
        let tokenizer = &testing::micro_model().tokenizer;
        let mut text = WrittenText::default();
        text.add(&tokens("a red"), tokenizer).unwrap();
        assert_eq!(text.rest("a red car "), Some(" car"));
        assert_eq!(text.rest("a red"), None);
        assert_eq!(text.rest("a blue car"), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(256)))]

        #[test]
        fn pieces_of_any_tokens_are_the_text(
            tokens in prop::collection::vec(0_u32..512, 0..40),
            sizes in prop::collection::vec(1_usize..4, 1..5),
        ) {
            let (pieces, text) = written(&tokens, &sizes);
            prop_assert_eq!(pieces.concat(), text);
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty()));
        }
    }
}
