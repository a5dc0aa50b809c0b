//! Places of a step's crops: which the encoder's batch has, and which features are read from entries. Pure; the features are on the
//! GPU. Which crops are encoded is the scheduler's decision ([`still`](crate::scheduler::still)).
//!
//! ```text
//!   crop ─▶ encoded: place in the step's batch ─▶ features, copied to its entry behind the step
//!       └─▶ kept: its entry, or the place from which this step fills it
//! ```
//!
//! Copies to entries are behind the step, so an image reads an entry before a later image of the step fills it; an image
//! behind that one reads from the batch.

use std::collections::HashMap;

use crate::scheduler::backend::{CropSource, FeatureEntry};

/// Where a crop's features come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedCrop {
    /// It is encoded in this step.
    pub is_fresh: bool,
    /// For the kernel: a place in the step's batch, or -1 - entry.
    pub source: i32,
}

/// A copy of features behind the step, from a place in the batch to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureCopy {
    /// Place in the batch.
    pub place: usize,
    /// Entry on the GPU.
    pub entry: usize,
}

/// The crops of a step.
#[derive(Debug, Default)]
pub struct StepCrops {
    batch: usize,
    /// Where this step's batch has the features that an entry gets.
    pending: HashMap<FeatureEntry, usize>,
    keeps: Vec<FeatureCopy>,
}

impl StepCrops {
    /// Places the crops of the step's next picture.
    pub fn place(&mut self, sources: &[CropSource]) -> Vec<PlacedCrop> {
        let place = |source: &CropSource| match *source {
            CropSource::Kept(entry) => self.kept(entry),
            CropSource::Encoded(keep) => self.encoded(keep),
        };
        sources.iter().map(place).collect()
    }

    /// An entry that an image before in this step fills is not filled yet when it is read.
    fn kept(&self, entry: FeatureEntry) -> PlacedCrop {
        let pending = self.pending.get(&entry);
        PlacedCrop {
            is_fresh: false,
            source: pending.map_or(-1 - entry.0 as i32, |place| *place as i32),
        }
    }

    fn encoded(&mut self, keep: Option<FeatureEntry>) -> PlacedCrop {
        let place = self.batch;
        self.batch += 1;
        if let Some(entry) = keep {
            self.pending.insert(entry, place);
            let entry = entry.0 as usize;
            self.keeps.push(FeatureCopy { place, entry });
        }
        PlacedCrop {
            is_fresh: true,
            source: place as i32,
        }
    }

    /// Crops that the step encodes.
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Copies to be queued behind the step, in order.
    pub fn keeps(&self) -> &[FeatureCopy] {
        &self.keeps
    }
}

#[cfg(test)]
mod tests;
