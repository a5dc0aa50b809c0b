//! Turns answers into tracks, zones, events and presence; values that are changed at run time.

pub mod control;
pub mod track;
