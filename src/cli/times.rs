//! Times as arguments.

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

/// A time as `history list` shows it, or of RFC 3339; without an offset, of this machine's zone.
pub fn time(text: &str) -> Result<i64, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at.as_millisecond());
    }
    let local = text.parse::<DateTime>().ok();
    let at = local.and_then(|local| local.to_zoned(TimeZone::system()).ok());
    let at = at.map(|at| at.timestamp().as_millisecond());
    at.ok_or_else(|| format!("{text:?} is not a time; write 2026-11-28, 2026-11-28T18:30 or 2026-11-28T18:30:00+01:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_local_or_have_an_offset() {
        assert_eq!(time("1970-01-01T01:00:00+01:00"), Ok(0));
        assert_eq!(time("1970-01-01T00:00:01Z"), Ok(1000));
        let offset_ms = time("2026-07-01T12:00:00Z").unwrap() - time("2026-07-01T12:00").unwrap();
        assert!(
            offset_ms.abs() <= 14 * 3_600_000 && offset_ms % 900_000 == 0,
            "{offset_ms}"
        );
        let midnight = time("2026-07-01").unwrap() + 12 * 3_600_000;
        assert_eq!(midnight, time("2026-07-01T12:00").unwrap());
        assert!(time("yesterday").unwrap_err().contains("2026-11-28T18:30"));
    }
}
