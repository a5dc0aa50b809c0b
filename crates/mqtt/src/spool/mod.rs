//! Events on disk, so that neither an outage of the broker nor our own end loses one.
//!
//! ```text
//!   outbox ──Batch──▶ writer ──▶ journal ──▶ disk        <state_dir>/spool/0000000001.log, 0000000002.log, …
//!   what to keep,     a task;    pure: which  the file
//!   what is done      blocking   segment,     system, or
//!                     I/O apart  what is open one of tests
//! ```
//!
//! Every event is written when it happens, and marked when the broker has it. **What survives:** the end of the process in
//! whatever way, from the write on, which is milliseconds after the event; the end of the machine, from [`SYNC_EVERY`]
//! after the event on. What was acknowledged before then is not forced to the medium: a daemon whose broker is there never
//! waits for a disk.
//!
//! The same records tell which events were open: the last of each thing that has not ended stays, delivered or not.
//!
//! Belongs here: how events are kept. Does not belong here: which are sent when, and which are dropped (`outbox`).

mod batch;
mod disk;
mod journal;
#[cfg(test)]
pub(super) mod memory;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use spotter_core::Event;

pub(super) use batch::Batch;
pub(super) use disk::{Disk, Folder};
pub(super) use journal::{FoundEvents, Journal, time_left};
pub(super) use writer::{SpoolStatus, SpoolWriter};

/// What was written is forced to the medium after so much time, when something in it is still to be delivered.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// An event that is kept until the broker has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct SpooledEvent {
    /// Orders the events of all runs.
    pub(super) number: u64,
    /// Of its message, however often that is sent.
    pub(super) id: String,
    /// What happened.
    pub(super) event: Event,
}
