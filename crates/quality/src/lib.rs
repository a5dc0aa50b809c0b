//! How right the alarms of a prompt are, and which `min_score` would be better: from alarms that a person judged.
//!
//! ```text
//!   all alarms ──draw──▶ alarms to judge ──▶ JudgedAlarm ──▶ DrawnSample ──┬──▶ share, interval ──┐
//!                                               │                         └──▶ outlook ─────────┴─▶ words
//!                                               └──replay of their records──▶ ReplayedMinScore ──▲
//! ```
//!
//! Three rules keep the figures honest. Only alarms that were drawn by chance count: people judge wrong alarms more often than right
//! ones. Repeats of one alarm count once: they are not independent. What a higher `min_score` leaves is decided by the tracker, which runs
//! again over the recorded looks, because the score of an event is that of its best look. Everything here is pure: random numbers,
//! replays and dates are passed in.

mod draw;
mod judged;
mod outlook;
mod repeats;
mod right_count;
mod series;
mod words;

pub use draw::{AlarmChoice, DrawableAlarm, DrawnAlarms, draw};
pub use judged::{DrawnSample, JudgedAlarm, Judgement};
pub use outlook::{
    Outlook, Proposal, ReplayedMinScore, ReplayedSample, TARGETS_PERCENT, min_scores_above, outlook,
};
pub use repeats::{AlarmPlace, groups_of_repeats};
pub use right_count::{RightCount, ShareInterval};
pub use series::{AnsweringModel, Series};
pub use words::{Promise, QualityFigures, words};
