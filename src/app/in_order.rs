//! Outcomes of a camera in the order in which its looks were taken; the engine may end them in another order. Presence and
//! counts are about time, so an older picture must not have the last word.
//!
//! ```text
//!   taken   gate 1   yard 2   gate 3            ended   gate 3 ─▶ waits for gate 1
//!                                                       yard 2 ─▶ handed on: cameras do not delay each other
//!                                                       gate 1 ─▶ handed on, and gate 3 after it
//! ```
//!
//! Pure. Nothing waits for ever, because every look ends; so what waits is bounded by the time a look may take.

use std::collections::{BTreeMap, VecDeque};

use spotter_core::CameraId;

/// Holds outcomes back until those of the camera's earlier looks are there.
#[derive(Debug)]
pub struct InOrder<T> {
    taken: u64,
    /// Of each camera, what is not handed on yet, in the order in which it was taken. The first is always under way.
    open: BTreeMap<CameraId, VecDeque<OrderedLook<T>>>,
}

#[derive(Debug)]
struct OrderedLook<T> {
    number: u64,
    /// `None` while it is under way.
    outcome: Option<T>,
}

/// Belongs to one look; ends it exactly once.
#[derive(Debug)]
pub struct LookTicket {
    camera: CameraId,
    number: u64,
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self {
            taken: 0,
            open: BTreeMap::new(),
        }
    }
}

impl<T> InOrder<T> {
    /// A look at `camera` was taken, after all that were taken before.
    pub fn take(&mut self, camera: &CameraId) -> LookTicket {
        self.taken += 1;
        let number = self.taken;
        let looks = self.open.entry(camera.clone()).or_default();
        looks.push_back(OrderedLook {
            number,
            outcome: None,
        });
        LookTicket {
            camera: camera.clone(),
            number,
        }
    }

    /// A look ended. Returns what is to be handed on now, in order: nothing while an earlier look of the camera is under
    /// way.
    pub fn end(&mut self, ticket: LookTicket, outcome: T) -> Vec<T> {
        let looks = self.open.entry(ticket.camera).or_default();
        match looks.iter_mut().find(|look| look.number == ticket.number) {
            Some(look) => look.outcome = Some(outcome),
            // Given up before it ended; nothing earlier is waited for any more.
            None => return vec![outcome],
        }
        let mut ready = Vec::new();
        while let Some(outcome) = looks.front_mut().and_then(|look| look.outcome.take()) {
            ready.push(outcome);
            looks.pop_front();
        }
        ready
    }

    /// Forgets the looks under way and returns the outcomes that waited for them.
    pub fn give_up(&mut self) -> Vec<T> {
        let open = std::mem::take(&mut self.open);
        let looks = open.into_values().flatten();
        looks.filter_map(|look| look.outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn camera(index: usize) -> CameraId {
        CameraId::new(&format!("c{index}")).unwrap()
    }

    proptest! {
        /// Outcomes are returned for the longest prefix of a camera's looks that has ended, independent of other cameras.
        #[test]
        fn each_camera_in_its_order_at_once_and_nothing_lost(
            taken in prop::collection::vec(0usize..3, 1..40),
            ends in prop::collection::vec(any::<prop::sample::Index>(), 40),
            overlap in 1usize..9,
            given_up_after in 0usize..60,
        ) {
            let mut order = InOrder::default();
            let mut under_way: Vec<(usize, usize, LookTicket)> = Vec::new();
            let mut ended = [const { Vec::new() }; 3];
            let mut handed_on = [const { Vec::new() }; 3];
            let mut looks = [0; 3];
            let mut next = taken.iter();
            for end in ends.iter().take(given_up_after) {
                while under_way.len() < overlap && let Some(&index) = next.next() {
                    under_way.push((index, looks[index], order.take(&camera(index))));
                    looks[index] += 1;
                }
                if under_way.is_empty() {
                    break;
                }
                let (index, look, ticket) = under_way.swap_remove(end.index(under_way.len()));
                ended[index].push(look);
                for (of, look) in order.end(ticket, (index, look)) {
                    handed_on[of].push(look);
                }
                for (ended, handed_on) in ended.iter().zip(&handed_on) {
                    let run = (0..).take_while(|look| ended.contains(look));
                    prop_assert_eq!(handed_on, &run.collect::<Vec<_>>());
                }
            }
            // Those that waited for a look which never ended come in their order, too, and nothing comes twice.
            for (of, look) in order.give_up() {
                handed_on[of].push(look);
            }
            for (mut ended, handed_on) in ended.into_iter().zip(handed_on) {
                ended.sort_unstable();
                prop_assert_eq!(ended, handed_on);
            }
            for (index, look, ticket) in under_way {
                prop_assert_eq!(order.end(ticket, (index, look)), vec![(index, look)]);
            }
        }
    }
}
