//! Several pictures in a step, and crops that are not encoded again. All equalities are to the bit.

use std::sync::Arc;

use super::{pages, pipelined::micro};
use crate::{
    cpu::CpuBackend,
    model,
    scheduler::backend::{
        Backend, CropSource, FeatureEntry, ImageJob, KvTable, PageId, Pick, Row, SlotId, Step,
        StepResult,
    },
    testing::{
        ahead::{DETECT, IMAGE, micro_picture},
        golden_model::{config, prompt, run_step},
        golden_set,
    },
};
use spotter_core::Picture;

/// Pages for the prefix of picture `index`, apart from those of the first rows.
fn prefix_pages(backend: &CpuBackend, index: usize) -> Arc<[PageId]> {
    let count = pages(backend, 0).0.len();
    pages(backend, 20 + index).1[..count].into()
}

/// A job in these pages, and a detect prompt on it.
fn look(backend: &CpuBackend, index: usize, picture: Picture) -> (ImageJob, Row) {
    let prefix = prefix_pages(backend, index);
    let mut row = prompt(backend, index, DETECT, Pick::CoordOrEnd);
    row.kv.prefix = prefix.clone();
    let job = ImageJob {
        view: Default::default(),
        camera: None,
        picture,
        pages: prefix,
        crops: Vec::new(),
        adapter: None,
    };
    (job, row)
}

fn run(backend: &mut CpuBackend, looks: Vec<(ImageJob, Row)>) -> StepResult {
    let (images, rows) = looks.into_iter().unzip();
    run_step(backend, Step { images, rows })
}

/// Keys of the first head of the last layer, of the picture in these pages.
fn keys(backend: &mut CpuBackend, prefix: Arc<[PageId]>) -> Vec<f32> {
    let positions = backend.limits().prefix_positions;
    let kv = KvTable {
        prefix,
        prefix_positions: positions,
        own: Vec::new(),
    };
    let keys = backend.inspect(move |device| {
        let segments = device.cache.segments(1, 0, &kv, positions);
        segments.iter().flat_map(|s| s.keys).copied().collect()
    });
    keys.unwrap()
}

#[test]
fn pictures_in_one_step_are_as_pictures_one_by_one() {
    // One crop, several, and several again: all in one batch.
    let names = ["small_50x40", "pal_640x480", IMAGE];
    let mut together = micro();
    let looks = names.iter().enumerate();
    let looks = looks
        .map(|(i, name)| look(&together, i, micro_picture(name)))
        .collect();
    let all = run(&mut together, looks);
    let mut crops = 0;
    for (i, name) in names.iter().enumerate() {
        let mut alone = micro();
        let one = look(&alone, i, micro_picture(name));
        let one = run(&mut alone, vec![one]);
        assert_eq!(one.picked[0], all.picked[i], "{name}");
        assert_eq!(one.model_sizes[0], all.model_sizes[i], "{name}");
        let prefix = prefix_pages(&alone, i);
        assert_eq!(
            keys(&mut alone, prefix.clone()),
            keys(&mut together, prefix),
            "{name}"
        );
        crops += one.crops_encoded;
    }
    assert_eq!((all.crops_encoded, all.crops_reused), (crops, 0));
}

const SIZE: (usize, usize) = (640, 480);

/// A picture of blocks, with `value` in the top left corner, which is in the whole picture and in one tile.
fn street(value: u8) -> Picture {
    let (width, height) = SIZE;
    let byte = |i: usize| {
        let (x, y, channel) = (i / 3 % width, i / 3 / width, i % 3);
        let block = (x / 37 * 31 + y / 29 * 17 + channel * 59) % 251;
        if x < 24 && y < 24 { value } else { block as u8 }
    };
    let bytes = (0..width * height * 3).map(byte).collect();
    Picture::from_rgb(width, height, bytes).unwrap()
}

#[test]
fn kept_features_decide_as_encoded_ones() {
    let mut backend = micro();
    let all = model::tiling(SIZE.0, SIZE.1, &config(&golden_set("md2-micro")).vision).crops();
    let keep = |i: usize| CropSource::Encoded(Some(FeatureEntry(i as u32)));
    let kept = |i: usize| CropSource::Kept(FeatureEntry(i as u32));
    let mut decide = |value, crops: Vec<CropSource>| {
        let (mut job, row) = look(&backend, 0, street(value));
        job.crops = crops;
        let done = run(&mut backend, vec![(job, row)]);
        (
            done.picked.concat(),
            (done.crops_encoded, done.crops_reused),
        )
    };
    let (before, counts) = decide(10, (0..all).map(keep).collect());
    assert_eq!(counts, (all, 0));
    assert_eq!(
        decide(10, (0..all).map(kept).collect()),
        (before.clone(), (0, all))
    );
    // The pixels of a kept crop are not read.
    assert_eq!(decide(200, (0..all).map(kept).collect()).0, before);
    let (after, _) = decide(200, Vec::new());
    assert_ne!(after, before, "the change is seen");
    let changed = |i: usize| if i < 2 { keep(i) } else { kept(i) };
    let (mixed, counts) = decide(200, (0..all).map(changed).collect());
    assert_eq!((mixed, counts), (after.clone(), (2, all - 2)));
    assert_eq!(decide(10, (0..all).map(kept).collect()).0, after);
}

#[test]
fn images_of_one_step_read_entries_in_their_order() {
    let mut backend = micro();
    let all = model::tiling(SIZE.0, SIZE.1, &config(&golden_set("md2-micro")).vision).crops();
    let keep = |i: usize| CropSource::Encoded(Some(FeatureEntry(i as u32)));
    let kept = |i: usize| CropSource::Kept(FeatureEntry(i as u32));
    let job = |backend: &CpuBackend, index, value, crop: &dyn Fn(usize) -> CropSource| {
        let (mut job, row) = look(backend, index, street(value));
        job.crops = (0..all).map(crop).collect();
        (job, row)
    };
    let first = job(&backend, 0, 10, &keep);
    let before = run(&mut backend, vec![first]).picked.concat();
    let looks = [
        (0, 0, &kept as &dyn Fn(usize) -> _),
        (1, 200, &keep),
        (2, 0, &kept),
    ];
    let looks = looks.map(|(index, value, crop)| job(&backend, index, value, crop));
    let picked = run(&mut backend, looks.into()).picked;
    assert_eq!(picked[0], before);
    assert_ne!(picked[1], before);
    assert_eq!(picked[2], picked[1]);
}

#[test]
fn entry_that_was_never_filled_is_an_error() {
    let backend = &mut micro();
    let (mut job, row) = look(backend, 0, micro_picture("small_50x40"));
    job.crops = vec![CropSource::Kept(FeatureEntry(3))];
    let step = Step {
        images: vec![job],
        rows: vec![row],
    };
    backend.launch(SlotId(0), step).unwrap();
    let error = backend.commit(SlotId(0)).unwrap_err().to_string();
    assert!(error.contains("never filled"), "{error}");
}
