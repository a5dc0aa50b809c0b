//! What a record is made of.

use std::sync::Arc;

use spotter_core::{AnswerBody, EndReason, Mono, NormBox, NormPoint, ScoreSource, WallTime};

/// What happened to the tracker of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum RecordEntry {
    Look(RecordedLook),
    /// The question of `verify` that is under way has its result.
    Verified(RecordedVerification),
    /// All tracks ended. The last entry of a record.
    Lost {
        reason: EndReason,
        wall: WallTime,
    },
    /// The record before was cut here, so there may be tracks that a replay begins without. The first entry of a record.
    Continues,
    /// Each of these tracks has ended, or was seen in this record.
    Settled,
}

/// One look, as far as the tracker reads it. That the picture had not changed is left out: only outlines depend on it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedLook {
    pub received: Mono,
    /// When the frame was captured, or received where the camera does not say.
    pub wall: WallTime,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
    /// The part of the picture that the look saw, when it sees another one next time.
    pub part: Option<NormBox>,
    pub found: FoundLocations,
    /// The question of `verify` was asked after this look.
    pub has_question: bool,
}

/// All that the model found, in its order, before any filter but the lowest score that is recorded.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundLocations {
    Boxes(Arc<[RecordedObject<NormBox>]>),
    Points(Arc<[RecordedObject<NormPoint>]>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedObject<T> {
    pub place: T,
    pub score: f64,
    pub source: ScoreSource,
}

/// The result of a question of `verify`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecordedVerification {
    /// When the frame was received that it was asked of.
    pub at: Mono,
    /// `None`: there was no answer, or neither yes nor no.
    pub is_yes: Option<bool>,
    pub score: f64,
    pub source: ScoreSource,
}

impl FoundLocations {
    /// The objects of an answer with at least this score; `None` of an answer without objects at places.
    pub fn of(body: &AnswerBody, score_min: f64) -> Option<Self> {
        match body {
            AnswerBody::Boxes(found) => {
                let kept = found.iter().filter(|found| found.score >= score_min);
                Some(Self::Boxes(kept.map(RecordedObject::from).collect()))
            }
            AnswerBody::Points(found) => {
                let kept = found.iter().filter(|found| found.score >= score_min);
                Some(Self::Points(kept.map(RecordedObject::from).collect()))
            }
            AnswerBody::Text { .. } | AnswerBody::Outline(_) => None,
        }
    }
}

impl<T: Copy> From<&spotter_core::FoundObject<T>> for RecordedObject<T> {
    fn from(found: &spotter_core::FoundObject<T>) -> Self {
        Self {
            place: found.place,
            score: found.score,
            source: found.source,
        }
    }
}
