//! What Spotter reports of a prompt as long as it is true, each value at a retained topic.

use super::{DirectionId, LineId, ZoneId};

/// Whether a prompt's objects are in the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Not enough looks yet, or no looks any more.
    Unknown,
    On,
    /// Confirmed that there is none.
    Off,
}

/// The current value of one state of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum PromptState {
    Presence(Presence),
    /// The number of objects; `None` = unknown.
    Count(Option<u32>),
    /// The number of objects in a zone; `None` = unknown.
    ZoneCount {
        zone: ZoneId,
        count: Option<u32>,
    },
    /// Whether an object has been in a zone for the prompt's `dwell`.
    Dwell {
        zone: ZoneId,
        presence: Presence,
    },
    /// The number of objects that crossed a line in a direction since the last reset.
    LineCount {
        line: LineId,
        direction: DirectionId,
        count: u64,
    },
    /// The confirmed answer to a question; `None` = unknown.
    Answer(Option<String>),
}
