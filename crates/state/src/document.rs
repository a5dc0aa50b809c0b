//! Documents: texts that are replaced as a whole.

use std::{collections::BTreeMap, error::Error, path::Path};

use rusqlite::{Connection, OptionalExtension as _, params};
use serde::de::IgnoredAny;
use spotter_core::read_short_file;
use strum::{IntoStaticStr, VariantArray};

/// Longer texts are not stored or read, in bytes: a hundred overrides of each of a thousand cameras have less.
const TEXT_MAX_BYTES: u32 = 16 << 20;

/// JSON of one owner, which checks it after reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Document {
    /// Values that commands set, revisions of prompts, the active mode.
    Overrides,
    LineCounts,
    /// Topics that are retained at the broker.
    RetainedTopics,
    /// The fleet's list, and the cameras that this node owned.
    Fleet,
    /// Which masks the stored pictures of each camera have.
    HistoryMasks,
}

/// The newest text of each document.
pub(crate) type Documents = BTreeMap<Document, String>;

impl Document {
    /// Its key in the table.
    fn name(self) -> &'static str {
        self.into()
    }

    /// The file of version 0.1.0, with the same text.
    fn former_file(self) -> Option<&'static str> {
        match self {
            Self::Overrides => Some("overrides.json"),
            Self::LineCounts => Some("lines.json"),
            Self::RetainedTopics => Some("retained.json"),
            Self::Fleet => Some("fleet.json"),
            Self::HistoryMasks => None,
        }
    }

    /// An error also for a text that is too long, of another type, or no JSON: the part of the file that has it is damaged.
    fn read(self, connection: &Connection) -> Result<Option<String>, Box<dyn Error>> {
        let sql = "SELECT body FROM document WHERE name = ?1 AND length(body) <= ?2";
        let row = connection.query_row(sql, params![self.name(), TEXT_MAX_BYTES], |row| row.get(0));
        let text: Option<String> = row.optional()?;
        // SQLite has no checksums: a block that was not written has zeros in it.
        text.as_deref()
            .map(serde_json::from_str::<IgnoredAny>)
            .transpose()?;
        Ok(text)
    }

    fn is_stored(self, connection: &Connection) -> rusqlite::Result<bool> {
        let sql = "SELECT EXISTS (SELECT 1 FROM document WHERE name = ?1)";
        connection.query_row(sql, [self.name()], |row| row.get(0))
    }

    /// `None` removes it.
    pub(crate) fn write(self, connection: &Connection, text: Option<&str>) -> rusqlite::Result<()> {
        match text {
            Some(text) if text.len() > TEXT_MAX_BYTES as usize => {
                Err(rusqlite::Error::ToSqlConversionFailure(
                    format!("{} has more than {TEXT_MAX_BYTES} bytes", self.name()).into(),
                ))
            }
            Some(text) => {
                let sql = "INSERT INTO document (name, body) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET body = excluded.body";
                connection.execute(sql, params![self.name(), text])
            }
            None => connection.execute("DELETE FROM document WHERE name = ?1", [self.name()]),
        }
        .map(drop)
    }
}

/// All documents. One that cannot be read is logged and left out: the others are not lost with it.
pub(crate) fn read_all(connection: &Connection) -> Documents {
    let read = Document::VARIANTS.iter().filter_map(|&document| {
        let text = document.read(connection).unwrap_or_else(|error| {
            let document = document.name();
            tracing::error!(document, %error, "a document of state.db cannot be read; it begins empty");
            None
        });
        text.map(|text| (document, text))
    });
    read.collect()
}

/// Moves the files of version 0.1.0 into the database, and returns their names. A file whose document is there was moved before: then a
/// crash came between, and it is to be renamed only.
pub(crate) fn move_files(
    folder: &Path,
    connection: &mut Connection,
) -> rusqlite::Result<Vec<&'static str>> {
    let transaction = connection.transaction()?;
    let mut moved = Vec::new();
    for document in Document::VARIANTS {
        let Some(file) = document.former_file() else {
            continue;
        };
        let text = match read_short_file(&folder.join(file), TEXT_MAX_BYTES.into()) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(error) => {
                tracing::error!(file, %error, "a file of an earlier version cannot be read; its settings are not used");
                continue;
            }
        };
        if !document.is_stored(&transaction)? {
            document.write(&transaction, Some(&text))?;
        }
        moved.push(file);
    }
    transaction.commit()?;
    Ok(moved)
}
