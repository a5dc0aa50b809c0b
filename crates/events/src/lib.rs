//! Turns answers into tracks, zones, lines, events and presence; overrides of the configuration; which triggers are active.

pub mod overrides;
mod stored_line_counts;
pub mod track;
pub mod triggers;

pub use stored_line_counts::StoredLineCounts;
