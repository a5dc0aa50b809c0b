use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::scheduler::backend::{KvTable, MaskSource, Pick, TokenMask};

const SLOTS: usize = 3;
const VOCAB: usize = 40;

fn row(inputs: Feed, picks: Vec<Pick>) -> Row {
    Row {
        inputs,
        position: 0,
        kv: KvTable::default(),
        picks,
        adapter: None,
    }
}

fn plain() -> Row {
    row(Feed::Host(Vec::new()), vec![Pick::Coord])
}

fn masked() -> Row {
    row(Feed::Host(Vec::new()), vec![Pick::token(MaskSource::Host)])
}

fn carried(slot: usize, from: usize) -> Row {
    let from = RowRef {
        slot: SlotId(slot),
        row: from,
    };
    row(Feed::Carry(from), vec![Pick::Coord])
}

fn mask(id: u32) -> TokenMask {
    let mut mask = TokenMask::none(VOCAB);
    mask.allow(id);
    mask
}

#[test]
fn each_call_has_its_turn() {
    let mut flights = Flights::new(SLOTS, VOCAB);
    let text = |result: Result<(), BackendError>| result.unwrap_err().to_string();
    flights.launch(SlotId(0), &[plain()]).unwrap();
    let masks = |row, mask| [RowMask { row, mask }];
    assert_eq!(
        text(flights.finalize(SlotId(0), &[])),
        "slot 0 wants no masks"
    );
    flights
        .launch(SlotId(1), &[masked(), carried(0, 0)])
        .unwrap();
    assert_eq!(
        text(flights.launch(SlotId(2), &[plain()])),
        "slot 1 waits for its masks; finalize it before the next launch"
    );
    let wrong = [
        (masks(1, mask(0)), "row 1 of slot 1 wants no mask"),
        (masks(2, mask(0)), "row 2 of slot 1 wants no mask"),
        (
            masks(0, TokenMask(vec![1])),
            "the mask of row 0 has 1 words, the vocabulary of 40 needs 2",
        ),
        // Bit 63 is in the last word and beyond the vocabulary.
        (masks(0, mask(63)), "the mask of row 0 allows no token"),
    ];
    for (masks, expected) in wrong {
        assert_eq!(text(flights.finalize(SlotId(1), &masks)), expected);
    }
    assert!(text(flights.commit(SlotId(1))).contains("waits for its masks"));
    flights.finalize(SlotId(1), &masks(0, mask(39))).unwrap();
    assert_eq!(
        text(flights.commit(SlotId(1))),
        "slot 1 cannot be committed before slot 0, which was launched before it"
    );
    flights.commit(SlotId(0)).unwrap();
    flights.commit(SlotId(1)).unwrap();
}

#[test]
fn only_single_decision_rows_in_flight_are_carried() {
    let mut flights = Flights::new(SLOTS, VOCAB);
    let silent = row(Feed::Host(Vec::new()), Vec::new());
    let draft = row(Feed::Host(Vec::new()), vec![Pick::Coord; 2]);
    flights
        .launch(SlotId(0), &[plain(), silent, draft])
        .unwrap();
    let mut refused = |slot, row| flights.launch(SlotId(1), &[carried(slot, row)]).err();
    for row in [1, 2] {
        let error = refused(0, row).unwrap().to_string();
        assert!(error.contains("does not decide exactly once"), "{error}");
    }
    for (slot, row) in [(0, 3), (2, 0)] {
        let error = refused(slot, row).unwrap().to_string();
        assert!(error.contains("is not in flight"), "{error}");
    }
    assert!(refused(7, 0).unwrap().to_string().contains("slot 7"));
    assert!(refused(0, 0).is_none());
    flights.commit(SlotId(0)).unwrap();
    let committed = flights.launch(SlotId(2), &[carried(0, 0)]);
    assert!(committed.unwrap_err().to_string().contains("not in flight"));
}

proptest! {
    /// Against the plainest model: a queue of launched slots, the newest of which may wait for masks.
    #[test]
    fn accepted_tokens_keep_their_order(calls in prop::collection::vec((0_usize..4, 0..SLOTS), 1..60)) {
        let mut flights = Flights::new(SLOTS, VOCAB);
        let mut queue: VecDeque<(usize, bool)> = VecDeque::new();
        for (call, slot) in calls {
            let waits = queue.back().is_some_and(|&(_, waits)| waits);
            let busy = queue.iter().any(|&(busy, _)| busy == slot);
            let (accepted, expected) = match call {
                0 | 1 => {
                    let rows = if call == 0 { [plain()] } else { [masked()] };
                    (flights.launch(SlotId(slot), &rows), !busy && !waits)
                }
                2 => (flights.finalize(SlotId(slot), &[]), queue.back() == Some(&(slot, true))),
                _ => (flights.commit(SlotId(slot)), queue.front() == Some(&(slot, false))),
            };
            prop_assert_eq!(accepted.is_ok(), expected);
            match (expected, call) {
                (true, 0 | 1) => queue.push_back((slot, call == 1)),
                (true, 2) => queue.iter_mut().for_each(|entry| entry.1 = false),
                (true, _) => drop(queue.pop_front()),
                (false, _) => {}
            }
        }
    }
}
