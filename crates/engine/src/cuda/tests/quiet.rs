//! With known shapes a step is a few graphs: it decides the same, allocates nothing, and the host waits once for it.

use super::whole::micro;
use crate::{
    cuda::{CudaBackend, library, memory::DriverCalls},
    scheduler::backend::{
        Backend, Feed, MaskSource, Pick, PickResult, Row, RowMask, RowRef, SlotId, Step, TokenMask,
    },
    testing::{
        ahead::{IMAGE, micro_config, micro_picture, token_pick},
        golden_model::{job, row, tokens},
    },
};
use spotter_core::Picture;

/// Steps of a round: an odd number, so that each kind of step runs in both slots.
const KINDS: usize = 5;
const PROMPT: [u32; 6] = [1, 498, 95, 376, 2, 345];

/// Step `number` of repeated rounds: an image with two prompts, two decode steps that are carried on from the
/// step before, a token that the device chooses, a token with a mask of the host.
fn step(backend: &CudaBackend, picture: &Picture, number: usize) -> Step {
    let row = |index, after, inputs, pick| row(backend, index, after, inputs, &[pick]);
    let fed = |ids: &[u32]| Feed::Host(tokens(ids));
    let carried = || {
        Feed::Carry(RowRef {
            slot: SlotId((number + 1) % 2),
            row: 0,
        })
    };
    let banned = || token_pick(&[3]);
    let (prompt, behind) = (PROMPT.as_slice(), PROMPT.len());
    let mut step = Step::default();
    match number % KINDS {
        0 => {
            step.images.push(job(backend, picture.clone()));
            step.rows.push(row(0, 0, fed(prompt), Pick::CoordOrEnd));
            step.rows.push(row(1, 0, fed(prompt), banned()));
        }
        1 => step.rows.push(row(0, behind, carried(), Pick::Coord)),
        2 => step.rows.push(row(0, behind + 1, carried(), Pick::Size)),
        3 => step.rows.push(row(1, behind, fed(&[300]), banned())),
        _ => {
            let masked = Pick::token(MaskSource::Host);
            step.rows.push(row(1, behind + 1, fed(&[301]), masked));
        }
    }
    step
}

/// Records all shapes that ran.
fn prepare(backend: &mut CudaBackend) {
    while backend.prepare_shape().unwrap() {}
}

/// Runs steps, two in flight. Returns the decisions of each.
fn run(
    backend: &mut CudaBackend,
    picture: &Picture,
    vocab: usize,
    steps: usize,
) -> Vec<Vec<Vec<PickResult>>> {
    run_and(backend, picture, (vocab, steps), |_| {})
}

/// The same, with a call while the newest step runs.
fn run_and(
    backend: &mut CudaBackend,
    picture: &Picture,
    sizes: (usize, usize),
    mut while_running: impl FnMut(&mut CudaBackend),
) -> Vec<Vec<Vec<PickResult>>> {
    let (vocab, steps) = sizes;
    let mut picked = Vec::with_capacity(steps);
    for number in 0..steps {
        let slot = SlotId(number % 2);
        let step = step(backend, picture, number);
        let masked = step.rows.iter().position(Row::wants_mask);
        backend.launch(slot, step).unwrap();
        if let Some(row) = masked {
            let mut mask = TokenMask::none(vocab);
            (100..200).for_each(|id| mask.allow(id));
            backend.finalize(slot, vec![RowMask { row, mask }]).unwrap();
        }
        while_running(backend);
        if number > 0 {
            picked.push(backend.commit(SlotId((number - 1) % 2)).unwrap().picked);
        }
    }
    picked.push(backend.commit(SlotId((steps - 1) % 2)).unwrap().picked);
    picked
}

/// Queued at first, recorded when no step waits, launched as graphs then.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn graphs_decide_as_what_they_recorded() {
    let mut backend = micro();
    let picture = micro_picture(IMAGE);
    let vocab = micro_config().text.vocab_size;
    // Each kind of step has run in both slots.
    let round = 2 * KINDS;
    let queued = run(&mut backend, &picture, vocab, round);
    let before = backend.graph_use();
    assert!(
        before.queued > 0 && before.recorded == 0 && before.launched == 0,
        "{before:?}"
    );
    assert_eq!(run(&mut backend, &picture, vocab, round), queued);
    assert_eq!(backend.graph_use().recorded, 0, "no step records");
    prepare(&mut backend);
    let prepared = backend.graph_use();
    assert!(prepared.recorded > 0, "{prepared:?}");
    for _ in 0..3 {
        assert_eq!(run(&mut backend, &picture, vocab, round), queued);
    }
    let after = backend.graph_use();
    assert_eq!(
        (after.recorded, after.queued),
        (prepared.recorded, prepared.queued)
    );
    assert_eq!(after.launched, 3 * before.queued);
}

/// A saturated engine is never idle, so it records while steps run.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn recordings_beside_running_steps_change_no_decision() {
    let picture = micro_picture(IMAGE);
    let vocab = micro_config().text.vocab_size;
    let round = 2 * KINDS;
    let queued = run(&mut micro(), &picture, vocab, round);
    let mut backend = micro();
    for _ in 0..4 {
        let decided = run_and(&mut backend, &picture, (vocab, round), |backend| {
            backend.prepare_shape().unwrap();
        });
        assert_eq!(decided, queued);
    }
    let counts = backend.graph_use();
    assert!(
        counts.recorded > 0 && counts.launched > counts.queued,
        "{counts:?}"
    );
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn steps_of_known_shapes_allocate_nothing_and_wait_once_each() {
    let mut backend = micro();
    let picture = micro_picture(IMAGE);
    let vocab = micro_config().text.vocab_size;
    // Each shape is queued, recorded and launched as a graph in each slot.
    run(&mut backend, &picture, vocab, 2 * KINDS);
    prepare(&mut backend);
    run(&mut backend, &picture, vocab, 2 * KINDS * 2);
    let free = || library::open(0).unwrap().free_bytes().unwrap();
    let (calls, free_before) = (DriverCalls::so_far(), free());
    let steps = 10 * KINDS;
    run(&mut backend, &picture, vocab, steps);
    let now = DriverCalls::so_far();
    // Not asserted: other tests of this process use the same GPU at the same time.
    println!(
        "free bytes of the GPU: {free_before} before, {} after",
        free()
    );
    assert_eq!(now.allocations, calls.allocations);
    assert_eq!(now.waits - calls.waits, steps as u64);
}
