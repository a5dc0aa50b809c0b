//! What happened to one thing that a camera watches: it came, something about it changed, it is gone (mqtt-contract
//! section 3).

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{CameraId, NormBox, NormPoint, PromptId, ScoreSource, WallTime, ZoneId};

/// Names a thing through one stay, and the event of that stay: `<boot>-<camera>-<number>`, such as `b7c1-gate-37`. Never
/// used twice, because `boot` names a run of the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrackId(Arc<str>);

impl TrackId {
    /// The `number`-th thing of the camera in the run `boot`.
    pub fn new(boot: &str, camera: &CameraId, number: u64) -> Self {
        Self(format!("{boot}-{camera}-{number}").into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TrackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Where a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Location {
    /// Its extents, from a `detect` prompt.
    Box(NormBox),
    /// A point on it, from a `point` prompt.
    Point(NormPoint),
}

/// What an event tells about its thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EventStep {
    /// It is there: confirmed, not only seen once.
    New,
    /// Something about it changed.
    Update(UpdateReason),
    /// It is not there any more, or nobody can tell.
    End(EndReason),
}

/// Why an event is told again while its thing is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum UpdateReason {
    /// It is in other zones than before.
    Zones,
    /// It stood still and moves now.
    Moved,
    /// It moved and has stood still for `still_after`.
    Still,
    /// The model is surer of it than ever before, by a margin worth a message.
    Better,
    /// A minute has passed since the last message.
    Minute,
}

/// Why an event is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EndReason {
    /// It has not been seen for `end_after`.
    Left,
    /// The camera is away, or the engine that looked at it.
    CameraLost,
    /// The words that it was found with were changed or taken away.
    PromptChanged,
    /// The camera or the prompt was switched off.
    Disabled,
    /// The daemon stops.
    Shutdown,
    /// The daemon died while it was open; told at the next start.
    Restart,
}

/// One message of an event's life. Every one holds the whole state, so a consumer that missed some needs none of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The thing, and so the event.
    pub track: TrackId,
    /// Where it is.
    pub camera: CameraId,
    /// What it was found with.
    pub prompt: PromptId,
    /// Which words of the prompt.
    pub revision: u32,
    /// What is told.
    pub step: EventStep,
    /// When it was seen first.
    pub started: WallTime,
    /// When it was seen last.
    pub last_seen: WallTime,
    /// When it ended; with [`EventStep::End`] and never else.
    pub ended: Option<WallTime>,
    /// Where it was seen last.
    pub place: Location,
    /// Score of the last look that saw it, 0..1; of a thing that was verified, the score of the yes.
    pub score: f64,
    /// The highest score so far.
    pub top_score: f64,
    /// What the scores are. Left out of the spool where it is the usual one, as by versions that knew no other.
    #[serde(default, skip_serializing_if = "ScoreSource::is_token_prob")]
    pub score_source: ScoreSource,
    /// How many looks saw it.
    pub looks: u64,
    /// The zones it is in, in the order of the configuration.
    pub zones: Vec<ZoneId>,
    /// The zones it has been in, in the order of entering.
    pub entered_zones: Vec<ZoneId>,
    /// It has not moved for `still_after`.
    pub still: bool,
    /// A picture of it was begun. It follows within a moment, unless it cannot be made or the broker is away.
    pub snapshot: bool,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_track_is_named_by_run_camera_and_number() {
        let gate = CameraId::new("gate").unwrap();
        let track = TrackId::new("b7c1", &gate, 37);
        assert_eq!(
            (track.as_str(), track.to_string().len()),
            ("b7c1-gate-37", 12)
        );
    }
}
