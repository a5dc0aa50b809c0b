//! Reads a table of the file into typed values and notes everything that is wrong with it, so that all problems of
//! a file appear in one run. A getter that finds a problem notes it and answers `None`: the caller goes on with any
//! value, because a file with an error never becomes a `Config`.

use std::{
    fmt::Display,
    ops::{Range, RangeInclusive},
    time::Duration,
};

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::{
    keys::{CustomForm, Key, KeyForm},
    parse,
    problem::{Notes, Severity},
};
use crate::{IdError, LookRate, Share};

/// One value of the file with its full key.
pub(super) struct ConfigValue<'a> {
    notes: &'a Notes,
    key: String,
    item: &'a Spanned<DeValue<'a>>,
}

impl<'a> ConfigValue<'a> {
    /// The position of the value in the file, in bytes.
    pub(super) fn span(&self) -> Range<usize> {
        self.item.span()
    }

    /// Notes an error about this value.
    pub(super) fn error(&self, text: impl Into<String>) {
        self.notes.error(&self.span(), &self.key, text);
    }

    /// Notes something that does not forbid the start.
    pub(super) fn warning(&self, text: impl Into<String>) {
        self.notes.warning(&self.span(), &self.key, text);
    }

    /// Notes a problem of the given severity.
    pub(super) fn add(&self, severity: Severity, text: impl Into<String>) {
        self.notes
            .add(severity, &self.span(), &self.key, text.into());
    }

    /// True for text, without noting anything.
    pub(super) fn is_text(&self) -> bool {
        self.item.get_ref().is_str()
    }

    /// True for a text with this start, without noting anything.
    pub(super) fn is_text_with(&self, start: &str) -> bool {
        let text = self.item.get_ref().as_str();
        text.is_some_and(|text| text.starts_with(start))
    }

    /// True for this text, without noting anything.
    pub(super) fn is_word(&self, word: &str) -> bool {
        self.item.get_ref().as_str() == Some(word)
    }

    /// True for a table, without noting anything.
    pub(super) fn is_table(&self) -> bool {
        self.item.get_ref().is_table()
    }

    /// The text as the file has it; not trimmed.
    pub(super) fn text(&self) -> Option<&'a str> {
        self.expect(self.item.get_ref().as_str(), "text in quotes")
    }

    /// Text, true, false or a whole number, as text.
    pub(super) fn scalar_text(&self) -> Option<String> {
        let text = match self.item.get_ref() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix())
                .ok()
                .map(|whole| whole.to_string()),
            _ => None,
        };
        self.expect(text, "text, true, false or a whole number")
    }

    /// Text that `make` turns into a value, or into what is wrong with it.
    pub(super) fn parsed<T>(&self, make: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        self.checked(make(self.text()?))
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(&self, choices: &[(&str, T)]) -> Option<T> {
        self.checked(parse::choice_of(self.text()?, choices))
    }

    pub(super) fn flag(&self) -> Option<bool> {
        self.expect(self.item.get_ref().as_bool(), "true or false")
    }

    /// A number, whole or not.
    pub(super) fn number(&self, range: RangeInclusive<f64>) -> Option<f64> {
        let number = match self.item.get_ref() {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(whole) => i64::from_str_radix(whole.as_str(), whole.radix())
                .ok()
                .map(|whole| whole as f64),
            _ => None,
        };
        let number: f64 = self.expect(number, "a number")?;
        self.checked(parse::number_in(number, &range))
    }

    pub(super) fn look_rate(&self) -> Option<LookRate> {
        self.number(LookRate::RANGE).map(LookRate::nearest)
    }

    pub(super) fn share(&self) -> Option<Share> {
        self.number(Share::RANGE).map(Share::nearest)
    }

    pub(super) fn whole(&self, range: RangeInclusive<u64>) -> Option<u64> {
        let whole = self.item.get_ref().as_integer();
        let whole = whole.and_then(|w| i128::from_str_radix(w.as_str(), w.radix()).ok());
        let whole = self.expect(whole, "a whole number")?;
        let range = i128::from(*range.start())..=i128::from(*range.end());
        let whole = self.checked(parse::in_range(whole, &range, i128::to_string))?;
        u64::try_from(whole).ok()
    }

    /// A time with its unit.
    pub(super) fn duration(&self, range: RangeInclusive<Duration>) -> Option<Duration> {
        let bare = match self.item.get_ref() {
            DeValue::Integer(whole) => Some(whole.to_string()),
            DeValue::Float(float) => Some(float.to_string()),
            _ => None,
        };
        if let Some(number) = bare {
            self.error(parse::no_unit(&number));
            return None;
        }
        let duration = self.parsed(parse::duration)?;
        self.checked(parse::in_range(duration, &range, |d| {
            parse::duration_text(*d)
        }))
    }

    /// The elements of an array.
    pub(super) fn is_list(&self) -> bool {
        self.item.get_ref().is_array()
    }

    pub(super) fn list(&self) -> Option<Vec<ConfigValue<'a>>> {
        let array = self.expect(self.item.get_ref().as_array(), "an array")?;
        let element = |item| ConfigValue {
            notes: self.notes,
            key: self.key.clone(),
            item,
        };
        Some(array.iter().map(element).collect())
    }

    pub(super) fn table(&self) -> Option<Reader<'a>> {
        let table = self.expect(self.item.get_ref().as_table(), "a table")?;
        Some(Reader::new(self.notes, &self.key, self.span(), Some(table)))
    }

    /// The value, when there is one; else what is wrong is noted.
    pub(super) fn checked<T, E: Into<String>>(&self, result: Result<T, E>) -> Option<T> {
        result.map_err(|text| self.error(text)).ok()
    }

    fn expect<T>(&self, value: Option<T>, needed: &str) -> Option<T> {
        if value.is_none() {
            // The value itself is not shown: it may be a secret in the wrong place.
            let found = self.item.get_ref().type_str();
            self.error(format!("needs {needed}, found a value of type {found}"));
        }
        value
    }
}

/// One table. Every key that is read becomes a known one; [`Reader::finish`] reports the others.
pub(super) struct Reader<'a> {
    notes: &'a Notes,
    path: String,
    span: Range<usize>,
    /// `None` when the file does not have the table: every key has its default.
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    /// Keys of earlier versions that the file has.
    removed: Vec<&'static str>,
    missing: Vec<(Vec<&'static str>, String)>,
}

impl<'a> Reader<'a> {
    /// Of the table whose header is at `span`, with its full key; the key of the whole file is empty.
    pub(super) fn new(
        notes: &'a Notes,
        path: &str,
        span: Range<usize>,
        table: Option<&'a DeTable<'a>>,
    ) -> Self {
        Self {
            notes,
            path: path.to_owned(),
            span,
            table,
            known: Vec::new(),
            removed: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// The value of `key`, when the file has one.
    pub(super) fn get<F>(&mut self, key: &'static Key<F>) -> Option<ConfigValue<'a>> {
        let key = key.name;
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let item = self.table?.get(key)?;
        Some(ConfigValue {
            notes: self.notes,
            key: self.key_of(key),
            item,
        })
    }

    /// The value of `key` in its declared form, when the file has a valid one.
    pub(super) fn read<F: KeyForm>(&mut self, key: &'static Key<F>) -> Option<F::Output> {
        let value = self.get(key)?;
        key.form.read(&value)
    }

    /// As [`Reader::read`]; when the file has no valid value, `base` or, without it, the key's default.
    pub(super) fn read_or<F: KeyForm>(
        &mut self,
        key: &'static Key<F>,
        base: Option<F::Output>,
    ) -> F::Output {
        let value = self.read(key).or(base);
        value.unwrap_or_else(|| key.form.default())
    }

    pub(super) fn read_or_default<F: KeyForm>(&mut self, key: &'static Key<F>) -> F::Output {
        self.read_or(key, None)
    }

    /// The value of `key`, made by `make` from its text, when the file has a valid one.
    pub(super) fn parsed<T>(
        &mut self,
        key: &'static Key<CustomForm>,
        make: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        self.get(key)?.parsed(make)
    }

    /// The table `key`, an empty one when the file has none.
    pub(super) fn table(&mut self, key: &'static Key<CustomForm>) -> Reader<'a> {
        let table = self.get(key).and_then(|value| value.table());
        table.unwrap_or_else(|| Reader::new(self.notes, &self.path, self.span.clone(), None))
    }

    /// The values of a table whose keys are names, with these names.
    pub(super) fn entries(self) -> Vec<(String, ConfigValue<'a>)> {
        let mut entries: Vec<_> = self.table.into_iter().flatten().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut values = Vec::new();
        for (name, item) in entries {
            let (notes, key) = (self.notes, self.key_of(name.get_ref()));
            values.push((name.get_ref().to_string(), ConfigValue { notes, key, item }));
        }
        values
    }

    /// The tables below `key` with their ids, in the order of the file.
    pub(super) fn tables<T>(
        &mut self,
        key: &'static Key<CustomForm>,
        id: fn(&str) -> Result<T, IdError>,
    ) -> Vec<(T, Reader<'a>)> {
        let parent = self.table(key);
        let mut entries: Vec<_> = parent.table.into_iter().flatten().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut tables = Vec::new();
        for (name, item) in entries {
            let id = parent.id_of(name, id);
            let (notes, key) = (parent.notes, parent.key_of(name.get_ref()));
            let table = ConfigValue { notes, key, item }.table();
            tables.extend(id.zip(table));
        }
        tables
    }

    /// The names in the table at `path` below this one, which may have mistakes; nothing is noted.
    pub(super) fn names(&self, path: &[&str]) -> Vec<&'a str> {
        let below = |table: &'a DeTable<'a>, name: &&str| table.get(*name)?.get_ref().as_table();
        let table = self
            .table
            .and_then(|table| path.iter().try_fold(table, below));
        let names = table.into_iter().flatten();
        names.map(|(name, _)| name.get_ref().as_ref()).collect()
    }

    /// Notes an error about the whole table.
    pub(super) fn error(&self, text: impl Into<String>) {
        self.notes.error(&self.span, &self.path, text);
    }

    /// Notes that none of `keys` is there, though one must be. A misspelt key that [`Reader::finish`] finds explains
    /// it better and takes its place.
    pub(super) fn missing(&mut self, keys: &[&'static str], text: impl Into<String>) {
        self.missing.push((keys.to_vec(), text.into()));
    }

    /// Notes an error when the file has the key `name`, which earlier versions had; `text` names the key that replaces it.
    pub(super) fn removed(&mut self, name: &'static str, text: &str) {
        self.note_removed(Severity::Error, name, text.to_owned());
    }

    /// The same for the first release without the key: the file is accepted with a warning, and the key is ignored.
    #[allow(dead_code, reason = "for the first key that is removed")]
    pub(super) fn ignored(&mut self, name: &'static str, replacement: &str) {
        let text = format!("removed; it is ignored and will be an error; {replacement}");
        self.note_removed(Severity::Warning, name, text);
    }

    fn note_removed(&mut self, severity: Severity, name: &'static str, text: String) {
        let mut keys = self.table.into_iter().flatten();
        if let Some((key, _)) = keys.find(|(key, _)| key.get_ref() == name) {
            self.notes
                .add(severity, &key.span(), &self.key_of(name), text);
            self.removed.push(name);
        }
    }

    /// Reports unknown keys, then missing ones.
    pub(super) fn finish(mut self) {
        for (name, _) in self.table.into_iter().flatten() {
            let name_text = name.get_ref().as_ref();
            if self.known.contains(&name_text) || self.removed.contains(&name_text) {
                continue;
            }
            let text = match parse::nearest(name.get_ref(), self.known.iter().copied()) {
                Some(near) => {
                    self.missing.retain(|(keys, _)| !keys.contains(&near));
                    format!("unknown key; did you mean {near:?}?")
                }
                None => format!("unknown key; valid keys: {}", self.known.join(", ")),
            };
            let key = self.key_of(name.get_ref());
            self.notes.error(&name.span(), &key, text);
        }
        for (_, text) in &self.missing {
            self.notes.error(&self.span, &self.path, text);
        }
    }

    /// The full key of `name` in this table, quoted where TOML needs quotes.
    fn key_of(&self, name: &str) -> String {
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let shown: &dyn Display = if !name.is_empty() && name.chars().all(bare) {
            &name
        } else {
            &format!("{name:?}")
        };
        match self.path.as_str() {
            "" => shown.to_string(),
            path => format!("{path}.{shown}"),
        }
    }

    /// The id, or after noting what is wrong with it the suggested one, so that the table below is checked too.
    fn id_of<T>(
        &self,
        name: &Spanned<DeString<'_>>,
        make: fn(&str) -> Result<T, IdError>,
    ) -> Option<T> {
        let text = name.get_ref();
        let error = match make(text) {
            Ok(id) => return Some(id),
            Err(error) => error,
        };
        let suggestion = parse::id_suggestion(text);
        let text = match &suggestion {
            Some(better) => format!("{error}; suggestion {better:?}"),
            None => error.to_string(),
        };
        self.notes
            .error(&name.span(), &self.key_of(name.get_ref()), text);
        make(&suggestion?).ok()
    }
}
