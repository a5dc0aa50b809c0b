//! The nouns of Spotter, shared by every stage: ids, time, frame, prompt, look, answer, event, command, geometry.
//!
//! Belongs here: what two stages must both name. Does not belong here: decisions, I/O (but for
//! `model.toml` and the one way to replace a file), wire formats (what
//! goes over MQTT is known to `publish` alone; serde carries nouns between two processes of one version, `service::wire`) and anything of a library (a GStreamer buffer arrives as [`Picture`]). Imports nothing of ours.

mod anchor;
mod answer;
mod command;
mod detection;
mod epoch;
mod event;
mod file;
mod frame;
mod frame_counters;
mod geometry;
mod gpu_precision;
mod ids;
mod ip_network;
mod latency;
mod log_throttle;
mod look_token;
mod model_record;
mod nearest;
mod phase;
mod plain_line;
mod polygon;
mod polygon_rules;
mod prompt;
mod prompt_state;
mod schedule;
mod score_map;
mod stream_counters;
mod strip;
#[cfg(any(test, feature = "testing"))]
#[allow(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test helpers panic with what is wrong"
)]
pub mod testing;
mod time;
mod trigger;
mod values;
mod view;
mod window;

pub use answer::{
    Answer, AnswerBody, AnswerPiece, FoundObject, GroundedSpan, Look, LookFailure, LookNews,
    Outcome, Outline, Reasoning, ScoreSource, StageTimes, TokenCounts, WholeLook, yes_or_no,
};
pub use command::{
    Command, LogLevel, NewPrompt, PromptKeys, Refusal, RefusalCode, RequestedInfo, Setting,
};
pub use detection::{Detection, DetectionBody, FrameInfo, TrackedObject};
pub use epoch::{CameraRights, Epoch, MayPublish};
pub use event::{
    EndReason, Event, EventStep, LineCrossing, Location, TrackId, UpdateReason, ZoneDwell,
};
pub use file::{
    FileReaders, OpenFolder, keep_new_files_private, read_short_file, write_file_atomically,
    write_file_for,
};
pub use frame::{
    ColourMatrix, ColourRange, DeviceMemory, DevicePlanes, Frame, FrameTimes, Picture,
    PictureError, PictureLayout, PixelFormat, Planes,
};
pub use frame_counters::{FrameCounters, FrameEnd, SkippedSinceLast};
pub use geometry::{NormBox, NormPoint};
pub use gpu_precision::GpuPrecision;
pub use ids::{
    AdapterId, CameraId, DirectionId, ID_MAX_CHARS, IdError, LineId, ModeId, NO_MODE, NodeId,
    PromptId, TriggerId, WebhookId, ZoneId,
};
pub use ip_network::IpNetwork;
pub use latency::{Latency, STAGES};
pub use log_throttle::LogThrottle;
pub use look_token::{LookCounter, LookToken};
pub use model_record::{
    AcceptedLicence, FileMismatch, ModelRecord, ModelRecordError, RecordedFile, RecordedScoreMap,
};
pub use nearest::{guess, id_suggestion, nearest};
pub use phase::Phase;
pub use plain_line::{PLAIN_LINE_MAX_CHARS, plain_line, plain_text};
pub use polygon::Polygon;
pub use polygon_rules::{check_polygon, check_polyline};
pub use prompt::{CaptionLength, Prompt, QueryOptions, Task};
pub use prompt_state::{Presence, PromptState};
pub use schedule::{WeeklySchedule, WeeklyTime};
pub use score_map::{
    SCORED_ANSWERS_MIN, ScoreMap, ScoreMapError, ScoreMaps, ScoredAnswer, ScoredKind,
};
pub use stream_counters::{StreamCounter, StreamCounters};
pub use strip::{Drawing, PlacedPicture, Strip, StripShape, shrunk};
pub use time::{
    Capture, CaptureSource, Clock, ManualClock, Mono, SystemClock, WallTime, duration_from_secs,
};
pub use trigger::{TriggerReport, TriggerSignal, TriggeredLooks};
pub use values::{LookRate, PROMPT_TEXT_MAX_CHARS, PromptText, Share, ValueError, checked_line};
pub use view::{PixelRect, PromptRegion, PromptView, RegionBox, SpatialReference};
pub use window::PercentileWindow;
