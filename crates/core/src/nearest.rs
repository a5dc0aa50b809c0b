//! The known name that a mistyped one was meant to be.

use crate::ID_MAX_CHARS;

/// The known name that `name` was probably meant to be: at most one edit in three characters away.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let scored = known.into_iter().map(|known| {
        let edits = strsim::damerau_levenshtein(&name, &known.to_lowercase());
        (edits, known)
    });
    let (edits, best) = scored.min_by_key(|(edits, _)| *edits)?;
    let limit = name.chars().count().max(best.chars().count()) / 3;
    (edits <= limit.max(1) && edits < best.chars().count()).then_some(best)
}

/// `; did you mean "person"?`, or nothing.
pub fn guess<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = nearest(name, known);
    near.map_or_else(String::new, |near| format!("; did you mean {near:?}?"))
}

/// An id made of any text: lower case, foreign characters become `_`; `None` when nothing is left.
pub fn id_suggestion(text: &str) -> Option<String> {
    let clean = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_' | '-') => c,
        _ => '_',
    };
    let id: String = text.trim().chars().map(clean).take(ID_MAX_CHARS).collect();
    Some(id).filter(|id| id.contains(|c: char| c.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_names_are_near() {
        let known = ["url", "user", "password", "prompt", "rate"];
        assert_eq!(nearest("promts", known), Some("prompt"));
        assert_eq!(nearest("passwrod", known), Some("password"));
        assert_eq!(nearest("Rate", known), Some("rate"));
        assert_eq!(nearest("colour", known), None);
        assert_eq!(nearest("", known), None);
    }

    #[test]
    fn ids_are_suggested_out_of_any_text() {
        assert_eq!(id_suggestion("Front Door").as_deref(), Some("front_door"));
        assert_eq!(id_suggestion("---"), None);
        assert_eq!(id_suggestion(""), None);
    }
}
