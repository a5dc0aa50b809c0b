//! What the daemon hands to the history.

use spotter_core::{Event, Frame, TrackedObject};

/// A message of an event, with what it does not say itself.
#[derive(Clone, Copy, Debug)]
pub struct HistoryMessage<'a> {
    pub event: &'a Event,
    /// Of the prompt.
    pub words: &'a str,
    /// What marks of its alarms depend on: `Series` of crates/quality.
    pub series: &'a str,
    /// The one that the message is about, where there is one.
    pub frame: Option<&'a Frame>,
    /// All objects of the prompt on that frame.
    pub objects: &'a [TrackedObject],
    /// Its object is below `min_score`: no alarm, to be judged alone.
    pub is_near: bool,
}
