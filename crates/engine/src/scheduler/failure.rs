//! What follows from a step that the device did not launch, or whose results are lost. Pure.
//!
//! ```text
//!   not launched   it wrote nothing               its looks fail, or one of them does and the others begin again
//!   lost           what it wrote is undefined     its looks fail, and those of later steps, which may have read that
//! ```
//!
//! Other looks may use images of such steps and have no row in them: for these the images are encoded again.
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
    let unfit = image.and_then(|image| Some(record.images.get(image)?.look));
    let fault = match unfit {
        Some(_) => LookFault::Picture(reason.to_owned()),
        None => LookFault::Step(reason.to_owned()),
    };
    for row in &record.rows {
        leave_step(inside, row.job);
        let look = row.job.0;
        if unfit.is_none_or(|unfit| unfit == look) {
            fail(inside, look, &fault);
        }
    }
    forget_images(inside, record);
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
    forget_images(inside, record);
    for record in later {
        for row in &record.rows {
            fail(inside, row.job.0, &fault);
        }
        forget_images(inside, record);
    }
    forget_all(inside);
}

fn has_row_for_each_image(record: &StepRecord) -> bool {
    let has_row = |look| record.rows.iter().any(|row| row.job.0 == look);
    record.images.iter().all(|image| has_row(image.look))
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

/// Looks that are left have no prefix of the step's images any more.
fn forget_images(inside: &mut WorkingSet, record: &StepRecord) {
    let roots: Vec<_> = record.images.iter().map(|image| image.root).collect();
    for prefix in inside.admission.take_prefixes_of(&roots) {
        inside.kv.release(prefix.iter().copied());
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
