//! `crops`: the most crops of a look. Pure but for noting problems at their places.

use serde::Deserialize;

use super::{defaults::CROPS_RANGE, parse, reader::ConfigValue};

/// The words that a file or a command may write instead of a number: as many crops as the model's rule makes.
const WORDS: [(&str, Option<u8>); 1] = [("auto", None)];

/// The most crops as a command requests them.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "crops are \"auto\" or a whole number, 1 to 12")]
pub enum RequestedCrops {
    Most(i64),
    Word(String),
}

impl RequestedCrops {
    /// The most crops; `Ok(None)`: as many as the model's rule makes. An error is what is wrong.
    pub fn crops_max(&self) -> Result<Option<u8>, String> {
        match self {
            Self::Word(word) => parse::choice_of(word, &WORDS),
            Self::Most(most) => {
                let range = *CROPS_RANGE.start() as i64..=*CROPS_RANGE.end() as i64;
                let most = parse::in_range(*most, &range, i64::to_string)?;
                Ok(Some(most as u8))
            }
        }
    }
}

/// `"auto"` or a number; without a valid value, `base`.
pub(super) fn read(value: Option<ConfigValue<'_>>, base: Option<u8>) -> Option<u8> {
    match value {
        None => base,
        Some(value) if value.is_text() => value.choice(&WORDS).flatten(),
        Some(value) => value.whole(CROPS_RANGE).map(|crops| crops as u8),
    }
}
