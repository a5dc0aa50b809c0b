//! Turns answers into tracks, zones, lines, events and presence; which triggers are active.

pub mod record;
pub mod replay;
pub mod track;
pub mod triggers;
