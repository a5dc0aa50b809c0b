//! The time zone of this machine, for programs and people elsewhere.

use std::path::Path;

use jiff::{Timestamp, civil::Date, tz::TimeZone};
use spotter_core::read_short_file;

const NAME_MAX_BYTES: u64 = 256;

/// The name, such as `Europe/Berlin`, and minutes east of UTC now. Where the machine has no name for it, that is its distance.
pub fn time_zone(now_ms: i64) -> (String, i32) {
    let now = Timestamp::from_millisecond(now_ms).unwrap_or_default();
    let zone = TimeZone::system();
    let offset = zone.to_offset(now);
    let name = zone.iana_name().map(str::to_owned);
    // A copy of a zone's file in place of the link has no name.
    let written = || {
        let text = read_short_file(Path::new("/etc/timezone"), NAME_MAX_BYTES).ok()??;
        let named = TimeZone::get(text.trim()).ok()?;
        (named.to_offset(now) == offset).then(|| text.trim().to_owned())
    };
    let name = name.or_else(written);
    (
        name.unwrap_or_else(|| format!("UTC{offset}")),
        offset.seconds() / 60,
    )
}

/// The day of this machine's calendar.
pub(crate) fn day(at_ms: i64) -> Date {
    let at = Timestamp::from_millisecond(at_ms).unwrap_or_default();
    at.to_zoned(TimeZone::system()).date()
}

/// When the day began.
pub(crate) fn day_start(at_ms: i64) -> i64 {
    let start = day(at_ms).to_zoned(TimeZone::system());
    start.map_or(at_ms, |start| start.timestamp().as_millisecond())
}

/// The end of the hour of this machine's clock.
pub(crate) fn hour_end(now_ms: i64, offset_min: i32) -> i64 {
    const HOUR_MS: i64 = 3_600_000;
    let offset_ms = i64::from(offset_min) * 60_000;
    let local = now_ms.saturating_add(offset_ms);
    (local.div_euclid(HOUR_MS) + 1) * HOUR_MS - offset_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hours_end_as_the_clock_on_the_wall_does() {
        assert_eq!(hour_end(0, 0), 3_600_000);
        assert_eq!(hour_end(3_599_999, 60), 3_600_000);
        // India: the hour ends at half past in UTC.
        assert_eq!(hour_end(0, 330), 1_800_000);
        let now_ms = 1_787_393_730_000;
        assert_eq!(day(day_start(now_ms)), day(now_ms));
        assert_ne!(day(day_start(now_ms) - 1), day(now_ms));
        let (name, _) = time_zone(now_ms);
        assert!(!name.is_empty());
    }
}
