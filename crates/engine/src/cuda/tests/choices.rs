//! Decisions: bins, the end, tokens.

use super::{Random, Rig, f32s, normed, rig};
use crate::{
    cuda::{
        kernels::{DecideInputs, DecisionBuffers, PickTables, TokenLogits},
        memory::Buffer,
        record::DecisionRecord,
        tensor::{GpuNorm, MatrixShape},
    },
    model::BINS,
    scheduler::{
        backend::{PickResult, TokenMask},
        decision::Decision,
    },
};

fn softmax(x: &[f32]) -> Vec<f32> {
    let top = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mass: f32 = x.iter().map(|x| (x - top).exp()).sum();
    x.iter().map(|x| (x - top).exp() / mass).collect()
}

/// The largest, the lowest index among equals, and the mass around it.
fn best(x: &[f32]) -> (u16, f32) {
    let bin = (0..x.len())
        .rev()
        .max_by(|&a, &b| x[a].total_cmp(&x[b]))
        .unwrap();
    let near = softmax(x)[bin.saturating_sub(2)..(bin + 3).min(x.len())]
        .iter()
        .sum();
    (bin as u16, near)
}

fn logits(random: &mut Random, count: usize) -> Vec<f32> {
    // Few different values, so that the largest occurs more than once.
    f32s(&random.values(count))
        .iter()
        .map(|x| (x * 8.0).round() / 2.0)
        .collect()
}

fn near(a: f32, b: f32) -> bool {
    (a - b).abs() < 1e-4
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn bins_and_ends_are_decided_as_by_the_formula() {
    let rig = rig();
    let mut random = Random::new(7);
    let (width, rows) = (192, 6);
    let hidden = random.values(rows * width);
    let (w, b, on_end) = (
        random.values(width),
        random.values(width),
        random.values(2 * width),
    );
    let bias = [0.3, -0.2];
    let (coords, sizes) = (
        logits(&mut random, rows * BINS),
        logits(&mut random, rows * 2 * BINS),
    );
    // kind, position, logits, carried
    let picks = [
        [0, 0, 0, 3],
        [0, 1, 1, -1],
        [1, 2, 2, 0],
        [2, 3, 1, 1],
        [0, 4, 3, -1],
        [1, 5, 4, 2],
    ];
    let up = (rig.up(&hidden), rig.up(&w), rig.up(&b), rig.up(&on_end));
    let tables = (rig.ints(&picks.concat()), rig.ints(&[0, 0, 0, 0, 0, 1]));
    let (bias_up, coords_up, sizes_up) =
        (rig.floats(&bias), rig.floats(&coords), rig.floats(&sizes));
    let out = Buffer::<DecisionRecord>::zeros(&rig.stream, picks.len()).unwrap();
    let carried = Buffer::<DecisionRecord>::zeros(&rig.stream, 4).unwrap();
    let norm = &GpuNorm {
        weight: up.1,
        bias: up.2,
    };
    let pick_tables = PickTables {
        pick: tables.0.start(),
        is_zombie: tables.1.start(),
        choice: tables.0.start(),
        banned: tables.0.start(),
    };
    let inputs = DecideInputs {
        hidden: up.0.start(),
        norm,
        on_end_weight: up.3.start(),
        on_end_bias: bias_up.start(),
        coords: coords_up.start(),
        sizes: sizes_up.start(),
    };
    let buffers = DecisionBuffers {
        records: out.start(),
        carried: carried.start(),
    };
    let shape = MatrixShape {
        rows: picks.len(),
        width,
    };
    rig.kernels
        .decide(&inputs, &pick_tables, buffers, shape)
        .unwrap();
    let got = out.to_host(&rig.stream).unwrap();
    let carried = carried.to_host(&rig.stream).unwrap();
    let (hidden, w, b, on_end) = (f32s(&hidden), f32s(&w), f32s(&b), f32s(&on_end));
    for (i, &[kind, position, row, to]) in picks.iter().enumerate() {
        let picked = got[i].picked().unwrap();
        if to >= 0 {
            assert_eq!(carried[to as usize], got[i]);
        }
        if position == 5 {
            assert_eq!(picked, PickResult::Nothing, "a zombie decides nothing");
            continue;
        }
        let bins = &coords[row as usize * BINS..][..BINS];
        match kind {
            2 => {
                let sizes = &sizes[row as usize * 2 * BINS..][..2 * BINS];
                let ((w, sw), (h, sh)) = (best(&sizes[..BINS]), best(&sizes[BINS..]));
                assert_eq!(Decision::of(picked), Some(Decision::Size(w, h)));
                assert!(near(picked.sharpness(), sw.min(sh)), "{picked:?}");
            }
            _ => {
                let x = &hidden[position as usize * width..][..width];
                let normed = normed(x, &w, &b);
                let head = |which: usize| {
                    let weight = &on_end[which * width..][..width];
                    normed.iter().zip(weight).map(|(x, w)| x * w).sum::<f32>() + bias[which]
                };
                let (on, end) = (head(0), head(1));
                let goes_on = match kind {
                    0 => 1.0 / (1.0 + (end - on).exp()),
                    _ => 1.0,
                };
                if let PickResult::End { probability } = picked {
                    assert!(kind == 0 && end > on && near(probability, 1.0 - goes_on));
                    continue;
                }
                let (wanted, near_mass) = best(bins);
                assert!(kind == 1 || on >= end);
                assert_eq!(Decision::of(picked), Some(Decision::Coord(wanted)));
                assert!(near(picked.probability(), goes_on), "{picked:?}");
                assert!(near(picked.sharpness(), near_mass), "{picked:?}");
            }
        }
    }
}

const VOCAB: usize = 5000;

/// Logits of values, and the ids of the tokens that stand for a coordinate and for a size.
struct Values {
    coords: Vec<f32>,
    sizes: Vec<f32>,
    ids: [i32; 2],
}

/// What the kernel chooses, row by row, each with the same logits: any id but these, or one of a mask of every third id.
fn choose(
    rig: &Rig,
    logits: &[f32],
    choices: &[Option<Vec<u32>>],
    values: &Values,
) -> Vec<PickResult> {
    let rows = choices.len();
    let all: Vec<f32> = logits.iter().copied().cycle().take(rows * VOCAB).collect();
    let (mut words, mut banned) = (Vec::new(), Vec::new());
    for (i, choice) in choices.iter().enumerate() {
        let count = choice.as_ref().map_or(-1, |ids| ids.len() as i32);
        words.extend([i as i32, -1, count, i as i32]);
        let [coord, size] = values.ids;
        words.extend([coord, 0, size, 0]);
        let mut ids = choice.clone().unwrap_or_default();
        ids.resize(4, 0);
        banned.extend(ids.iter().map(|&id| id as i32));
    }
    let mut mask = TokenMask::none(VOCAB);
    (0..VOCAB as u32).step_by(3).for_each(|id| mask.allow(id));
    let masks = Buffer::from_host(&rig.stream, &mask.0.repeat(rows)).unwrap();
    let (logits, words, banned) = (rig.floats(&all), rig.ints(&words), rig.ints(&banned));
    let is_zombie = rig.ints(&vec![0; rows]);
    let (coords, sizes) = (rig.floats(&values.coords), rig.floats(&values.sizes));
    let out = Buffer::<DecisionRecord>::zeros(&rig.stream, rows).unwrap();
    let tables = PickTables {
        pick: words.start(),
        is_zombie: is_zombie.start(),
        choice: words.start(),
        banned: banned.start(),
    };
    let logits = TokenLogits {
        logits: logits.start(),
        mask: masks.start(),
        coords: coords.start(),
        sizes: sizes.start(),
        rows,
        vocab: VOCAB,
    };
    let buffers = DecisionBuffers {
        records: out.start(),
        carried: out.start(),
    };
    rig.kernels.choose_token(&logits, &tables, buffers).unwrap();
    out.to_host(&rig.stream)
        .unwrap()
        .iter()
        .map(|record| record.picked().unwrap())
        .collect()
}

fn allowed(choice: &Option<Vec<u32>>, id: usize) -> bool {
    match choice {
        Some(banned) => !banned.contains(&(id as u32)),
        None => id.is_multiple_of(3),
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn tokens_are_the_largest_that_are_allowed() {
    let rig = rig();
    let logits = logits(&mut Random::new(8), VOCAB);
    let first = best(&logits).0.into();
    let choices = [Some(vec![]), Some(vec![first]), None];
    let shares = softmax(&logits);
    let none = Values {
        coords: vec![0.0; BINS],
        sizes: vec![0.0; 2 * BINS],
        ids: [-1; 2],
    };
    for (choice, picked) in choices.iter().zip(choose(&rig, &logits, &choices, &none)) {
        let ids = (0..VOCAB).filter(|&id| allowed(choice, id));
        let wanted = ids
            .rev()
            .max_by(|&a, &b| logits[a].total_cmp(&logits[b]))
            .unwrap();
        assert_eq!(Decision::of(picked), Some(Decision::Token(wanted as u32)));
        assert!((picked.probability() / shares[wanted] - 1.0).abs() < 1e-3);
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn token_that_means_a_value_is_decided_with_it() {
    let rig = rig();
    let mut random = Random::new(9);
    let vocabulary = logits(&mut random, VOCAB);
    let [coords, sizes] = [BINS, 2 * BINS].map(|count| logits(&mut random, count));
    let first = best(&vocabulary).0;
    let choices = [Some(vec![]), Some(vec![u32::from(first)])];
    let share = softmax(&vocabulary)[usize::from(first)];
    let id = i32::from(first);
    for ids in [[id, -1], [-1, id]] {
        let values = Values {
            coords: coords.clone(),
            sizes: sizes.clone(),
            ids,
        };
        let picked = choose(&rig, &vocabulary, &choices, &values);
        let (x, [w, h]) = (best(&coords), [&sizes[..BINS], &sizes[BINS..]].map(best));
        let (wanted, sharpness) = match ids {
            [_, -1] => (Decision::Coord(x.0), x.1),
            _ => (Decision::Size(w.0, h.0), w.1.min(h.1)),
        };
        assert_eq!(Decision::of(picked[0]), Some(wanted));
        assert!(near(picked[0].probability(), share) && near(picked[0].sharpness(), sharpness));
        assert!(
            matches!(picked[1], PickResult::Token { .. }),
            "it is banned"
        );
    }
}

#[test]
fn a_record_of_nan_has_no_decision() {
    let record = DecisionRecord {
        kind: 1,
        probability: f32::NAN,
        ..DecisionRecord::default()
    };
    assert!(record.picked().is_none());
}
