//! Values that a configuration file, a command, a store or a disk may set. Each is checked once, where it enters: its type says so afterwards.

use std::{ops::RangeInclusive, time::Duration};

use derive_more::{Display, Into};
use serde::{Deserialize, Serialize};

use crate::time::duration_from_secs;

/// The longest text of a prompt, in characters.
pub const PROMPT_TEXT_MAX_CHARS: usize = 200;

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ValueError {
    #[error("{} is not within {least} to {most}", shown(*value))]
    OutOfRange { value: f64, least: f64, most: f64 },
    #[error("{0} characters, limit {PROMPT_TEXT_MAX_CHARS}")]
    TooLong(usize),
    #[error("{0}")]
    BadText(String),
}

/// Without hundreds of digits.
fn shown(value: f64) -> String {
    match value == 0.0 || (1e-6..1e9).contains(&value.abs()) {
        true => value.to_string(),
        false => format!("{value:e}"),
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident, $range:expr, $get:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Display, Into, PartialEq, Serialize, Deserialize)]
        #[serde(try_from = "f64", into = "f64")]
        pub struct $name(f64);

        impl $name {
            pub const RANGE: RangeInclusive<f64> = $range;

            pub fn new(value: f64) -> Result<Self, ValueError> {
                let (least, most) = (*Self::RANGE.start(), *Self::RANGE.end());
                match Self::RANGE.contains(&value) {
                    // Without the sign of -0.
                    true => Ok(Self(value + 0.0)),
                    false => Err(ValueError::OutOfRange { value, least, most }),
                }
            }

            /// The allowed value that is nearest; the least one for what is no number.
            pub fn nearest(value: f64) -> Self {
                let (least, most) = (*Self::RANGE.start(), *Self::RANGE.end());
                Self(value.max(least).min(most))
            }

            pub fn $get(self) -> f64 {
                self.0
            }
        }

        impl TryFrom<f64> for $name {
            type Error = ValueError;

            fn try_from(value: f64) -> Result<Self, ValueError> {
                Self::new(value)
            }
        }

        impl Eq for $name {}

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.0.total_cmp(&other.0)
            }
        }
    };
}

number!(
    /// Looks a second at most.
    LookRate, 0.01..=30.0, hz
);
number!(
    /// A score, a threshold, a coordinate or an area.
    Share, 0.0..=1.0, get
);

impl LookRate {
    /// From look to look.
    pub fn period(self) -> Duration {
        duration_from_secs(1.0 / self.0)
    }
}

/// The words of a prompt: one line, trimmed, not empty, with a longest length.
#[derive(Clone, Debug, Into, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PromptText(String);

impl PromptText {
    pub fn new(text: &str) -> Result<Self, ValueError> {
        let chars = text.trim().chars().count();
        if chars > PROMPT_TEXT_MAX_CHARS {
            return Err(ValueError::TooLong(chars));
        }
        let hint = "describe in plain words what to look for";
        checked_line(text, PROMPT_TEXT_MAX_CHARS, hint)
            .map(Self)
            .map_err(ValueError::BadText)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for PromptText {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        Self::new(&text)
    }
}

/// A line of text that is not empty, trimmed; `hint` is for an empty one.
pub fn checked_line(text: &str, max_chars: usize, hint: &str) -> Result<String, String> {
    let text = text.trim();
    let count = text.chars().count();
    if text.is_empty() {
        return Err(format!("empty; {hint}"));
    }
    if count > max_chars {
        return Err(format!("{count} characters, limit {max_chars}"));
    }
    if text.chars().any(char::is_control) {
        return Err(
            "contains a control character (a tab or a line break); write one plain line".to_owned(),
        );
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::cases;

    #[test]
    fn numbers_outside_of_their_range_are_refused() {
        for wrong in [0.0, -1.0, 1e-320, 31.0, f64::NAN, f64::INFINITY] {
            let refused = LookRate::new(wrong).unwrap_err().to_string();
            assert!(refused.contains("0.01 to 30"), "{refused}");
        }
        assert!(Share::new(1.0).is_ok() && Share::new(1.01).is_err());
        assert_eq!(Share::new(-0.0), Share::new(0.0));
        assert_eq!(LookRate::nearest(f64::NAN).hz(), 0.01);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(cases(256)))]

        #[test]
        fn any_value_becomes_an_allowed_one_or_an_error(bits in any::<u64>(), text in ".{0,400}") {
            let number = f64::from_bits(bits);
            if let Ok(rate) = LookRate::new(number) {
                prop_assert!(LookRate::RANGE.contains(&rate.hz()));
                prop_assert!(rate.period() >= Duration::from_millis(33));
            }
            if let Ok(share) = Share::new(number) {
                prop_assert!(Share::RANGE.contains(&share.get()));
            }
            if let Ok(text) = PromptText::new(&text) {
                prop_assert_eq!(PromptText::new(text.as_str()), Ok(text));
            }
            prop_assert!(LookRate::new(LookRate::nearest(number).hz()).is_ok());
        }
    }
}
