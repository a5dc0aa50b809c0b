//! Events on disk, so that neither an outage of the broker nor the end of the process loses one.
//!
//! ```text
//!   outbox ──Batch──▶ writer ──▶ journal ──▶ disk        <state_dir>/spool/0000000001.log, 0000000002.log, …
//!   events to keep,   a task;    pure: which  the file
//!   events that are   blocking   file, which  system, or
//!   done              I/O apart  are open     a test disk
//! ```
//!
//! Every event is written when it happens, and marked when the broker has acknowledged it. **An event survives** the end of
//! the process, also `kill -9`, from its write on, which is milliseconds after the event; and a power failure from
//! [`SYNC_EVERY`] after the event on. Acknowledged events are not synced, so a daemon with a connection does not wait for the
//! disk.
//!
//! **Why not a database:** on a box with an SD card, no crash of the daemon loses an event, and an event costs 0.5 KB of writes
//! and 13 µs, with one sync a second at most. Measured with redb 4.6, 300 B per event and one commit each: 29 KB and 0.3 ms
//! (95th percentile 2 ms) with `Durability::Immediate`; 11 µs with `Durability::None`, but a `kill -9` lost all 500 committed
//! events.
//!
//! The same records contain the open events: the last event of each track that has not ended stays, delivered or not.
//!
//! Belongs here: how events are kept. Does not belong here: which are sent when, and which are dropped (`delivery`).

mod batch;
mod disk;
mod journal;
#[cfg(test)]
pub(crate) mod memory;
mod record;
#[cfg(test)]
mod tests;
mod writer;

use std::time::Duration;

use serde::{Deserialize, Serialize};

use spotter_core::{Epoch, Event};

pub(crate) use batch::Batch;
pub(crate) use disk::Folder;
pub(crate) use journal::{FoundEvents, Journal, time_left};
pub(crate) use writer::{SpoolWriter, log_trouble, trouble};

/// Written events that are not delivered are synced after this time.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// An event that is kept until the broker has acknowledged it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct SpooledEvent {
    /// Orders the events of all runs.
    pub(crate) number: u64,
    /// Id of its message; the same each time it is sent.
    pub(crate) id: String,
    pub(crate) event: Event,
    /// Of a fleet's camera. Earlier versions knew none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) epoch: Option<Epoch>,
}
