//! Positions of a sequence that a step computes together.

use std::ops::Range;

use crate::{model::AdapterWeights, scheduler::backend::KvTable};

/// Consecutive positions of one sequence inside of a batch.
#[derive(Clone, Debug)]
pub(super) struct PositionSpan<'a> {
    /// The positions; everything before them is in the cache.
    pub positions: Range<usize>,
    /// Where their keys and values lie.
    pub kv: &'a KvTable,
    /// What they attend to.
    pub sees: Sees,
    /// What is added to the layers for them.
    pub adapter: Option<&'a AdapterWeights>,
}

/// What the positions of a span attend to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sees {
    /// Each other, in both directions: an image prefix, which has no past.
    EachOther,
    /// Themselves and all before them.
    Past,
}
