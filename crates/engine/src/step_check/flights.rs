//! The caller's side of the contract (`engine::backend`): which slots are in flight, and which call may come next.
//! Pure; no call that it refuses changes anything. A refusal means that scheduler and device disagree about what is in flight: the engine
//! must start again.

use std::collections::VecDeque;

use crate::scheduler::backend::{BackendError, Feed, Row, RowMask, RowRef, SlotId};

/// All slots, and the launched ones from the oldest to the newest.
#[derive(Debug)]
pub struct Flights {
    slots: Vec<SlotUse>,
    order: VecDeque<SlotId>,
    vocab: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum SlotUse {
    Free,
    /// Masks are missing.
    Launched(Vec<Decides>),
    Finalized(Vec<Decides>),
}

/// How a row of a step in flight decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decides {
    /// Not at all, or several times: no row can carry that on.
    NotOnce,
    Once,
    OnceWithMask,
}

impl Flights {
    /// Nothing is in flight. `vocab` is the number of ids that masks are about.
    pub fn new(slots: usize, vocab: usize) -> Self {
        Self {
            slots: (0..slots).map(|_| SlotUse::Free).collect(),
            order: VecDeque::with_capacity(slots),
            vocab,
        }
    }

    /// A step of `rows` goes into a free slot.
    pub fn launch(&mut self, slot: SlotId, rows: &[Row]) -> Result<(), BackendError> {
        if *self.slot(slot)? != SlotUse::Free {
            return violation(format!(
                "slot {} still holds results; commit them before the next launch",
                slot.0
            ));
        }
        let unmasked = self.order.back().filter(|newest| {
            let newest = &self.slots[newest.0];
            matches!(newest, SlotUse::Launched(_))
        });
        if let Some(newest) = unmasked {
            return violation(format!(
                "slot {} waits for its masks; finalize it before the next launch",
                newest.0
            ));
        }
        for (i, row) in rows.iter().enumerate() {
            if let Feed::Carry(from) = row.inputs {
                self.check_carry(i, from)?;
            }
        }
        let decides: Vec<Decides> = rows.iter().map(decides).collect();
        self.slots[slot.0] = match decides.contains(&Decides::OnceWithMask) {
            true => SlotUse::Launched(decides),
            false => SlotUse::Finalized(decides),
        };
        self.order.push_back(slot);
        Ok(())
    }

    /// The newest step will have no results.
    pub fn remove_newest(&mut self) {
        if let Some(slot) = self.order.pop_back() {
            self.slots[slot.0] = SlotUse::Free;
        }
    }

    /// The step's masks are there.
    pub fn finalize(&mut self, slot: SlotId, masks: &[RowMask]) -> Result<(), BackendError> {
        let SlotUse::Launched(rows) = self.slot(slot)? else {
            return violation(format!("slot {} wants no masks", slot.0));
        };
        let rows = rows.clone();
        let words = self.vocab.div_ceil(32);
        for RowMask { row, mask } in masks {
            if rows.get(*row) != Some(&Decides::OnceWithMask) {
                return violation(format!("row {row} of slot {} wants no mask", slot.0));
            }
            if mask.0.len() != words {
                let found = mask.0.len();
                return violation(format!(
                    "the mask of row {row} has {found} words, the vocabulary of {} needs {words}",
                    self.vocab
                ));
            }
            if !(0..self.vocab as u32).any(|id| mask.allows(id)) {
                return violation(format!("the mask of row {row} allows no token"));
            }
        }
        self.slots[slot.0] = SlotUse::Finalized(rows);
        Ok(())
    }

    /// The oldest step's results are read.
    pub fn commit(&mut self, slot: SlotId) -> Result<(), BackendError> {
        match self.slot(slot)? {
            SlotUse::Free => violation(format!(
                "slot {} has nothing to commit; launch a step in it first",
                slot.0
            )),
            SlotUse::Launched(_) => violation(format!(
                "slot {} waits for its masks; finalize it before the commit",
                slot.0
            )),
            SlotUse::Finalized(_) => match self.order.front() {
                Some(oldest) if *oldest != slot => violation(format!(
                    "slot {} cannot be committed before slot {}, which was launched before it",
                    slot.0, oldest.0
                )),
                _ => {
                    self.order.pop_front();
                    self.slots[slot.0] = SlotUse::Free;
                    Ok(())
                }
            },
        }
    }

    fn check_carry(&self, row: usize, from: RowRef) -> Result<(), BackendError> {
        let rows = match self.slot(from.slot)? {
            SlotUse::Free => &[],
            SlotUse::Launched(rows) | SlotUse::Finalized(rows) => rows.as_slice(),
        };
        match rows.get(from.row) {
            Some(Decides::Once | Decides::OnceWithMask) => Ok(()),
            Some(Decides::NotOnce) => violation(format!(
                "row {row} of the step carries row {} of slot {}, which does not decide exactly once",
                from.row, from.slot.0
            )),
            None => violation(format!(
                "row {row} of the step carries row {} of slot {}, which is not in flight",
                from.row, from.slot.0
            )),
        }
    }

    fn slot(&self, slot: SlotId) -> Result<&SlotUse, BackendError> {
        self.slots.get(slot.0).ok_or_else(|| {
            BackendError::Device(format!(
                "slot {} does not exist, the backend has {}",
                slot.0,
                self.slots.len()
            ))
        })
    }
}

fn decides(row: &Row) -> Decides {
    match (row.picks.len(), row.wants_mask()) {
        (1, true) => Decides::OnceWithMask,
        (1, false) => Decides::Once,
        _ => Decides::NotOnce,
    }
}

fn violation<T>(message: String) -> Result<T, BackendError> {
    Err(BackendError::Device(message))
}

#[cfg(test)]
mod tests;
