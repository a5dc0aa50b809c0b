use serde::Serialize;

use crate::TriggerId;

/// What the source of a trigger says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggerSignal {
    /// Something happened; nothing will say that it is over.
    Momentary,
    /// Something began, or still is; `Off` is expected.
    On,
    /// It is over.
    Off,
}

/// Which looks of a camera with triggers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TriggeredLooks {
    /// None of its triggers is active.
    None,
    /// One, because a command requests it.
    One,
    /// Those that are due.
    All,
}

/// A trigger at one moment. Serialised with the keys of `/status.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TriggerReport {
    pub id: TriggerId,
    #[serde(rename = "active")]
    pub is_active: bool,
    /// Times that it became active since the start.
    pub activations: u64,
}
