//! The status page: cameras, engines and broker, for people at `/`, for programs at `/status.json`, for Prometheus at
//! `/metrics`, for supervisors at `/healthz` and `/readyz`.
//!
//! ```text
//!   StatusSource ──DaemonStatus──▶ html, plot ──▶ `/`              the page's script fetches it again and applies the
//!                  └─────────────▶ serde ───────▶ `/status.json`   changes; without a script it is a snapshot
//! ```
//!
//! Belongs here: what is shown and how, and which requests are answered. Everything is read only: no request changes what
//! Spotter does. Does not belong here: where the numbers come from ([`StatusSource`], which the daemon implements).

mod api;
mod card;
mod fleet;
mod guard;
mod html;
mod names;
mod overlay;
mod parts;
mod plot;
mod serve;
mod status;
mod webhooks;
mod words;

use std::sync::Arc;

use axum::body::Bytes;

pub use api::ApiLine;
pub use fleet::{FleetNodeStatus, FleetStatus};
pub use serve::{DaemonHealth, PageInputs, ServedPage};
pub use status::{
    BrokerStatus, COLUMNS, CameraStatus, DaemonStatus, EngineState, EngineStatus, LastAnswer,
    LineStatus, LookAnswer, LookBar, LookStatus, MarkPlace, MinuteLatency, Mood, NodeStatus,
    PromptCost, PromptStatus, STAGES, TriggerStatus,
};
pub use webhooks::WebhookLine;
pub use words::counted;

/// What the page is made from; called for each request.
pub trait StatusSource: Send + Sync {
    /// Everything now. `people` is true for a browser: pictures are made more often for some seconds. Blocks no longer than
    /// a lock and some copies.
    fn status(&self, people: bool) -> DaemonStatus;

    /// The picture of the look that [`DaemonStatus`] shows of a camera, or of the frame `look` if the one that was shown before is of it;
    /// `None` before the camera's first look.
    fn thumbnail(&self, camera: &str, look: Option<u64>) -> Option<Arc<Thumbnail>>;
}

/// A small picture of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Thumbnail {
    /// Number of the frame.
    pub frame: u64,
    pub jpeg: Bytes,
}
