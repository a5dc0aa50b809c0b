//! Turns answers into tracks, zones, lines, events and presence; overrides of the configuration; which triggers are active.

mod line_count_file;
pub mod overrides;
pub mod track;
pub mod triggers;

pub use line_count_file::{LineCountFile, LineCountFileError};
