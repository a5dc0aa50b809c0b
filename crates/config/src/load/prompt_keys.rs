//! Tables that are in no file: the prompt of a command, options of a command. They are read by the code that reads the file's.

use crate::{
    read::{prelude::*, problem::*, syntax},
    tables::{camera::CameraConfig, prompt::*},
};
use spotter_core::{AdapterId, PromptId};

/// Mistakes of one table in a message; there may be hundreds.
const MISTAKES_MAX: usize = 8;

/// The prompt that a file with these keys and adapters has on this camera, or the mistakes that would be reported of the file.
pub fn prompt_of_keys(
    keys: &toml::Table,
    id: &PromptId,
    camera: &CameraConfig,
    adapters: &[AdapterId],
) -> Result<PromptConfig, String> {
    read_keys("prompt", keys, |table| {
        prompt(id.clone(), table, camera.prompt_scope(Some(adapters)))
    })
}

/// What a command with these keys asks of this camera once.
pub fn question_of_keys(
    keys: &toml::Table,
    camera: &CameraConfig,
    adapters: &[AdapterId],
) -> Result<AskedOnce, String> {
    read_keys("ask", keys, |table| {
        question(table, camera.prompt_scope(Some(adapters)))
    })
}

/// Reads a table that is called `name` in messages. The error is one line of all mistakes, the first ones in full.
pub(super) fn read_keys<T>(
    name: &str,
    keys: &toml::Table,
    read: impl FnOnce(Reader<'_>) -> Option<T>,
) -> Result<T, String> {
    read_table(name, keys, read).map_err(|wrong| {
        let shown = wrong[..wrong.len().min(MISTAKES_MAX)].join("; ");
        match wrong.len().saturating_sub(MISTAKES_MAX) {
            0 => shown,
            more => format!("{shown}; and {more} more"),
        }
    })
}

/// Reads a table that is called `name` in messages. The error has all mistakes.
pub(super) fn read_table<T>(
    name: &str,
    keys: &toml::Table,
    read: impl FnOnce(Reader<'_>) -> Option<T>,
) -> Result<T, Vec<String>> {
    // A reader notes places in a text.
    let text = toml::to_string(keys).map_err(|error| vec![format!("{name}: {error}")])?;
    let notes = Notes::new("", &text);
    let found = syntax::parse(&notes, &text).and_then(|document| {
        let table = Reader::new(&notes, name, 0..0, Some(document.get_ref()));
        read(table)
    });
    match (found, notes.into_result()) {
        (Some(found), Ok(_)) => Ok(found),
        (None, Ok(_)) => Err(Vec::new()),
        (_, Err(problems)) => {
            let wrong = |problem: &ConfigProblem| format!("{}: {}", problem.key, problem.text);
            Err(problems.iter().map(wrong).collect())
        }
    }
}
