//! A form of values, and what a key of that form has when the file does not have the key.

use std::fmt::Display;

use crate::read::{table::KeyForm, value::ConfigValue};
use spotter_core::guess;

type ReadValue<'f, T> = dyn Fn(&ConfigValue<'_>) -> Option<T> + 'f;

/// How a value is written.
pub(crate) struct Form<'f, T> {
    /// With range and unit, for the reference.
    pub(crate) text: String,
    read: Box<ReadValue<'f, T>>,
    /// As the file writes a value, for the default in the reference.
    pub(crate) write: Box<dyn Fn(&T) -> String + 'f>,
}

impl<'f, T> Form<'f, T> {
    /// `read` gives the value, or `None` after noting what is wrong.
    pub(crate) fn new(
        text: impl Into<String>,
        read: impl Fn(&ConfigValue<'_>) -> Option<T> + 'f,
    ) -> Self {
        Self {
            text: text.into(),
            read: Box::new(read),
            write: Box::new(|_| String::new()),
        }
    }

    /// With how the file writes a value, for defaults that [`Form::or`] shows.
    pub(crate) fn written(mut self, write: impl Fn(&T) -> String + 'f) -> Self {
        self.write = Box::new(write);
        self
    }

    pub(crate) fn read(&self, value: &ConfigValue<'_>) -> Option<T> {
        (self.read)(value)
    }
}

impl<'f, T: 'f> Form<'f, T> {
    /// A key with a default.
    pub(crate) fn or<'a>(self, default: T) -> KeyForm<'a, 'f, T> {
        let shown = format!("`{}`", (self.write)(&default));
        self.or_as(shown, default)
    }

    /// A key with a default that words describe, because it is not the same for all.
    pub(crate) fn or_as<'a>(self, shown: impl Display, default: T) -> KeyForm<'a, 'f, T> {
        KeyForm::new(self.text, shown, move |key, table| {
            let value = table.get(key).and_then(|value| (self.read)(&value));
            value.unwrap_or(default)
        })
    }

    /// A key that a table may be without; in words, what that means.
    pub(crate) fn optional<'a>(self, shown: impl Display) -> KeyForm<'a, 'f, Option<T>> {
        KeyForm::new(self.text, shown, move |key, table| {
            table.get(key).and_then(|value| (self.read)(&value))
        })
    }

    /// A key that each such table has; `missing` is for one that has not.
    pub(crate) fn required<'a>(self, missing: &'f str) -> KeyForm<'a, 'f, Option<T>> {
        KeyForm::new(self.text, "required", move |key, table| {
            let value = table.get(key);
            if value.is_none() {
                table.error(missing);
            }
            value.and_then(|value| (self.read)(&value))
        })
    }
}

/// The right elements of a list, after all wrong ones were noted. The form of an element describes itself in the plural.
pub(crate) fn list<'f, T: 'f>(element: Form<'f, T>) -> Form<'f, Vec<T>> {
    Form::new(format!("list of {}", element.text), move |value| {
        let elements = value.list()?;
        let right = elements.iter().filter_map(|one| element.read(one));
        Some(right.collect())
    })
}

/// A list with at least one element; `empty` is what is wrong with none.
pub(crate) fn full_list<'f, T: 'f>(element: Form<'f, T>, empty: &'f str) -> Form<'f, Vec<T>> {
    let list = list(element);
    Form::new(list.text.clone(), move |value| {
        if value.list()?.is_empty() {
            value.error(empty);
        }
        list.read(value)
    })
}

/// One of these words.
pub(crate) fn words<T: Copy + PartialEq>(words: &'static [(&'static str, T)]) -> Form<'static, T> {
    let quoted: Vec<_> = words
        .iter()
        .map(|(word, _)| format!("`\"{word}\"`"))
        .collect();
    let form = Form::new(quoted.join(", "), |value| {
        let text = value.text()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        let words: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let guess = guess(text, words.iter().copied());
        let words = words.join(", ");
        value.error(format!("{text:?} is not one of {words}{guess}"));
        None
    });
    form.written(|value| {
        let word = words.iter().find(|(_, meaning)| meaning == value);
        word.map_or_else(String::new, |(word, _)| format!("\"{word}\""))
    })
}
