//! `choices`: the texts that the answer to a question may be.

use std::ops::RangeInclusive;

use super::form::Form;
use crate::read::value::ConfigValue;
use spotter_core::{PromptText, Task, checked_line};

/// How many texts `choices` may have.
const CHOICES_RANGE: RangeInclusive<usize> = 2..=16;
/// The longest text of `choices`, in characters.
const CHOICE_MAX_CHARS: usize = 40;

/// What is wrong with a list of choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongChoice {
    /// Which text; `None`: all of them together.
    pub index: Option<usize>,
    /// What is wrong with it.
    pub text: String,
}

/// The texts, trimmed, or everything that is wrong with them. Two texts that differ in case alone are one to a reader,
/// and two answers to a program.
pub fn choices(texts: &[impl AsRef<str>]) -> Result<Vec<String>, Vec<WrongChoice>> {
    let mut wrong = Vec::new();
    let (fewest, most) = (CHOICES_RANGE.start(), CHOICES_RANGE.end());
    if !CHOICES_RANGE.contains(&texts.len()) {
        let count = texts.len();
        wrong.push(WrongChoice {
            index: None,
            text: format!("has {count} texts; give {fewest} to {most}"),
        });
    }
    let mut good: Vec<String> = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match another(text.as_ref(), &good) {
            Ok(text) => good.push(text),
            Err(text) => wrong.push(WrongChoice {
                index: Some(index),
                text,
            }),
        }
    }
    if wrong.is_empty() {
        Ok(good)
    } else {
        Err(wrong)
    }
}

/// The state of a question without an answer, on MQTT and in Home Assistant.
const NO_ANSWER: &str = "none";
/// A text that is not among `others` yet.
fn another(text: &str, others: &[String]) -> Result<String, String> {
    let text = choice(text)?;
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

/// One of the texts that an answer may be, trimmed.
fn choice(text: &str) -> Result<String, String> {
    checked_line(
        text,
        CHOICE_MAX_CHARS,
        "write an answer that the model may give",
    )
}

/// Whether the file could have a task with these words.
pub fn check_task(task: &Task) -> Result<(), String> {
    let choices: &[String] = match task {
        Task::Caption { .. } => return Ok(()),
        Task::Query { choices, .. } => choices,
        Task::Detect { .. } | Task::Point { .. } => &[],
        Task::Segment { .. } => return Err("a camera has no prompts of kind segment".into()),
    };
    PromptText::new(task.text()).map_err(|error| error.to_string())?;
    let (count, most) = (choices.len(), CHOICES_RANGE.end());
    if count > *most {
        return Err(format!("{count} choices, limit {most}"));
    }
    choices.iter().try_for_each(|text| choice(text).map(drop))
}

/// The list of them.
pub(crate) fn choice_list() -> Form<'static, Vec<String>> {
    let (fewest, most) = (CHOICES_RANGE.start(), CHOICES_RANGE.end());
    let text =
        format!("list of {fewest} to {most} texts, each at most {CHOICE_MAX_CHARS} characters");
    Form::new(text, read)
}

fn read(value: &ConfigValue<'_>) -> Option<Vec<String>> {
    let elements = value.list()?;
    // Every element is read before the first problem ends it, so that all of them are reported.
    let texts: Vec<_> = elements.iter().map(ConfigValue::text).collect();
    let texts: Vec<_> = texts.into_iter().collect::<Option<_>>()?;
    let note = |wrong: WrongChoice| {
        let place = wrong.index.and_then(|index| elements.get(index));
        place.unwrap_or(value).error(wrong.text);
    };
    choices(&texts)
        .map_err(|all| all.into_iter().for_each(note))
        .ok()
}
