//! Texts, and what they must be. The rules are pure: a text goes in, a value or what is wrong with the text comes out.

use std::fmt::Display;

use super::form::Form;
use spotter_core::{
    ID_MAX_CHARS, IdError, NodeId, PROMPT_TEXT_MAX_CHARS, PromptText, WeeklySchedule, nearest,
};

/// The longest topic, in bytes, by the MQTT specification.
const TOPIC_MAX_BYTES: usize = 65_535;
/// The most looks that `events.confirm` may span.
const CONFIRM_LOOKS_MAX: u32 = 100;

/// A text from which a rule makes a value. `form` is for the reference.
pub(crate) fn text<'f, T>(
    form: impl Into<String>,
    rule: impl Fn(&str) -> Result<T, String> + 'f,
) -> Form<'f, T> {
    Form::new(form, move |value| value.parsed(&rule))
}

/// An id.
pub(crate) fn id<T: 'static>(
    form: impl Into<String>,
    make: fn(&str) -> Result<T, IdError>,
) -> Form<'static, T> {
    Form::new(form, move |value| value.id(make))
}

/// The name of a node, a fleet or a label.
pub(crate) fn node_name() -> Form<'static, NodeId> {
    let form = format!("text of a-z 0-9 _ -, at most {ID_MAX_CHARS} characters");
    id(form, NodeId::new)
}

/// One level of MQTT topics.
pub(crate) fn level() -> Form<'static, String> {
    text("one topic level: letters, digits, _ and -", topic_level).written(quoted)
}

/// A text as the file writes it.
pub(crate) fn quoted(text: &impl Display) -> String {
    format!("\"{text}\"")
}

/// The words of a prompt or a question.
pub(crate) fn prompt_words() -> Form<'static, PromptText> {
    let form = format!("text, at most {PROMPT_TEXT_MAX_CHARS} characters");
    text(form, |words| {
        PromptText::new(words).map_err(|error| error.to_string())
    })
}

/// Times of a week.
pub(crate) fn schedule() -> Form<'static, WeeklySchedule> {
    let form = "`\"DAYS FROM-TO ZONE\"`: days Mon to Sun, times 00:00 to 24:00, IANA time zone";
    text(form, WeeklySchedule::new)
}

/// The one of these ids that is written as `name`, or what is wrong with the name. `kind`: what they are, such as "zone of this camera".
pub(crate) fn find_id<'i, I: Display>(
    name: &str,
    kind: &str,
    ids: &'i [I],
) -> Result<&'i I, String> {
    let names: Vec<String> = ids.iter().map(I::to_string).collect();
    if let Some(place) = names.iter().position(|known| known == name) {
        return Ok(&ids[place]);
    }
    let near = nearest(name, names.iter().map(String::as_str));
    let known = match (near, &names[..]) {
        (Some(near), _) => format!("did you mean {near:?}?"),
        (None, []) => "has: none".to_owned(),
        (None, names) => format!("has: {}", names.join(", ")),
    };
    Err(format!("{name:?} is not a {kind}; {known}"))
}

/// One of these ids.
pub(crate) fn known_id<'f, I: Clone + Display + 'f>(
    form: impl Into<String>,
    kind: &'f str,
    ids: Vec<I>,
) -> Form<'f, I> {
    text(form, move |name| find_id(name, kind, &ids).cloned())
}

/// Any text with a character that can be seen.
pub(crate) fn not_empty(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("empty".to_owned());
    }
    Ok(text.to_owned())
}

/// `2 of 3`: the number of looks with the object, and of the last looks that count.
pub(crate) fn hits_of_looks() -> Form<'static, (u32, u32)> {
    let form = format!("`\"HITS of LOOKS\"`, at most {CONFIRM_LOOKS_MAX} looks");
    text(form, confirm).written(|(hits, looks)| format!("\"{hits} of {looks}\""))
}

fn confirm(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(" of ");
    let numbers = numbers.and_then(|(hits, looks)| Some((hits.parse().ok()?, looks.parse().ok()?)));
    match numbers {
        Some((hits, looks)) if 0 < hits && hits <= looks && looks <= CONFIRM_LOOKS_MAX => {
            Ok((hits, looks))
        }
        _ => Err(format!(
            "{text:?} is not understood; write \"2 of 3\", the second number at most {CONFIRM_LOOKS_MAX}"
        )),
    }
}

/// One level of MQTT topics; Home Assistant allows the same characters in its discovery topics.
pub fn topic_level(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if text.is_empty() || !text.chars().all(allowed) {
        return Err(format!(
            "{text:?} is not one topic level; use letters, digits, _ and -"
        ));
    }
    Ok(text.to_owned())
}

/// One MQTT topic.
pub(crate) fn topic(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("empty; write a topic".to_owned());
    }
    if text.contains(['+', '#']) || text.starts_with("$share/") {
        return Err(format!(
            "{text:?} is a filter; write one topic, without +, # and $share"
        ));
    }
    if text.chars().any(char::is_control) {
        return Err("contains a control character".to_owned());
    }
    if text.len() > TOPIC_MAX_BYTES {
        return Err(format!("{} bytes, limit {TOPIC_MAX_BYTES}", text.len()));
    }
    Ok(text.to_owned())
}

/// `sha256:` and 64 hex digits, with or without colons between the bytes (as openssl prints them).
pub(crate) fn fingerprint(text: &str) -> Result<[u8; 32], String> {
    let digits = text
        .strip_prefix("sha256:")
        .map(|digits| digits.replace(':', ""));
    let bytes = digits.and_then(|digits| {
        let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(byte).collect();
        bytes?.try_into().ok()
    });
    bytes.ok_or_else(|| "needs \"sha256:\" and 64 hex digits; `openssl x509 -noout -fingerprint -sha256` prints them".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_with_and_without_colons() {
        let plain = format!("sha256:{}", "0aFf".repeat(16));
        let spaced = format!("sha256:{}0A:FF", "0A:FF:".repeat(15));
        assert_eq!(fingerprint(&plain), fingerprint(&spaced));
        assert_eq!(fingerprint(&plain).unwrap()[..2], [0x0a, 0xff]);
        assert!(fingerprint("sha256:12").is_err());
        assert!(fingerprint(&format!("sha256:{}", "ä".repeat(32))).is_err());
    }
}
