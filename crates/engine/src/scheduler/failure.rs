//! What follows from a step that the device did not launch, or whose results are lost. Pure.
//!
//! ```text
//!   not launched   it wrote nothing               its looks fail, or one of them does and the others begin again
//!   lost           what it wrote is undefined     its looks fail, and those of later steps, which may have read that
//! ```
//!
//! What is remembered may be in pages and entries that were not written, so all of it is forgotten: known texts, kept pictures with
//! their answers, and drafts, one of which may have made the step too large. Such steps are rare, and forgetting costs time alone.

use super::{
    batch::StepRecord,
    job::{JobId, JobState},
    request::{LookFault, LookId},
    working_set::WorkingSet,
};

/// Looks end here by their rows.
const NO_ROW: &str = "a look with an image in the step and without a row would never end";

/// The device did not launch the step. With `image`, the look of that picture fails alone.
pub(super) fn not_launched(
    inside: &mut WorkingSet,
    record: &StepRecord,
    image: Option<usize>,
    reason: &str,
) {
    debug_assert!(has_row_for_each_image(record), "{NO_ROW}");
    let unfit = image.and_then(|image| record.images.get(image).copied());
    let fault = match unfit {
        Some(_) => LookFault::Picture(reason.to_owned()),
        None => LookFault::Step(reason.to_owned()),
    };
    let encoded = record.images.iter();
    let unwritten: Vec<_> = encoded
        .filter_map(|look| inside.admission.get(*look)?.image)
        .collect();
    for row in &record.rows {
        leave_step(inside, row.job);
        let look = row.job.0;
        if unfit.is_none_or(|unfit| unfit == look) {
            fail(inside, look, &fault);
        }
    }
    for prefix in inside.admission.take_prefixes_of(&unwritten) {
        inside.kv.release(prefix.iter().copied());
    }
    forget_all(inside);
}

/// The step's results are lost. `later` are the steps in flight behind it.
pub(super) fn lost<'a>(
    inside: &mut WorkingSet,
    record: &StepRecord,
    later: impl Iterator<Item = &'a StepRecord>,
    reason: &str,
) {
    debug_assert!(has_row_for_each_image(record), "{NO_ROW}");
    let fault = LookFault::Step(reason.to_owned());
    for row in &record.rows {
        leave_step(inside, row.job);
        fail(inside, row.job.0, &fault);
    }
    for row in later.flat_map(|record| &record.rows) {
        fail(inside, row.job.0, &fault);
    }
    forget_all(inside);
}

fn has_row_for_each_image(record: &StepRecord) -> bool {
    let has_row = |look| record.rows.iter().any(|row| row.job.0 == look);
    record.images.iter().copied().all(has_row)
}

/// The step does not carry the job any more, which begins again unless its look has ended.
fn leave_step(inside: &mut WorkingSet, job: JobId) {
    let Some(i) = inside.active.index_of(job) else {
        return;
    };
    let job = inside.active.at_mut(i);
    job.committed();
    if job.is_running() {
        job.state = JobState::Evicted;
    }
}

fn fail(inside: &mut WorkingSet, look: LookId, fault: &LookFault) {
    if inside.admission.contains(look) {
        inside.fail_look(look, fault.clone());
    }
}

fn forget_all(inside: &mut WorkingSet) {
    inside.kept.forget_all();
    inside.kv.forget_all();
    inside.admission.forget_answers();
    inside.sweep();
}
