//! `crops`: the most crops of a look. Pure but for noting problems at their places.

use super::{defaults::CROPS_RANGE, reader::ConfigValue};

/// The words that a file may have instead of a number: as many crops as the model's rule makes.
const WORDS: [(&str, Option<u8>); 1] = [("auto", None)];

/// `"auto"` or a number; without a valid value, `base`.
pub(super) fn read(value: Option<ConfigValue<'_>>, base: Option<u8>) -> Option<u8> {
    match value {
        None => base,
        Some(value) if value.is_text() => value.choice(&WORDS).flatten(),
        Some(value) => value.whole(CROPS_RANGE).map(|crops| crops as u8),
    }
}
