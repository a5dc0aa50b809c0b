//! Changes that are not on the disk yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::SpooledEvent;
use spotter_core::Mono;

/// Of events that are done and were never written, this number of the newest is kept: they show which tracks are open.
const DONE_KEPT: usize = 1024;

/// Changes since the last write. While the disk fails, a batch has the events that wait for the broker, the *done* marks of
/// events on the disk, and [`DONE_KEPT`] others.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Events by number, with their expiry.
    pub(crate) keep: BTreeMap<u64, (Arc<SpooledEvent>, Mono)>,
    pub(crate) done: BTreeSet<u64>,
}

impl Batch {
    pub(crate) fn keep(&mut self, kept: Arc<SpooledEvent>, expires: Mono) {
        self.keep.insert(kept.number, (kept, expires));
    }

    /// The event is delivered or dropped.
    pub(crate) fn done(&mut self, number: u64) {
        self.done.insert(number);
    }

    /// Puts back an older batch that could not be written.
    pub(crate) fn put_back(&mut self, mut older: Self) {
        older.keep.append(&mut self.keep);
        older.done.append(&mut self.done);
        *self = older;
        let unwritten = self.keep.keys().rev();
        let delivered = unwritten.filter(|number| self.done.contains(number));
        let too_many: Vec<u64> = delivered.skip(DONE_KEPT).copied().collect();
        for number in too_many {
            self.keep.remove(&number);
            self.done.remove(&number);
        }
    }
}
