//! `choices`: the texts that the answer to a question may be.

use std::ops::RangeInclusive;

use super::form::Form;
use crate::read::value::ConfigValue;
use spotter_core::checked_line;

/// How many texts `choices` may have.
const CHOICES_RANGE: RangeInclusive<usize> = 2..=16;
/// The longest text of `choices`, in characters.
const CHOICE_MAX_CHARS: usize = 40;

/// The texts, trimmed, or what is wrong with them. Two texts that differ in case alone are one to a reader, and two answers to a program.
pub fn choices(texts: &[impl AsRef<str>]) -> Result<Vec<String>, String> {
    if !CHOICES_RANGE.contains(&texts.len()) {
        let (count, fewest, most) = (texts.len(), CHOICES_RANGE.start(), CHOICES_RANGE.end());
        return Err(format!("has {count} texts; give {fewest} to {most}"));
    }
    let mut good: Vec<String> = Vec::new();
    for text in texts {
        good.push(another(text.as_ref(), &good)?);
    }
    Ok(good)
}

/// The state of a question without an answer, on MQTT and in Home Assistant.
const NO_ANSWER: &str = "none";
/// A text that is not among `others` yet.
fn another(text: &str, others: &[String]) -> Result<String, String> {
    let hint = "write an answer that the model may give";
    let text = checked_line(text, CHOICE_MAX_CHARS, hint)?;
    let lower = text.to_lowercase();
    if lower == NO_ANSWER {
        return Err(format!(
            "{text:?} is the state of a question that has no answer; write another word, such as \"nothing\""
        ));
    }
    match others.iter().find(|other| other.to_lowercase() == lower) {
        Some(other) => Err(format!(
            "{text:?} repeats {other:?}; upper and lower case count as equal"
        )),
        None => Ok(text),
    }
}

/// The list of them.
pub(crate) fn choice_list() -> Form<'static, Vec<String>> {
    let (fewest, most) = (CHOICES_RANGE.start(), CHOICES_RANGE.end());
    let text =
        format!("list of {fewest} to {most} texts, each at most {CHOICE_MAX_CHARS} characters");
    Form::new(text, read)
}

fn read(value: &ConfigValue<'_>) -> Option<Vec<String>> {
    // Every element is read before the first problem ends it, so that all of them are reported.
    let texts: Vec<_> = value.list()?.iter().map(ConfigValue::text).collect();
    let texts: Vec<_> = texts.into_iter().collect::<Option<_>>()?;
    value.checked(choices(&texts))
}
