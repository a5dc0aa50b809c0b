//! Steps at the limits of the plan and beyond them: what does not fit fails alone, and the device works on with the memory that it has.
//!
//! Faults: E6.

use std::thread;

use super::whole::{cuda_micro, micro, settings};
use crate::{
    cuda::{
        CudaBackend, CudaCapacity, CudaSettings, backend,
        memory::{DriverCalls, held_bytes},
    },
    scheduler::backend::{Backend, BackendError, Feed, PageId, Pick, PickResult, SlotId, Step},
    testing::{
        ahead::{IMAGE, micro_picture},
        golden_model::{job, row, run_step, step_of, tokens},
    },
};
use spotter_core::Picture;

/// The rows and images of the smallest GPUs.
fn small() -> CudaBackend {
    let capacity = CudaCapacity {
        rows: 8,
        images: 1,
        crops_at_once: 5,
        ..settings().capacity
    };
    cuda_micro(CudaSettings {
        capacity,
        ..settings()
    })
}

/// Rows with these numbers of decisions, one for each of their positions.
fn deciding(backend: &CudaBackend, decisions: &[usize]) -> Step {
    let rows = decisions.iter().enumerate().map(|(index, count)| {
        let ids: Vec<u32> = (0..*count as u32).map(|id| id % 400 + 4).collect();
        let picks = vec![Pick::Coord; *count];
        row(backend, index, 0, Feed::Host(tokens(&ids)), &picks)
    });
    step_of(rows.collect())
}

fn first_decision(backend: &mut CudaBackend) -> Vec<Vec<PickResult>> {
    let mut step = deciding(backend, &[1]);
    step.images.push(job(backend, micro_picture(IMAGE)));
    run_step(backend, step).picked
}

// Faults: E5.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn step_of_planned_decisions_runs_and_one_more_fails() {
    let mut backend = small();
    assert_eq!(backend.limits().picks, 8 * 160);
    // Writes the prefix that the rows read.
    first_decision(&mut backend);
    let full = deciding(&backend, &[160; 8]);
    let decided = run_step(&mut backend, full).picked;
    assert_eq!(decided.concat().len(), 1280);
    let mut counts = [160; 8];
    counts[3] += 1;
    let more = deciding(&backend, &counts);
    let error = backend.launch(SlotId(0), more).unwrap_err();
    assert!(
        matches!(&error, BackendError::Step(why) if why.contains("1281 decisions")),
        "{error}"
    );
    let again = deciding(&backend, &[160; 8]);
    assert_eq!(run_step(&mut backend, again).picked, decided);
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn picture_above_the_plan_is_refused_and_takes_no_memory() {
    let mut backend = micro();
    let before = first_decision(&mut backend);
    let (held, calls) = (held_bytes(), DriverCalls::so_far());
    for size in [(1921, 1080), (5000, 5000)] {
        let picture = Picture::from_rgb(size.0, size.1, vec![90; size.0 * size.1 * 3]).unwrap();
        let mut step = deciding(&backend, &[1]);
        step.images.push(job(&backend, micro_picture(IMAGE)));
        step.images.push(job(&backend, picture));
        let count = step.images[0].pages.len() as u32;
        step.images[1].pages = (512..512 + count).map(PageId).collect();
        let error = backend.launch(SlotId(0), step).unwrap_err();
        assert!(
            matches!(&error, BackendError::Image { image: 1, .. }),
            "{error}"
        );
    }
    assert_eq!(DriverCalls::so_far().allocations, calls.allocations);
    assert_eq!(held_bytes(), held);
    assert_eq!(first_decision(&mut backend), before);
}

#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn pictures_of_the_largest_size_need_no_more_memory() {
    let mut backend = micro();
    first_decision(&mut backend);
    let held = held_bytes();
    let size = (1920, 1080);
    let picture = Picture::from_rgb(size.0, size.1, vec![90; size.0 * size.1 * 3]).unwrap();
    let mut step = deciding(&backend, &[1]);
    step.images.push(job(&backend, picture));
    run_step(&mut backend, step);
    // The tables of the new size, no buffer of pixels.
    assert!(
        held_bytes().saturating_sub(held) < 1 << 20,
        "{} bytes more",
        held_bytes().saturating_sub(held)
    );
}

/// Sizes come and go, as the API's pictures do: their tables do not fill the memory.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn pictures_of_many_sizes_take_bounded_memory() {
    let mut backend = micro();
    first_decision(&mut backend);
    let held = held_bytes();
    for width in 300..600 {
        let picture = Picture::from_rgb(width, 200, vec![90; width * 200 * 3]).unwrap();
        let mut step = deciding(&backend, &[1]);
        step.images.push(job(&backend, picture));
        // The second table of a step may have taken the room of its first one, which is then made once more.
        run_step(&mut backend, step.clone());
        run_step(&mut backend, step.clone());
        let calls = DriverCalls::so_far();
        run_step(&mut backend, step);
        let again = DriverCalls::so_far().allocations - calls.allocations;
        assert_eq!(
            again, 0,
            "the tables of {width} x 200 are made at each step"
        );
        assert!(
            held_bytes().saturating_sub(held) < 4 << 20,
            "{} bytes more",
            held_bytes().saturating_sub(held)
        );
    }
}

// Faults: E4.
/// As of a GPU that ends what is queued and accepts nothing more: its engine must end, and a single refusal must not end it.
#[test]
fn gpu_that_refuses_steps_in_a_row_is_lost() {
    let refused = |count: &mut u32| backend::refused(count, BackendError::Device("no".into()));
    let mut count = 0;
    for _ in 0..7 {
        assert!(matches!(refused(&mut count), BackendError::Step(_)));
    }
    // What is asked says nothing about the GPU.
    let too_much = BackendError::Step("too much".into());
    assert_eq!(backend::refused(&mut count, too_much.clone()), too_much);
    assert_eq!(
        refused(&mut count),
        BackendError::Device("8 steps in a row could not be queued; the last one: no".into())
    );
}

// Faults: E8.
/// After the last engine of a GPU the process has no context there, and no handle of one; the next engine works with new ones.
#[test]
#[ignore = "needs a GPU; run make test-gpu"]
fn engine_after_engine_decides_alike_in_its_own_context() {
    let first = first_decision(&mut micro());
    for _ in 0..3 {
        // On another thread, as after a reload of the model.
        let next = thread::scope(|scope| {
            let next = scope.spawn(|| first_decision(&mut micro()));
            next.join().unwrap()
        });
        assert_eq!(next, first);
    }
}
