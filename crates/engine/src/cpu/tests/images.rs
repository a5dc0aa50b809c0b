//! Several pictures in a step, and crops that are not encoded again. All equalities are to the bit.

use std::sync::Arc;

use super::{backend_with, pages, pipelined::micro};
use crate::{
    cpu::{CpuBackend, tiles::KEPT_IMAGES},
    scheduler::backend::{
        Backend, ImageJob, KvTable, PageId, Pick, PickResult, Row, Step, StepResult,
    },
    testing::{
        ahead::{DETECT, IMAGE, micro_picture},
        golden_model::{prompt, run_step},
        golden_set,
    },
};
use spotter_core::{CameraId, Picture};

fn camera(name: &str) -> Option<CameraId> {
    CameraId::new(name).ok()
}

/// Pages for the prefix of picture `index`, apart from those of the first rows.
fn prefix_pages(backend: &CpuBackend, index: usize) -> Arc<[PageId]> {
    let count = pages(backend, 0).0.len();
    pages(backend, 20 + index).1[..count].into()
}

/// A job in these pages, and a detect prompt on it.
fn look(
    backend: &CpuBackend,
    index: usize,
    picture: Picture,
    camera: Option<CameraId>,
) -> (ImageJob, Row) {
    let prefix = prefix_pages(backend, index);
    let mut row = prompt(backend, index, DETECT, Pick::CoordOrEnd);
    row.kv.prefix = prefix.clone();
    let job = ImageJob {
        view: Default::default(),
        picture,
        pages: prefix,
        camera,
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
        .map(|(i, name)| look(&together, i, micro_picture(name), None))
        .collect();
    let all = run(&mut together, looks);
    let mut crops = 0;
    for (i, name) in names.iter().enumerate() {
        let mut alone = micro();
        let one = look(&alone, i, micro_picture(name), None);
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

/// A picture of blocks, with `value` in the top left corner.
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

/// Shows pictures one after the other; decisions, and crops encoded and reused.
fn show(
    backend: &mut CpuBackend,
    pictures: &[(Picture, Option<CameraId>)],
) -> (Vec<PickResult>, Vec<(usize, usize)>) {
    let mut shown = (Vec::new(), Vec::new());
    for (picture, camera) in pictures {
        let look = look(backend, 0, picture.clone(), camera.clone());
        let committed = run(backend, vec![look]);
        shown.0.extend(committed.picked.concat());
        let crops = (committed.crops_encoded, committed.crops_reused);
        shown.1.push(crops);
    }
    shown
}

#[test]
fn unchanged_crops_are_not_encoded_again_and_nothing_else_changes() {
    let pictures = [
        (street(10), camera("gate")),
        (street(10), camera("gate")),
        (street(200), camera("gate")),
        (street(200), camera("yard")),
        (street(200), None),
        (street(200), camera("gate")),
    ];
    let of_no_camera = pictures.clone().map(|(picture, _)| (picture, None));
    let (without, counts) = show(&mut micro(), &of_no_camera);
    let all = counts[0].0;
    assert!(all > 4 && counts.iter().all(|&crops| crops == (all, 0)));
    let (with, counts) = show(&mut micro(), &pictures);
    assert_eq!(with, without);
    let expected = [
        (all, 0),
        (0, all),
        // The corner is in the whole picture and in one tile.
        (2, all - 2),
        (all, 0),
        (all, 0),
        (0, all),
    ];
    assert_eq!(counts, expected);
}

#[test]
fn cameras_are_forgotten_after_so_many_pictures() {
    let mut backend = micro();
    let mut is_reused = |name| {
        let (_, counts) = show(&mut backend, &[(street(0), camera(name))]);
        counts[0].1 > 0
    };
    let others = KEPT_IMAGES as usize;
    assert!(!is_reused("gate"));
    assert!(!is_reused("yard"));
    assert!((1..others - 1).all(|_| is_reused("yard")));
    assert!(is_reused("gate"), "after {} of others", others - 1);
    assert!((0..others).all(|_| is_reused("yard")));
    assert!(!is_reused("gate"), "after {others} of others");
    let kept = backend.inspect(|device| device.tiles.cameras()).unwrap();
    assert_eq!(kept, 2);
}

#[test]
fn changes_below_the_threshold_count_when_their_sum_exceeds_it() {
    let pictures = [100, 106, 112].map(|value| (street(value), camera("gate")));
    let (_, exact) = show(&mut micro(), &pictures);
    let all = exact[0].0;
    // The corner is in the whole picture and in one tile.
    assert_eq!(exact[1..], [(2, all - 2); 2], "zero is exact");
    let mut tolerant = backend_with(&golden_set("md2-micro"), 0.1);
    let (_, counts) = show(&mut tolerant, &pictures);
    assert_eq!(counts[1], (0, all), "the corner by six");
    // By six again, which is twelve from what was encoded; in the whole picture the corner is small.
    assert_eq!(counts[2], (1, all - 1));
}
