//! One of a few words.

use super::form::Form;
use spotter_core::guess;

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
