//! `events`: when events of a prompt start and end.

use std::time::Duration;

use crate::{
    forms::{prelude::*, text::hits_of_looks},
    read::prelude::*,
};

/// Hysteresis of presence and events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventConfig {
    /// `confirm.0` of the last `confirm.1` looks must see it; default 2 of 3.
    pub confirm: (u32, u32),
    /// Unseen for so long = gone; default 3 s.
    pub end_after: Duration,
    /// Unmoved for so long = still; default 30 s.
    pub still_after: Duration,
}

impl Default for EventConfig {
    fn default() -> Self {
        Self {
            confirm: (2, 3),
            end_after: Duration::from_secs(3),
            still_after: Duration::from_secs(30),
        }
    }
}

/// Reads `events`; where the table has no value, that of `events` counts.
pub(crate) fn events(mut table: Reader<'_>, mut events: EventConfig) -> EventConfig {
    let times = || time(Duration::from_millis(100)..=Duration::from_hours(24));
    keys! { table into events in "`events`", "When events start and end. In `[defaults]`, `[camera.NAME]` and `[camera.NAME.prompt.NAME]`.",
            "events = { confirm = \"2 of 3\", end_after = \"3s\", still_after = \"30s\" }";
        /// An object must be found in HITS of the last LOOKS looks before its event starts.
        confirm = hits_of_looks().or(events.confirm), r#"events = { confirm = "3 of 5" }"#;
        /// An event ends when its object was not found for this time.
        end_after = times().or(events.end_after), r#"events = { end_after = "5s" }"#;
        /// An object that did not move for this time is reported as still.
        still_after = times().or(events.still_after), r#"events = { still_after = "30s" }"#;
    }
    table.finish();
    events
}
