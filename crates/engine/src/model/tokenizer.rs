//! Text to token ids and back.

use std::path::Path;

/// Why a tokenizer cannot be loaded or used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TokenizerError(String);

/// A byte-level BPE tokenizer from a `tokenizer.json`.
#[derive(Clone, Debug)]
pub struct Tokenizer {
    inner: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads a `tokenizer.json`. Blocks on the disk.
    pub fn open(path: &Path) -> Result<Self, TokenizerError> {
        let origin = path.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| load_error(&origin, &error))?;
        Self::from_bytes(&bytes, &origin)
    }

    /// Reads the bytes of a `tokenizer.json`. `origin` names the file in messages.
    pub fn from_bytes(bytes: &[u8], origin: &str) -> Result<Self, TokenizerError> {
        let inner = tokenizers::Tokenizer::from_bytes(bytes);
        let inner = inner.map_err(|error| load_error(origin, &error))?;
        Ok(Self { inner })
    }

    /// Fails when the tokenizer may give ids that a model of `vocab_size` ids does not have.
    pub fn check_vocabulary(&self, vocab_size: usize, origin: &str) -> Result<(), TokenizerError> {
        match self.inner.get_vocab(true).into_values().max() {
            Some(id) if id as usize >= vocab_size => Err(TokenizerError(format!(
                "{origin} has token id {id}, but config.json has a vocabulary of {vocab_size}; the two files belong to different models"
            ))),
            _ => Ok(()),
        }
    }

    /// Id of a token given as the file spells it, such as a special one.
    pub fn id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    /// Ids of `text`. No special token is added.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        let encoding = self.inner.encode_fast(text, false);
        let encoding =
            encoding.map_err(|error| TokenizerError(format!("cannot encode {text:?}: {error}")))?;
        Ok(encoding.get_ids().to_vec())
    }

    /// Text of `ids` without special tokens. Bytes that are no UTF-8 become U+FFFD.
    pub fn decode(&self, ids: &[u32]) -> Result<String, TokenizerError> {
        let text = self.inner.decode(ids, true);
        text.map_err(|error| TokenizerError(format!("cannot decode token ids: {error}")))
    }
}

fn load_error(origin: &str, reason: &dyn std::fmt::Display) -> TokenizerError {
    TokenizerError(format!("cannot load the tokenizer {origin}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{golden_set, golden_tests, json};

    golden_tests!(golden_texts);

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
