//! Defaults and ranges that the reference does not declare alone: others use them too.

use std::{ops::RangeInclusive, time::Duration};

use super::EventConfig;

/// Range of every `rate`, looks a second.
pub const RATE_HZ_RANGE: RangeInclusive<f64> = 0.01..=30.0;
/// Range of scores, thresholds, coordinates and areas.
pub const SHARE_RANGE: RangeInclusive<f64> = 0.0..=1.0;
/// Range of `crops`.
pub(super) const CROPS_RANGE: RangeInclusive<u64> = 1..=12;
/// The smallest region, share of the picture's width and height: below it, a 4K picture has too few pixels for any model.
pub const REGION_MIN: f64 = 0.01;
/// Range of one index in `model.gpus`.
pub(super) const GPU_RANGE: RangeInclusive<u64> = 0..=63;
/// Range of `model.memory`, bytes.
pub(super) const MEMORY_RANGE: RangeInclusive<u64> = 1 << 30..=1 << 40;
/// Range of `model.budget`.
pub(super) const BUDGET_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(10)..=Duration::from_mins(1);

/// The defaults of `events`: 2 of the last 3 looks must see it.
pub const EVENTS: EventConfig = EventConfig {
    confirm: (2, 3),
    end_after: Duration::from_secs(3),
    still_after: Duration::from_secs(30),
};
/// Range of `dwell`.
pub(super) const DWELL_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_hours(24);
/// From the oldest frame of a strip to the newest, and the range of `over`.
pub(super) const STRIP_OVER: Duration = Duration::from_secs(4);
pub(super) const STRIP_OVER_RANGE: RangeInclusive<Duration> =
    Duration::from_millis(500)..=Duration::from_mins(1);
/// The most looks that `events.confirm` may span.
pub(super) const CONFIRM_LOOKS_MAX: u32 = 100;

/// The longest prompt text, in characters.
pub const PROMPT_TEXT_MAX_CHARS: usize = 200;
/// How many texts `choices` may have.
pub(super) const CHOICES_RANGE: RangeInclusive<usize> = 2..=16;
/// The longest text of `choices`, in characters.
pub(super) const CHOICE_MAX_CHARS: usize = 40;
