//! The slots of the pipeline and the order of their phases. Pure.
//!
//! ```text
//!   depth 1   launch 0 │ finalize 0 │ commit 0 │ launch 1 │ finalize 1 │ commit 1 …      the device waits for the host
//!
//!   depth 2   launch 1 │ commit 0 │ finalize 1 │ launch 2 │ commit 1 │ finalize 2 …      the host works while it runs
//!             slot B     slot A     slot B       slot A     slot B
//! ```
//!
//! Invariants, each asserted by the property test below:
//!
//! 1. A slot is Free, Launched or Finalized; it is launched when Free and free again only through its commit.
//! 2. At most `depth` slots are not Free.
//! 3. Commits come in the order of launches.
//! 4. At most one slot, the newest, is Launched; the others in flight are Finalized. So nothing is launched behind a step
//!    that still waits for its masks.
//! 5. A step that wants masks is finalized when everything before it is committed: commit always before finalize.
//! 6. A step that wants none is Finalized from its launch on, so that further steps can follow as deep as there are slots.

use std::collections::VecDeque;

use super::backend::SlotId;

/// The phase of a slot in flight; slots that are not in flight are free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPhase {
    /// Its forward pass runs, its decisions wait for masks.
    Launched,
    /// Nothing is missing; its results will come.
    Finalized,
}

struct SlotInFlight<T> {
    slot: SlotId,
    phase: SlotPhase,
    load: T,
}

/// Steps in flight, the oldest first; `T` is what the caller has to know at a step's commit.
pub struct Pipeline<T> {
    flights: VecDeque<SlotInFlight<T>>,
    depth: usize,
}

impl<T> Pipeline<T> {
    /// `depth` slots: 1 blocks, 2 is the pipeline, more let device-decided rows run further ahead.
    pub fn new(depth: usize) -> Self {
        Self {
            flights: VecDeque::with_capacity(depth),
            depth: depth.max(1),
        }
    }

    /// The slot that may be launched now.
    pub fn free_slot(&self) -> Option<SlotId> {
        let newest = self.flights.back();
        if newest.is_some_and(|flight| flight.phase == SlotPhase::Launched) {
            return None;
        }
        let used = |slot: &usize| self.flights.iter().any(|flight| flight.slot.0 == *slot);
        (0..self.depth).find(|slot| !used(slot)).map(SlotId)
    }

    /// The step in `slot` (from [`Self::free_slot`]) is launched.
    pub fn launched(&mut self, slot: SlotId, wants_masks: bool, load: T) {
        debug_assert_eq!(self.free_slot(), Some(slot));
        let phase = match wants_masks {
            true => SlotPhase::Launched,
            false => SlotPhase::Finalized,
        };
        self.flights.push_back(SlotInFlight { slot, phase, load });
    }

    /// The step whose masks can be made: it wants them and everything before it is committed.
    pub fn awaits_masks(&self) -> Option<(SlotId, &T)> {
        match self.flights.front() {
            Some(flight) if flight.phase == SlotPhase::Launched => {
                Some((flight.slot, &flight.load))
            }
            _ => None,
        }
    }

    /// The step of [`Self::awaits_masks`] got them.
    pub fn finalized(&mut self) {
        if let Some(flight) = self.flights.front_mut() {
            flight.phase = SlotPhase::Finalized;
        }
    }

    /// The slot to commit next.
    pub fn oldest(&self) -> Option<SlotId> {
        match self.flights.front() {
            Some(flight) if flight.phase == SlotPhase::Finalized => Some(flight.slot),
            _ => None,
        }
    }

    /// What is known of the step of [`Self::oldest`].
    pub fn oldest_load(&self) -> Option<&T> {
        self.oldest()?;
        self.flights.front().map(|flight| &flight.load)
    }

    /// The newest step was not launched after all; its slot is free.
    pub fn not_launched(&mut self) -> Option<T> {
        self.flights.pop_back().map(|flight| flight.load)
    }

    /// What is known of all steps in flight, the oldest first.
    pub fn loads(&self) -> impl Iterator<Item = &T> {
        self.flights.iter().map(|flight| &flight.load)
    }

    /// The results of [`Self::oldest`] were read; its slot is free.
    pub fn committed(&mut self) -> Option<T> {
        self.oldest()?;
        self.flights.pop_front().map(|flight| flight.load)
    }

    pub fn in_flight(&self) -> usize {
        self.flights.len()
    }

    /// All slots are in flight.
    pub fn is_full(&self) -> bool {
        self.flights.len() == self.depth
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn phases_keep_their_order(depth in 1_usize..5, acts in prop::collection::vec((0_u8..3, any::<bool>()), 1..100)) {
            let mut pipeline = Pipeline::new(depth);
            let (mut launches, mut commits, mut busy) = (0, 0, Vec::new());
            for (act, masks) in acts {
                match act {
                    0 => if let Some(slot) = pipeline.free_slot() {
                        prop_assert!(!busy.contains(&slot), "used before its commit");
                        busy.push(slot);
                        pipeline.launched(slot, masks, launches);
                        launches += 1;
                    },
                    1 => if let Some((_, &step)) = pipeline.awaits_masks() {
                        prop_assert_eq!(step, commits, "commit before finalize");
                        prop_assert_eq!(pipeline.in_flight(), 1, "nothing behind a step without masks");
                        pipeline.finalized();
                    },
                    _ => if let Some(slot) = pipeline.oldest() {
                        prop_assert_eq!(pipeline.committed(), Some(commits), "in order");
                        busy.retain(|&used| used != slot);
                        commits += 1;
                    },
                }
                prop_assert_eq!(pipeline.in_flight(), launches - commits);
                prop_assert!(pipeline.in_flight() <= depth);
                // Nothing waits for ever: something can always be done.
                let stuck = pipeline.free_slot().is_none() && pipeline.awaits_masks().is_none() && pipeline.oldest().is_none();
                prop_assert!(!stuck);
            }
        }
    }
}
