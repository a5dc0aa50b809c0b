//! The backend as the pipelined engine drives it: steps in flight, carried rows, masks, drafts. All equalities are to
//! the bit.

use std::{collections::VecDeque, sync::mpsc::sync_channel};

use super::{backend_with, config, pages, picture, run};
use crate::{
    cpu::{CpuBackend, Options, TileReuse, device::next_input},
    domain::Picture,
    engine::{
        backend::{
            Backend, Feed, ImageJob, Input, KvTable, MaskSource, PageId, Pick, Picked, Row,
            RowMask, RowRef, Sampling, SlotId, Step, TokenMask,
        },
        sequence::{Bounds, Sequence, Skill},
    },
    model::{Found, ModelConfig, TokenIds, coord_from_bin, size_from_bin},
    testing::golden_set,
};

/// An image, a detect prompt that ends by itself after two objects on it, and a point prompt that does not.
pub(super) const IMAGE: &str = "gray_200x200";
pub(super) const DETECT: &[u32] = &[1, 498, 95, 376, 2, 345, 364, 509, 283, 356, 3];
pub(super) const POINT: &[u32] = &[1, 91, 90, 421, 2, 345, 364, 509, 283, 356, 3];
const CAPTION: &[u32] = &[1, 79, 290, 495, 84, 490, 2, 94, 378, 95, 3];

pub(super) fn micro() -> CpuBackend {
    backend_with(&golden_set("md2-micro").unwrap(), Options::default())
}

fn micro_config() -> ModelConfig {
    config(&golden_set("md2-micro").unwrap())
}

pub(super) fn golden_picture(image: &str) -> Picture {
    picture(&golden_set("md2-micro").unwrap(), image)
}

pub(super) fn tokens(ids: &[u32]) -> Vec<Input> {
    ids.iter().copied().map(Input::Token).collect()
}

fn token_pick(banned: &[u32]) -> Pick {
    Pick::Token {
        mask: MaskSource::Banned(banned.to_vec()),
        sampling: Sampling::Greedy,
    }
}

fn host_pick() -> Pick {
    Pick::Token {
        mask: MaskSource::Host,
        sampling: Sampling::Greedy,
    }
}

/// A row of the first image, in the pages of row `index`, `after` positions behind the image.
pub(super) fn row(
    backend: &CpuBackend,
    index: usize,
    after: usize,
    inputs: Feed,
    picks: &[Pick],
) -> Row {
    let (prefix, own) = pages(backend, index);
    let prefix_positions = backend.limits().prefix_positions;
    Row {
        inputs,
        position: prefix_positions + after,
        kv: KvTable {
            prefix,
            prefix_positions,
            own,
        },
        picks: picks.to_vec(),
    }
}

fn image_step(backend: &CpuBackend, rows: Vec<Row>) -> Step {
    Step {
        images: vec![ImageJob {
            picture: golden_picture(IMAGE),
            pages: pages(backend, 0).0,
            camera: None,
        }],
        rows,
    }
}

/// A prompt and the decisions that it will ask for, which are known before any of them is made.
struct Prompt {
    ids: &'static [u32],
    skill: Skill,
    first: Pick,
    cycle: Vec<Pick>,
}

fn prompts() -> Vec<Prompt> {
    let structured = |ids, skill, cycle: &[Pick]| Prompt {
        ids,
        skill,
        first: Pick::CoordOrEnd,
        cycle: cycle.to_vec(),
    };
    vec![
        structured(
            DETECT,
            Skill::Detect,
            &[Pick::Coord, Pick::Size, Pick::CoordOrEnd],
        ),
        structured(POINT, Skill::Point, &[Pick::Coord, Pick::CoordOrEnd]),
        Prompt {
            ids: CAPTION,
            skill: Skill::Text { reasoning: false },
            first: token_pick(&[]),
            cycle: vec![token_pick(&[micro_config().tokenizer.answer_id])],
        },
    ]
}

fn sequences(prompts: &[Prompt]) -> Vec<Sequence> {
    let (ids, bounds) = (
        TokenIds::of(&micro_config()),
        Bounds {
            max_objects: 5,
            max_tokens: 12,
        },
    );
    let sequence = |p: &Prompt| Sequence::new(p.skill, tokens(p.ids), ids.clone(), bounds);
    prompts.iter().map(sequence).collect()
}

/// Runs the prompts with `depth` steps in flight: every step but the first is fed by the one before it, on the device.
/// Returns what was found and how many rows ran as zombies.
fn run_ahead(backend: &mut CpuBackend, prompts: &[Prompt], depth: usize) -> (Vec<Found>, usize) {
    let mut running = sequences(prompts);
    let mut in_flight: VecDeque<(SlotId, Vec<usize>)> = VecDeque::new();
    let mut zombies = 0;
    for t in 0.. {
        let slot = SlotId(t % depth);
        let row = |i: usize| {
            let Prompt {
                ids, first, cycle, ..
            } = &prompts[i];
            let Some((before, members)) = in_flight.back() else {
                return row(
                    backend,
                    i,
                    0,
                    Feed::Host(tokens(ids)),
                    std::slice::from_ref(first),
                );
            };
            let from = RowRef {
                slot: *before,
                row: members.iter().position(|&member| member == i).unwrap(),
            };
            let pick = &cycle[(t - 1) % cycle.len()];
            let after = ids.len() + t - 1;
            row(
                backend,
                i,
                after,
                Feed::Carry(from),
                std::slice::from_ref(pick),
            )
        };
        let unfinished = (0..prompts.len()).filter(|&i| running[i].feed().is_some());
        let members: Vec<usize> = unfinished.collect();
        if members.is_empty() && in_flight.is_empty() {
            break;
        }
        if !members.is_empty() {
            let rows = members.iter().map(|&i| row(i)).collect();
            let step = match t {
                0 => image_step(backend, rows),
                _ => Step {
                    images: Vec::new(),
                    rows,
                },
            };
            backend.launch(slot, step).unwrap();
            in_flight.push_back((slot, members));
        }
        if in_flight.len() < depth && running.iter().any(|s| s.feed().is_some()) {
            continue;
        }
        let (slot, members) = in_flight.pop_front().unwrap();
        let picked = backend.commit(slot).unwrap().picked.concat();
        for (i, picked) in members.into_iter().zip(picked) {
            match running[i].feed() {
                Some(_) => running[i].advance(picked).unwrap(),
                None => zombies += 1,
            }
        }
    }
    let found = running.into_iter().map(Sequence::into_found).collect();
    (found, zombies)
}

#[test]
fn rows_that_the_device_feeds_find_what_rows_that_the_host_feeds_find() {
    let prompts = prompts();
    let fed = run(
        &mut micro(),
        Some(golden_picture(IMAGE)),
        sequences(&prompts),
    );
    assert_eq!(fed[0].objects.len(), 2, "ends by itself");
    assert!(fed[1].truncated && fed[1].objects.len() == 5);
    for depth in [2, 3] {
        let (ahead, zombies) = run_ahead(&mut micro(), &prompts, depth);
        assert_eq!(ahead, fed, "depth {depth}");
        assert!(zombies >= depth - 1, "depth {depth}: {zombies} zombies");
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
    // The whole answer stands in the prompt, so the row decides to end.
    let fed = run(
        &mut micro(),
        Some(golden_picture(IMAGE)),
        sequences(&prompts()),
    );
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
        let step = Step {
            images: Vec::new(),
            rows: vec![zombie],
        };
        backend.launch(SlotId(slot), step).unwrap();
    }
    let mut mask = TokenMask::none(512);
    mask.allow(7);
    let masks = vec![RowMask { row: 0, mask }];
    backend.finalize(SlotId(2), masks).unwrap();
    let picked = [0, 1, 2].map(|slot| backend.commit(SlotId(slot)).unwrap().picked.concat());
    assert!(matches!(picked[0][..], [Picked::End { .. }]));
    assert_eq!(picked[1..], [[Picked::Nothing], [Picked::Nothing]]);
    assert_eq!(memory(&mut backend, all), before);
}

/// What an answer's objects feed.
fn inputs_of(found: &Found) -> Vec<Input> {
    let inputs = found.objects.iter().flat_map(|object| {
        let (width, height) = object.size_bins.unwrap();
        [
            Input::Coord(coord_from_bin(object.x_bin) as f32),
            Input::Coord(coord_from_bin(object.y_bin) as f32),
            Input::Size(size_from_bin(width) as f32, size_from_bin(height) as f32),
        ]
    });
    inputs.collect()
}

/// Decisions of the detect prompt, one step each, fed with `draft`.
fn step_by_step(draft: &[Input]) -> Vec<Picked> {
    let mut backend = micro();
    let cycle = [Pick::CoordOrEnd, Pick::Coord, Pick::Size];
    let mut decided = Vec::new();
    for t in 0..=draft.len() {
        let pick = &cycle[t % 3..][..1];
        let step = match t {
            0 => {
                let prompt = Feed::Host(tokens(DETECT));
                image_step(&backend, vec![row(&backend, 0, 0, prompt, pick)])
            }
            _ => {
                let fed = Feed::Host(vec![draft[t - 1]]);
                Step {
                    images: Vec::new(),
                    rows: vec![row(&backend, 0, DETECT.len() + t - 1, fed, pick)],
                }
            }
        };
        backend.launch(SlotId(0), step).unwrap();
        decided.extend(backend.commit(SlotId(0)).unwrap().picked.concat());
    }
    decided
}

#[test]
fn a_draft_in_the_prefill_is_decided_as_step_by_step() {
    let fed = run(
        &mut micro(),
        Some(golden_picture(IMAGE)),
        sequences(&prompts()),
    );
    let right = inputs_of(&fed[0]);
    let mut wrong = right.clone();
    wrong[1] = Input::Coord(0.75);
    for (draft, accepted) in [(right, 6), (wrong, 1)] {
        let cycle = [Pick::CoordOrEnd, Pick::Coord, Pick::Size];
        let picks: Vec<Pick> = (0..=draft.len()).map(|i| cycle[i % 3].clone()).collect();
        let mut backend = micro();
        let inputs = Feed::Host([tokens(DETECT), draft.clone()].concat());
        let verified = row(&backend, 0, 0, inputs, &picks);
        // A neighbour in the batch changes nothing.
        let other = Feed::Host(tokens(POINT));
        let other = row(&backend, 1, 0, other, &[Pick::CoordOrEnd]);
        let step = image_step(&backend, vec![other, verified]);
        backend.launch(SlotId(0), step).unwrap();
        let picked = backend.commit(SlotId(0)).unwrap().picked;
        assert_eq!(picked[1], step_by_step(&draft));
        // A decision accepts the draft's next input by feeding the same.
        let fed = picked[1].iter().map(next_input);
        let agree = fed
            .zip(&draft)
            .take_while(|(fed, drafted)| *fed == Some(**drafted));
        assert_eq!(agree.count(), accepted);
        let ends = matches!(picked[1][draft.len()], Picked::End { .. });
        assert!(ends || accepted < draft.len(), "the whole answer is there");
    }
}

#[test]
fn masks_of_the_host_allow_what_the_launch_would_have_banned() {
    let mut backend = micro();
    let prompt = || Feed::Host(tokens(CAPTION));
    let decide = |backend: &mut CpuBackend, pick, mask: Option<TokenMask>| {
        let rows = vec![
            row(backend, 0, 0, prompt(), &[pick]),
            row(backend, 1, 0, prompt(), &[Pick::CoordOrEnd]),
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
    let Picked::Token { id: favourite, .. } = free[0] else {
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
        [Picked::Nothing, free[1]],
        "without a mask"
    );
}

#[test]
fn launch_and_finalize_return_while_the_stream_is_busy() {
    let mut backend = micro();
    let (go_on, gate) = sync_channel::<()>(0);
    backend.hold(gate).unwrap();
    let prompt = row(
        &backend,
        0,
        0,
        Feed::Host(tokens(DETECT)),
        &[Pick::CoordOrEnd],
    );
    let first = image_step(&backend, vec![prompt]);
    let from = RowRef {
        slot: SlotId(0),
        row: 0,
    };
    let carried = row(&backend, 0, DETECT.len(), Feed::Carry(from), &[host_pick()]);
    backend.launch(SlotId(0), first).unwrap();
    let second = Step {
        images: Vec::new(),
        rows: vec![carried],
    };
    backend.launch(SlotId(1), second).unwrap();
    backend.finalize(SlotId(1), Vec::new()).unwrap();
    // Nothing has run: the stream waits for this.
    drop(go_on);
    let first = backend.commit(SlotId(0)).unwrap();
    assert!(matches!(first.picked[0][0], Picked::Coord { .. }));
    assert_eq!(
        backend.commit(SlotId(1)).unwrap().picked,
        [[Picked::Nothing]]
    );
}

#[test]
fn reading_a_released_page_ends_the_device_with_an_error() {
    let options = Options {
        poison: true,
        tile_reuse: TileReuse::Off,
    };
    let mut backend = backend_with(&golden_set("md2-micro").unwrap(), options);
    let step = |backend: &CpuBackend| {
        let prompt = Feed::Host(tokens(DETECT));
        let rows = vec![row(backend, 0, 0, prompt, &[Pick::CoordOrEnd])];
        image_step(backend, rows)
    };
    let first = step(&backend);
    backend.launch(SlotId(0), first).unwrap();
    backend.release(&pages(&backend, 0).0);
    backend.commit(SlotId(0)).unwrap();
    let stale = Step {
        images: Vec::new(),
        ..step(&backend)
    };
    backend.launch(SlotId(1), stale).unwrap();
    for slot in [SlotId(1), SlotId(0)] {
        let error = backend.commit(slot).unwrap_err().to_string();
        let expected = match slot.0 {
            1 => "a page was read that was released",
            _ => "slot 0 has nothing to commit",
        };
        assert!(error.contains(expected), "{error}");
    }
    // It stays so.
    let again = step(&backend);
    let error = backend
        .launch(SlotId(0), again)
        .and_then(|()| backend.commit(SlotId(0)).map(drop));
    let error = error.unwrap_err().to_string();
    assert!(
        error.contains("a page was read that was released"),
        "{error}"
    );
}

#[test]
fn a_panic_of_the_stream_is_an_error_of_the_commit() {
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
