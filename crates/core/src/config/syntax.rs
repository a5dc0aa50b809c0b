//! From bytes to a table with positions. The TOML crate finds what is no TOML; only duplicates get words of our own.

use toml::{Spanned, de::DeTable};

use super::problem::Notes;

/// Parses the file. All syntax errors are noted at once; a file whose only fault is something defined twice is
/// returned all the same, so that its other problems are found too.
pub(super) fn parse<'i>(notes: &Notes, text: &'i str) -> Option<Spanned<DeTable<'i>>> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let mut usable = true;
    for error in errors {
        let span = error.span().unwrap_or(0..0);
        // Only the message: the crate's own display shows the line, which may hold a secret.
        if error.message().starts_with("duplicate key") {
            if let Some((key, words)) = duplicate(notes, text, span.start..span.end) {
                notes.error(&span, &key, words);
            }
        } else {
            usable = false;
            notes.error(&span, "", format!("not TOML: {}", error.message()));
        }
    }
    usable.then_some(table)
}

/// The full key of what is at `span` for the second time, and the words for it. `None` for keys that are double
/// only because their whole table is, which is reported at the table.
fn duplicate(notes: &Notes, text: &str, span: std::ops::Range<usize>) -> Option<(String, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let here = notes.line_of(span.start) - 1;
    let first_like = |header| {
        lines[..here]
            .iter()
            .position(|line| header_of(line) == Some(header))
    };

    if let Some(header) = header_of(lines.get(here)?) {
        let name = described(header);
        return Some((header.to_owned(), twice(&name, first_like(header), here)));
    }
    let key = text.get(span)?;
    let block = lines[..here]
        .iter()
        .rposition(|line| header_of(line).is_some());
    let header = block.and_then(|line| header_of(lines[line]));
    let start = block.map_or(0, |line| line + 1);
    let earlier = lines[start..here]
        .iter()
        .position(|line| defines(line, key));
    let table_is_double = block
        .zip(header)
        .is_some_and(|(line, header)| first_like(header).is_some_and(|first| first < line));
    if earlier.is_none() && table_is_double {
        return None;
    }
    let full_key = header.map_or(key.to_owned(), |header| format!("{header}.{key}"));
    let words = twice(
        &format!("key {key:?}"),
        earlier.map(|line| line + start),
        here,
    );
    Some((full_key, words))
}

fn twice(name: &str, first: Option<usize>, second: usize) -> String {
    match first {
        Some(first) if first != second => {
            format!(
                "{name} is defined at lines {} and {}",
                first + 1,
                second + 1
            )
        }
        _ => format!("{name} is defined twice"),
    }
}

/// `camera.gate` of a line `[camera.gate]`; a line of numbers, inside of an array, is none.
fn header_of(line: &str) -> Option<&str> {
    let (header, _) = line.trim_start().strip_prefix('[')?.split_once(']')?;
    (!header.contains(',')).then(|| header.trim())
}

/// `camera "gate"` for `camera.gate`, `table "mqtt"` for `mqtt`.
fn described(header: &str) -> String {
    let unquoted = |part: &str| part.trim().trim_matches('"').to_owned();
    let mut parts = header.rsplit('.').map(unquoted);
    let (name, kind) = (parts.next().unwrap_or_default(), parts.next());
    let kind = kind.filter(|kind| matches!(kind.as_str(), "camera" | "prompt" | "zone"));
    format!("{} {name:?}", kind.as_deref().unwrap_or("table"))
}

/// True for a line that gives `key` a value.
fn defines(line: &str, key: &str) -> bool {
    let rest = line.trim_start().strip_prefix(key).map(str::trim_start);
    rest.is_some_and(|rest| rest.starts_with(['=', '.']))
}
