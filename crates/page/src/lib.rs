//! What people and programs read of a daemon over HTTP: the status page at `/`, its figures at `/status.json`, `/metrics` for
//! Prometheus, `/healthz` and `/readyz` for supervisors. People log in with a token of `http.tokens`; who has not sees figures alone.
//!
//! ```text
//!   once a second: a Status of the daemon's figures ─┐            ┌─ with looks ──▶ /status.json ◀── now.js draws it
//!   each look: answers, thumbnail, latency ──────────┴─▶ Board ───┤
//!                                                                 └───────────────▶ /metrics, /healthz
//! ```
//!
//! The page is one HTML file, one style sheet and ES modules, embedded and without a build step (`assets`). `main.js` follows
//! `/status.events`, or asks for `/status.json` once a second, and shows one of the views, each a module of its own.
//!
//! Belongs here: the types of `/status.json`, and which requests are answered. Does not belong here: where a figure comes from; its
//! owner counts it, and the daemon fills the types.

mod access;
mod board;
mod commands;
mod events;
mod guard;
mod judging;
mod metrics;
mod minute;
mod packed_file;
mod readiness;
mod serve;
mod status;
mod stored_picture;
#[cfg(test)]
mod tests;
mod trial;
mod trouble;

pub use access::Visitor;
pub use board::{Board, DrawThumbnail, PromptCosts, StatusRequest, StatusSource, Thumbnail};
pub use commands::{PageQuestion, PageReply, PageRequest, ShapesAnswer, ShapesOwner, ShapesPrompt};
pub use events::{EventAnswers, EventRefusal};
pub use judging::JudgingAnswers;
pub use readiness::{NotReady, Readiness};
pub use serve::ServedPage;
pub use status::{
    AnswerStatus, ApiLine, BrokerStatus, COLUMNS, CameraLooks, CameraStatus, ClockStatus,
    ConfigLine, EngineState, EngineStatus, FleetNodeStatus, FleetStatus, LookBar, LookStatus,
    MarkPlace, MinuteLatency, Mood, NodeStatus, PictureMark, PromptCost, PromptStatus,
    RequestTotals, Status, StreamStatus, WebhookLine,
};
pub use trial::{CameraPicture, NextPicture, ShownAreas, TrialParts, TrialSource};
pub use trouble::{Trouble, TroubleKind};
