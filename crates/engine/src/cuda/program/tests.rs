use std::collections::HashSet;

use super::*;
use crate::{
    cuda::graphs::{GraphShape, SHAPES_MAX},
    scheduler::backend::{DecoderInput, PageId, ValueTokens},
};

const SLOTS: usize = 2;
const LIMITS: BackendLimits = BackendLimits {
    slots: SLOTS,
    rows: 32,
    pages: 2000,
    page_tokens: PAGE,
    context: 2048,
    prefix_positions: 730,
    images: 8,
    positions: 4096,
    tokens: 256,
    picks: 4096,
    picture_pixels: usize::MAX,
    kept_crops: 0,
    adapters: 0,
};
const PLACE: StepPlace<'_> = StepPlace {
    slot: SlotId(0),
    adapters: None,
};
/// Of the words of a block before a step is written.
const STALE: i32 = 77_777;

/// A row of `count` positions behind the image of a look, or without one.
fn row(index: usize, look: Option<usize>, count: usize) -> Row {
    let prefix_positions = look.map_or(0, |_| LIMITS.prefix_positions);
    let pages = |first: usize, count: usize| (first..first + count).map(|page| PageId(page as u32));
    Row {
        inputs: Feed::Host(vec![DecoderInput::Token(index as u32); count]),
        position: prefix_positions,
        kv: KvTable {
            prefix: look
                .into_iter()
                .flat_map(|look| pages(1000 + look * 46, 46))
                .collect(),
            prefix_positions,
            own: pages(index * 8, count.div_ceil(PAGE)).collect(),
        },
        picks: vec![Pick::Coord],
        adapter: None,
    }
}

/// `with` rows behind images of `looks` looks in turn, then `without` rows without an image, of `count` positions each.
fn step(with: usize, looks: usize, without: usize, count: usize) -> Step {
    let behind = (0..with).map(|i| row(i, Some(i % looks), count));
    let alone = (with..with + without).map(|i| row(i, None, count));
    Step {
        images: Vec::new(),
        rows: behind.chain(alone).collect(),
    }
}

/// All mixes of up to 32 rows of one position.
fn decode_steps() -> impl Iterator<Item = Step> {
    (1..=LIMITS.rows).flat_map(|rows| {
        (0..=rows).flat_map(move |with| {
            let looks = if with == 0 { 1..=1 } else { 1..=with };
            looks.map(move |looks| step(with, looks, rows - with, 1))
        })
    })
}

/// The block and the numbers of a step, exact and padded.
fn written(step: &Step, layout: &TableLayout) -> [(Vec<i32>, StepCounts); 2] {
    let mut block = vec![STALE; layout.words];
    let counts = write(step, PLACE, layout, &mut block).unwrap();
    let (mut padded_block, mut padded) = (block.clone(), counts.clone());
    pad(&mut padded, layout, &mut padded_block);
    [(block, counts), (padded_block, padded)]
}

/// Padding is only behind the step's own entries, and its entries say that nothing is read, written or decided.
fn assert_padding_is_harmless(step: &Step, layout: &TableLayout) {
    let [(exact, counts), (block, padded)] = written(step, layout);
    let (own, all) = (counts.row_positions, padded.row_positions);
    let mut expected = exact;
    let mut entry = |table: Table, index: usize, value| expected[table.start + index] = value;
    for at in own..all {
        entry(layout.position, at, 0);
        entry(layout.slot, at, -1);
        entry(layout.kind, at, -1);
        entry(layout.own_length, at, 0);
        entry(layout.place, at, -1);
    }
    (counts.tiles..padded.tiles).for_each(|tile| entry(layout.tile_length, tile, 0));
    assert!(block == expected, "{counts:?}");
    let same = StepCounts {
        row_positions: own,
        tiles: counts.tiles,
        ..padded
    };
    assert_eq!(same, counts);
}

#[test]
fn padding_reads_writes_and_decides_nothing() {
    let layout = TableLayout::new(&LIMITS);
    for step in decode_steps().step_by(7) {
        assert_padding_is_harmless(&step, &layout);
    }
    // Prompts and drafts behind images that are in the cache, up to the largest step.
    for (with, looks, without, count) in [
        (3, 2, 0, 5),
        (7, 7, 4, 9),
        (32, 32, 0, 17),
        (20, 5, 12, 128),
    ] {
        assert_padding_is_harmless(&step(with, looks, without, count), &layout);
    }
}

#[test]
fn steps_without_rows_or_with_images_are_not_padded() {
    let layout = TableLayout::new(&LIMITS);
    let picture = spotter_core::Picture::from_rgb(1, 1, vec![0; 3]).unwrap();
    let image = ImageJob {
        picture,
        view: Default::default(),
        camera: None,
        pages: (0..46).map(PageId).collect(),
        crops: Vec::new(),
        adapter: None,
    };
    let with_image = Step {
        images: vec![image],
        ..step(3, 3, 2, 3)
    };
    for step in [with_image, Step::default()] {
        let [exact, padded] = written(&step, &layout);
        assert!(exact == padded);
    }
}

#[test]
fn decode_steps_have_fewer_shapes_than_graphs() {
    let layout = TableLayout::new(&LIMITS);
    let mut shapes = [HashSet::new(), HashSet::new()];
    for step in decode_steps() {
        for (shapes, (_, counts)) in shapes.iter_mut().zip(written(&step, &layout)) {
            shapes.insert(GraphShape::forward(SlotId(0), &counts));
        }
    }
    let [exact, padded] = shapes.map(|shapes| shapes.len() * SLOTS);
    assert!(exact > 4 * SHAPES_MAX, "{exact}");
    assert_eq!(padded, 80);
    assert!(padded < SHAPES_MAX);
}

#[test]
fn padded_positions_select_the_kernels_of_exact_ones() {
    // The most rows of `skinny_8`, of a skinny product, of inputs in bf16 beside 8-bit weights, and of `layer_norm_few`.
    let thresholds = [8, 16, 32, 256];
    for positions in 1..=LIMITS.positions {
        let padded = padded_positions(positions);
        assert!(padded >= positions && padded_positions(padded) == padded);
        for most in thresholds {
            assert_eq!(padded <= most, positions <= most, "{positions}");
        }
        // The shape of a product in cuBLASLt.
        assert_eq!(bucket(padded), bucket(positions), "{positions}");
        // A second skinny product of the rows behind 16.
        let second = |rows: usize| rows.saturating_sub(16) > 8;
        assert!(positions > 32 || second(padded) == second(positions));
    }
}

#[test]
fn tokens_without_values_take_no_rows_of_values() {
    let layout = TableLayout::new(&LIMITS);
    let mut step = step(4, 1, 0, 1);
    let mask = MaskSource::Banned(Vec::new());
    let valued = |coord, size| Pick::Token {
        mask: mask.clone(),
        values: ValueTokens { coord, size },
    };
    let picks = [
        Pick::Coord,
        valued(None, None),
        valued(Some(5), None),
        valued(Some(5), Some(6)),
    ];
    for (row, pick) in step.rows.iter_mut().zip(picks) {
        row.picks = vec![pick];
    }
    let mut block = vec![STALE; layout.words];
    let counts = write(&step, PLACE, &layout, &mut block).unwrap();
    assert_eq!((counts.coords, counts.sizes, counts.tokens), (3, 1, 3));
    let values = |token: usize| &block[layout.choice.start + token * 8 + 4..][..4];
    assert_eq!(
        [0, 1, 2].map(values),
        [[-1, -1, -1, -1], [5, 1, -1, -1], [5, 2, 6, 0]]
    );
}

#[test]
fn positions_have_the_slots_of_their_adapters() {
    let limits = BackendLimits {
        adapters: 2,
        ..LIMITS
    };
    let layout = TableLayout::new(&limits);
    let mut held = HeldAdapters::empty(2);
    [7, 9]
        .map(AdapterNumber)
        .into_iter()
        .enumerate()
        .for_each(|(slot, number)| held.put(slot, number));
    let place = StepPlace {
        adapters: Some(&held),
        ..PLACE
    };
    let adapter = |number| {
        let weights = Default::default();
        let number = AdapterNumber(number);
        Some(Arc::new(LoadedAdapter { number, weights }))
    };
    let mut step = step(3, 1, 0, 3);
    step.rows[0].adapter = adapter(9);
    step.rows[2].adapter = adapter(7);
    let mut block = vec![STALE; layout.words];
    let mut counts = write(&step, place, &layout, &mut block).unwrap();
    pad(&mut counts, &layout, &mut block);
    let table = |block: &[i32]| block[layout.adapter.start..][..12].to_vec();
    assert_eq!(table(&block), [1, 1, 1, -1, -1, -1, 0, 0, 0, -1, -1, -1]);
    assert!(counts.has_adapters && counts.row_positions == 12);
    // Launches differ from those of the same step without adapters.
    let of_step = |counts| GraphShape::forward(SlotId(0), counts);
    let without = StepCounts {
        has_adapters: false,
        ..counts.clone()
    };
    assert_ne!(of_step(&counts), of_step(&without));

    step.rows[1].adapter = adapter(8);
    assert!(write(&step, place, &layout, &mut block).is_err());
}

#[test]
fn adapter_that_no_row_wants_gives_up_its_slot() {
    let numbers = |list: &[u32]| list.iter().map(|n| AdapterNumber(*n)).collect::<Vec<_>>();
    let mut held = HeldAdapters::empty(2);
    for (number, slot) in [(7, 0), (8, 1)] {
        assert_eq!(held.take_slot(&numbers(&[7, 8])), Some(slot));
        held.put(slot, AdapterNumber(number));
    }
    assert_eq!(held.slot_of(AdapterNumber(8)), Some(1));
    assert_eq!(held.take_slot(&numbers(&[9, 7])), Some(1));
    assert_eq!(held.slot_of(AdapterNumber(8)), None);
    held.put(1, AdapterNumber(9));
    assert_eq!(held.take_slot(&numbers(&[7, 9, 10])), None);
}
