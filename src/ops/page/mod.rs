//! The local page: how cameras, engine and broker are, for people at `/`, for programs at `/status.json`, for Prometheus at
//! `/metrics`, for supervisors at `/healthz` and `/readyz`.
//!
//! ```text
//!   Scene ──View──▶ html, plot ──▶ `/`              the script of the page asks for it again and again and takes over what
//!           └─────▶ serde ───────▶ `/status.json`   changed: there is one renderer, and without a script it is a snapshot
//! ```
//!
//! Belongs here: what is shown and how, and who may ask. Everything is read only: nothing that is asked changes what
//! Spotter does. Does not belong here: where the numbers come from ([`Scene`], which the daemon implements).

mod card;
mod guard;
mod html;
mod jpeg;
mod parts;
mod plot;
mod serve;
mod view;
mod words;

use std::sync::Arc;

pub use serve::{Health, ListenError, Site, StatusPage};
pub use view::{
    Answer, Bar, Broker, COLUMNS, Camera, Clock, Config, Engine, EngineState, Found, Frames,
    Latency, Look, Mood, Node, Place, Prompt, STAGES, Stream, View,
};

/// What there is to be seen; asked each time somebody looks.
pub trait Scene: Send + Sync {
    /// All that is known now. With `people` somebody may want to see pictures soon, otherwise it is a program. Takes no
    /// longer than a lock and some copies.
    fn view(&self, people: bool) -> View;

    /// The picture of the look that [`View`] shows of a camera; `None` while there is none.
    fn still(&self, camera: &str) -> Option<Arc<Still>>;
}

/// A small picture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Still {
    /// Number of the frame.
    pub frame: u64,
    /// Pixels across.
    pub width: u32,
    /// Pixels down.
    pub height: u32,
    /// Packed, `width * height * 3` bytes.
    pub rgb: Vec<u8>,
}
