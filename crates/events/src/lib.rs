//! Turns answers into tracks, zones, events and presence; overrides of the configuration.

pub mod overrides;
pub mod track;
