//! From bytes to a table with positions. The TOML crate finds what is no TOML; only duplicates get words of our own.

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
            let key = text.get(span.clone()).unwrap_or_default();
            let wrong = "is defined twice; rename or remove one of them";
            notes.error(&span, key, wrong);
        } else {
            usable = false;
            notes.error(&span, "", format!("not TOML: {}", error.message()));
        }
    }
    usable.then_some(table)
}
