//! What the disk does not know yet.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::SpooledEvent;
use spotter_core::Mono;

/// Of events that are done but could not be written, so many of the newest are tried again: they tell what was open.
const DONE_KEPT: usize = 1024;

/// Changes since the last write. While the disk fails it holds what waits for the broker, what the disk knows wrongly, and
/// [`DONE_KEPT`] others.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// With the moment from which nobody wants it any more.
    pub(super) keep: BTreeMap<u64, (Arc<SpooledEvent>, Mono)>,
    pub(super) done: BTreeSet<u64>,
}

impl Batch {
    /// An event is to be kept.
    pub(crate) fn keep(&mut self, kept: Arc<SpooledEvent>, expires: Mono) {
        self.keep.insert(kept.number, (kept, expires));
    }

    /// An event needs not be delivered any more.
    pub(crate) fn done(&mut self, number: u64) {
        self.done.insert(number);
    }

    #[cfg(test)]
    pub(crate) fn kept_numbers(&self) -> Vec<u64> {
        self.keep.keys().copied().collect()
    }

    #[cfg(test)]
    pub(crate) fn done_numbers(&self) -> Vec<u64> {
        self.done.iter().copied().collect()
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
