//! Reads a table of the file and notes everything that is wrong with it, so that all problems of a file appear in one run.

use std::{fmt::Display, ops::Range};

use toml::{
    Spanned,
    de::{DeString, DeTable},
};

use super::{
    key::{Key, SectionReference},
    problem::Notes,
    value::ConfigValue,
};
use spotter_core::{IdError, id_suggestion, nearest};

/// One table. Every key that is read becomes a known one; [`Reader::finish`] reports the others.
pub(crate) struct Reader<'a> {
    notes: &'a Notes,
    path: String,
    span: Range<usize>,
    /// `None` when the file does not have the table: every key has its default.
    table: Option<&'a DeTable<'a>>,
    known: Vec<&'static str>,
    /// Its heading in the reference.
    title: &'static str,
}

impl<'a> Reader<'a> {
    /// Of the table whose header is at `span`, with its full key; the key of the whole file is empty.
    pub(crate) fn new(
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
            title: "",
        }
    }

    /// Of a value that must be a table.
    pub(crate) fn of_value(value: &ConfigValue<'a>) -> Option<Self> {
        let table = value.expect(value.item.get_ref().as_table(), "a table")?;
        Some(Self::new(
            value.notes,
            &value.key,
            value.span(),
            Some(table),
        ))
    }

    /// A table that the file does not have.
    fn absent(&self) -> Self {
        Self::new(self.notes, &self.path, self.span.clone(), None)
    }

    /// The following keys belong to this section of the reference.
    pub(crate) fn section(
        &mut self,
        title: &'static str,
        doc: impl Into<String>,
        example: &'static str,
    ) {
        self.title = title;
        self.notes.describe_section(SectionReference {
            title,
            doc: doc.into(),
            example,
            keys: Vec::new(),
        });
    }

    /// The value of a key in its form. Called by `keys!` alone.
    pub(crate) fn key<T>(&mut self, key: Key, form: KeyForm<'a, '_, T>) -> T {
        let name = key.name;
        self.notes
            .describe_key(self.title, key, form.form, form.default);
        (form.read)(name, self)
    }

    /// The value of `key`, when the file has one.
    pub(crate) fn get(&mut self, key: &'static str) -> Option<ConfigValue<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.given(key)
    }

    /// The value of a key that was read, for what is wrong with it beside other values.
    pub(crate) fn given(&self, key: &'static str) -> Option<ConfigValue<'a>> {
        debug_assert!(self.known.contains(&key), "{key} was not read");
        let item = self.table?.get(key)?;
        Some(ConfigValue {
            notes: self.notes,
            key: self.key_of(key),
            item,
        })
    }

    /// The table `key`, an empty one when the file has none.
    pub(crate) fn table(&mut self, key: &'static str) -> Self {
        let table = self.get(key).and_then(|value| Self::of_value(&value));
        table.unwrap_or_else(|| self.absent())
    }

    /// The values of a table whose keys are names, with these names, in the order of the file.
    pub(crate) fn entries(&self) -> Vec<(&'a Spanned<DeString<'a>>, ConfigValue<'a>)> {
        let mut entries: Vec<_> = self.table.into_iter().flatten().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let value = |(name, item): (&'a Spanned<DeString<'a>>, _)| {
            let (notes, key) = (self.notes, self.key_of(name.get_ref()));
            (name, ConfigValue { notes, key, item })
        };
        entries.into_iter().map(value).collect()
    }

    /// The names in the table at `path` below this one, which may have mistakes; nothing is noted.
    pub(crate) fn names(&self, path: &[&str]) -> Vec<&'a str> {
        let below = |table: &'a DeTable<'a>, name: &&str| table.get(*name)?.get_ref().as_table();
        let table = self
            .table
            .and_then(|table| path.iter().try_fold(table, below));
        let names = table.into_iter().flatten();
        names.map(|(name, _)| name.get_ref().as_ref()).collect()
    }

    /// The values of some keys, as they are written.
    pub(crate) fn written(&self, is_wanted: impl Fn(&str) -> bool) -> toml::Table {
        let entries = self.entries().into_iter();
        let wanted = entries.filter(|(name, _)| is_wanted(name.get_ref()));
        wanted
            .filter_map(|(name, value)| Some((name.get_ref().to_string(), value.written()?)))
            .collect()
    }

    /// Notes an error about the whole table.
    pub(crate) fn error(&self, text: impl Into<String>) {
        self.notes.error(&self.span, &self.path, text);
    }

    /// Notes something about the whole table that does not forbid the start.
    pub(crate) fn warning(&self, text: impl Into<String>) {
        self.notes.warning(&self.span, &self.path, text);
    }

    /// Notes an error when the file has `key` and not `other`, both of which were read.
    pub(crate) fn requires(&self, key: &'static str, other: &'static str) {
        if let (Some(value), None) = (self.given(key), self.given(other)) {
            value.error(format!("requires {other:?}"));
        }
    }

    /// Notes that the file has the key `name`, which earlier versions had: for one release the file is accepted with a warning, and the key
    /// is ignored.
    pub(crate) fn ignored(&mut self, name: &'static str, replacement: &str) {
        let mut keys = self.table.into_iter().flatten();
        if let Some((key, _)) = keys.find(|(key, _)| key.get_ref() == name) {
            let text = format!("removed; it is ignored and will be an error; {replacement}");
            self.notes.warning(&key.span(), &self.key_of(name), text);
            self.known.push(name);
        }
    }

    /// Reports unknown keys.
    pub(crate) fn finish(self) {
        for (name, _) in self.table.into_iter().flatten() {
            let name_text = name.get_ref().as_ref();
            if self.known.contains(&name_text) {
                continue;
            }
            let text = match nearest(name_text, self.known.iter().copied()) {
                Some(near) => format!("unknown key; did you mean {near:?}?"),
                None => format!("unknown key; valid keys: {}", self.known.join(", ")),
            };
            self.notes
                .error(&name.span(), &self.key_of(name_text), text);
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
        let suggestion = id_suggestion(text);
        let text = match &suggestion {
            Some(better) => format!("{error}; suggestion {better:?}"),
            None => error.to_string(),
        };
        self.notes
            .error(&name.span(), &self.key_of(name.get_ref()), text);
        make(&suggestion?).ok()
    }
}

type ReadKey<'a, 'f, T> = dyn FnOnce(&'static str, &mut Reader<'a>) -> T + 'f;

/// The form of a key with its default, as the reference shows them, and what reads the key.
pub(crate) struct KeyForm<'a, 'f, T> {
    pub(crate) form: String,
    pub(crate) default: String,
    read: Box<ReadKey<'a, 'f, T>>,
}

impl<'a, 'f, T> KeyForm<'a, 'f, T> {
    /// `read` gives the value; when there is none or a wrong one, the default. What is wrong is noted.
    pub(crate) fn new(
        form: impl ToString,
        default: impl ToString,
        read: impl FnOnce(&'static str, &mut Reader<'a>) -> T + 'f,
    ) -> Self {
        Self {
            form: form.to_string(),
            default: default.to_string(),
            read: Box::new(read),
        }
    }
}

/// A table; empty when the file does not have it. `absent`: what is the case then.
pub(crate) fn sub_table<'a>(absent: &str) -> KeyForm<'a, 'static, Reader<'a>> {
    KeyForm::new("table", absent, |key, table: &mut Reader<'a>| {
        table.table(key)
    })
}

/// A table that the file may have, in these words; in the reference, its keys are shown.
pub(crate) fn optional_table<'a>(
    form: &str,
    absent: &str,
) -> KeyForm<'a, 'static, Option<Reader<'a>>> {
    KeyForm::new(form, absent, |key, table: &mut Reader<'a>| {
        match table.get(key) {
            Some(value) => Reader::of_value(&value),
            None => table.notes.is_describing().then(|| table.absent()),
        }
    })
}

/// Tables with the ids of what they are about, in the order of the file; `of` as in "one table per camera". For the reference, one.
pub(crate) fn tables<'a, T: 'static>(
    id: fn(&str) -> Result<T, IdError>,
    of: &str,
    absent: &str,
) -> KeyForm<'a, 'static, Vec<(T, Reader<'a>)>> {
    let form = format!("one table per {of}");
    KeyForm::new(form, absent, move |key, table: &mut Reader<'a>| {
        let parent = table.table(key);
        if parent.notes.is_describing() {
            let id = id("name").into_iter();
            return id.map(|id| (id, parent.absent())).collect();
        }
        let tables = parent.entries().into_iter().filter_map(|(name, value)| {
            let id = parent.id_of(name, id);
            id.zip(Reader::of_value(&value))
        });
        tables.collect()
    })
}
