//! What stored events say: how right the alarms of a prompt are, and which of them other rules would have counted.
//!
//! ```text
//!   HistoryReader ──events, marks, recorded looks──▶ replay, quality ──▶ figures of a prompt, preview of shapes
//! ```
//!
//! All functions read the history and a configuration, and change nothing; they block.

mod narrowing;
mod preview;
mod replayed;

pub use preview::{PreviewReach, ShapesPreview, preview};
pub use replayed::{replayed, stored_ids};
