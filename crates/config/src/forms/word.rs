//! One of a few words.

use super::form::Form;
use spotter_core::guess;

/// A word that earlier versions had.
pub(crate) struct RemovedWord<T> {
    pub word: &'static str,
    /// What it means in this release.
    pub value: T,
    /// What to write instead.
    pub replacement: &'static str,
}

/// One of these words.
pub(crate) fn words<T: Copy + PartialEq>(words: &'static [(&'static str, T)]) -> Form<'static, T> {
    words_and_removed(words, &[])
}

/// One of these words; with one that was removed, the file is accepted with a warning for one release.
pub(crate) fn words_and_removed<T: Copy + PartialEq>(
    words: &'static [(&'static str, T)],
    removed: &'static [RemovedWord<T>],
) -> Form<'static, T> {
    let quoted: Vec<_> = words
        .iter()
        .map(|(word, _)| format!("`\"{word}\"`"))
        .collect();
    let form = Form::new(quoted.join(", "), |value| {
        let text = value.text()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Some(*meaning);
        }
        if let Some(removed) = removed.iter().find(|removed| removed.word == text) {
            let replacement = removed.replacement;
            value.warning(format!(
                "{text:?} was removed and will be an error; {replacement}"
            ));
            return Some(removed.value);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::{problem::Notes, syntax, table::Reader};

    #[test]
    fn removed_word_is_read_as_its_replacement_with_a_warning() {
        const OLD: RemovedWord<i32> = RemovedWord {
            word: "old",
            value: 2,
            replacement: "write \"newer\"",
        };
        let form = words_and_removed(&[("new", 1), ("newer", 2)], &[OLD]);
        assert_eq!(form.text, "`\"new\"`, `\"newer\"`");
        for (text, value, said) in [
            ("key = \"new\"", Some(1), None),
            (
                "key = \"old\"",
                Some(2),
                Some("warning: \"old\" was removed"),
            ),
            ("key = \"odd\"", None, Some("is not one of new, newer")),
        ] {
            let notes = Notes::new("a.toml", text);
            let document = syntax::parse(&notes, text).unwrap();
            let table = Reader::new(&notes, "", 0..0, Some(document.get_ref()));
            assert_eq!(form.read(&table.entries()[0].1), value, "{text}");
            let noted = notes.into_list();
            assert_eq!(noted.len(), usize::from(said.is_some()), "{noted:?}");
            let is_said = |part: &str| noted[0].to_string().contains(part);
            assert!(said.is_none_or(is_said), "{noted:?}");
        }
    }
}
