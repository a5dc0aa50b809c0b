//! What stored events say: how right the alarms of a prompt are, and which of them other rules would have counted.
//!
//! ```text
//!   HistoryReader ──events, marks, recorded looks──▶ replay, quality ──▶ figures of a prompt, preview of shapes
//! ```
//!
//! All functions read the history and a configuration, and change nothing; they block.

mod figures;
mod judged_prompt;
mod min_score_replays;
mod narrowing;
mod preview;
mod replayed;
#[cfg(test)]
mod testing;

pub use figures::{PromptFigures, PromptSummary, figures, quality, summary};
pub use judged_prompt::JudgedPrompt;
pub use min_score_replays::MinScoreReplays;
pub use preview::{PreviewReach, ShapesPreview, preview};
