//! Recorded looks of the history, replayed.

use spotter_core::TrackId;
use spotter_events::{
    record::StartedEvent,
    replay::{ReplayRules, ReplayedEvent, replay},
};
use spotter_history::StoredRecord;

/// The events that a record has by these rules. `None`: another version wrote it, or it is damaged. `goes_on` is asked before each part: without
/// the further ones, some events are missing or have no end.
pub fn replayed_while(
    record: &StoredRecord,
    rules: &ReplayRules<'_>,
    mut goes_on: impl FnMut() -> bool,
) -> Option<Vec<ReplayedEvent>> {
    let mut chunks = record.chunks.iter();
    let chunks = std::iter::from_fn(|| goes_on().then(|| chunks.next().map(|chunk| &chunk[..]))?);
    let events = replay(rules, chunks).inspect_err(|error| {
        let StoredRecord { camera, prompt, .. } = record;
        tracing::warn!(%camera, %prompt, %error, "recorded looks left out");
    });
    events.ok()
}

/// Which stored event each replayed one is, by the first look of its object: one with other rules may be none of them.
pub fn stored_ids<'a>(
    record: &'a StoredRecord,
    events: &[ReplayedEvent],
) -> Vec<Option<&'a TrackId>> {
    let mut started = Vec::from_iter(&record.started);
    let id = |event: &ReplayedEvent| {
        let first_look = event.messages.first()?.started.unix_millis();
        let is_same = |started: &&StartedEvent| started.first_look.unix_millis() == first_look;
        let at = started.iter().position(is_same)?;
        Some(&started.remove(at).track)
    };
    events.iter().map(id).collect()
}
