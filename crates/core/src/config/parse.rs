//! Values that the file writes as text, and the nearest known name. Pure: a text goes in, a value or what is wrong
//! with the text comes out.

use std::{ops::RangeInclusive, time::Duration};

use super::defaults::{CHOICE_MAX_CHARS, CHOICES_RANGE, CONFIRM_LOOKS_MAX, PROMPT_TEXT_MAX_CHARS};
use crate::{ID_MAX_CHARS, Task};

/// The longest topic, in bytes, by the MQTT specification.
const TOPIC_MAX_BYTES: usize = 65_535;

/// The units of durations with their milliseconds, the smallest first.
const UNITS_MS: [(&str, f64); 4] = [("ms", 1.0), ("s", 1e3), ("m", 6e4), ("h", 3.6e6)];

/// `250ms`, `5s`, `1.5m`, `24h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    let (number, unit) = text.split_at(text.len() - text.trim_start_matches(plain).len());
    let amount: Option<f64> = number.parse().ok();
    let unit_ms = UNITS_MS.iter().find(|(name, _)| *name == unit);
    match (amount, unit_ms) {
        (Some(amount), Some((_, ms))) => {
            Ok(Duration::from_micros((amount * ms * 1e3).round() as u64))
        }
        (Some(_), None) if unit.is_empty() => Err(no_unit(&format!("{text:?}"))),
        _ => Err(format!(
            "{text:?} is not a duration; write \"5s\", \"500ms\", \"1m\" or \"24h\""
        )),
    }
}

/// The message about a duration that is a bare number, written `shown` in the file.
pub(super) fn no_unit(shown: &str) -> String {
    format!("{shown} has no unit; write \"5s\", \"500ms\" or \"1m\"")
}

/// A duration as the file writes it, in the largest unit that divides it.
pub(super) fn duration_text(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    let fits = |unit: &&(&str, f64)| ms >= unit.1 && ms % unit.1 == 0.0;
    let (unit, unit_ms) = UNITS_MS.iter().rev().find(fits).unwrap_or(&UNITS_MS[0]);
    format!("{}{unit}", ms / unit_ms)
}

/// The units of sizes with their bytes, the largest first.
const UNITS_BYTES: [(&str, f64); 2] = [("GiB", 1073741824.0), ("MiB", 1048576.0)];

/// `6GiB`, `5.5GiB`, `900MiB`: bytes.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let parsed = UNITS_BYTES.iter().find_map(|(unit, bytes)| {
        let number = text.strip_suffix(unit)?;
        let is_plain = |c: char| c.is_ascii_digit() || c == '.';
        let amount: f64 = number
            .chars()
            .all(is_plain)
            .then(|| number.parse().ok())??;
        Some((amount * bytes).round() as u64)
    });
    parsed.ok_or_else(|| format!("{text:?} is not a size; write \"6GiB\" or \"5500MiB\""))
}

/// A size as `model.memory` has it: parsed, and in the range of that key.
pub fn memory_size(text: &str) -> Result<u64, String> {
    in_range(size(text)?, &super::defaults::MEMORY_RANGE, |bytes| {
        size_text(*bytes)
    })
}

/// A size as the file writes it, in the largest unit that divides it.
pub(super) fn size_text(bytes: u64) -> String {
    let fits = |unit: &&(&str, f64)| bytes as f64 % unit.1 == 0.0;
    let (unit, unit_bytes) = UNITS_BYTES.iter().find(fits).unwrap_or(&UNITS_BYTES[1]);
    format!("{}{unit}", bytes as f64 / unit_bytes)
}

/// `2 of 3`: the number of looks with the object, and of the last looks that count.
pub(super) fn confirm(text: &str) -> Result<(u32, u32), String> {
    let mut words = text.split(' ');
    let parts = (words.next(), words.next(), words.next(), words.next());
    let (Some(hits), Some("of"), Some(looks), None) = parts else {
        return Err(format!("{text:?} is not understood; write \"2 of 3\""));
    };
    let (Ok(hits), Ok(looks)) = (hits.parse::<u32>(), looks.parse::<u32>()) else {
        return Err(format!("{text:?} is not understood; write \"2 of 3\""));
    };
    if hits == 0 || hits > looks {
        return Err(format!(
            "{text:?} cannot be met; the first number must be 1 to {looks}"
        ));
    }
    if looks > CONFIRM_LOOKS_MAX {
        return Err(format!("{looks} is above {CONFIRM_LOOKS_MAX} looks"));
    }
    Ok((hits, looks))
}

/// The words of a prompt or a question, trimmed.
pub fn prompt_text(text: &str) -> Result<String, String> {
    let hint = "describe in plain words what to look for";
    line(text, PROMPT_TEXT_MAX_CHARS, hint)
}

/// One of the texts that an answer may be, trimmed.
pub(super) fn choice(text: &str) -> Result<String, String> {
    line(
        text,
        CHOICE_MAX_CHARS,
        "write an answer that the model may give",
    )
}

/// Whether the file could have a task with these words.
pub fn check_task(task: &Task) -> Result<(), String> {
    let choices: &[String] = match task {
        Task::Caption { .. } => return Ok(()),
        Task::Query { choices, .. } => choices,
        Task::Detect { .. } | Task::Point { .. } => &[],
        Task::Segment { .. } => return Err("a camera has no prompts of kind segment".into()),
    };
    prompt_text(task.text())?;
    if choices.len() > *CHOICES_RANGE.end() {
        return Err(format!(
            "{} choices, limit {}",
            choices.len(),
            CHOICES_RANGE.end()
        ));
    }
    choices.iter().try_for_each(|text| choice(text).map(drop))
}

/// A line of text that is not empty, trimmed; `hint` is for an empty one.
fn line(text: &str, max_chars: usize, hint: &str) -> Result<String, String> {
    let text = text.trim();
    let count = text.chars().count();
    if text.is_empty() {
        return Err(format!("empty; {hint}"));
    }
    if count > max_chars {
        return Err(format!("{count} characters, limit {max_chars}"));
    }
    if text.chars().any(char::is_control) {
        return Err(
            "contains a control character (a tab or a line break); write one plain line".to_owned(),
        );
    }
    Ok(text.to_owned())
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
pub(super) fn topic(text: &str) -> Result<String, String> {
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
pub(super) fn fingerprint(text: &str) -> Result<[u8; 32], String> {
    let wrong = || {
        "needs \"sha256:\" and 64 hex digits; `openssl x509 -noout -fingerprint -sha256` prints them".to_owned()
    };
    let digits = text
        .strip_prefix("sha256:")
        .ok_or_else(wrong)?
        .replace(':', "");
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.as_bytes().chunks(2)) {
        let pair = std::str::from_utf8(pair).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(pair, 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// An id made of any text: lower case, foreign characters become `_`; `None` when nothing is left.
pub(super) fn id_suggestion(text: &str) -> Option<String> {
    let clean = |c: char| match c.to_ascii_lowercase() {
        c @ ('a'..='z' | '0'..='9' | '_' | '-') => c,
        _ => '_',
    };
    let id: String = text.trim().chars().map(clean).take(ID_MAX_CHARS).collect();
    Some(id).filter(|id| id.contains(|c: char| c.is_ascii_alphanumeric()))
}

/// The value of one of a few words.
pub(super) fn choice_of<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, String> {
    if let Some((_, value)) = choices.iter().find(|(word, _)| *word == text) {
        return Ok(*value);
    }
    let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
    let guess = match nearest(text, words.iter().copied()) {
        Some(word) => format!("; did you mean {word:?}?"),
        None => String::new(),
    };
    let words = words.join(", ");
    Err(format!("{text:?} is not one of {words}{guess}"))
}

/// The number, when it is within `range`.
pub(super) fn number_in(number: f64, range: &RangeInclusive<f64>) -> Result<f64, String> {
    if number.is_nan() {
        return Err("nan is not a number".to_owned());
    }
    in_range(number, range, |number| {
        // Debug keeps 1e300 short; whole numbers are shown without ".0".
        format!("{number:?}").trim_end_matches(".0").to_owned()
    })
}

/// The value, when it is within `range`; `shown` is how messages write one.
pub(super) fn in_range<T: PartialOrd>(
    value: T,
    range: &RangeInclusive<T>,
    shown: impl Fn(&T) -> String,
) -> Result<T, String> {
    let limit = match &value {
        low if low < range.start() => format!("below {}", shown(range.start())),
        high if high > range.end() => format!("above {}", shown(range.end())),
        _ => return Ok(value),
    };
    Err(format!("{} is {limit}", shown(&value)))
}

/// The known name that `name` was probably meant to be: at most one edit in three characters away.
pub(super) fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_lowercase();
    let scored = known.into_iter().map(|known| {
        let edits = strsim::damerau_levenshtein(&name, &known.to_lowercase());
        (edits, known)
    });
    let (edits, best) = scored.min_by_key(|(edits, _)| *edits)?;
    let limit = name.chars().count().max(best.chars().count()) / 3;
    (edits <= limit.max(1) && edits < best.chars().count()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_unit() {
        let ms = |text| duration(text).unwrap().as_micros();
        assert_eq!(ms("250ms"), 250_000);
        assert_eq!(ms("1.5s"), 1_500_000);
        assert_eq!(ms("1m"), 60_000_000);
        assert_eq!(ms("24h"), 86_400_000_000);
        assert_eq!(
            duration("5").unwrap_err(),
            "\"5\" has no unit; write \"5s\", \"500ms\" or \"1m\""
        );
        for wrong in ["", "s", "-5s", "5 s", "1.2.3s", "5d", "ä", "1e3s"] {
            assert!(
                duration(wrong).unwrap_err().contains("is not a duration"),
                "{wrong}"
            );
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["0ms", "250ms", "5s", "90s", "1m", "24h"] {
            assert_eq!(duration_text(duration(text).unwrap()), text);
        }
    }

    #[test]
    fn sizes_need_a_binary_unit() {
        assert_eq!(size("6GiB"), Ok(6 << 30));
        assert_eq!(size("5.5GiB"), Ok(11 << 29));
        assert_eq!(size("900MiB"), Ok(900 << 20));
        for wrong in [
            "", "6", "GiB", "6GB", "6 GiB", "-6GiB", "1.2.3GiB", "1e3GiB",
        ] {
            assert!(
                size(wrong).unwrap_err().contains("is not a size"),
                "{wrong}"
            );
        }
        for text in ["6GiB", "5500MiB", "1024GiB"] {
            assert_eq!(size_text(size(text).unwrap()), text);
        }
    }

    #[test]
    fn confirm_counts_hits_of_looks() {
        assert_eq!(confirm("2 of 3"), Ok((2, 3)));
        for wrong in [
            "",
            "2",
            "2/3",
            "two of three",
            "4 of 3",
            "0 of 3",
            "1 of 1000",
            "2 of 3 of 4",
        ] {
            assert!(confirm(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn fingerprints_with_and_without_colons() {
        let plain = format!("sha256:{}", "0aFf".repeat(16));
        let spaced = format!("sha256:{}0A:FF", "0A:FF:".repeat(15));
        assert_eq!(fingerprint(&plain), fingerprint(&spaced));
        assert_eq!(fingerprint(&plain).unwrap()[..2], [0x0a, 0xff]);
        assert!(fingerprint("sha256:12").is_err());
        assert!(fingerprint(&format!("sha256:{}", "ä".repeat(32))).is_err());
    }

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
