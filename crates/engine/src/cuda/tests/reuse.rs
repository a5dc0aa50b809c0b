//! Crops that are kept give the answers of crops that are encoded.

use std::{sync::Arc, time::Duration};

use super::{inside::crops, whole::micro};
use crate::{
    cuda::CudaBackend,
    model::{SequenceOutput, Skill, tiling},
    scheduler::{
        Options,
        backend::{Backend, CropSource, FeatureEntry, ImageJob, PageId, Pick, PickResult, Step},
        draft::DraftKey,
        request::{Ask, LookEvent, LookRequest, MeasuredView, Work},
        sequence::{Bounds, Sequence},
        still::{PictureDetail, PictureMeasure, ReuseRule, ViewKey},
        worker::Worker,
    },
    testing::{
        golden_model::{config, prompt, run_step, tokens},
        golden_set,
    },
};
use spotter_core::{CameraId, Mono, Picture, Prompt, PromptId, SystemClock, Task};

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

/// A picture of a step: whether it is changed, and where its crops come from by their numbers.
type SentPicture<'a> = (bool, &'a dyn Fn(usize) -> CropSource);

/// What a step with these pictures decides for each, and its crops: encoded, reused.
fn decide(backend: &mut CudaBackend, images: &[SentPicture<'_>]) -> (Vec<PickResult>, [usize; 2]) {
    let limits = backend.limits();
    let each = limits.prefix_positions.div_ceil(limits.page_tokens) as u32;
    let mut step = Step::default();
    for (index, &(changed, crop)) in (0..).zip(images) {
        let prefix: Arc<[PageId]> = (index * each..(index + 1) * each).map(PageId).collect();
        let picture = picture(changed);
        let crops = crops(backend, &picture);
        step.images.push(ImageJob {
            view: Default::default(),
            camera: None,
            picture,
            pages: prefix.clone(),
            crops: (0..crops).map(crop).collect(),
            adapter: None,
        });
        let mut row = prompt(backend, 10 + index as usize, &PROMPT, Pick::Coord);
        row.kv.prefix = prefix;
        step.rows.push(row);
    }
    let done = run_step(backend, step);
    let crops = [done.crops_encoded, done.crops_reused];
    (done.picked.concat(), crops)
}

fn entry(camera: usize, crop: usize) -> FeatureEntry {
    FeatureEntry((camera * 16 + crop) as u32)
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
    let mut decide = |images: &[SentPicture<'_>]| decide(&mut backend, images);
    let fresh = |_| CropSource::Encoded(None);
    let keep = |crop| CropSource::Encoded(Some(entry(0, crop)));
    let kept = |crop| CropSource::Kept(entry(0, crop));
    let (off, [all, _]) = decide(&[(false, &fresh)]);
    let (off_changed, _) = decide(&[(true, &fresh)]);
    assert!(all > 4 && all <= 16, "many tiles: {all}");
    assert_ne!(off, off_changed, "the change is seen");

    // The same work in the same shape gives equal bits.
    assert_eq!(decide(&[(false, &keep)]), (off.clone(), [all, 0]));
    assert_eq!(decide(&[(false, &kept)]), (off.clone(), [0, all]));
    // The pixels of a kept crop are not read.
    assert_eq!(decide(&[(true, &kept)]), (off.clone(), [0, all]));

    // The change is in the whole picture and in the last tile.
    let last = all - 1;
    let some = |crop| match crop == 0 || crop == last {
        true => keep(crop),
        false => kept(crop),
    };
    let (changed, counts) = decide(&[(true, &some)]);
    assert_eq!(counts, [2, all - 2]);
    assert_alike(&changed, &off_changed);
    assert_eq!(decide(&[(true, &kept)]), (changed, [0, all]));

    // In one step: an image reads what a later one replaces, one behind that reads the new features, and others' entries are
    // not mixed up.
    let other = |crop| CropSource::Encoded(Some(entry(1, crop)));
    let images: [SentPicture<'_>; 4] = [
        (true, &kept),
        (true, &other),
        (false, &keep),
        (false, &kept),
    ];
    let (beside, counts) = decide(&images);
    assert_eq!(counts, [2 * all, 2 * all]);
    let (off, _) = decide(&[true, true, false, false].map(|changed| (changed, &fresh as _)));
    assert_alike(&beside, &off);
    let other = |crop| CropSource::Kept(entry(1, crop));
    assert_eq!(decide(&[(true, &other), (false, &kept)]).1, [0, 2 * all]);
}

/// Runs a look through the scheduler; its answer, and the work that it took.
fn answer(worker: &mut Worker, request: LookRequest) -> (SequenceOutput, Work) {
    let before = worker.work();
    worker.admit(request);
    let mut found = None;
    while !worker.is_idle() {
        for event in worker.turn().unwrap() {
            if let LookEvent::Answer { result, .. } = event {
                found = Some(result.found);
            }
        }
    }
    let mut work = worker.work();
    work.images -= before.images;
    work.prefixes_reused -= before.prefixes_reused;
    work.unchanged -= before.unchanged;
    (found.unwrap(), work)
}

/// The same places; probabilities differ by rounding, because the step has no image.
fn assert_near(found: &SequenceOutput, expected: &SequenceOutput) {
    let places = |output: &SequenceOutput| -> Vec<_> {
        let objects = output.objects.iter();
        objects.map(|o| (o.x_bin, o.y_bin, o.size_bins)).collect()
    };
    assert_eq!(places(found), places(expected));
    for (found, expected) in found.objects.iter().zip(&expected.objects) {
        let difference = (found.probability - expected.probability).abs();
        assert!(difference < 0.02, "{found:?} {expected:?}");
    }
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn look_on_a_kept_prefix_answers_as_a_fresh_one() {
    let config = config(&golden_set("md2-micro"));
    let options = Options {
        reuse: Some(ReuseRule {
            detail: PictureDetail::Cells,
            max_age: Duration::from_secs(3600),
        }),
        ..Options::default()
    };
    let clock = Arc::new(SystemClock::new());
    let mut worker = Worker::new(Box::new(micro()), config.text.vocab_size, options, clock);
    let gate = CameraId::new("gate").unwrap();
    let request = |name: &str, reused: bool| {
        let picture = picture(false);
        let tiling = tiling(picture.width(), picture.height(), &config.vision);
        let measure = PictureMeasure::of(&picture, tiling, &config.vision, PictureDetail::Cells);
        let bounds = Bounds {
            max_objects: 3,
            max_tokens: 8,
        };
        let sequence = Sequence::new(config.grammar(Skill::Detect), tokens(&PROMPT), bounds);
        let task = Task::Detect {
            object: "car".into(),
        };
        let prompt = Prompt::new(PromptId::new(name).unwrap(), 1, task);
        LookRequest {
            crops: 1,
            camera: Some(gate.clone()),
            measured: reused.then(|| MeasuredView {
                view: ViewKey {
                    camera: gate.clone(),
                    part: None,
                    tiling,
                    strip: None,
                },
                measure,
            }),
            picture: Some(picture),
            view: Default::default(),
            start_by: Mono::from_nanos(u64::MAX),
            answer_by: Mono::from_nanos(u64::MAX),
            asks: vec![Ask {
                sequence,
                draft: reused.then(|| DraftKey::new(&gate, &prompt)),
                in_pieces: false,
                has_follow_up: false,
            }],
            adapter: None,
        }
    };
    let (fresh, work) = answer(&mut worker, request("a", false));
    assert_eq!((work.images, work.prefixes_reused), (1, 0));
    let (first, work) = answer(&mut worker, request("a", true));
    assert_eq!((first, work.images), (fresh.clone(), 1));
    // Another prompt on the same picture, then the same one.
    let (other, work) = answer(&mut worker, request("b", true));
    assert_eq!(
        (work.images, work.prefixes_reused, work.unchanged),
        (0, 1, 0)
    );
    assert_near(&other, &fresh);
    let (again, work) = answer(&mut worker, request("b", true));
    assert_eq!(
        (work.images, work.prefixes_reused, work.unchanged),
        (0, 0, 1)
    );
    assert_eq!(again, other);
}
