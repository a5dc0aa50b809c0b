//! Turns answers into tracks, zones, lines, events and presence; which triggers are active.

mod stored_line_counts;
pub mod track;
pub mod triggers;

pub use stored_line_counts::StoredLineCounts;
