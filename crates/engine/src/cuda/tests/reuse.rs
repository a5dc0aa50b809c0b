//! Crops that are kept give the answers of crops that are encoded.

use std::sync::Arc;

use super::whole::micro;
use crate::{
    cuda::CudaBackend,
    scheduler::backend::{Backend, ImageJob, PageId, Pick, PickResult, Step},
    testing::golden_model::{prompt, run_step},
};
use spotter_core::{CameraId, Picture};

const PROMPT: [u32; 6] = [1, 498, 95, 376, 2, 345];

/// 200 x 200 pixels, which the smallest model cuts into many tiles; one of them is different when it is `changed`.
fn picture(changed: bool) -> Picture {
    let mut bytes: Vec<u8> = (0..200 * 200 * 3).map(|i| (i / 7 % 200) as u8).collect();
    if changed {
        for y in 190..200 {
            bytes[(y * 200 + 185) * 3..(y * 200 + 200) * 3].fill(255);
        }
    }
    Picture::from_rgb(200, 200, bytes).unwrap()
}

/// What a step with these pictures decides for each, and its crops: encoded, reused.
fn decide(
    backend: &mut CudaBackend,
    images: &[(Option<&str>, bool)],
) -> (Vec<PickResult>, [usize; 2]) {
    let limits = backend.limits();
    let each = limits.prefix_positions.div_ceil(limits.page_tokens) as u32;
    let mut step = Step::default();
    for (index, &(camera, changed)) in (0..).zip(images) {
        let prefix: Arc<[PageId]> = (index * each..(index + 1) * each).map(PageId).collect();
        step.images.push(ImageJob {
            view: Default::default(),
            picture: picture(changed),
            pages: prefix.clone(),
            camera: camera.map(|name| CameraId::new(name).unwrap()),
        });
        let mut row = prompt(backend, 10 + index as usize, &PROMPT, Pick::Coord);
        row.kv.prefix = prefix;
        step.rows.push(row);
    }
    let done = run_step(backend, step);
    let crops = [done.crops_encoded, done.crops_reused];
    (done.picked.concat(), crops)
}

/// The sharpness of a coordinate says more than its bin, which jumps where a network of noise sees no difference.
fn assert_alike(a: &[PickResult], b: &[PickResult]) {
    assert_eq!(a.len(), b.len());
    for (a, b) in a.iter().zip(b) {
        let apart = (a.sharpness() - b.sharpness()).abs();
        assert!(
            apart <= 0.2 * a.sharpness().max(b.sharpness()),
            "{a:?} {b:?}"
        );
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn kept_crops_decide_as_encoded_ones() {
    let mut backend = micro();
    let mut decide = |images: &[_]| decide(&mut backend, images);
    let (off, [all, _]) = decide(&[(None, false)]);
    let (off_changed, _) = decide(&[(None, true)]);
    assert!(all > 4, "many tiles: {all}");
    assert_ne!(off, off_changed, "the change is seen");

    // The same work in the same shape gives equal bits.
    assert_eq!(decide(&[(Some("gate"), false)]), (off.clone(), [all, 0]));
    assert_eq!(decide(&[(Some("gate"), false)]), (off.clone(), [0, all]));

    let (changed, [encoded, reused]) = decide(&[(Some("gate"), true)]);
    assert!(encoded >= 2 && reused > 0 && encoded + reused == all);
    assert_alike(&changed, &off_changed);
    assert_eq!(decide(&[(Some("gate"), true)]), (changed, [0, all]));

    // In one step: an image reads what a later one of its camera replaces, and another camera is not mixed up.
    let cameras = [
        (Some("gate"), true),
        (Some("yard"), false),
        (Some("gate"), false),
    ];
    let (beside, [encoded, reused]) = decide(&cameras);
    assert!(encoded > all && reused > all && encoded + reused == 3 * all);
    let (off, _) = decide(&cameras.map(|(_, changed)| (None, changed)));
    assert_alike(&beside, &off);
    assert_eq!(decide(&cameras[1..]).1, [0, 2 * all], "both are kept");
}
