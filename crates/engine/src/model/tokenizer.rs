//! Text to token ids and back.

use std::path::Path;

use tokenizers::step_decode_stream;

/// Why a tokenizer cannot be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The file cannot be read or is not a `tokenizer.json`.
    #[error("cannot load the tokenizer {origin}: {reason}")]
    Load { origin: String, reason: String },
    /// The tokenizer knows ids that the model does not have.
    #[error(
        "{origin} has token id {id}, but config.json has a vocabulary of {vocab_size}; the two files belong to different models"
    )]
    Vocabulary {
        origin: String,
        id: u32,
        /// `text.vocab_size`.
        vocab_size: usize,
    },
    /// Text that it cannot encode.
    #[error("cannot encode {text:?}: {reason}")]
    Encode {
        text: String,
        /// What the library says.
        reason: String,
    },
    /// Ids that it cannot decode.
    #[error("cannot decode token ids: {reason}")]
    Decode {
        /// What the library says.
        reason: String,
    },
}

/// A byte-level BPE tokenizer from a `tokenizer.json`.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Blocks on the disk.
    pub fn open(path: &Path) -> Result<Self, TokenizerError> {
        let origin = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| TokenizerError::Load {
            origin: origin.clone(),
            reason: error.to_string(),
        })?;
        Self::from_bytes(&bytes, &origin)
    }

    /// Reads the bytes of a `tokenizer.json`. `origin` names the file in messages.
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<Self, TokenizerError> {
        let inner =
            tokenizers::Tokenizer::from_bytes(bytes).map_err(|error| TokenizerError::Load {
                origin: origin.to_owned(),
                reason: error.to_string(),
            })?;
        Ok(Self { inner })
    }

    /// Fails when the tokenizer may give ids that a model of `vocab_size` ids does not have.
    pub fn check_vocabulary(&self, vocab_size: usize, origin: &str) -> Result<(), TokenizerError> {
        match self.inner.get_vocab(true).into_values().max() {
            Some(id) if id as usize >= vocab_size => Err(TokenizerError::Vocabulary {
                origin: origin.to_owned(),
                id,
                vocab_size,
            }),
            _ => Ok(()),
        }
    }

    /// Id of a token given as the file spells it, such as a special one.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Ids of `text`. No special token is added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding =
            self.inner
                .encode_fast(text, false)
                .map_err(|error| TokenizerError::Encode {
                    text: text.to_owned(),
                    reason: error.to_string(),
                })?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of `ids` without special tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        self.inner.decode(ids, true).map_err(decode_error)
    }
}

/// Text that grows token by token: each push gives what became readable. Bytes that never become a character are not
/// given, so the final text of an answer is [`Tokenizer::decode`]'s.
#[derive(Clone, Debug, Default)]
pub struct TextStream {
    ids: Vec<u32>,
    prefix: String,
    prefix_index: usize,
}

impl TextStream {
    /// Adds a token. The new text, or `None` while a character is incomplete or the token is special.
    pub fn push(
        &mut self,
        tokenizer: &Tokenizer,
        id: u32,
    ) -> Result<Option<String>, TokenizerError> {
        step_decode_stream(
            &tokenizer.inner,
            vec![id],
            true,
            &mut self.ids,
            &mut self.prefix,
            &mut self.prefix_index,
        )
        .map_err(decode_error)
    }
}

fn decode_error(error: tokenizers::Error) -> TokenizerError {
    TokenizerError::Decode {
        reason: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{golden_set, golden_tests, json};

    golden_tests!(
        golden_texts,
        a_stream_gives_whole_characters_and_the_same_text,
        a_stream_of_babble_is_the_start_of_its_text,
    );

    fn ids(value: &serde_json::Value) -> Vec<u32> {
        serde_json::from_value(value.clone()).unwrap()
    }

    fn golden_texts(set: &Path) {
        let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
        let cases = json(&set.join("tokenizer_cases.json"));
        for case in cases["encode"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            assert_eq!(
                tokenizer.encode(text).unwrap(),
                ids(&case["ids"]),
                "{text:?}"
            );
            let decoded = tokenizer.decode(&ids(&case["ids"])).unwrap();
            assert_eq!(case["decoded"], decoded.as_str());
        }
        for case in cases["decode"].as_array().unwrap() {
            let decoded = tokenizer.decode(&ids(&case["ids"])).unwrap();
            assert_eq!(case["text"], decoded.as_str(), "{:?}", case["ids"]);
        }
    }

    fn a_stream_gives_whole_characters_and_the_same_text(set: &Path) {
        let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
        let text = "Café 猫が 😀! Two cars, one bus.";
        let mut stream = TextStream::default();
        let mut whole = String::new();
        for id in tokenizer.encode(text).unwrap() {
            let piece = stream.push(&tokenizer, id).unwrap().unwrap_or_default();
            assert!(!piece.contains('\u{fffd}'), "{piece:?}");
            whole += &piece;
        }
        assert_eq!(whole, text);
    }

    fn a_stream_of_babble_is_the_start_of_its_text(set: &Path) {
        let tokenizer = Tokenizer::open(&set.join("tokenizer.json")).unwrap();
        let cases = json(&set.join("expected/cases.json"));
        for (name, case) in cases.as_object().unwrap() {
            for phase in case["expected"]["phases"].as_array().into_iter().flatten() {
                let answer = ids(&phase["tokens"]);
                let mut stream = TextStream::default();
                let pieces = answer
                    .iter()
                    .filter_map(|&id| stream.push(&tokenizer, id).unwrap());
                let streamed: String = pieces.collect();
                let whole = tokenizer.decode(&answer).unwrap();
                assert!(
                    whole.starts_with(&streamed),
                    "{name}: {streamed:?} of {whole:?}"
                );
            }
        }
    }

    #[test]
    fn bad_files_say_which_and_why() {
        let error = Tokenizer::from_bytes(b"{}", "m/tokenizer.json").unwrap_err();
        let text = error.to_string();
        assert!(
            text.starts_with("cannot load the tokenizer m/tokenizer.json: "),
            "{text}"
        );
        let tokenizer = Tokenizer::open(&golden_set("md2-micro").join("tokenizer.json")).unwrap();
        assert!(tokenizer.check_vocabulary(512, "t").is_ok());
        let text = tokenizer
            .check_vocabulary(511, "t")
            .unwrap_err()
            .to_string();
        assert!(
            text.starts_with("t has token id 511, but config.json has a vocabulary of 511"),
            "{text}"
        );
    }
}
