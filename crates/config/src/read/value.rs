//! One value of the file. A getter that finds a problem notes it and answers `None`: the caller goes on with any value, because a file
//! with an error never becomes a configuration.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeString, DeValue},
};

use super::problem::{Notes, Severity};
use spotter_core::IdError;

/// One value of the file with its full key.
pub(crate) struct ConfigValue<'a> {
    pub(super) notes: &'a Notes,
    pub(super) key: String,
    pub(super) item: &'a Spanned<DeValue<'a>>,
}

impl<'a> ConfigValue<'a> {
    /// The position of the value in the file, in bytes.
    pub(super) fn span(&self) -> Range<usize> {
        self.item.span()
    }

    /// Notes an error about this value.
    pub(crate) fn error(&self, text: impl Into<String>) {
        self.add(Severity::Error, text);
    }

    /// Notes something that does not forbid the start.
    pub(crate) fn warning(&self, text: impl Into<String>) {
        self.add(Severity::Warning, text);
    }

    /// Notes a problem of the given severity.
    pub(crate) fn add(&self, severity: Severity, text: impl Into<String>) {
        self.notes
            .add(severity, &self.span(), &self.key, text.into());
    }

    /// The text, without noting that it is none.
    pub(crate) fn as_text(&self) -> Option<&'a str> {
        self.item.get_ref().as_str()
    }

    /// The text as the file has it; not trimmed.
    pub(crate) fn text(&self) -> Option<&'a str> {
        self.expect(self.as_text(), "text in quotes")
    }

    /// Text, true, false or a whole number, as text.
    pub(crate) fn scalar_text(&self) -> Option<String> {
        let text = match self.item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            _ => self.as_whole().map(|whole| whole.to_string()),
        };
        self.expect(text, "text, true, false or a whole number")
    }

    /// Text that `make` turns into a value, or into what is wrong with it.
    pub(crate) fn parsed<T>(&self, make: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.checked(make(self.text()?))
    }

    /// An id.
    pub(crate) fn id<T>(&self, make: fn(&str) -> Result<T, IdError>) -> Option<T> {
        self.parsed(|text| make(text).map_err(|error| error.to_string()))
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        self.expect(self.item.get_ref().as_bool(), "true or false")
    }

    /// A number, whole or not.
    pub(crate) fn number(&self) -> Option<f64> {
        let number = match self.item.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            _ => self.as_whole().map(|whole| whole as f64),
        };
        self.expect(number, "a number")
    }

    pub(crate) fn whole(&self) -> Option<i128> {
        self.expect(self.as_whole(), "a whole number")
    }

    fn as_whole(&self) -> Option<i128> {
        let whole = self.item.get_ref().as_integer()?;
        i128::from_str_radix(whole.as_str(), whole.radix()).ok()
    }

    /// A number as the file writes it, without noting that it is none.
    pub(crate) fn as_number_text(&self) -> Option<String> {
        match self.item.get_ref() {
            DeValue::Integer(whole) => Some(whole.to_string()),
            DeValue::Float(float) => Some(float.to_string()),
            _ => None,
        }
    }

    /// True for a table, without noting that it is none.
    pub(crate) fn is_table(&self) -> bool {
        self.item.get_ref().is_table()
    }

    /// True for an array, without noting that it is none.
    pub(crate) fn is_list(&self) -> bool {
        self.item.get_ref().is_array()
    }

    /// The elements of an array.
    pub(crate) fn list(&self) -> Option<Vec<ConfigValue<'a>>> {
        let array = self.expect(self.item.get_ref().as_array(), "an array")?;
        let element = |item| ConfigValue {
            notes: self.notes,
            key: self.key.clone(),
            item,
        };
        Some(array.iter().map(element).collect())
    }

    /// The value as it is written; `None` of a number that does not exist, which is noted where it is read.
    pub(super) fn written(&self) -> Option<toml::Value> {
        written(self.item.get_ref())
    }

    /// The value, when there is one; else what is wrong is noted.
    pub(crate) fn checked<T, E: Into<String>>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|text| self.error(text)).ok()
    }

    pub(super) fn expect<T>(&self, value: Option<T>, needed: &str) -> Option<T> {
        if value.is_none() {
            // The value itself is not shown: it may be a secret in the wrong place.
            let found = self.item.get_ref().type_str();
            self.error(format!("needs {needed}, found a value of type {found}"));
        }
        value
    }
}

fn written(value: &DeValue<'_>) -> Option<toml::Value> {
    Some(match value {
        DeValue::String(text) => text.to_string().into(),
        DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix())
            .ok()?
            .into(),
        DeValue::Float(float) => float.as_str().parse::<f64>().ok()?.into(),
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(time) => (*time).into(),
        DeValue::Array(values) => {
            let values = values.iter().map(|value| written(value.get_ref()));
            toml::Value::Array(values.collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let entry = |(name, value): (&Spanned<DeString<'_>>, &Spanned<DeValue<'_>>)| {
                Some((name.get_ref().to_string(), written(value.get_ref())?))
            };
            toml::Value::Table(table.iter().map(entry).collect::<Option<_>>()?)
        }
    })
}
