//! `[history]`: events and their pictures on disk.

use std::{ops::RangeInclusive, time::Duration};

use crate::{forms::prelude::*, read::prelude::*};

const DAY: Duration = Duration::from_hours(24);
const KEEP_RANGE: RangeInclusive<Duration> =
    Duration::from_hours(1)..=Duration::from_hours(3650 * 24);
const SIZE_RANGE: RangeInclusive<u64> = 16 << 20..=1 << 40;
const NEAR_RANGE: RangeInclusive<u16> = 0..=200;

/// Which events are stored, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryConfig {
    /// Age of an event from the last look that saw its object.
    pub keep: Duration,
    /// Bytes of events that are not judged, with their pictures.
    pub size: u64,
    /// Bytes of judged ones, which have no age.
    pub judged: u64,
    /// Objects below `min_score` that are stored, a day and prompt; 0: none.
    pub near: u16,
}

/// Reads `[history]`.
pub(crate) fn history(mut table: Reader<'_>) -> HistoryConfig {
    keys! { table in "`[history]`", "Events and their best pictures on disk, for the page, the API and `spotter history`: see [page.md](page.md#events). Without this table nothing is stored.",
            "[history]\nkeep = \"7d\"\nsize = \"1GiB\"";
        /// Older events are removed with their pictures, except judged ones.
        keep = keep_time().or(7 * DAY), r#"keep = "30d""#;
        /// The most space of events that are not judged, and of their pictures. The oldest are removed first. Objects of `near` have a tenth of it at most.
        size = size_in(SIZE_RANGE).or(1 << 30), r#"size = "4GiB""#;
        /// The most space of judged events and their pictures, which `keep` does not remove.
        judged = size_in(SIZE_RANGE).or(1 << 30), r#"judged = "2GiB""#;
        /// Of each prompt, at most this number of objects a day that would have started an event with half the `min_score` are stored with their pictures, to be
        /// judged on the page; 0: none. They are no events: nothing publishes or lists them.
        near = whole(NEAR_RANGE, "pictures a day and prompt").or(0), "near = 20";
    }
    table.finish();
    HistoryConfig {
        keep,
        size,
        judged,
        near,
    }
}

fn keep_time() -> Form<'static, Duration> {
    let form = time(KEEP_RANGE);
    let text = form.text.clone();
    let checked = Form::new(text, move |value| {
        if value
            .as_text()
            .is_some_and(|text| duration(text) == Ok(Duration::ZERO))
        {
            value.error("nothing would be stored; remove [history] to store no events");
            return None;
        }
        form.read(value)
    });
    checked.written(|time| format!("\"{}\"", duration_text(*time)))
}
