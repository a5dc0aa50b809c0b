//! Two clocks that are never mixed: [`Mono`] for ages and deadlines, [`WallTime`] for what is published.
//! Decisions take `now`; only shells hold a [`Clock`](super::Clock).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// A point of the daemon's monotonic time, nanoseconds since its clock was made. It never jumps.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Mono(u64);

impl Mono {
    /// `ns` nanoseconds after the clock was made.
    pub const fn from_nanos(ns: u64) -> Self {
        Self(ns)
    }

    /// Nanoseconds since the clock was made.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Time from `earlier` to `self`; zero when `earlier` is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    #[must_use]
    pub fn after(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }

    /// `self` minus `by`, not before the clock was made.
    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

/// The nanoseconds of a duration; of one that is longer than the clock can count, as many as it can.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// No time of Spotter is longer: sums and products of a few such times stay within what a [`Duration`] counts.
const LONGEST: Duration = Duration::from_hours(100 * 366 * 24);

/// A length of time, for any number: zero for what is negative or no number, a hundred years for what is longer.
pub fn duration_from_secs(seconds: f64) -> Duration {
    if seconds.is_nan() || seconds <= 0.0 {
        return Duration::ZERO;
    }
    let length = Duration::try_from_secs_f64(seconds);
    length.map_or(LONGEST, |length| length.min(LONGEST))
}

/// A UTC time, nanoseconds since 1970. It may jump once a minute, after the machine's clock was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct WallTime(i64);

impl WallTime {
    pub const fn from_unix_nanos(ns: i64) -> Self {
        Self(ns)
    }

    pub const fn from_unix_millis(ms: i64) -> Self {
        Self(ms.saturating_mul(1_000_000))
    }

    pub const fn unix_nanos(self) -> i64 {
        self.0
    }

    /// Unix milliseconds, rounded down.
    pub const fn unix_millis(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// `self` plus signed seconds.
    #[must_use]
    pub fn plus_seconds(self, seconds: f64) -> Self {
        Self(self.0.saturating_add((seconds * 1e9) as i64))
    }

    /// Signed seconds from `earlier` to `self`.
    pub fn seconds_since(self, earlier: Self) -> f64 {
        self.0.saturating_sub(earlier.0) as f64 * 1e-9
    }

    #[must_use]
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub_unsigned(nanos(by)))
    }
}

/// Where a capture time came from (`capture_src` in docs/mqtt.md section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum CaptureSource {
    /// The camera's RTCP sender reports, found trustworthy.
    Rtcp,
    /// The arrival of the frame's first packet here.
    Arrival,
    /// The position in a file.
    File,
}

/// The best estimate of when light hit the sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Capture {
    pub wall: WallTime,
    pub source: CaptureSource,
    /// Estimated error, milliseconds; `None` when unknown.
    pub error_ms: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_ends_where_it_can_and_never_wraps() {
        let second = Mono::from_nanos(1_000_000_000);
        assert_eq!(second.after(Duration::MAX).as_nanos(), u64::MAX);
        assert_eq!(second.before(Duration::MAX), Mono::default());
        assert_eq!(Mono::default().since(second), Duration::ZERO);
    }

    #[test]
    fn any_number_of_seconds_is_a_length_of_time() {
        for (seconds, expected) in [
            (1.5, Duration::from_millis(1500)),
            (0.0, Duration::ZERO),
            (-1.0, Duration::ZERO),
            (1e-320, Duration::ZERO),
            (f64::NAN, Duration::ZERO),
            (f64::NEG_INFINITY, Duration::ZERO),
            (1e300, LONGEST),
            (f64::INFINITY, LONGEST),
        ] {
            assert_eq!(duration_from_secs(seconds), expected, "{seconds}");
        }
        assert!((LONGEST * 1000).mul_f64(1000.0) > LONGEST);
    }

    #[test]
    fn utc_time_ends_where_it_can() {
        let [first, last] = [i64::MIN, i64::MAX].map(WallTime::from_unix_millis);
        assert!(last.seconds_since(first) > 0.0);
        assert_eq!(first.before(Duration::MAX), first);
        assert!(last.plus_seconds(f64::INFINITY) >= last);
    }
}
