use super::*;
use crate::{
    cpu::tests::{backend, capacity},
    scheduler::backend::{
        CropSource, DecoderInput, Feed, ImageJob, KvTable, MaskSource, PageId, Pick, PickResult,
        Row, StepTimes, ValueTokens,
    },
    testing::{
        ahead::{IMAGE, image_step, micro_picture},
        golden_model::{config, job, prompt, run_step, weights},
        golden_set,
    },
};
use spotter_core::ManualClock;

fn micro() -> CpuBackend {
    backend(&golden_set("md2-micro"))
}

fn image_job(backend: &CpuBackend) -> ImageJob {
    job(backend, micro_picture(IMAGE))
}

/// A prompt in the pages of row `index`, which decides one thing or only writes.
fn row(backend: &CpuBackend, index: usize, tokens: &[u32], pick: impl Into<Option<Pick>>) -> Row {
    let mut row = prompt(backend, index, tokens, Pick::Coord);
    row.picks = pick.into().into_iter().collect();
    row
}

fn run(backend: &mut CpuBackend, images: Vec<ImageJob>, rows: Vec<Row>) -> Vec<PickResult> {
    run_step(backend, Step { images, rows }).picked.concat()
}

fn greedy() -> Pick {
    Pick::token(MaskSource::Banned(Vec::new()))
}

/// Keys and values of the first `positions` positions, all layers and heads.
fn stored(backend: &mut CpuBackend, kv: &KvTable, positions: usize) -> Vec<f32> {
    let kv = kv.clone();
    let stored = backend.inspect(move |device| {
        let (layers, heads) = (device.config.text.n_layers, device.config.text.n_heads);
        (0..layers * heads)
            .flat_map(|i| device.cache.segments(i / heads, i % heads, &kv, positions))
            .flat_map(|segment| [segment.keys, segment.values].concat())
            .collect()
    });
    stored.unwrap()
}

#[test]
fn prompts_share_a_prefix_that_none_of_them_changes() {
    let prompts: [(&[u32], Pick); 3] = [
        (&[1, 498, 95, 376, 2, 320, 3], Pick::CoordOrEnd),
        (&[1, 92, 96, 353, 2, 52, 94, 272, 3, 3], greedy()),
        (&[1, 91, 90, 421, 2, 414, 3], Pick::Size),
    ];
    let mut together = micro();
    let job = image_job(&together);
    let rows = prompts
        .iter()
        .enumerate()
        .map(|(i, (ids, pick))| row(&together, i, ids, pick.clone()))
        .collect();
    let picked = run(&mut together, vec![job.clone()], rows);

    let kv = row(&together, 0, &[1], None).kv;
    let prefix = stored(&mut together, &kv, kv.prefix_positions);
    for (i, (ids, pick)) in prompts.iter().enumerate() {
        // In the step of the image, and in a step after it.
        for early in [true, false] {
            let mut alone = micro();
            let row = row(&alone, i, ids, pick.clone());
            let images = vec![job.clone()];
            let picked_alone = if early {
                run(&mut alone, images, vec![row])
            } else {
                run(&mut alone, images, Vec::new());
                run(&mut alone, Vec::new(), vec![row])
            };
            assert_eq!(picked[i..=i], picked_alone);
            assert_eq!(stored(&mut alone, &kv, kv.prefix_positions), prefix);
        }
    }
}

#[test]
fn memory_that_was_not_written_is_not_read() {
    let prompt: &[u32] = &[1, 498, 95, 376, 2, 320, 3];
    let looks = |backend: &mut CpuBackend| {
        let job = image_job(backend);
        let first = row(backend, 0, prompt, Pick::CoordOrEnd);
        let mut second = row(backend, 0, &[7], Pick::Coord);
        second.position += prompt.len();
        let mut picked = run(backend, vec![job], vec![first]);
        picked.extend(run(backend, Vec::new(), vec![second]));
        picked
    };
    let clean = looks(&mut micro());
    let mut invalid = micro();
    invalid.inspect(|device| device.cache.invalidate()).unwrap();
    assert_eq!(looks(&mut invalid), clean);
}

#[test]
fn a_prompt_in_pieces_is_the_same_prompt() {
    let prompt = [1, 498, 95, 376, 2, 320, 3];
    let mut whole = micro();
    let job = image_job(&whole);
    let at_once = row(&whole, 0, &prompt, Pick::CoordOrEnd);
    let expected = run(&mut whole, vec![job.clone()], vec![at_once]);

    let mut pieces = micro();
    let first = row(&pieces, 0, &prompt[..4], None);
    let mut second = row(&pieces, 0, &prompt[4..], Pick::CoordOrEnd);
    second.position += 4;
    assert_eq!(run(&mut pieces, vec![job], vec![first]), []);
    assert_eq!(run(&mut pieces, Vec::new(), vec![second]), expected);
}

#[test]
fn slots_hold_results_until_they_are_taken() {
    let mut backend = micro();
    let step = |backend: &CpuBackend| image_step(backend, Vec::new());
    let text = |result: Result<StepResult, BackendError>| result.unwrap_err().to_string();
    assert_eq!(
        text(backend.commit(SlotId(1))),
        "slot 1 has nothing to commit; launch a step in it first"
    );
    assert_eq!(
        text(backend.commit(SlotId(3))),
        "slot 3 does not exist, the backend has 3"
    );
    backend.launch(SlotId(1), step(&backend)).unwrap();
    let again = backend.launch(SlotId(1), step(&backend)).unwrap_err();
    let expected = "slot 1 still holds results; commit them before the next launch";
    assert_eq!(again.to_string(), expected);
    let committed = backend.commit(SlotId(1)).unwrap();
    // 200 x 200 in a crop of 84 with margins of 14: three tiles of 56 and both margins along each side.
    assert_eq!(committed.model_sizes, [(196, 196)]);
    assert_eq!(committed.times, StepTimes::default());
}

/// Breaks a sound step in one way.
type Change = fn(&mut Step, &BackendLimits);

#[test]
fn violations_are_errors_that_name_them() {
    let mut backend = micro();
    let mut violation = |change: Change| {
        let first = row(&backend, 0, &[1, 2], greedy());
        let second = row(&backend, 1, &[1, 2], Pick::Coord);
        let mut step = image_step(&backend, vec![first, second]);
        change(&mut step, &backend.limits);
        let error = backend.launch(SlotId(0), step).unwrap_err();
        // The slot stays free.
        assert!(backend.commit(SlotId(0)).is_err());
        error.to_string()
    };
    let cases: [(Change, &str); 13] = [
        (
            |step, limits| step.images = vec![step.images[0].clone(); limits.images + 1],
            "the step has 5 images, the backend accepts 4",
        ),
        (
            |step, limits| step.rows = vec![step.rows[0].clone(); limits.rows + 1],
            "the step has 33 rows",
        ),
        (
            |step, _| Arc::make_mut(&mut step.images[0].pages)[1] = PageId(9999),
            "image 0 of the step names page 9999",
        ),
        (
            |step, _| step.images[0].pages = step.images[0].pages[..2].into(),
            "image 0 of the step has 2 pages for 32 positions, needs 37",
        ),
        (
            |step, _| step.rows[1].inputs = Feed::Host(Vec::new()),
            "row 1 of the step has no inputs",
        ),
        (
            |step, _| step.rows[1].position = 2047,
            "row 1 of the step reaches position 2048, the context has 1355",
        ),
        (
            |step, _| step.rows[1].position = usize::MAX,
            "row 1 of the step reaches position",
        ),
        (
            |step, _| step.rows[1].position = 36,
            "row 1 of the step starts at position 36, inside of its shared prefix",
        ),
        (
            |step, _| step.rows[1].kv.own.clear(),
            "row 1 of the step has 0 pages for 0 positions, needs 2",
        ),
        (
            |step, _| step.rows[1].kv.own = step.rows[0].kv.own.clone(),
            "which the step already writes",
        ),
        (
            |step, _| step.rows[0].inputs = Feed::Host(vec![DecoderInput::Token(512)]),
            "row 0 of the step names token 512",
        ),
        (
            |step, _| step.rows[0].picks = vec![Pick::token(MaskSource::Banned(vec![513]))],
            "row 0 of the step names token 513",
        ),
        (
            |step, _| {
                step.rows[0].picks = vec![Pick::Token {
                    mask: MaskSource::Banned(Vec::new()),
                    values: ValueTokens {
                        coord: Some(5),
                        size: Some(514),
                    },
                }];
            },
            "row 0 of the step names token 514",
        ),
    ];
    for (change, expected) in cases {
        let message = violation(change);
        assert!(
            message.contains(expected),
            "{message:?}, wants {expected:?}"
        );
    }
}

#[test]
fn a_cache_too_small_for_one_look_is_refused() {
    let set = golden_set("md2-micro");
    let config = config(&set);
    let small = CpuSettings {
        formats: Formats::F32,
        pages: 2,
        ..capacity(&config, 16)
    };
    let clock = Arc::new(ManualClock::default());
    let Err(error) = CpuBackend::new(&config, weights(&set, &config), small, clock) else {
        panic!("two pages are enough");
    };
    assert_eq!(
        error.to_string(),
        "the cache has 2 pages of 16 positions, one look needs 38 positions or more"
    );
}

#[test]
fn failed_step_has_its_error_and_the_next_one_runs() {
    let mut backend = micro();
    for pick in [Pick::Coord, Pick::token(MaskSource::Host)] {
        let wants_masks = pick.is_token();
        let good = image_step(&backend, vec![row(&backend, 0, &[1, 2], pick)]);
        let mut bad = good.clone();
        bad.images[0].crops = vec![CropSource::Encoded(None); 2];
        let mut run = |step: Step| {
            backend.launch(SlotId(0), step).unwrap();
            if wants_masks {
                backend.finalize(SlotId(0), Vec::new()).unwrap();
            }
            backend.commit(SlotId(0))
        };
        let error = run(bad).unwrap_err();
        let is_of_step = matches!(&error, BackendError::Step(why) if why.contains("sources for 2"));
        assert!(is_of_step, "{error:?}");
        assert_eq!(run(good).unwrap().picked.len(), 1);
    }
}

#[test]
fn longer_context_of_the_model_changes_no_limit() {
    let limits_of = |config: &ModelConfig| limits(config, capacity(config, 16)).unwrap();
    let want = limits_of(&ModelConfig::default());
    let mut long = ModelConfig::default();
    long.text.max_context = 32_768;
    assert_eq!(limits_of(&long), want);
    assert_eq!(want.context, 2048);
}
