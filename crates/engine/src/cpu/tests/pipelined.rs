//! The backend as the pipelined engine drives it: steps in flight, carried rows, masks, drafts. All equalities are to
//! the bit.

use std::sync::mpsc::sync_channel;

use super::{backend, run};
use crate::{
    cpu::CpuBackend,
    model::{SequenceOutput, coord_from_bin, size_from_bin},
    scheduler::{
        backend::{
            Backend, DecoderInput, Feed, KvTable, MaskSource, PageId, Pick, PickResult, RowMask,
            RowRef, SlotId, TokenMask,
        },
        decision::Decision,
    },
    testing::{
        ahead::{
            CAPTION, DETECT, IMAGE, Masks, POINT, image_step, micro_picture, run_ahead, sequences,
            token_pick,
        },
        golden_model::{prompt, row, run_step, step_of, tokens},
        golden_set,
    },
};

pub(super) fn micro() -> CpuBackend {
    backend(&golden_set("md2-micro"))
}

fn host_pick() -> Pick {
    Pick::token(MaskSource::Host)
}

/// What the prompts find one after the other, fed by the host.
fn fed() -> Vec<SequenceOutput> {
    run(&mut micro(), Some(micro_picture(IMAGE)), sequences())
}

#[test]
fn device_fed_rows_equal_host_fed_rows() {
    let fed = fed();
    assert_eq!(fed[0].objects.len(), 2, "ends by itself");
    assert!(fed[1].truncated && fed[1].objects.len() == 5);
    for depth in [1, 2, 3] {
        for masks in [Masks::Launch, Masks::Host] {
            let (ahead, zombies) = run_ahead(&mut micro(), depth, masks);
            assert_eq!(ahead, fed, "depth {depth}, masks by {masks:?}");
            assert!(zombies >= depth - 1, "depth {depth}: {zombies} zombies");
        }
    }
}

/// Keys and values of all layers and heads in `pages`.
fn memory(backend: &mut CpuBackend, pages: Vec<PageId>) -> Vec<f32> {
    let positions = pages.len() * backend.limits().page_tokens;
    let kv = KvTable {
        own: pages,
        ..KvTable::default()
    };
    let all = backend.inspect(move |device| {
        let text = &device.config.text;
        (0..text.n_layers * text.n_heads)
            .flat_map(|i| {
                let (layer, head) = (i / text.n_heads, i % text.n_heads);
                device.cache.segments(layer, head, &kv, positions)
            })
            .flat_map(|segment| [segment.keys, segment.values].concat())
            .collect()
    });
    all.unwrap()
}

#[test]
fn zombies_decide_nothing_and_write_nothing() {
    let mut backend = micro();
    // The whole answer is in the prompt, so the row decides to end.
    let fed = fed();
    let prompt = [tokens(DETECT), inputs_of(&fed[0])].concat();
    let length = prompt.len();
    let ending = row(&backend, 0, 0, Feed::Host(prompt), &[Pick::CoordOrEnd]);
    let first = image_step(&backend, vec![ending]);
    backend.launch(SlotId(0), first).unwrap();
    let all: Vec<PageId> = (0..backend.limits().pages as u32).map(PageId).collect();
    let before = memory(&mut backend, all.clone());

    // A zombie of a row that ended, and a zombie of that zombie.
    for (slot, pick) in [(1, Pick::Coord), (2, host_pick())] {
        let from = RowRef {
            slot: SlotId(slot - 1),
            row: 0,
        };
        let zombie = row(&backend, 0, length + slot - 1, Feed::Carry(from), &[pick]);
        let step = step_of(vec![zombie]);
        backend.launch(SlotId(slot), step).unwrap();
    }
    let mut mask = TokenMask::none(512);
    mask.allow(7);
    let masks = vec![RowMask { row: 0, mask }];
    backend.finalize(SlotId(2), masks).unwrap();
    let picked = [0, 1, 2].map(|slot| backend.commit(SlotId(slot)).unwrap().picked.concat());
    assert!(matches!(picked[0][..], [PickResult::End { .. }]));
    assert_eq!(picked[1..], [[PickResult::Nothing], [PickResult::Nothing]]);
    assert_eq!(memory(&mut backend, all), before);
}

/// What an answer's objects feed.
fn inputs_of(found: &SequenceOutput) -> Vec<DecoderInput> {
    let inputs = found.objects.iter().flat_map(|object| {
        let (width, height) = object.size_bins.unwrap();
        [
            DecoderInput::Coord(coord_from_bin(object.x_bin) as f32),
            DecoderInput::Coord(coord_from_bin(object.y_bin) as f32),
            DecoderInput::Size(size_from_bin(width) as f32, size_from_bin(height) as f32),
        ]
    });
    inputs.collect()
}

/// Decisions of the detect prompt, one step each, fed with `draft`.
fn step_by_step(draft: &[DecoderInput]) -> Vec<PickResult> {
    let mut backend = micro();
    let cycle = [Pick::CoordOrEnd, Pick::Coord, Pick::Size];
    let mut decided = Vec::new();
    for t in 0..=draft.len() {
        let pick = &cycle[t % 3..][..1];
        let step = match t {
            0 => {
                let prompt = prompt(&backend, 0, DETECT, pick[0].clone());
                image_step(&backend, vec![prompt])
            }
            _ => {
                let fed = Feed::Host(vec![draft[t - 1]]);
                step_of(vec![row(&backend, 0, DETECT.len() + t - 1, fed, pick)])
            }
        };
        decided.extend(run_step(&mut backend, step).picked.concat());
    }
    decided
}

#[test]
fn draft_in_the_prefill_decides_like_single_steps() {
    let fed = fed();
    let right = inputs_of(&fed[0]);
    let mut wrong = right.clone();
    wrong[1] = DecoderInput::Coord(0.75);
    for (draft, accepted) in [(right, 6), (wrong, 1)] {
        let cycle = [Pick::CoordOrEnd, Pick::Coord, Pick::Size];
        let picks: Vec<Pick> = (0..=draft.len()).map(|i| cycle[i % 3].clone()).collect();
        let mut backend = micro();
        let inputs = Feed::Host([tokens(DETECT), draft.clone()].concat());
        let verified = row(&backend, 0, 0, inputs, &picks);
        // A neighbour in the batch changes nothing.
        let other = prompt(&backend, 1, POINT, Pick::CoordOrEnd);
        let step = image_step(&backend, vec![other, verified]);
        let picked = run_step(&mut backend, step).picked;
        assert_eq!(picked[1], step_by_step(&draft));
        // A decision accepts the draft's next input by feeding the same.
        let fed = picked[1]
            .iter()
            .map(|picked| Decision::of(*picked).map(Decision::input));
        let agree = fed
            .zip(&draft)
            .take_while(|(fed, drafted)| *fed == Some(**drafted));
        assert_eq!(agree.count(), accepted);
        let ends = matches!(picked[1][draft.len()], PickResult::End { .. });
        assert!(ends || accepted < draft.len(), "the whole answer is there");
    }
}

#[test]
fn host_masks_allow_tokens_that_the_launch_bans() {
    let mut backend = micro();
    let decide = |backend: &mut CpuBackend, pick, mask: Option<TokenMask>| {
        let rows = vec![
            prompt(backend, 0, CAPTION, pick),
            prompt(backend, 1, CAPTION, Pick::CoordOrEnd),
        ];
        let wants = rows[0].wants_mask();
        let step = image_step(backend, rows);
        backend.launch(SlotId(0), step).unwrap();
        if wants {
            let masks = mask.map(|mask| RowMask { row: 0, mask });
            backend
                .finalize(SlotId(0), masks.into_iter().collect())
                .unwrap();
        }
        backend.commit(SlotId(0)).unwrap().picked.concat()
    };
    let free = decide(&mut backend, token_pick(&[]), None);
    let PickResult::Token { id: favourite, .. } = free[0] else {
        panic!("a token was asked for");
    };
    let banned = decide(&mut backend, token_pick(&[favourite]), None);
    assert_ne!(free[0], banned[0]);
    let mut mask = TokenMask::none(512);
    (0..512)
        .filter(|&id| id != favourite)
        .for_each(|id| mask.allow(id));
    assert_eq!(decide(&mut backend, host_pick(), Some(mask)), banned);
    assert_eq!(
        decide(&mut backend, host_pick(), None),
        [PickResult::Nothing, free[1]],
        "without a mask"
    );
}

#[test]
fn launch_and_finalize_return_while_the_stream_is_busy() {
    let mut backend = micro();
    let (go_on, gate) = sync_channel::<()>(0);
    backend.hold(gate).unwrap();
    let prompt = prompt(&backend, 0, DETECT, Pick::CoordOrEnd);
    let first = image_step(&backend, vec![prompt]);
    let from = RowRef {
        slot: SlotId(0),
        row: 0,
    };
    let carried = row(&backend, 0, DETECT.len(), Feed::Carry(from), &[host_pick()]);
    backend.launch(SlotId(0), first).unwrap();
    let second = step_of(vec![carried]);
    backend.launch(SlotId(1), second).unwrap();
    backend.finalize(SlotId(1), Vec::new()).unwrap();
    // Nothing has run: the stream waits for this.
    drop(go_on);
    let first = backend.commit(SlotId(0)).unwrap();
    assert!(matches!(first.picked[0][0], PickResult::Coord { .. }));
    assert_eq!(
        backend.commit(SlotId(1)).unwrap().picked,
        [[PickResult::Nothing]]
    );
}

#[test]
fn reading_values_that_are_not_numbers_ends_the_device() {
    let mut backend = micro();
    let prompt = prompt(&backend, 0, DETECT, Pick::CoordOrEnd);
    backend.inspect(|device| device.cache.invalidate()).unwrap();
    let stale = step_of(vec![prompt]);
    backend.launch(SlotId(0), stale.clone()).unwrap();
    let first = backend.commit(SlotId(0)).map(drop);
    // It stays so.
    let second = backend.launch(SlotId(0), stale);
    let second = second.and_then(|()| backend.commit(SlotId(0)).map(drop));
    for result in [first, second] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("values that are not numbers"), "{error}");
    }
}

#[test]
fn panic_in_the_stream_is_an_error_at_commit() {
    let mut backend = micro();
    let step = image_step(&backend, Vec::new());
    backend.launch(SlotId(0), step.clone()).unwrap();
    let seen = backend.inspect(|_| assert_eq!(1, 2, "weights fell off"));
    assert!(seen.is_err());
    backend.commit(SlotId(0)).unwrap();
    // The queue closes when the thread has ended, which may be after this launch.
    let later = backend.launch(SlotId(1), step);
    let error = later.and_then(|()| backend.commit(SlotId(1)).map(drop));
    let error = error.unwrap_err().to_string();
    assert!(
        error.starts_with("the CPU's stream panicked") && error.contains("weights fell off"),
        "{error}"
    );
}
