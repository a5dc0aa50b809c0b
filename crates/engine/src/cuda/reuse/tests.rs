//! Which crops are encoded, against the crops that the model would see. No GPU is needed.

use proptest::prelude::*;

use super::*;
use crate::{
    model::{crops, tiling},
    testing::planar_picture,
};

/// Small crops, so that a picture of few pixels has many.
fn vision() -> VisionConfig {
    VisionConfig {
        crop_size: 84,
        max_crops: 12,
        overlap_margin: 1,
        ..VisionConfig::default()
    }
}

const SIZE: (usize, usize) = (221, 163);

fn picture(format: PixelFormat) -> Picture {
    changed(format, None)
}

/// The same with another byte at a place of a plane.
fn changed(format: PixelFormat, change: Option<(usize, usize)>) -> Picture {
    planar_picture(format, SIZE, 0, |plane, i| {
        let byte = (i * 37 % 251) as u8;
        match change == Some((plane, i)) {
            true => byte ^ 0x80,
            false => byte,
        }
    })
}

fn camera(number: usize) -> CameraId {
    CameraId::new(&format!("c{number}")).unwrap()
}

/// Which crops a step with only this picture encodes.
fn plan(reuse: &mut Reuse, number: usize, picture: &Picture) -> Vec<bool> {
    let fresh = plan_unqueued(reuse, number, picture);
    reuse.keep_bytes();
    fresh
}

/// The same, and the step is not queued: pictures are compared with the picture.
fn plan_unqueued(reuse: &mut Reuse, number: usize, picture: &Picture) -> Vec<bool> {
    reuse.begin_step();
    let tiling = tiling(picture.width(), picture.height(), &vision());
    let crops = reuse.plan(Some(&camera(number)), picture, tiling);
    crops.iter().map(|crop| crop.is_fresh).collect()
}

proptest! {
    /// A crop that the model would see changed is encoded, wherever the change is: the filter reaches over a tile's edge,
    /// and a sample of chroma over several pixels.
    #[test]
    fn no_changed_crop_keeps_its_features(
        format in prop::sample::select(vec![PixelFormat::Rgb, PixelFormat::Nv12, PixelFormat::I420]),
        plane in any::<prop::sample::Index>(),
        byte in any::<prop::sample::Index>(),
        queued in any::<bool>(),
    ) {
        let plan = if queued { plan } else { plan_unqueued };
        let size = |plane| format.plane_size(plane, SIZE.0, SIZE.1);
        let planes: Vec<usize> = (0..3).map_while(size).map(|(row, rows)| row * rows).collect();
        let plane = plane.index(planes.len());
        let (before, after) = (picture(format), changed(format, Some((plane, byte.index(planes[plane])))));
        let mut reuse = Reuse::new(&vision(), 1, 0);
        prop_assert!(plan(&mut reuse, 0, &before).iter().all(|fresh| *fresh));
        prop_assert!(plan(&mut reuse, 0, &before).iter().all(|fresh| !fresh));
        let fresh = plan(&mut reuse, 0, &after);
        let (a, b) = (crops(&before, &vision()), crops(&after, &vision()));
        prop_assert_eq!(fresh.len(), a.encoded);
        for (index, fresh) in fresh.iter().enumerate() {
            let changed = a.crop(index) != b.crop(index);
            prop_assert!(*fresh || !changed, "crop {} of {}", index, a.encoded);
        }
        // One byte is never below more than four tiles and the whole picture.
        prop_assert!(fresh.iter().filter(|fresh| **fresh).count() <= 5, "{:?}", fresh);
        // Encoded crops are known from then on.
        prop_assert!(plan(&mut reuse, 0, &after).iter().all(|fresh| !fresh));
    }
}

#[test]
fn small_changes_count_when_they_have_added_up() {
    let grey = |value| planar_picture(PixelFormat::Rgb, SIZE, 0, |_, _| value);
    let mut reuse = Reuse::new(&vision(), 1, 3);
    plan(&mut reuse, 0, &grey(100));
    let fresh = |step: &u8| plan(&mut reuse, 0, &grey(100 + step))[0];
    let fresh: Vec<u8> = (1..=8).filter(fresh).collect();
    assert_eq!(fresh, [4, 8]);
}

#[test]
fn the_camera_that_was_seen_longest_ago_makes_room() {
    let [a, b] = [PixelFormat::Rgb, PixelFormat::Nv12].map(picture);
    let mut reuse = Reuse::new(&vision(), 2, 0);
    let mut first = |number, picture: &Picture| plan(&mut reuse, number, picture)[0];
    assert!(first(0, &a) && first(1, &a) && !first(0, &a));
    assert!(first(2, &a), "instead of camera 1");
    assert!(!first(0, &a) && first(1, &a), "instead of camera 2");
    assert!(first(0, &b), "another layout is another picture");
    let mut none = Reuse::new(&vision(), 0, 0);
    assert!(plan(&mut none, 0, &a)[0] && plan(&mut none, 0, &a)[0]);
}

#[test]
fn images_of_one_step_take_what_the_step_itself_makes() {
    let [before, after] = [None, Some((0, 0))].map(|change| changed(PixelFormat::Rgb, change));
    let tiling = tiling(SIZE.0, SIZE.1, &vision());
    let mut reuse = Reuse::new(&vision(), 2, 0);
    plan(&mut reuse, 0, &before);
    reuse.begin_step();
    let gate = camera(0);
    let kept = reuse.plan(Some(&gate), &before, tiling);
    let changed = reuse.plan(Some(&gate), &after, tiling);
    let again = reuse.plan(Some(&gate), &after, tiling);
    let alone = reuse.plan(None, &after, tiling);
    let count = tiling.crops();
    // The first reads entries that the second fills behind the step.
    assert!(
        kept.iter()
            .enumerate()
            .all(|(i, c)| c.source == -1 - i as i32)
    );
    let fresh: Vec<usize> = (0..count).filter(|&i| changed[i].is_fresh).collect();
    assert_eq!(fresh, [0, 1], "the whole picture and its first tile");
    assert_eq!([changed[0].source, changed[1].source], [0, 1]);
    assert_eq!([again[0].source, again[1].source], [0, 1]);
    assert!(again.iter().all(|crop| !crop.is_fresh));
    assert!(alone.iter().all(|crop| crop.is_fresh));
    assert_eq!(reuse.batch(), 2 + count);
    let keeps = [(0, 0), (1, 1)].map(|(place, entry)| FeatureCopy { place, entry });
    assert_eq!(reuse.keeps(), keeps);
}

#[test]
fn camera_that_replaces_another_within_a_step_keeps_its_bytes() {
    let [a, b] = [PixelFormat::Rgb, PixelFormat::Nv12].map(picture);
    let tiling = tiling(SIZE.0, SIZE.1, &vision());
    let mut reuse = Reuse::new(&vision(), 1, 0);
    reuse.begin_step();
    reuse.plan(Some(&camera(0)), &a, tiling);
    reuse.plan(Some(&camera(1)), &b, tiling);
    reuse.keep_bytes();
    assert!(plan(&mut reuse, 1, &b).iter().all(|fresh| !fresh));
    assert!(plan(&mut reuse, 0, &a).iter().all(|fresh| *fresh));
}
