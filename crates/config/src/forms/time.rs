//! Times and sizes with their unit.

use std::{ops::RangeInclusive, time::Duration};

use super::{form::Form, number::in_range};

/// The units of durations with their milliseconds, the smallest first.
const UNITS_MS: [(&str, f64); 5] = [
    ("ms", 1.0),
    ("s", 1e3),
    ("m", 6e4),
    ("h", 3.6e6),
    ("d", DAY_MS),
];
const DAY_MS: f64 = 8.64e7;
/// The units of sizes with their bytes, the smallest first.
const UNITS_BYTES: [(&str, f64); 2] = [("MiB", 1048576.0), ("GiB", 1073741824.0)];
/// What an engine may take of a GPU's memory, bytes.
const MEMORY_RANGE: RangeInclusive<u64> = 1 << 30..=1 << 40;

/// A time with its unit, in a range.
pub(crate) fn time(range: RangeInclusive<Duration>) -> Form<'static, Duration> {
    let [low, high] = [range.start(), range.end()].map(|time| duration_text(*time));
    let form = Form::new(format!("time with unit, {low} to {high}"), move |value| {
        if let Some(number) = value.as_number_text() {
            value.error(no_unit(&number));
            return None;
        }
        let time = value.parsed(duration)?;
        value.checked(in_range(time, &range, |time| duration_text(*time)))
    });
    form.written(|time| format!("\"{}\"", duration_text(*time)))
}

/// The size of a GPU's memory, bytes.
pub(crate) fn memory() -> Form<'static, u64> {
    size_in(MEMORY_RANGE)
}

/// A size with its unit, in a range, bytes.
pub(crate) fn size_in(range: RangeInclusive<u64>) -> Form<'static, u64> {
    let [low, high] = [range.start(), range.end()].map(|size| size_text(*size));
    let form = Form::new(format!("size with unit, {low} to {high}"), move |value| {
        let size = value.parsed(size)?;
        value.checked(in_range(size, &range, |bytes| size_text(*bytes)))
    });
    form.written(|size| format!("\"{}\"", size_text(*size)))
}

/// `250ms`, `5s`, `1.5m`, `24h`, `7d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    match amount(text, &UNITS_MS) {
        Some(ms) => Ok(Duration::from_micros((ms * 1e3).round() as u64)),
        None if !text.is_empty() && text.chars().all(is_of_number) => {
            Err(no_unit(&format!("{text:?}")))
        }
        None => Err(format!(
            "{text:?} is not a duration; write \"5s\", \"500ms\", \"1m\", \"24h\" or \"7d\""
        )),
    }
}

fn is_of_number(c: char) -> bool {
    c.is_ascii_digit() || c == '.'
}

/// A number with one of these units.
fn amount(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let unit = text.trim_start_matches(is_of_number);
    let number: f64 = text[..text.len() - unit.len()].parse().ok()?;
    let (_, size) = units.iter().find(|(name, _)| *name == unit)?;
    Some(number * size)
}

/// The message about a duration that is a bare number, written `shown` in the file.
fn no_unit(shown: &str) -> String {
    format!("{shown} has no unit; write \"5s\", \"500ms\" or \"1m\"")
}

/// A duration as the file writes it: a single day is 24 hours.
pub(crate) fn duration_text(duration: Duration) -> String {
    let ms = duration.as_secs_f64() * 1e3;
    let units = if ms == DAY_MS { 4 } else { UNITS_MS.len() };
    in_units(ms, &UNITS_MS[..units])
}

/// `6GiB`, `5.5GiB`, `900MiB`: bytes.
fn size(text: &str) -> Result<u64, String> {
    let bytes = amount(text, &UNITS_BYTES).map(|bytes| bytes.round() as u64);
    bytes.ok_or_else(|| format!("{text:?} is not a size; write \"6GiB\" or \"5500MiB\""))
}

/// A size as `model.memory` has it: parsed, and in the range of that key.
pub fn memory_size(text: &str) -> Result<u64, String> {
    in_range(size(text)?, &MEMORY_RANGE, |bytes| size_text(*bytes))
}

/// A size as the file writes it.
fn size_text(bytes: u64) -> String {
    in_units(bytes as f64, &UNITS_BYTES)
}

/// In the largest unit that divides it.
fn in_units(amount: f64, units: &[(&str, f64)]) -> String {
    let fits = |unit: &&(&str, f64)| amount >= unit.1 && amount % unit.1 == 0.0;
    let (unit, size) = units.iter().rev().find(fits).unwrap_or(&units[0]);
    format!("{}{unit}", amount / size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_and_written_in_their_units() {
        for (text, micros) in [
            ("0ms", 0),
            ("250ms", 250_000),
            ("90s", 90_000_000),
            ("1m", 60_000_000),
            ("24h", 86_400_000_000),
            ("36h", 129_600_000_000),
            ("7d", 604_800_000_000),
        ] {
            let read = duration(text).unwrap();
            assert_eq!(
                (read.as_micros(), duration_text(read).as_str()),
                (micros, text)
            );
        }
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        for (text, mib) in [("6GiB", 6 << 10), ("5500MiB", 5500), ("1024GiB", 1 << 20)] {
            let read = size(text).unwrap();
            assert_eq!((read >> 20, size_text(read).as_str()), (mib, text));
        }
        assert_eq!(size("5.5GiB"), Ok(11 << 29));
        for wrong in "|5|s|GiB|-5s|-6GiB|5 s|6 GiB|1.2.3s|1.2.3GiB|5w|6GB|ä|1e3s|1e3GiB".split('|')
        {
            assert!(duration(wrong).is_err() && size(wrong).is_err(), "{wrong}");
        }
    }
}
