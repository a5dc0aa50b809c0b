//! From bytes to a table with positions. The TOML crate finds what is no TOML; only duplicates get words of our own.

use std::ops::Range;

use toml::{Spanned, de::DeTable};

use super::problem::Notes;

/// Parses the file. All syntax errors are noted at once; a file whose only fault is something defined twice is
/// returned all the same, so that its other problems are found too.
pub(crate) fn parse<'i>(notes: &Notes, text: &'i str) -> Option<Spanned<DeTable<'i>>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // Only the message: the crate's own display shows the line, which may hold a secret.
        if error.message().starts_with("duplicate key") {
            if let Some(key) = duplicate(text, &span) {
                notes.error(
                    &span,
                    &key,
                    "is defined twice; rename or remove one of them",
                );
            }
        } else {
            usable = false;
            notes.error(&span, "", format!("not TOML: {}", error.message()));
        }
    }
    usable.then_some(table)
}

/// The full key of what is at `span` for the second time. `None` in a table that is double itself: that is reported at its
/// header.
fn duplicate(text: &str, span: &Range<usize>) -> Option<String> {
    let key = text.get(span.clone())?;
    let line_start = text[..span.start].rfind('\n').map_or(0, |at| at + 1);
    if let Some(header) = text[line_start..].lines().next().and_then(header_of) {
        return Some(header.to_owned());
    }
    let mut headers = text[..line_start].lines().rev().filter_map(header_of);
    match headers.next() {
        None => Some(key.to_owned()),
        Some(header) if headers.any(|earlier| earlier == header) => None,
        Some(header) => Some(format!("{header}.{key}")),
    }
}

/// `camera.gate` of a line `[camera.gate]`; a line of numbers, inside of an array, is none.
fn header_of(line: &str) -> Option<&str> {
    let (header, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    (!header.contains(',')).then(|| header.trim())
}
