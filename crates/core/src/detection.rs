//! A detection: the answer to one prompt of one frame after the filters and the tracker, as it is published.

use std::{sync::Arc, time::Duration};

use super::{
    CameraId, Frame, FrameTimes, Location, Mono, NormBox, NormPoint, Prompt, Reasoning,
    ScoreSource, SkippedSinceLast, StageTimes, TrackId, WallTime, ZoneDwell, ZoneId,
};

/// A frame without its pixels: a message that waits for the broker must not hold a decoder's memory.
#[derive(Clone, Debug)]
pub struct FrameInfo {
    pub camera: CameraId,
    pub number: u64,
    /// Pixels across and down that the camera sends.
    pub camera_size: (u32, u32),
    /// The frame is a key frame of its stream.
    pub key: bool,
    pub times: FrameTimes,
}

impl From<&Frame> for FrameInfo {
    fn from(frame: &Frame) -> Self {
        Self {
            camera: frame.camera.clone(),
            number: frame.number,
            camera_size: frame.camera_size,
            key: frame.key,
            times: frame.times,
        }
    }
}

/// What a tracked object looked like on one frame.
#[derive(Clone, Debug, PartialEq)]
pub struct ObjectOutline {
    /// The number of the frame that it was drawn on.
    pub frame: u64,
    /// The object's box on that frame, as it was drawn: not quite that of the detection.
    pub bounds: NormBox,
    /// An SVG path in shares of [`Self::bounds`].
    pub path: String,
    /// In shares of the picture, each ring with the last vertex joined to the first, at most 64 points together. What is inside of two
    /// rings that run in opposite directions is outside of the object.
    pub polygons: Vec<Vec<NormPoint>>,
    /// Share of the picture.
    pub area: f64,
    /// As [`Outline::score`](super::Outline::score).
    pub score: f64,
}

/// An object that passed the prompt's filters, with the track that it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct TrackedObject {
    pub location: Location,
    /// How sure the model is that the object is there, 0..1.
    pub score: f64,
    pub score_source: ScoreSource,
    /// How sure the model is of the location, 0..1.
    pub sharpness: f64,
    pub track: TrackId,
    /// Time since the first look that saw this track.
    pub age: Duration,
    /// The camera's zones that the object is in, in the order of the configuration.
    pub zones: Vec<ZoneId>,
    /// The time of the track in the zones that it is in.
    pub dwell: Vec<ZoneDwell>,
    /// One that was drawn since the last detection of the prompt.
    pub outline: Option<Arc<ObjectOutline>>,
}

/// The answer of a detection after filters and tracking.
#[derive(Clone, Debug, PartialEq)]
pub enum DetectionBody {
    /// To `detect` and `point`, in the model's order.
    Objects(Vec<TrackedObject>),
    /// To `query` and `caption`; as in [`AnswerBody::Text`](super::AnswerBody::Text).
    Text {
        text: String,
        score: f64,
        source: ScoreSource,
    },
}

impl DetectionBody {
    /// The objects; none for a text.
    pub fn objects(&self) -> &[TrackedObject] {
        match self {
            Self::Objects(objects) => objects,
            Self::Text { .. } => &[],
        }
    }

    /// The number of objects; `None` for a text.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Objects(objects) => Some(objects.len()),
            Self::Text { .. } => None,
        }
    }
}

/// The answer to one prompt of one frame, as it is published.
#[derive(Clone, Debug)]
pub struct Detection {
    pub frame: FrameInfo,
    /// The prompt as it was when the look began.
    pub prompt: Arc<Prompt>,
    /// The part of the picture that the model saw; `None`: all of it.
    pub region: Option<NormBox>,
    pub body: DetectionBody,
    /// `None`: the model was not asked to reason.
    pub reasoning: Option<Reasoning>,
    /// The object or token limit was reached before the model ended.
    pub truncated: bool,
    /// The answer is the last one again: the picture has not changed since.
    pub unchanged: bool,
    /// The model's name with the first characters of the weights' hash.
    pub model: Arc<str>,
    /// Pixels across and down that the model saw (after tiling).
    pub model_size: (u32, u32),
    pub stages: StageTimes,
    /// When filters and tracking were done and the detection was handed to the publisher.
    pub finished: Mono,
    /// Frames without an answer since the previous detection of this camera and prompt.
    pub since_last: SkippedSinceLast,
}

impl Detection {
    pub fn camera(&self) -> &CameraId {
        &self.frame.camera
    }

    /// True when objects were asked for and none was found.
    pub fn is_empty(&self) -> bool {
        self.body.count() == Some(0)
    }

    /// UTC at `now`, Unix milliseconds, by the monotonic clock from the frame's reception on: a step of UTC between the
    /// two must not show as latency.
    pub fn unix_ms(&self, now: Mono) -> u64 {
        let times = &self.frame.times;
        let received_ns = times.received_wall.unix_nanos();
        let since_received_ns = now.since(times.received).as_nanos() as i64;
        let wall = WallTime::from_unix_nanos(received_ns + since_received_ns);
        u64::try_from(wall.unix_millis()).unwrap_or(0)
    }
}
