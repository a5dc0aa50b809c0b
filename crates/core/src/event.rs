//! An event: the start, the changes and the end of one track, as published (docs/mqtt.md section 2).

use std::{sync::Arc, time::Duration};

use derive_more::Display;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use super::{
    CameraId, DirectionId, LineId, Location, PromptId, ScoreSource, WallTime, ZoneId, rounded,
};

/// Identifies a track and its event: `<boot>-<camera>-<number>`, such as `b7c1-gate-37`. Never used twice, because `boot`
/// identifies a run of the daemon.
#[derive(Clone, Debug, Display, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TrackId(Arc<str>);

impl TrackId {
    /// The `number`-th track of the camera in the run `boot`.
    pub fn new(boot: &str, camera: &CameraId, number: u64) -> Self {
        Self(format!("{boot}-{camera}-{number}").into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a message of an event reports. Its word is the `type` in docs/mqtt.md section 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub enum EventStep {
    /// The object is confirmed.
    New,
    /// Something about the object changed.
    Update(UpdateReason),
    /// The object is gone, or its presence is unknown.
    End(EndReason),
}

impl EventStep {
    pub fn kind(self) -> EventKind {
        match self {
            Self::New => EventKind::New,
            Self::Update(UpdateReason::Crossed) => EventKind::Crossing,
            Self::Update(_) => EventKind::Update,
            Self::End(_) => EventKind::End,
        }
    }

    /// True for the begin of an event and for each better score: each begins a picture, so the last picture of an event is its best and the
    /// first one comes at once.
    pub fn begins_picture(self) -> bool {
        matches!(self, Self::New | Self::Update(UpdateReason::Better))
    }
}

/// An [`EventStep`] without its reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    New,
    Update,
    End,
    /// An update that is published as a crossing, without a `type`.
    #[default]
    Crossing,
}

/// Why an open event is published again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub enum UpdateReason {
    /// The object is in other zones than before.
    Zones,
    /// The object was still and moves now.
    Moved,
    /// The object moved and has been still for `still_after`.
    Still,
    /// The score is higher than ever before, by a margin worth a message.
    Better,
    /// A minute has passed since the last message.
    Minute,
    /// The question of `describe` was answered.
    Described,
    /// The object has been in a zone for the prompt's `dwell`.
    Dwell,
    /// It had, and has left the zone.
    DwellEnd,
    /// The object has crossed a line; with [`Event::crossing`], and published as a crossing.
    Crossed,
}

/// Why an event ended. Its word is a `reason`, as that of [`UpdateReason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, Deserialize)]
#[strum(serialize_all = "snake_case")]
pub enum EndReason {
    /// No look saw the object for `end_after`.
    Left,
    CameraLost,
    /// The engine that looked at the camera is lost. Another one does from now on, if there is one.
    EngineLost,
    /// The prompt was changed or removed.
    PromptChanged,
    /// The camera or the prompt was switched off.
    Disabled,
    Shutdown,
    /// Another node of the fleet watches the camera from now on.
    Moved,
    /// The daemon ended while the event was open; published at the next start.
    Restart,
}

/// One message of an event. Every message has the whole state, so a consumer that missed some needs none of them. Deserialised, it is a record of
/// the spool of version 0.1.0; the event log writes and reads the documented payload.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Event {
    pub track: TrackId,
    pub camera: CameraId,
    pub prompt: PromptId,
    pub revision: u32,
    pub step: EventStep,
    /// First look that saw the object.
    pub started: WallTime,
    /// Last look that saw the object.
    pub last_seen: WallTime,
    /// With [`EventStep::End`] and never else.
    pub ended: Option<WallTime>,
    /// Where the object was seen last.
    #[serde(rename = "place")]
    pub location: Location,
    /// Score of the last look that saw the object, 0..1; of a verified track, the score of the yes.
    pub score: f64,
    /// The highest score so far.
    pub top_score: f64,
    #[serde(default)]
    pub score_source: ScoreSource,
    /// The number of looks that saw the object.
    pub looks: u64,
    /// The zones that the object is in, in the order of the configuration.
    pub zones: Vec<ZoneId>,
    /// The zones that the object has been in, in the order of entering.
    pub entered_zones: Vec<ZoneId>,
    /// The time in each of these, in their order.
    #[serde(default)]
    pub dwell: Vec<ZoneDwell>,
    /// The object has not moved for `still_after`.
    pub still: bool,
    /// A snapshot of the object was begun. It follows within a moment, unless it cannot be made or the broker is away.
    pub snapshot: bool,
    /// The model's answer to the question of `describe`; `None`: there is no question, or no answer yet.
    #[serde(default)]
    pub description: Option<String>,
    /// With [`UpdateReason::Crossed`] and never else.
    #[serde(default)]
    pub crossing: Option<LineCrossing>,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
}

/// The time of an object in a zone: in its stay there, or in the last one.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ZoneDwell {
    pub zone: ZoneId,
    pub time: Duration,
    /// The object is there and has been for the prompt's `dwell`.
    pub is_dwelling: bool,
}

impl ZoneDwell {
    /// As payloads have it.
    pub fn seconds(&self) -> f64 {
        rounded(self.time.as_secs_f64(), 1)
    }
}

/// An object has crossed a line.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct LineCrossing {
    pub line: LineId,
    pub direction: DirectionId,
    /// When the object was on the line, between the two looks that saw it on either side.
    pub at: WallTime,
    /// Between these two looks, picture widths a second; `None` if they have the same time.
    pub speed: Option<f64>,
    /// Crossings in this direction since the last reset, this one included.
    pub count: u64,
}
